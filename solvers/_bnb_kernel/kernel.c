/* Interior-point method for the relaxation of a node; _bnb_interior_point.py has the same steps in NumPy, and explains
   them. The library does not use Python, but LAPACK routines of SciPy, which Python hands over. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "algebra.h"
#include "relaxation.h"

enum { UNDECIDED, BELOW, ABOVE };
/* Numbers before the factors that products may read. */
enum { MARGIN = 8 };

/* As in _bnb_node.py. */
typedef struct {
    double first_share, long_share, middle_share, short_share, centring_share, backtrack, boundary_share, min_length,
        equal_share, first_cut_weight, first_shift, shift_growth;
    int64_t max_steps;
} Settings;

/* Cuts of a node, those of the first matrix before those of the second, and the point x to begin with, which is replaced
   by the last. `is_new` tells which cuts the parent lacks. `matrices` receives the primal matrices. A step begins if one
   as long as the longest so far would end within the remaining seconds. */
typedef struct {
    int32_t cut_counts[2];
    const double *first, *second;
    const uint8_t *is_new;
    double *x, *matrices;
    double target, looseness, remaining_seconds, longest_seconds;
    int32_t verdict, steps, is_out_of_time;
} Node;

/* Dual point x, F, F⁻¹; primal point X, slacks; the same for a step; V of the step, and L after
   MARGIN numbers; and memory for intermediate results. */
typedef struct {
    Relaxation relaxation;
    const Settings *settings;
    Node *node;
    int cut_count, size, positive_count, entries;
    double share, kappa;
    int is_above, has_kept;
    double *x, *F, *inverses, *matrices, *slacks;
    double *change, *dual_changes, *new_matrices, *new_slacks, *trial, *half;
    double *scaling, *factors, *packed, *H, *right, *units, *scales, *columns, *first_rows, *second_rows, *scaled;
} State;

/* Lay out the arrays in `memory` and return how many numbers they have; only count if `memory` is NULL. */
static size_t lay_out(State *state, const Task *task, int cut_count, double *memory) {
    Relaxation *of = &state->relaxation;
    const int is_symmetric = task->is_symmetric, n = task->n, m = task->m, p = task->p;
    of->task = *task;
    of->free = is_symmetric ? 1 : n;
    of->trace = is_symmetric ? 1 : n;
    of->matrix_count = is_symmetric ? 2 : 1;
    of->order = is_symmetric ? m : n * m;
    of->stability_count = p * task->pair_count;
    state->cut_count = cut_count;
    state->positive_count = of->stability_count + cut_count;
    state->size = of->free + state->positive_count;
    state->entries = of->matrix_count * of->order * of->order;
    of->packed_size = (size_t)of->order * (of->order + 1) / 2;
    const size_t by_pattern = (size_t)p * m * m, entries = state->entries, size = state->size;
    const size_t of_cuts = (size_t)cut_count * of->order, packed = size * of->matrix_count * of->packed_size;
    /* Products with all patterns, for the first n − 1 outputs; and of the rows of L that belong to one. */
    const size_t left = is_symmetric ? by_pattern : (n - 1) * by_pattern;
    const size_t products = is_symmetric ? 0 : (n - 1) * left;
    size_t total = 0;
    const struct {
        double **array;
        size_t count;
    } arrays[] = {
        {&of->left_products, left}, {&of->products, products > entries ? products : entries}, {&of->block, (size_t)m * m},
        {&of->inner, p}, {&state->F, entries}, {&state->inverses, entries}, {&state->matrices, entries},
        {&state->dual_changes, entries}, {&state->new_matrices, entries}, {&state->trial, entries}, {&state->half, entries},
        {&state->scaling, entries}, {&state->factors, MARGIN + entries}, {&state->packed, packed},
        {&state->slacks, size}, {&state->change, size}, {&state->new_slacks, size}, {&state->H, size * size},
        {&state->right, size}, {&state->units, size}, {&state->scales, size}, {&state->columns, 2 * size},
        {&state->first_rows, of_cuts}, {&state->second_rows, of_cuts}, {&state->scaled, of_cuts},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (memory) *arrays[i].array = memory + total;
        /* Arrays begin at multiples of 64 bytes. */
        total += (arrays[i].count + 7) / 8 * 8;
    }
    return total;
}

