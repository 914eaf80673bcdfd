/* Relaxation of a task without cuts, as in _bnb_relaxation.py: F(y, λ) and the equations of a step. */

/* The patterns P^r in multiples of the unit, shape (p, m, m), and their rows side by side, shape (m, p, m). In the symmetric
   formulation, the patterns include the labels. `pairs` has shape (pair_count, 2). */
typedef struct {
    int32_t is_symmetric, n, m, p, pair_count;
    const double *patterns, *columns, *labels;
    const int32_t *pairs;
} Task;

/* Counts as in _bnb_relaxation.py, and memory for intermediate results. A symmetric matrix is packed into a row of
   `packed_size` numbers: the upper triangle, row after row, with entries off the diagonal times √2. So the inner product
   of two matrices is that of their rows. */
typedef struct {
    Task task;
    int free, stability_count, matrix_count, order;
    size_t packed_size;
    double trace;
    double *left_products, *products, *block, *inner;
} Relaxation;

static const double *block(const Relaxation *of, const double *X, int i, int j) {
    return X + ((size_t)i * of->order + j) * of->task.m;
}

/* Place of the entry (row, 0) in a packed matrix; from (row, row) on, the entries of a row follow each other. */
static size_t packed_row(const Relaxation *of, int row) { return (size_t)row * of->order - (size_t)row * (row + 1) / 2; }

/* Write ⟨P^r, B⟩ for a matrix B of order m to `inner`. */
static void inner_products(Relaxation *of, const double *B) {
    multiply_rows(1, of->task.m * of->task.m, of->task.p, B, of->task.patterns, of->inner, of->task.p);
}

/* Write F without cuts for y and λ = `weights`. */
static void dual_matrices(Relaxation *of, const double *y, const double *weights, double *F) {
    const int m = of->task.m, p = of->task.p, d = of->order, N = of->task.pair_count;
    const size_t size = (size_t)m * m;
    double *signed_weights = of->inner, *half = of->block;
    if (of->task.is_symmetric) {
        multiply(1, p, m * m, 1, plain(weights, p), plain(of->task.patterns, m * m), 0, half, m * m);
        for (size_t i = 0; i < size; i++) F[i] = -half[i], F[size + i] = half[i];
        for (size_t i = 0; i < size; i += m + 1) F[i] += y[0], F[size + i] += y[0];
        return;
    }
    memset(F, 0, (size_t)d * d * sizeof(double));
    for (int a = 0; a < N; a++) {
        const int i = of->task.pairs[2 * a], j = of->task.pairs[2 * a + 1];
        double *above = (double *)block(of, F, i, j), *below = (double *)block(of, F, j, i);
        for (int r = 0; r < p; r++) signed_weights[r] = weights[r * N + a] * of->task.labels[r * N + a];
        multiply(1, p, m * m, -0.5, plain(signed_weights, p), plain(of->task.patterns, m * m), 0, half, m * m);
        for (int b = 0; b < m; b++)
            for (int c = 0; c < m; c++) above[(size_t)b * d + c] = below[(size_t)c * d + b] = half[b * m + c];
    }
    for (int i = 0; i < d; i++) F[(size_t)i * (d + 1)] = y[i / m];
}

/* Pack a symmetric matrix C of the first rows and columns; other entries are left. */
static void pack(const Relaxation *of, int rows, const double *C, double *packed) {
    for (int a = 0; a < rows; a++) {
        double *out = packed + packed_row(of, a);
        out[a] = C[(size_t)a * rows + a];
        for (int b = a + 1; b < rows; b++) out[b] = M_SQRT2 * C[(size_t)a * rows + b];
    }
}

/* Pack LᵀE_iL for the offset that belongs to some rows of L, whose last columns are lower triangular. */
static void congruence_of_offset(Relaxation *of, int columns, const double *rows, double *packed) {
    multiply(columns, of->task.m, columns, 1, transposed(rows, of->order), lower(rows, of->order), 0, of->products, columns);
    pack(of, columns, of->products, packed);
}

/* Pack ∓LᵀP^rL for all patterns, in rows that begin `size` entries apart. */
static void symmetric_congruences(Relaxation *of, const double *L, double sign, double *packed, size_t size) {
    const int m = of->task.m, p = of->task.p;
    multiply(m, m, p * m, sign * M_SQRT2, transposed_lower(L, m), plain(of->task.columns, p * m), 0, of->left_products, p * m);
    for (int a = 0; a < m; a++) {
        const Factor left = plain(of->left_products + (size_t)a * p * m + a, m);
        double *out = packed + packed_row(of, a) + a;
        multiply(p, m - a, m - a, 1, left, lower(L + (size_t)a * (m + 1), m), 0, out, (int)size);
        for (int r = 0; r < p; r++) out[r * size] *= M_SQRT1_2;
    }
}

