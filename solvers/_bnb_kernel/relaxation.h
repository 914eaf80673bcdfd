/* Relaxation of a task without cuts, as in _bnb_relaxation.py: F(y, λ) and the equations of a step. */

/* The patterns P^r in multiples of the unit, shape (p, m, m), and their rows side by side, shape (m, p, m), also for the
   transposes. In the symmetric formulation, the patterns include the labels. `pairs` has shape (pair_count, 2). */
typedef struct {
    int32_t is_symmetric, n, m, p, pair_count;
    const double *patterns, *columns, *transposed, *labels;
    const int32_t *pairs;
} Task;

/* Counts as in _bnb_relaxation.py, and memory for intermediate results. */
typedef struct {
    Task task;
    int free, stability_count, matrix_count, order;
    double trace;
    double *left_products, *products, *by_pattern, *gram, *blocks, *inner;
} Relaxation;

/* A term L P R of a sum over blocks L and R of order m, for all patterns P side by side. */
typedef struct {
    const double *left, *patterns, *right;
    double factor;
} Term;

static const double *block(const Relaxation *of, const double *X, int i, int j) {
    return X + ((size_t)i * of->order + j) * of->task.m;
}

/* Write the sum of the terms, as ⟨P^r, Q^s⟩ for each pattern P^r and sum Q^s, to `gram`, shape (p, p), s before r. */
static void gram_of_terms(Relaxation *of, int count, const Term *terms) {
    const int m = of->task.m, p = of->task.p, d = of->order;
    const size_t size = (size_t)m * m;
    for (int k = 0; k < count; k++) {
        multiply(m, m, p * m, terms[k].factor, plain(terms[k].left, d), terms[k].patterns, p * m, 0, of->left_products, p * m);
        multiply(m * p, m, m, 1, plain(of->left_products, m), terms[k].right, d, k > 0, of->products, m);
    }
    for (int a = 0; a < m; a++)
        for (int s = 0; s < p; s++)
            memcpy(of->by_pattern + s * size + a * m, of->products + ((size_t)a * p + s) * m, m * sizeof(double));
    multiply_rows(p, m * m, p, of->by_pattern, of->task.patterns, of->gram, p);
}

/* Write ⟨P^r, B⟩ for `count` matrices B of order m to `inner`, shape (count, p). */
static void inner_products(Relaxation *of, int count, const double *matrices) {
    multiply_rows(count, of->task.m * of->task.m, of->task.p, matrices, of->task.patterns, of->inner, of->task.p);
}

/* Write F without cuts for y and λ = `weights`. */
static void dual_matrices(Relaxation *of, const double *y, const double *weights, double *F) {
    const int m = of->task.m, p = of->task.p, d = of->order, N = of->task.pair_count;
    const size_t size = (size_t)m * m;
    double *signed_weights = of->inner, *half = of->blocks;
    if (of->task.is_symmetric) {
        multiply(1, p, m * m, 1, plain(weights, p), of->task.patterns, m * m, 0, half, m * m);
        for (size_t i = 0; i < size; i++) F[i] = -half[i], F[size + i] = half[i];
        for (size_t i = 0; i < size; i += m + 1) F[i] += y[0], F[size + i] += y[0];
        return;
    }
    memset(F, 0, (size_t)d * d * sizeof(double));
    for (int a = 0; a < N; a++) {
        const int i = of->task.pairs[2 * a], j = of->task.pairs[2 * a + 1];
        double *above = (double *)block(of, F, i, j), *below = (double *)block(of, F, j, i);
        for (int r = 0; r < p; r++) signed_weights[r] = weights[r * N + a] * of->task.labels[r * N + a];
        multiply(1, p, m * m, -0.5, plain(signed_weights, p), of->task.patterns, m * m, 0, half, m * m);
        for (int b = 0; b < m; b++)
            for (int c = 0; c < m; c++) above[(size_t)b * d + c] = below[(size_t)c * d + b] = half[b * m + c];
    }
    for (int i = 0; i < d; i++) F[(size_t)i * (d + 1)] = y[i / m];
}

static void symmetric_equations(Relaxation *of, const double *X, const double *Z, double *H, int size, double *traces) {
    const int m = of->task.m, p = of->task.p;
    const size_t entries = (size_t)m * m;
    const Term terms[2] = {{X, of->task.columns, Z, 1}, {X + entries, of->task.columns, Z + entries, 1}};
    gram_of_terms(of, 2, terms);
    for (int s = 0; s < p; s++)
        for (int r = s; r < p; r++) H[(1 + s) * size + 1 + r] = 0.5 * (of->gram[s * p + r] + of->gram[r * p + s]);
    double *products = of->blocks, *difference = of->blocks + entries;
    multiply(m, m, m, -1, plain(X, m), Z, m, 0, products, m);
    multiply(m, m, m, 1, plain(X + entries, m), Z + entries, m, 1, products, m);
    H[0] = dot(2 * m * m, X, Z);
    traces[0] = 0;
    for (size_t i = 0; i < entries; i += m + 1) traces[0] += Z[i] + Z[entries + i];
    for (size_t i = 0; i < entries; i++) difference[i] = Z[entries + i] - Z[i];
    inner_products(of, 2, products);
    memcpy(H + 1, of->inner, p * sizeof(double));
    memcpy(traces + 1, of->inner + p, p * sizeof(double));
}