/* Write F(x) of a point, or of a change of it. */
static void dual_matrices_with_cuts(State *state, const double *x, double *F) {
    Relaxation *of = &state->relaxation;
    const int d = of->order, known = of->free + of->stability_count;
    dual_matrices(of, x, x + of->free, F);
    for (int k = 0, first = 0; k < of->matrix_count; first += state->node->cut_counts[k++]) {
        const int cuts = state->node->cut_counts[k];
        const double *u = state->node->first + (size_t)first * d, *v = state->node->second + (size_t)first * d;
        for (int c = 0; c < cuts; c++)
            for (int i = 0; i < d; i++) state->scaled[c * d + i] = -0.5 * x[known + first + c] * u[c * d + i];
        if (!cuts) continue;
        multiply(d, cuts, d, 1, transposed(state->scaled, d), plain(v, d), 1, F + (size_t)k * d * d, d);
        multiply(d, cuts, d, 1, transposed(v, d), plain(state->scaled, d), 1, F + (size_t)k * d * d, d);
    }
}

/* Return whether F + shift 1 is positive. */
static int is_positive_with(State *state, double shift) {
    const int d = state->relaxation.order, rows = state->relaxation.matrix_count * d;
    memcpy(state->trial, state->F, state->entries * sizeof(double));
    for (int row = 0; row < rows; row++) state->trial[(size_t)row * d + row % d] += shift;
    return factorize(state->relaxation.matrix_count, d, state->trial);
}

/* Make the dual point of the parent positive, and the primal point close to the centre. */
static void begin(State *state) {
    Relaxation *of = &state->relaxation;
    const Settings *settings = state->settings;
    const int d = of->order, known = of->free + of->stability_count;
    double norm = 0, *x = state->x;
    dual_matrices_with_cuts(state, x, state->F);
    for (int row = 0; row < of->matrix_count * d; row++) {
        double total = 0;
        for (int i = 0; i < d; i++) total += fabs(state->F[(size_t)row * d + i]);
        norm = fmax(norm, total);
    }
    if (norm == 0) norm = 1;
    int new_count = 0;
    for (int c = 0; c < state->cut_count; c++) new_count += state->node->is_new[c];
    for (int c = 0; c < state->cut_count; c++)
        if (state->node->is_new[c]) x[known + c] = settings->first_cut_weight * norm / new_count;
    dual_matrices_with_cuts(state, x, state->F);
    double shift = settings->first_shift * norm;
    while (!is_positive_with(state, 0.5 * shift) && shift < 4 * norm) shift *= settings->shift_growth;
    for (int i = 0; i < of->free; i++) x[i] += shift;
    for (int row = 0; row < of->matrix_count * d; row++) state->F[(size_t)row * d + row % d] += shift;
    memcpy(state->inverses, state->F, state->entries * sizeof(double));
    factorize(of->matrix_count, d, state->inverses);
    invert(of->matrix_count, d, state->inverses);
    double trace = 0;
    for (int row = 0; row < of->matrix_count * d; row++) trace += state->inverses[(size_t)row * d + row % d];
    const double tau = of->trace / trace;
    for (int i = 0; i < state->entries; i++) state->matrices[i] = tau * state->inverses[i];
    for (int i = 0; i < state->positive_count; i++) state->slacks[i] = tau / x[of->free + i];
    state->share = settings->first_share;
}

/* Return whether the dual point, with F shifted by a multiple of 1, proves that the value is below the target. */
static int proves(State *state) {
    const Relaxation *of = &state->relaxation;
    const int d = of->order, rows = of->matrix_count * d;
    const double excess = (sum(of->free, state->x) - state->node->target) / of->trace;
    if (excess <= 0) return 1;
    /* If F - excess 1 > 0, all diagonal entries of the inverse of F are less than 1 / excess. */
    for (int row = 0; row < rows; row++)
        if (!(excess * state->inverses[(size_t)row * d + row % d] < 1)) return 0;
    return is_positive_with(state, -excess);
}

