/* Newton's equations of a group of paths, one in each lane, for one number type and one instruction set. */

/* Arrays of a group of paths. The slopes of BLOCK patterns are in memory at a time. */
enum { NAME(BLOCK) = 8 };
#define BLOCK NAME(BLOCK)

typedef struct {
    Vector t, mu, shift, residual;
    Vector *W, *move, *stabilities, *multipliers, *tilt, *bend, *trial, *signed_multipliers; /* n m or R numbers */
    Vector *left, *right, *slopes, *coefficients; /* of a block: wᵀP and Pw of each row, slopes, and three factors */
    Vector *sums, *matrix, *factor, *solutions, *mixture, *shares, *curvature; /* of the Newton equations */
    Vector *squares, *shrinkage; /* of a move: squared lengths of its rows, and factors that normalize stabilities */
    int64_t path[LANES]; /* the path of each lane, or −1 */
} NAME(Group);
#define Group NAME(Group)

/* Products w_iᵀP and P w_j of the rows i that are the first, and j that are the second of a pair. */
static void NAME(products)(const Problem *problem, const Vector *rows, int pattern, Vector *left, Vector *right) {
    const int n = problem->n, m = problem->m;
    const size_t place = (size_t)pattern * m * m;
    const REAL *P = (const REAL *)problem->patterns + place;
    if (problem->transposed == NULL) {
        for (int i = 0; i < n; i++) NAME(row_times)(rows + i * m, P, m, left + i * m);
        return;
    }
    for (int i = 0; i + 1 < n; i++) NAME(row_times)(rows + i * m, P, m, left + i * m);
    for (int j = 1; j < n; j++)
        NAME(row_times)(rows + j * m, (const REAL *)problem->transposed + place, m, right + j * m);
}

/* The slopes of a block of patterns, √(λ/s) times the gradients on the tangent spaces, and the sums of Newton's
   equations over them. The slopes are ordered by the row of W, the pattern, the other row of the pair, and the entry. */
static void NAME(add_block)(const Problem *problem, Group *group, int first, int size, Vector *least_slack) {
    const int n = problem->n, m = problem->m, others = n - 1, pairs = n * others / 2, order = n * m + 1;
    const REAL *labels = problem->labels;
    const size_t row_size = (size_t)BLOCK * others * m;
    Vector *const diagonal_sum = group->sums + 3 * n * m; /* Σ1/s, Σλ, max λs and Σλ/s */
    for (int c = 0; c < size; c++) {
        const int pattern = first + c;
        NAME(products)(problem, group->W, pattern, group->left, group->right);
        const Vector *right = problem->transposed == NULL ? group->left : group->right;
        for (int i = 0, pair = 0; i < n; i++)
            for (int j = i + 1; j < n; j++, pair++) {
                const int r = pattern * pairs + pair;
                const Vector *wP = group->left + i * m, *Pw = right + j * m, *w_i = group->W + i * m,
                             *w_j = group->W + j * m, label = all(labels[r]);
                const Vector g = label * dot(wP, w_j, m), slack = g - group->t, multiplier = group->multipliers[r];
                const Vector inverse = 1 / slack, rate = multiplier * inverse, root = square_root(rate);
                const Vector scale = root * label, normal = root * g;
                Vector *S_i = group->slopes + i * row_size + ((size_t)c * others + j - 1) * m;
                Vector *S_j = group->slopes + j * row_size + ((size_t)c * others + i) * m;
                for (int k = 0; k < m; k++) {
                    S_i[k] = scale * Pw[k] - normal * w_i[k];
                    S_j[k] = scale * wP[k] - normal * w_j[k];
                }
                const int slots[2] = {i * BLOCK * others + c * others + j - 1, j * BLOCK * others + c * others + i};
                for (int side = 0; side < 2; side++) {
                    Vector *factors = group->coefficients + 3 * slots[side];
                    factors[0] = root * slack;
                    factors[1] = inverse / root;
                    factors[2] = root;
                }
                group->stabilities[r] = g;
                group->signed_multipliers[(size_t)pair * problem->p + pattern] = multiplier * label;
                group->shares[pair] += multiplier * g;
                diagonal_sum[0] += inverse;
                diagonal_sum[1] += multiplier;
                diagonal_sum[2] = larger(diagonal_sum[2], multiplier * slack);
                diagonal_sum[3] += rate;
                *least_slack = smaller(*least_slack, slack);
            }
    }
    for (int i = 0; i < n; i++) {
        const Vector *S = group->slopes + i * row_size, *factors = group->coefficients + 3 * i * BLOCK * others;
        for (int k = 0; k < m; k++) {
            Vector sums[3];
            for (int c = 0; c < 3; c++) sums[c] = group->sums[c * n * m + i * m + k];
            for (int s = 0; s < size * others; s++)
                for (int c = 0; c < 3; c++) sums[c] += S[(size_t)s * m + k] * factors[3 * s + c];
            for (int c = 0; c < 3; c++) group->sums[c * n * m + i * m + k] = sums[c];
        }
        Vector *block = group->matrix + (size_t)i * m * order;
        NAME(add_gram)(S, S, size * others, m, m, 1, block + i * m, order);
        for (int j = 0; j < i; j++)
            NAME(add_gram)(S + (size_t)j * m, group->slopes + j * row_size + (size_t)(i - 1) * m, size,
                           (size_t)others * m, m, 0, block + j * m, order);
    }
}

