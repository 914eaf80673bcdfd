/* Instruction sets of x86 for which a library compiles its header FOR_EACH_SET: it defines functions NAME(x) that use
   registers of VECTOR_BYTES. `CHOSEN(x)` is the function for the widest registers that the processor has. */

#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_SETS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define SET avx2
#define VECTOR_BYTES 32
#include FOR_EACH_SET
#undef SET
#undef VECTOR_BYTES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#define SET avx512
#define VECTOR_BYTES 64
#include FOR_EACH_SET
#undef SET
#undef VECTOR_BYTES
#pragma GCC pop_options
#endif
#define SET any
#define VECTOR_BYTES 16
#include FOR_EACH_SET
#undef SET
#undef VECTOR_BYTES

/* Tests lower it to use narrower registers. */
int32_t max_vector_bytes = 64;

/* Number of bytes of a register: 64, 32 or 16. */
int32_t vector_bytes(void) {
#ifdef HAS_SETS
    if (max_vector_bytes >= 64 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return 64;
    if (max_vector_bytes >= 32 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
#endif
    return 16;
}

#ifdef HAS_SETS
#define CHOSEN(x) (vector_bytes() == 64 ? x##_avx512 : vector_bytes() == 32 ? x##_avx2 : x##_any)
#else
#define CHOSEN(x) x##_any
#endif