/* Pack −Lᵀ sym(uvᵀ) L for the cuts of the matrix k, and write −uᵀZv to the right side. The parts of the other matrix are
   always zero. */
static void congruences_of_cuts(State *state, int k, int first) {
    const Relaxation *of = &state->relaxation;
    const int d = of->order, cuts = state->node->cut_counts[k], row = of->free + of->stability_count + first;
    const size_t size = of->matrix_count * of->packed_size, place = (size_t)k * d * d;
    const double *u = state->node->first + (size_t)first * d, *v = state->node->second + (size_t)first * d;
    const double *L = state->factors + MARGIN + place;
    double *uL = state->first_rows, *vL = state->second_rows, *packed = state->packed + row * size;
    multiply(cuts, d, d, 1, plain(u, d), plain(state->inverses + place, d), 0, uL, d);
    for (int c = 0; c < cuts; c++) state->right[row + c] = -dot(d, uL + (size_t)c * d, v + (size_t)c * d);
    multiply(cuts, d, d, 1, plain(u, d), lower(L, d), 0, uL, d);
    multiply(cuts, d, d, 1, plain(v, d), lower(L, d), 0, vL, d);
    for (int c = 0; c < cuts; c++)
        for (int a = 0; a < d; a++) {
            const double *left = uL + (size_t)c * d, *right = vL + (size_t)c * d;
            double *out = packed + c * size + k * of->packed_size + packed_row(of, a);
            out[a] = -left[a] * right[a];
            for (int b = a + 1; b < d; b++) out[b] = -M_SQRT1_2 * (left[a] * right[b] + left[b] * right[a]);
        }
}

/* Write the inner products of the packed matrices to the upper triangle of H. In the stacked formulation, those of λ end
   with zeros: the entries of the last output. */
static void products_of_congruences(State *state) {
    const Relaxation *of = &state->relaxation;
    const int size = state->size, known = of->free + of->stability_count, last = of->order - of->task.m;
    const size_t whole = of->matrix_count * of->packed_size;
    const size_t used = of->task.is_symmetric ? whole : packed_row(of, last) + last;
    inner_products_of_rows(size, (int)used, (int)whole, state->packed, state->H, size);
    for (int i = 0; i < size && used < whole; i = i + 1 == of->free ? known : i + 1)
        for (int j = i; j < size; j = j + 1 == of->free ? known : j + 1)
            state->H[(size_t)i * size + j] +=
                dot((int)(whole - used), state->packed + i * whole + used, state->packed + j * whole + used);
}

/* Write the change of x and κ of the step towards τ; return whether the equations could be solved. */
static int solve_equations(State *state, double tau) {
    Relaxation *of = &state->relaxation;
    const int size = state->size, free = of->free, known = free + of->stability_count;
    const double *positive = state->x + free;
    double *H = state->H, *right = state->right, *units = state->units, *scales = state->scales;
    double *columns = state->columns;
    memcpy(state->factors + MARGIN, state->scaling, state->entries * sizeof(double));
    if (!factorize_lower(of->matrix_count, of->order, state->factors + MARGIN)) return 0;
    congruences(of, state->factors + MARGIN, state->packed);
    traces(of, state->inverses, right);
    for (int k = 0, first = 0; k < of->matrix_count; first += state->node->cut_counts[k++])
        if (state->node->cut_counts[k]) congruences_of_cuts(state, k, first);
    products_of_congruences(state);
    for (int i = 0; i < size; i++) {
        right[i] = tau * right[i] + (i < free ? -1 : tau / positive[i - free]);
        /* With these units for λ and μ, their barrier adds 1 to the diagonal. */
        units[i] = i < free ? 1 : sqrt(positive[i - free] / state->slacks[i - free]);
        columns[i] = right[i] * units[i];
        columns[size + i] = i >= free && i < known ? units[i] : 0;
        /* The packed matrices lack the labels of the stacked formulation. */
        const int has_label = !of->task.is_symmetric && i >= free && i < known;
        scales[i] = has_label ? units[i] * of->task.labels[i - free] : units[i];
    }
    for (int i = 0; i < size; i++) {
        for (int j = i; j < size; j++) H[(size_t)i * size + j] *= scales[i] * scales[j];
        if (i >= free) H[(size_t)i * (size + 1)] += 1;
    }
    if (!solve_positive(size, H, columns)) return 0;
    /* κ is the multiplier of Σλ = 1. */
    const int R = of->stability_count;
    state->kappa = -dot(R, columns + free, units + free) / dot(R, columns + size + free, units + free);
    for (int i = 0; i < size; i++) state->change[i] = units[i] * (columns[i] + state->kappa * columns[size + i]);
    return 1;
}