/* Complete the Newton matrix: subtract the mixtures of the patterns, projected onto the tangent spaces, and make it a
   multiple of the identity on the normal space. Only the lower triangle is set. */
static void NAME(complete_matrix)(const Problem *problem, Group *group) {
    const int n = problem->n, m = problem->m, order = n * m + 1;
    Vector *const H = group->matrix, *const curvature = group->curvature, fill = all(0);
    for (int i = 0; i < n; i++) curvature[i] = all(0);
    for (int i = 0, pair = 0; i < n; i++)
        for (int j = i + 1; j < n; j++, pair++) {
            curvature[i] += group->shares[pair];
            curvature[j] += group->shares[pair];
        }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < m; k++) fill += H[(size_t)(i * m + k) * (order + 1)];
        fill += (REAL)m * curvature[i];
    }
    fill /= (REAL)(n * m);
    for (int i = 0; i < n; i++) {
        const Vector *w = group->W + i * m, excess = fill - curvature[i];
        for (int a = 0; a < m; a++) {
            Vector *row = H + (size_t)(i * m + a) * order + i * m;
            for (int b = 0; b <= a; b++) row[b] += excess * w[a] * w[b];
            row[a] += curvature[i];
        }
    }
    for (int i = 0, pair = 0; i < n; i++)
        for (int j = i + 1; j < n; j++, pair++) {
            Vector *M = group->mixture, *along = M + m * m;
            const Vector *w_i = group->W + i * m, *w_j = group->W + j * m;
            NAME(mix)(problem, group->signed_multipliers + (size_t)pair * problem->p, M);
            for (int b = 0; b < m; b++) along[b] = all(0);
            for (int a = 0; a < m; a++)
                for (int b = 0; b < m; b++) along[b] += w_i[a] * M[a * m + b];
            for (int a = 0; a < m; a++) {
                const Vector right = dot(M + a * m, w_j, m) - group->shares[pair] * w_i[a];
                for (int b = 0; b < m; b++)
                    H[(size_t)(j * m + b) * order + i * m + a] -=
                        M[a * m + b] - w_i[a] * along[b] - right * w_j[b];
            }
        }
    Vector *last = H + (size_t)(order - 1) * order;
    for (int k = 0; k < n * m; k++) last[k] = -group->sums[2 * n * m + k];
    last[order - 1] = group->sums[3 * n * m + 3];
}

/* Project a vector in (W, t) onto the tangent spaces of the rows of W. */
static void NAME(project)(const Problem *problem, const Group *group, Vector *v) {
    for (int i = 0; i < problem->n; i++) {
        const Vector *w = group->W + i * problem->m;
        const Vector along = dot(w, v + i * problem->m, problem->m);
        for (int k = 0; k < problem->m; k++) v[i * problem->m + k] -= along * w[k];
    }
}

/* The solutions with the Newton matrix plus a shift for which it is positive definite; return the lanes with one. The
   search starts at the last shift if that took several trials, else below it, but not at zero unless the last shift was
   the smallest. */
static Integers NAME(solve_shifted)(const Problem *problem, const Rules *rules, const Paths *paths, Group *group) {
    const int order = problem->n * problem->m + 1;
    const REAL least = (REAL)(rules->min_shift * problem->unit);
    Vector shift = group->shift;
    uint8_t was_kept[LANES] = {0}, keeps[LANES] = {0};
    for (int k = 0; k < LANES; k++) {
        if (group->path[k] >= 0) was_kept[k] = paths->keep_shift[group->path[k]];
        if (!was_kept[k]) shift[k] = shift[k] > 3 * least ? shift[k] / 3 : shift[k] > least ? least : 0;
    }
    Integers is_solved;
    for (int64_t trial = 0;; trial++) {
        is_solved = NAME(factorize)(group->matrix, order, shift, group->factor);
        int failures = 0;
        for (int k = 0; k < LANES; k++)
            if (!is_solved[k] && group->path[k] >= 0) {
                failures++;
                keeps[k] = 1;
                if (trial + 1 < rules->max_shift_trials) shift[k] = shift[k] * 3 > least ? shift[k] * 3 : least;
            }
        if (failures == 0 || trial + 1 == rules->max_shift_trials) break;
    }
    for (int k = 0; k < LANES; k++)
        if (group->path[k] >= 0) paths->keep_shift[group->path[k]] = keeps[k];
    group->shift = shift;
    for (int side = 0; side < 2; side++) {
        Vector *x = group->solutions + (size_t)side * order;
        NAME(solve)(group->factor, order, x);
        NAME(project)(problem, group, x);
    }
    return is_solved;
}
