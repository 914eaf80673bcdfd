/* Newton steps of many paths of gip at once, for tasks with few weights; _gip_stack.py has the same steps in NumPy.

   A register holds one number of several paths. The steps are compiled for float and double, and on x86 for three
   instruction sets, of which `follow` takes the widest that the processor has. The library does not use Python. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { RUNNING, ARRIVED, ENDED, STUCK, TOO_OLD };

/* Patterns (p, m, m), their transposes or NULL if they are symmetric, their entries (m m, p), and labels (p, pairs). */
typedef struct {
    int32_t n, m, p;
    double unit;
    const void *patterns, *transposed, *by_entry, *labels;
} Problem;

/* As in _gip_paths.py, and the largest number of steps of a call. */
typedef struct {
    double shrink, last_width, tol, max_decrement, central_decrement, tail_width, tail_shrink, tail_power, boundary_share,
        max_step_length, min_step_length, armijo_share, roundings, min_shift;
    int64_t max_shift_trials, max_age, max_steps;
} Rules;

/* The first axis of every array is the path. */
typedef struct {
    int64_t count;
    void *W, *t, *stabilities, *multipliers, *mu, *shift, *residual, *arrived_t;
    uint8_t *keep_shift;
    int64_t *age;
    int32_t *status;
} Paths;

#define JOIN_NAMES(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_NAMES(a, b, c)
#define NAME(x) JOIN(x, TYPE, SET)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_SETS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define SET avx2
#define VECTOR_BYTES 32
#include "one_set.h"
#undef SET
#undef VECTOR_BYTES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")
#define SET avx512
#define VECTOR_BYTES 64
#include "one_set.h"
#undef SET
#undef VECTOR_BYTES
#pragma GCC pop_options
#endif
#define SET any
#define VECTOR_BYTES 16
#include "one_set.h"
#undef SET
#undef VECTOR_BYTES

/* Tests lower it to run the steps for narrower registers. */
int32_t max_vector_bytes = 64;

/* Number of bytes of a register: 64, 32 or 16. */
int32_t vector_bytes(void) {
#ifdef HAS_SETS
    if (max_vector_bytes >= 64 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        return 64;
    if (max_vector_bytes >= 32 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 32;
#endif
    return 16;
}

int64_t memory_bytes(const Problem *problem, int32_t is_double) {
#ifdef HAS_SETS
    if (vector_bytes() == 64) return is_double ? memory_bytes_double_avx512(problem) : memory_bytes_float_avx512(problem);
    if (vector_bytes() == 32) return is_double ? memory_bytes_double_avx2(problem) : memory_bytes_float_avx2(problem);
#endif
    return is_double ? memory_bytes_double_any(problem) : memory_bytes_float_any(problem);
}

/* Take steps on all paths whose status is RUNNING; `memory` is aligned to 64 bytes. */
void follow(const Problem *problem, const Rules *rules, const Paths *paths, int32_t is_double, void *memory) {
#ifdef HAS_SETS
    if (vector_bytes() == 64) {
        (is_double ? follow_double_avx512 : follow_float_avx512)(problem, rules, paths, memory);
        return;
    }
    if (vector_bytes() == 32) {
        (is_double ? follow_double_avx2 : follow_float_avx2)(problem, rules, paths, memory);
        return;
    }
#endif
    (is_double ? follow_double_any : follow_float_any)(problem, rules, paths, memory);
}
