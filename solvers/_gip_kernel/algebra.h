/* Algebra of vectors of numbers of several paths, for one number type and one instruction set.

   REAL is the type, INTEGER the integer type of the same size, VECTOR_BYTES the size of a register, NAME(x) a name that
   is unique to both, and MANTISSA_BITS and EXPONENT_BIAS describe REAL. A Vector holds one number of LANES paths, so
   that every operation is made for all of them at once. */

typedef REAL NAME(Vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef INTEGER NAME(Integers) __attribute__((vector_size(VECTOR_BYTES)));
#define Vector NAME(Vector)
#define Integers NAME(Integers)
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

INLINE Vector NAME(all)(REAL x) { return (Vector){0} + x; }
#define all NAME(all)

INLINE Vector NAME(select)(Integers mask, Vector yes, Vector no) {
    return (Vector)(((Integers)yes & mask) | ((Integers)no & ~mask));
}
INLINE Vector NAME(larger)(Vector a, Vector b) { return NAME(select)((Integers)(a > b), a, b); }
INLINE Vector NAME(smaller)(Vector a, Vector b) { return NAME(select)((Integers)(a < b), a, b); }
INLINE Vector NAME(magnitude)(Vector a) { return NAME(larger)(a, -a); }
#define larger NAME(larger)
#define smaller NAME(smaller)
#define magnitude NAME(magnitude)

INLINE Vector NAME(square_root)(Vector a) {
    REAL values[VECTOR_BYTES / sizeof(REAL)];
    memcpy(values, &a, sizeof a);
    for (int k = 0; k < LANES; k++) values[k] = SQRT(values[k]);
    memcpy(&a, values, sizeof a);
    return a;
}
#define square_root NAME(square_root)

INLINE Vector NAME(dot)(const Vector *a, const Vector *b, int size) {
    Vector sums[4] = {{0}, {0}, {0}, {0}};
    int k = 0;
    for (; k + 4 <= size; k += 4)
        for (int c = 0; c < 4; c++) sums[c] += a[k + c] * b[k + c];
    for (; k < size; k++) sums[0] += a[k] * b[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
#define dot NAME(dot)

/* out[j] = Σ_i w[i] P[i][j] for `width` columns. */
INLINE void NAME(row_times_columns)(const Vector *w, const REAL *P, int m, int width, Vector *out) {
    Vector sums[8];
    for (int j = 0; j < width; j++) sums[j] = all(0);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < width; j++) sums[j] += w[i] * P[(size_t)i * m + j];
    for (int j = 0; j < width; j++) out[j] = sums[j];
}

/* out = wᵀP for a pattern P of order m. */
static void NAME(row_times)(const Vector *w, const REAL *P, int m, Vector *out) {
    int j = 0;
    for (; j + 8 <= m; j += 8) NAME(row_times_columns)(w, P + j, m, 8, out + j);
    for (; j + 4 <= m; j += 4) NAME(row_times_columns)(w, P + j, m, 4, out + j);
    for (; j + 2 <= m; j += 2) NAME(row_times_columns)(w, P + j, m, 2, out + j);
    for (; j < m; j++) NAME(row_times_columns)(w, P + j, m, 1, out + j);
}

/* out[a][b] += Σ_s A[s][a] B[s][b] for `height` × `width` entries. */
INLINE void NAME(tile)(const Vector *A, const Vector *B, int count, size_t stride, int height, int width, Vector *out,
                       int order) {
    Vector sums[4][4];
    for (int a = 0; a < height; a++)
        for (int b = 0; b < width; b++) sums[a][b] = out[(size_t)a * order + b];
    for (int s = 0; s < count; s++)
        for (int a = 0; a < height; a++)
            for (int b = 0; b < width; b++) sums[a][b] += A[s * stride + a] * B[s * stride + b];
    for (int a = 0; a < height; a++)
        for (int b = 0; b < width; b++) out[(size_t)a * order + b] = sums[a][b];
}

/* Add AᵀB, of m × m entries, to `out`; only the tiles that are not above the diagonal if `lower`. */
static void NAME(add_gram)(const Vector *A, const Vector *B, int count, size_t stride, int m, int lower, Vector *out,
                           int order) {
    for (int a = 0; a < m; a += 4)
        for (int b = 0; b < (lower ? a + 1 : m); b += 4) {
            const int height = m - a < 4 ? m - a : 4, width = m - b < 4 ? m - b : 4;
            Vector *place = out + (size_t)a * order + b;
#define TILE(h, w) NAME(tile)(A + a, B + b, count, stride, h, w, place, order)
#define TILES(h)                                                                                                       \
    switch (width) {                                                                                                   \
    case 4: TILE(h, 4); break;                                                                                         \
    case 3: TILE(h, 3); break;                                                                                         \
    case 2: TILE(h, 2); break;                                                                                         \
    default: TILE(h, 1);                                                                                               \
    }
            switch (height) {
            case 4: TILES(4) break;
            case 3: TILES(3) break;
            case 2: TILES(2) break;
            default: TILES(1)
            }
        }
}

/* mixture[a][b] = Σ_r λ^r ζ^r P^r_ab for one pair. */
static void NAME(mix)(const Problem *problem, const Vector *factors, Vector *mixture) {
    const int entries = problem->m * problem->m, p = problem->p;
    const REAL *by_entry = problem->by_entry;
    int e = 0;
    for (; e + 8 <= entries; e += 8) {
        Vector sums[8];
        for (int k = 0; k < 8; k++) sums[k] = all(0);
        for (int r = 0; r < p; r++)
            for (int k = 0; k < 8; k++) sums[k] += factors[r] * by_entry[(size_t)(e + k) * p + r];
        for (int k = 0; k < 8; k++) mixture[e + k] = sums[k];
    }
    for (; e < entries; e++) {
        Vector sum = all(0);
        for (int r = 0; r < p; r++) sum += factors[r] * by_entry[(size_t)e * p + r];
        mixture[e] = sum;
    }
}

/* One tile of L, of `height` × `width` entries: those of H, less the products with the columns before `first`, divided by
   the factor of the diagonal tile; return the lanes in which all pivots of a diagonal tile are positive. Where it is
   inlined, the bounds of all loops but one are constants, so that `sums` stays in registers. */
INLINE Integers NAME(factor_tile)(const Vector *H, Vector shift, int row, int first, int order, int is_diagonal,
                                  int height, int width, Vector *L) {
    const Vector *top = L + (size_t)first * order;
    Vector *left = L + (size_t)row * order, sums[4][4];
    Integers is_positive = (Integers)(shift == shift);
    UNROLL for (int a = 0; a < height; a++)
        UNROLL for (int b = 0; b < width; b++) sums[a][b] = H[(size_t)(row + a) * order + first + b];
    if (is_diagonal)
        UNROLL for (int a = 0; a < height; a++)
            if (row + a < order - 1) sums[a][a] += shift;
    for (int k = 0; k < first; k++)
        UNROLL for (int a = 0; a < height; a++) {
            const Vector factor = left[(size_t)a * order + k];
            UNROLL for (int b = 0; b < width; b++) sums[a][b] -= factor * top[(size_t)b * order + k];
        }
    UNROLL for (int b = 0; b < width; b++) {
        Vector *const pivot = left + (size_t)b * order + first + b;
        if (is_diagonal) {
            is_positive &= (Integers)(sums[b][b] > 0);
            *pivot = 1 / square_root(sums[b][b]);
        }
        const Vector inverse = is_diagonal ? *pivot : top[(size_t)b * order + first + b];
        UNROLL for (int a = is_diagonal ? b + 1 : 0; a < height; a++)
            left[(size_t)a * order + first + b] = sums[a][b] *= inverse;
        UNROLL for (int c = b + 1; c < width; c++) {
            const Vector factor = is_diagonal ? sums[c][b] : top[(size_t)c * order + first + b];
            UNROLL for (int a = is_diagonal ? c : 0; a < height; a++) sums[a][c] -= sums[a][b] * factor;
        }
    }
    return is_positive;
}

/* A Cholesky factor L, with inverse diagonal entries, of the matrix H plus a shift on its diagonal but the last entry;
   return the lanes with one. Both are lower triangles, row by row. */
static Integers NAME(factorize)(const Vector *H, int order, Vector shift, Vector *L) {
    Integers is_positive = (Integers)(shift == shift);
#define FACTOR(row, is_diagonal, h, w) NAME(factor_tile)(H, shift, row, first, order, is_diagonal, h, w, L)
    for (int first = 0; first < order; first += 4) {
        int row = first + 4;
        switch (order - first) {
        case 1: is_positive &= FACTOR(first, 1, 1, 1); break;
        case 2: is_positive &= FACTOR(first, 1, 2, 2); break;
        case 3: is_positive &= FACTOR(first, 1, 3, 3); break;
        default: is_positive &= FACTOR(first, 1, 4, 4);
        }
        for (; row + 4 <= order; row += 4) FACTOR(row, 0, 4, 4);
        switch (order - row) {
        case 1: FACTOR(row, 0, 1, 4); break;
        case 2: FACTOR(row, 0, 2, 4); break;
        case 3: FACTOR(row, 0, 3, 4);
        }
    }
#undef FACTOR
    return is_positive;
}

/* Replace a right-hand side by the solution. */
static void NAME(solve)(const Vector *L, int order, Vector *x) {
    for (int a = 0; a < order; a++)
        x[a] = (x[a] - dot(L + (size_t)a * order, x, a)) * L[(size_t)a * order + a];
    for (int a = order - 1; a >= 0; a--) {
        x[a] *= L[(size_t)a * order + a];
        for (int b = 0; b < a; b++) x[b] -= x[a] * L[(size_t)a * order + b];
    }
}

/* Σ ln s of the slacks s = g − t; return the lanes in which all are positive. */
static Integers NAME(log_sum)(const Vector *g, Vector t, int count, double *sums) {
    const INTEGER exponent_mask = ((INTEGER)1 << (8 * sizeof(REAL) - 1 - MANTISSA_BITS)) - 1;
    const Integers one = (Integers)all(1), mantissa = (Integers){0} + (((INTEGER)1 << MANTISSA_BITS) - 1);
    Vector least = all(1), product = all(1);
    Integers exponents = {0};
    for (int r = 0; r < count; r++) {
        const Vector slack = g[r] - t;
        least = NAME(select)((Integers)(slack >= TINY), smaller(least, slack), all(-1));
        const Integers bits = (Integers)slack;
        exponents += ((bits >> MANTISSA_BITS) & exponent_mask) - EXPONENT_BIAS;
        product *= (Vector)((bits & mantissa) | one);
        if (r % 32 == 31) {
            const Integers of_product = (Integers)product;
            exponents += ((of_product >> MANTISSA_BITS) & exponent_mask) - EXPONENT_BIAS;
            product = (Vector)((of_product & mantissa) | one);
        }
    }
    for (int k = 0; k < LANES; k++) sums[k] = log((double)product[k]) + 0.6931471805599453 * (double)exponents[k];
    return (Integers)(least > 0);
}
