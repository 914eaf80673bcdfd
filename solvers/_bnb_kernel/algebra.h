/* Products and factors of matrices in C order, by the BLAS and LAPACK routines of SciPy.

   These take matrices in Fortran order, which are the transposes of ours. So they get the factors of a product in the
   opposite order, and what is the lower triangle for them is the upper one for us. */

/* Routines in the order in which `set_routines` gets them. Vectors have one more argument, their stride. */
static struct {
    void (*dgemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
    void (*dgemv)(char *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
    double (*ddot)(int *, double *, int *, double *, int *);
    void (*dpotrf)(char *, int *, double *, int *, int *);
    void (*dpotri)(char *, int *, double *, int *, int *);
    void (*dposv)(char *, int *, int *, double *, int *, double *, int *, int *);
    void (*dsyev)(char *, char *, int *, double *, int *, double *, double *, int *, int *);
} routines;

/* A matrix whose rows begin `stride` entries apart. */
typedef struct {
    const double *entries;
    int stride;
    char is_transposed;
} Factor;

static Factor plain(const double *entries, int stride) { return (Factor){entries, stride, 'N'}; }
static Factor transposed(const double *entries, int stride) { return (Factor){entries, stride, 'T'}; }

/* C = factor A B + keep C, for A of shape (rows, inner) and B of shape (inner, columns). */
static void multiply(int rows, int inner, int columns, double factor, Factor A, Factor B, double keep, double *C, int stride) {
    if (rows && columns)
        routines.dgemm(&B.is_transposed, &A.is_transposed, &columns, &rows, &inner, &factor, (double *)B.entries,
                       &B.stride, (double *)A.entries, &A.stride, &keep, C, &stride);
}

/* y = factor Σ_r x_r A_r for the rows A_r of A, shape (rows, columns). */
static void combine(int rows, int columns, double factor, const double *A, const double *x, double *y) {
    int one = 1;
    double keep = 0;
    routines.dgemv("N", &columns, &rows, &factor, (double *)A, &columns, (double *)x, &one, &keep, y, &one);
}

static double dot(int size, const double *x, const double *y) {
    int one = 1;
    return routines.ddot(&size, (double *)x, &one, (double *)y, &one);
}

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

/* Return the smallest eigenvalue of a symmetric matrix, which is overwritten; `memory` holds 5 d numbers. */
static double smallest_eigenvalue(int d, double *A, double *memory) {
    int code, size = 4 * d;
    routines.dsyev("N", "L", &d, A, &d, memory, memory + d, &size, &code);
    return memory[0];
}
