/* Products of matrices for one instruction set, with registers of VECTOR_BYTES.

   OpenBLAS takes several times as long for matrices of order 10, and twice as long for larger ones on processors that it
   does not know. C is computed in tiles of rows and registers, which take the products with one entry of A after the
   other. */

typedef double NAME(Vector) __attribute__((vector_size(VECTOR_BYTES)));
#define Vector NAME(Vector)
#define LANES ((int)(VECTOR_BYTES / sizeof(double)))
/* A tile has so many rows and at most three registers a row; AVX-512 has 32 registers, the others 16. */
#define TILE_ROWS (VECTOR_BYTES == 64 ? 6 : 4)
#define INLINE static inline __attribute__((always_inline))

/* One tile, whose first column is `column`. Only the last `stored` columns are stored. */
INLINE void NAME(tile)(int rows, int width, int inner, double factor, Factor A, const double *B, int B_stride, int keeps,
                       double *C, int stride, int stored) {
    Vector sums[6][3], b[3];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++) sums[i][j] = (Vector){0};
    const size_t down = A.is_transposed ? 1 : A.stride, along = A.is_transposed ? A.stride : 1;
    for (int k = 0; k < inner; k++) {
        for (int j = 0; j < width; j++) memcpy(&b[j], B + (size_t)k * B_stride + j * LANES, sizeof *b);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < width; j++) sums[i][j] += A.entries[i * down + k * along] * b[j];
    }
    const int skipped = width * LANES - stored;
    for (int i = 0; i < rows; i++) {
        double *row = C + (size_t)i * stride, entries[3 * LANES];
        for (int j = 0; j < width; j++) {
            Vector old = {0};
            if (keeps) memcpy(&old, row + j * LANES, sizeof old);
            old += factor * sums[i][j];
            memcpy(entries + j * LANES, &old, sizeof old);
        }
        memcpy(row + skipped, entries + skipped, stored * sizeof(double));
    }
}

/* All rows of a column of tiles. The first `skipped` rows of B are zero in these columns. */
INLINE void NAME(strip)(int rows, int width, int inner, double factor, Factor A, Factor B, int skipped, int keeps, double *C,
                        int stride, int stored) {
    const size_t down = A.is_transposed ? 1 : A.stride, along = A.is_transposed ? A.stride : 1;
    for (int i = 0, taken; i < rows; i += taken) {
        const int begin = A.is_lower && i > skipped ? i : skipped, rest = inner - begin;
        const Factor part = {A.entries + i * down + begin * along, A.stride, A.is_transposed, 0};
        const double *from = B.entries + (size_t)begin * B.stride;
        double *out = C + (size_t)i * stride;
        taken = rows - i >= TILE_ROWS ? TILE_ROWS : rows - i >= 2 ? 2 : 1;
        if (taken == TILE_ROWS)
            NAME(tile)(TILE_ROWS, width, rest, factor, part, from, B.stride, keeps, out, stride, stored);
        else if (taken == 2) NAME(tile)(2, width, rest, factor, part, from, B.stride, keeps, out, stride, stored);
        else NAME(tile)(1, width, rest, factor, part, from, B.stride, keeps, out, stride, stored);
    }
}

/* Strips of `width` registers from the column j on; return the first column that is left. */
INLINE int NAME(strips)(int j, int width, int rows, int inner, int columns, double factor, Factor A, Factor B, int keeps,
                        double *C, int stride) {
    for (; j + width * LANES <= columns; j += width * LANES) {
        const Factor from = {B.entries + j, B.stride, 0, 0};
        const int skipped = zero_rows(B, inner, columns, j);
        NAME(strip)(rows, width, inner, factor, A, from, skipped, keeps, C + j, stride, width * LANES);
    }
    return j;
}

/* C = factor A B, or C += factor A B. */
static void NAME(multiply)(int rows, int inner, int columns, double factor, Factor A, Factor B, int keeps, double *C,
                           int stride) {
    int j = 0;
    j = NAME(strips)(j, 3, rows, inner, columns, factor, A, B, keeps, C, stride);
    j = NAME(strips)(j, 1, rows, inner, columns, factor, A, B, keeps, C, stride);
    if (j == columns) return;
    if (columns >= LANES || B.is_lower) {
        /* The last register overlaps with the one before, or with numbers before a row. */
        const int first = columns - LANES, skipped = zero_rows(B, inner, columns, j);
        const Factor from = {B.entries + first, B.stride, 0, 0};
        NAME(strip)(rows, 1, inner, factor, A, from, skipped, keeps, C + first, stride, columns - j);
        return;
    }
    for (int i = 0; i < rows; i++)
        for (j = 0; j < columns; j++) {
            double total = 0;
            for (int k = 0; k < inner; k++)
                total += A.entries[A.is_transposed ? (size_t)k * A.stride + i : (size_t)i * A.stride + k] *
                         B.entries[(size_t)k * B.stride + j];
            C[(size_t)i * stride + j] = factor * total + (keeps ? C[(size_t)i * stride + j] : 0);
        }
}

/* C = A Bᵀ, the inner products of the rows of A, shape (rows, inner), and B, shape (columns, inner), which begin
   `source_stride` entries apart; only those above the diagonal, and some below, if `is_upper`. */
static void NAME(multiply_rows)(int rows, int inner, int columns, const double *A, const double *B, int source_stride,
                                int is_upper, double *C, int stride) {
    for (int i = 0; i < rows; i += 4)
        for (int j = is_upper ? i : 0; j < columns; j += 4) {
            Vector sums[4][4], b[4];
            const double *left[4], *right[4];
            for (int c = 0; c < 4; c++) {
                left[c] = A + (size_t)(i + c < rows ? i + c : rows - 1) * source_stride;
                right[c] = B + (size_t)(j + c < columns ? j + c : columns - 1) * source_stride;
                for (int e = 0; e < 4; e++) sums[c][e] = (Vector){0};
            }
            int k = 0;
            for (; k + LANES <= inner; k += LANES) {
                for (int c = 0; c < 4; c++) memcpy(&b[c], right[c] + k, sizeof *b);
                for (int c = 0; c < 4; c++) {
                    Vector a;
                    memcpy(&a, left[c] + k, sizeof a);
                    for (int e = 0; e < 4; e++) sums[c][e] += a * b[e];
                }
            }
            for (int c = 0; c < 4 && i + c < rows; c++)
                for (int e = 0; e < 4 && j + e < columns; e++) {
                    double total = 0, entries[LANES];
                    memcpy(entries, &sums[c][e], sizeof entries);
                    for (int lane = 0; lane < LANES; lane++) total += entries[lane];
                    for (int rest = k; rest < inner; rest++) total += left[c][rest] * right[e][rest];
                    C[(size_t)(i + c) * stride + j + e] = total;
                }
        }
}

static double NAME(dot)(int size, const double *x, const double *y) {
    Vector sums[4] = {{0}, {0}, {0}, {0}};
    int i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int c = 0; c < 4; c++) {
            Vector a, b;
            memcpy(&a, x + i + c * LANES, sizeof a);
            memcpy(&b, y + i + c * LANES, sizeof b);
            sums[c] += a * b;
        }
    sums[0] += sums[1] + (sums[2] + sums[3]);
    double total = 0;
    for (int lane = 0; lane < LANES; lane++) total += sums[0][lane];
    for (; i < size; i++) total += x[i] * y[i];
    return total;
}

#undef Vector
#undef LANES
#undef TILE_ROWS
#undef INLINE