/* Take the step towards τ: write its changes and the primal point of the full step. Return 0 if the equations cannot be
   solved, 1 if that point is not feasible, and 2 if it is. */
static int step(State *state) {
    Relaxation *of = &state->relaxation;
    const int d = of->order, entries = state->entries, count = state->positive_count;
    const double *positive = state->x + of->free;
    const double product = dot(entries, state->F, state->matrices) + dot(count, positive, state->slacks);
    const double mean = product / (of->matrix_count * d + count), tau = state->share * mean;
    for (int i = 0; i < entries; i++)
        state->scaling[i] = 0.5 * (state->matrices[i] / sqrt(mean) + sqrt(mean) * state->inverses[i]);
    if (!solve_equations(state, tau)) return 0;
    dual_matrices_with_cuts(state, state->change, state->dual_changes);
    for (int k = 0; k < of->matrix_count; k++) {
        const size_t place = (size_t)k * d * d;
        multiply(d, d, d, 0.5, plain(state->scaling + place, d), plain(state->dual_changes + place, d), 0, state->trial, d);
        multiply(d, d, d, 1, plain(state->trial, d), plain(state->scaling + place, d), 0, state->half + place, d);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++)
                state->new_matrices[place + i * d + j] =
                    tau * state->inverses[place + i * d + j] - state->half[place + i * d + j] - state->half[place + j * d + i];
    }
    int is_feasible = 1;
    for (int i = 0; i < count; i++) {
        state->new_slacks[i] = (tau - state->slacks[i] * state->change[of->free + i]) / positive[i];
        is_feasible &= state->new_slacks[i] > 0;
    }
    if (!is_feasible) return 1;
    memcpy(state->trial, state->new_matrices, entries * sizeof(double));
    return factorize(of->matrix_count, d, state->trial) ? 2 : 1;
}

/* Write A + length B to `trial`, as Cholesky factors; return whether it is positive. */
static int try_length(State *state, const double *A, const double *B, double length) {
    for (int i = 0; i < state->entries; i++) state->trial[i] = A[i] + length * B[i];
    return factorize(state->relaxation.matrix_count, state->relaxation.order, state->trial);
}

/* Move the dual point; return the length, which is 0 if it does not move. */
static double advance_dual(State *state) {
    const Settings *settings = state->settings;
    const Relaxation *of = &state->relaxation;
    double ratio = 1e-300;
    for (int i = of->free; i < state->size; i++) ratio = fmax(ratio, -state->change[i] / state->x[i]);
    double length = fmin(1, settings->boundary_share / ratio);
    for (int is_final = 0; length >= settings->min_length;) {
        const int is_positive = try_length(state, state->F, state->dual_changes, length);
        if (is_positive && (is_final || length == 1)) {
            for (int i = 0; i < state->entries; i++) state->F[i] += length * state->dual_changes[i];
            for (int i = 0; i < state->size; i++) state->x[i] += length * state->change[i];
            memcpy(state->inverses, state->trial, state->entries * sizeof(double));
            invert(of->matrix_count, of->order, state->inverses);
            return length;
        }
        if (is_final) break;
        is_final = is_positive;
        length *= is_positive ? settings->boundary_share : settings->backtrack;
    }
    return 0;
}

