/* Products of matrices in C order, and their factors by the LAPACK routines of SciPy.

   LAPACK takes matrices in Fortran order, which are the transposes of ours: what is the lower triangle for it is the
   upper one for us. */

/* Routines in the order in which `set_routines` gets them. */
static struct {
    void (*dpotrf)(char *, int *, double *, int *, int *);
    void (*dpotri)(char *, int *, double *, int *, int *);
    void (*dposv)(char *, int *, int *, double *, int *, double *, int *, int *);
} routines;

/* A matrix whose rows, or columns if it is transposed, begin `stride` entries apart. If it is lower triangular before it is
   transposed, as many of its last columns as it has rows are so; entries above their diagonal are zero. Numbers before its
   first entry may then be read too. */
typedef struct {
    const double *entries;
    int stride, is_transposed, is_lower;
} Factor;

static Factor plain(const double *entries, int stride) { return (Factor){entries, stride, 0, 0}; }
static Factor transposed(const double *entries, int stride) { return (Factor){entries, stride, 1, 0}; }
static Factor lower(const double *entries, int stride) { return (Factor){entries, stride, 0, 1}; }
static Factor transposed_lower(const double *entries, int stride) { return (Factor){entries, stride, 1, 1}; }

/* Number of the first rows of B that are zero from a column on. */
static inline int zero_rows(Factor B, int rows, int columns, int column) {
    return B.is_lower && column > columns - rows ? column - (columns - rows) : 0;
}

#define JOIN_NAMES(a, b) a##_##b
#define JOIN(a, b) JOIN_NAMES(a, b)
#define NAME(x) JOIN(x, SET)

#define FOR_EACH_SET "../_bnb_kernel/products.h"
#include "../_library/sets.h"

/* C = factor A B, or C += factor A B if `keeps`, for A of shape (rows, inner) and B of shape (inner, columns), which is not
   transposed. If A is lower triangular, it is also square. */
static void multiply(int rows, int inner, int columns, double factor, Factor A, Factor B, int keeps, double *C, int stride) {
    CHOSEN(multiply)(rows, inner, columns, factor, A, B, keeps, C, stride);
}

/* C = A Bᵀ, the inner products of the rows of A, shape (rows, inner), and B, shape (columns, inner). */
static void multiply_rows(int rows, int inner, int columns, const double *A, const double *B, double *C, int stride) {
    CHOSEN(multiply_rows)(rows, inner, columns, A, B, inner, 0, C, stride);
}

/* The upper triangle of C = A Aᵀ, for A of shape (rows, inner), whose rows begin `A_stride` entries apart. */
static void inner_products_of_rows(int rows, int inner, int A_stride, const double *A, double *C, int stride) {
    CHOSEN(multiply_rows)(rows, inner, rows, A, A, A_stride, 1, C, stride);
}

static double dot(int size, const double *x, const double *y) { return CHOSEN(dot)(size, x, y); }

static double sum(int size, const double *x) {
    double total = 0;
    for (int i = 0; i < size; i++) total += x[i];
    return total;
}

/* Replace `count` symmetric matrices by their Cholesky factors, in upper triangles; return whether all are positive. */
static int factorize(int count, int d, double *matrices) {
    int code = 0;
    for (int k = 0; k < count && !code; k++) routines.dpotrf("L", &d, matrices + (size_t)k * d * d, &d, &code);
    return !code;
}

/* Replace `count` symmetric matrices by their Cholesky factors L, lower triangular; return whether all are positive. */
static int factorize_lower(int count, int d, double *matrices) {
    int code = 0;
    for (int k = 0; k < count && !code; k++) {
        double *L = matrices + (size_t)k * d * d;
        routines.dpotrf("U", &d, L, &d, &code);
        for (int row = 0; row < d; row++) memset(L + (size_t)row * (d + 1) + 1, 0, (d - row - 1) * sizeof(double));
    }
    return !code;
}

/* Replace Cholesky factors by the inverses of the matrices. */
static void invert(int count, int d, double *factors) {
    int code;
    for (double *A = factors; A < factors + (size_t)count * d * d; A += d * d) {
        routines.dpotri("L", &d, A, &d, &code);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < i; j++) A[i * d + j] = A[j * d + i];
    }
}

/* Replace the upper triangle of A by its factor and the two rows of B by the solutions; return whether it worked. */
static int solve_positive(int size, double *A, double *B) {
    int code, two = 2;
    routines.dposv("L", &size, &two, A, &size, B, &size, &code);
    for (int i = 0; i < 2 * size; i++) code |= !isfinite(B[i]);
    return !code;
}