/* Pack LᵀE_iL for the stabilities of a pair of outputs and all patterns, without the labels. */
static void congruences_of_pair(Relaxation *of, const double *L, int pair, double *packed, size_t size) {
    const int m = of->task.m, p = of->task.p, d = of->order, N = of->task.pair_count;
    const int i = of->task.pairs[2 * pair], j = of->task.pairs[2 * pair + 1], rows = (i + 1) * m, columns = (j - i) * m;
    const double *left = L + (size_t)i * m * d, *right = L + (size_t)j * m * d;
    double *first = packed + pair * size;
    multiply(i * m, m, p * m, -M_SQRT1_2, transposed(left, d), plain(of->task.columns, p * m), 0, of->left_products, p * m);
    multiply(m, m, p * m, -M_SQRT1_2, transposed_lower(left + i * m, d), plain(of->task.columns, p * m), 0,
             of->left_products + (size_t)i * m * p * m, p * m);
    /* Entries whose transposed ones are zero go to their places; the others are packed. */
    for (int a = 0; a < rows; a++)
        multiply(p, m, columns, 1, plain(of->left_products + (size_t)a * p * m, m), lower(right + rows, d), 0,
                 first + packed_row(of, a) + rows, (int)(N * size));
    multiply(rows * p, m, rows, 1, plain(of->left_products, m), plain(right, d), 0, of->products, rows);
    for (int r = 0; r < p; r++)
        for (int a = 0; a < rows; a++) {
            const double *row = of->products + ((size_t)a * p + r) * rows, *column = of->products + (size_t)r * rows + a;
            double *out = first + r * N * size + packed_row(of, a);
            out[a] = M_SQRT2 * row[a];
            for (int b = a + 1; b < rows; b++) out[b] = row[b] + column[(size_t)b * p * rows];
        }
}

/* Pack LᵀE_iL for the derivatives E_i of F by y and λ, in rows with the packed matrices side by side; in the stacked
   formulation, without the labels. Entries that are always zero are left. */
static void congruences(Relaxation *of, const double *L, double *packed) {
    const int n = of->task.n, m = of->task.m, d = of->order, N = of->task.pair_count;
    const size_t size = of->matrix_count * of->packed_size;
    double *stabilities = packed + of->free * size;
    if (of->task.is_symmetric) {
        for (int k = 0; k < 2; k++) {
            congruence_of_offset(of, m, L + (size_t)k * m * m, packed + k * of->packed_size);
            symmetric_congruences(of, L + (size_t)k * m * m, k ? 1 : -1, stabilities + k * of->packed_size, size);
        }
        return;
    }
    for (int i = 0; i < n; i++) congruence_of_offset(of, (i + 1) * m, L + (size_t)i * m * d, packed + i * size);
    for (int a = 0; a < N; a++) congruences_of_pair(of, L, a, stabilities, size);
}

/* Write ⟨E_i, Z⟩ for the derivatives E_i of F by y and λ. */
static void traces(Relaxation *of, const double *Z, double *out) {
    const int n = of->task.n, m = of->task.m, p = of->task.p, N = of->task.pair_count, d = of->order;
    const size_t entries = (size_t)m * m;
    for (int i = 0; i < of->free; i++) out[i] = 0;
    for (int k = 0; k < of->matrix_count; k++)
        for (int c = 0; c < d; c++) out[of->free > 1 ? c / m : 0] += Z[(size_t)k * d * d + (size_t)c * (d + 1)];
    if (of->task.is_symmetric) {
        for (size_t e = 0; e < entries; e++) of->block[e] = Z[entries + e] - Z[e];
        inner_products(of, of->block);
        memcpy(out + 1, of->inner, p * sizeof(double));
        return;
    }
    for (int a = 0; a < N; a++) {
        const double *part = block(of, Z, of->task.pairs[2 * a], of->task.pairs[2 * a + 1]);
        for (int c = 0; c < m; c++) memcpy(of->block + c * m, part + (size_t)c * d, m * sizeof(double));
        inner_products(of, of->block);
        for (int r = 0; r < p; r++) out[n + r * N + a] = -of->task.labels[r * N + a] * of->inner[r];
    }
}