/* Move the primal point; return the length, which is 1 for the point of a full step. */
static double advance_primal(State *state, int is_feasible) {
    const Settings *settings = state->settings;
    const int count = state->positive_count;
    if (is_feasible) {
        memcpy(state->matrices, state->new_matrices, state->entries * sizeof(double));
        memcpy(state->slacks, state->new_slacks, count * sizeof(double));
        return 1;
    }
    double ratio = 1e-300;
    for (int i = 0; i < count; i++) ratio = fmax(ratio, (state->slacks[i] - state->new_slacks[i]) / state->slacks[i]);
    double length = fmin(1, 1 / ratio);
    for (int i = 0; i < state->entries; i++) state->new_matrices[i] -= state->matrices[i];
    while (length >= settings->min_length && !try_length(state, state->matrices, state->new_matrices, length))
        length *= settings->backtrack;
    length = length >= settings->min_length ? settings->boundary_share * length : 0;
    for (int i = 0; i < state->entries; i++) state->matrices[i] += length * state->new_matrices[i];
    for (int i = 0; i < count; i++) state->slacks[i] += length * (state->new_slacks[i] - state->slacks[i]);
    return length;
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Take steps until the node is decided. */
static void run(State *state) {
    Node *node = state->node;
    const Settings *settings = state->settings;
    const double begin_seconds = seconds();
    double last = begin_seconds;
    for (; node->steps < settings->max_steps; node->steps++) {
        const double now = seconds();
        if (node->steps) node->longest_seconds = fmax(node->longest_seconds, now - last);
        last = now;
        node->is_out_of_time = node->remaining_seconds - (now - begin_seconds) <= node->longest_seconds;
        if (node->is_out_of_time) return;
        if (proves(state)) {
            node->verdict = BELOW;
            return;
        }
        const int result = step(state), is_feasible = result == 2;
        const double excess = state->kappa - node->target;
        if (is_feasible && !state->is_above) {
            memcpy(node->matrices, state->new_matrices, state->entries * sizeof(double));
            state->has_kept = 1;
            state->is_above = excess > 0;
        }
        const double distance = sum(state->relaxation.free, state->x) - state->kappa;
        /* An infinite looseness times zero is no number. */
        const int is_close = is_feasible && excess > 0 && distance <= node->looseness * excess;
        const double primal_length = result && !is_close ? advance_primal(state, is_feasible) : 0;
        const double length = result && !is_close ? fmin(primal_length, advance_dual(state)) : 0;
        if (length < settings->min_length) {
            node->steps++;
            return;
        }
        state->share = length > 0.8 ? settings->long_share : length > 0.5 ? settings->middle_share : settings->short_share;
        if (excess > 0 && !state->is_above) state->share = fmax(state->share, settings->centring_share);
    }
}

/* The routines of LAPACK in the order of `routines`. */
void set_routines(void *const *pointers) { memcpy(&routines, pointers, sizeof routines); }

/* Bytes of memory that `solve` needs for a node with so many cuts. */
int64_t memory_bytes(const Task *task, int32_t cut_count) {
    State state;
    return (int64_t)(sizeof(double) * lay_out(&state, task, cut_count, NULL));
}

/* Compare the value of the relaxation of a node with its target. */
void solve(const Task *task, const Settings *settings, Node *node, double *memory) {
    State state = {.settings = settings, .node = node, .x = node->x};
    lay_out(&state, task, node->cut_counts[0] + node->cut_counts[1], memory);
    memset(state.packed, 0, (size_t)state.size * state.relaxation.matrix_count * state.relaxation.packed_size * sizeof(double));
    begin(&state);
    run(&state);
    if (!state.has_kept) memcpy(node->matrices, state.matrices, state.entries * sizeof(double));
    if (node->verdict != BELOW) node->verdict = state.is_above ? ABOVE : UNDECIDED;
}
