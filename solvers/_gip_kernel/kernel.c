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
    double shrink, last_width, tol, settle_width, hurry, max_decrement, central_decrement, tail_width, tail_shrink,
        tail_power, boundary_share, max_step_length, min_step_length, armijo_share, roundings, min_shift;
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

#define FOR_EACH_SET "../_gip_kernel/one_set.h"
#include "../_library/sets.h"

int64_t memory_bytes(const Problem *problem, int32_t is_double) {
    return (is_double ? CHOSEN(memory_bytes_double) : CHOSEN(memory_bytes_float))(problem);
}

/* Take steps on all paths whose status is RUNNING; `memory` is aligned to 64 bytes. */
void follow(const Problem *problem, const Rules *rules, const Paths *paths, int32_t is_double, void *memory) {
    (is_double ? CHOSEN(follow_double) : CHOSEN(follow_float))(problem, rules, paths, memory);
}