/* Write the equations of the pair a of outputs with the pair b <= a. */
static void equations_of_pairs(Relaxation *of, const double *X, const double *Z, int a, int b, double *H, int size) {
    const int n = of->task.n, p = of->task.p, N = of->task.pair_count;
    const int i = of->task.pairs[2 * a], j = of->task.pairs[2 * a + 1], u = of->task.pairs[2 * b], v = of->task.pairs[2 * b + 1];
    const double *labels = of->task.labels;
    const Term terms[4] = {
        {block(of, X, i, u), of->task.columns, block(of, Z, v, j), 1},
        {block(of, Z, i, u), of->task.columns, block(of, X, v, j), 1},
        {block(of, X, i, v), of->task.transposed, block(of, Z, u, j), a == b ? 2 : 1},
        {block(of, Z, i, v), of->task.transposed, block(of, X, u, j), 1},
    };
    gram_of_terms(of, a == b ? 3 : 4, terms);
    for (int s = 0; s < p; s++)
        for (int r = a == b ? s : 0; r < p; r++) {
            double entry = 0.25 * labels[s * N + b] * labels[r * N + a] * of->gram[s * p + r];
            if (a == b) entry = 0.5 * (entry + 0.25 * labels[s * N + b] * labels[r * N + a] * of->gram[r * p + s]);
            const int row = n + s * N + b, column = n + r * N + a;
            H[row < column ? row * size + column : column * size + row] = entry;
        }
}

static void stacked_equations(Relaxation *of, const double *X, const double *Z, double *H, int size, double *traces) {
    const int n = of->task.n, m = of->task.m, p = of->task.p, N = of->task.pair_count, d = of->order;
    const size_t entries = (size_t)m * m;
    for (int a = 0; a < N; a++) {
        const int i = of->task.pairs[2 * a], j = of->task.pairs[2 * a + 1];
        for (int b = 0; b <= a; b++) equations_of_pairs(of, X, Z, a, b, H, size);
        for (int k = 0; k < n; k++) {
            double *mixed = of->blocks + k * entries;
            multiply(m, m, m, 1, plain(block(of, X, i, k), d), block(of, Z, k, j), d, 0, mixed, m);
            multiply(m, m, m, 1, plain(block(of, Z, i, k), d), block(of, X, k, j), d, 1, mixed, m);
        }
        for (int c = 0; c < m; c++) memcpy(of->blocks + n * entries + c * m, block(of, Z, i, j) + (size_t)c * d, m * sizeof(double));
        inner_products(of, n + 1, of->blocks);
        for (int r = 0; r < p; r++) {
            const double label = of->task.labels[r * N + a];
            for (int k = 0; k < n; k++) H[k * size + n + r * N + a] = -0.5 * label * of->inner[k * p + r];
            traces[n + r * N + a] = -label * of->inner[n * p + r];
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = i; k < n; k++) {
            double *entry = H + i * size + k;
            *entry = 0;
            for (int c = 0; c < m; c++) *entry += dot(m, block(of, X, i, k) + (size_t)c * d, block(of, Z, i, k) + (size_t)c * d);
        }
        traces[i] = 0;
        for (int c = i * m; c < (i + 1) * m; c++) traces[i] += Z[(size_t)c * (d + 1)];
    }
}

/* Add factor ⟨E_i, Σ(l_c r_cᵀ + l'_c r'_cᵀ)⟩ for each cut c of a matrix to the upper triangle of H, in the columns that
   begin at `column`, one for each cut. `left` has the rows l_c, and then the l'_c; `right` likewise. */
static void along_products(Relaxation *of, int matrix, int cuts, const double *left, const double *right, double factor,
                           double *H, int size, int column) {
    const int m = of->task.m, p = of->task.p, N = of->task.pair_count, d = of->order;
    const size_t entries = (size_t)m * m;
    for (int a = 0; a < N; a++) {
        const int i = of->task.is_symmetric ? 0 : of->task.pairs[2 * a], j = of->task.is_symmetric ? 0 : of->task.pairs[2 * a + 1];
        for (int c = 0; c < cuts; c++) {
            double *outer = of->blocks + c * entries;
            for (int term = 0; term < 2; term++) {
                const double *l = left + ((size_t)term * cuts + c) * d, *r = right + ((size_t)term * cuts + c) * d;
                for (int e = 0; e < m; e++)
                    for (int f = 0; f < m; f++)
                        outer[e * m + f] = (term ? outer[e * m + f] : 0) + l[i * m + e] * r[j * m + f] +
                                           (of->task.is_symmetric ? 0 : r[i * m + e] * l[j * m + f]);
            }
        }
        inner_products(of, cuts, of->blocks);
        for (int r = 0; r < p; r++) {
            const double sign = of->task.is_symmetric ? (matrix ? 1 : -1) : -0.5 * of->task.labels[r * N + a];
            double *row = H + (size_t)(of->free + r * N + a) * size + column;
            for (int c = 0; c < cuts; c++) row[c] = factor * sign * of->inner[c * p + r];
        }
    }
    for (int k = 0; k < of->free; k++)
        for (int c = 0; c < cuts; c++) {
            const int first = of->task.is_symmetric ? 0 : k * m;
            const double *l = left + (size_t)c * d + first, *r = right + (size_t)c * d + first;
            const size_t next = (size_t)cuts * d;
            H[k * size + column + c] = factor * (dot(m, l, r) + dot(m, l + next, r + next));
        }
}
