/* Steps of a group of paths, for one number type and one instruction set. */

/* Derivatives of the stabilities along `move`, in `tilt`, and their values at it, in `bend`. */
static void NAME(look_along)(const Problem *problem, Group *group) {
    const int n = problem->n, m = problem->m, pairs = n * (n - 1) / 2;
    const REAL *labels = problem->labels;
    for (int pattern = 0; pattern < problem->p; pattern++) {
        NAME(products)(problem, group->move, pattern, group->left, group->right);
        const Vector *right = problem->transposed == NULL ? group->left : group->right;
        for (int i = 0, r = pattern * pairs; i < n; i++)
            for (int j = i + 1; j < n; j++, r++) {
                const Vector *dP = group->left + i * m, *Pd = right + j * m;
                group->tilt[r] = labels[r] * (dot(dP, group->W + j * m, m) + dot(Pd, group->W + i * m, m));
                group->bend[r] = labels[r] * dot(dP, group->move + j * m, m);
            }
    }
}

/* Stabilities after steps of some lengths, in `trial`. */
static void NAME(move_stabilities)(const Problem *problem, Group *group, Vector length) {
    const int n = problem->n;
    const Vector *squares = group->squares;
    Vector *shrinkage = group->shrinkage;
    for (int i = 0, pair = 0; i < n; i++)
        for (int j = i + 1; j < n; j++, pair++)
            shrinkage[pair] = 1 / square_root((1 + length * length * squares[i]) * (1 + length * length * squares[j]));
    for (int pattern = 0, r = 0; pattern < problem->p; pattern++)
        for (int pair = 0; pair < n * (n - 1) / 2; pair++, r++)
            group->trial[r] =
                (group->stabilities[r] + length * (group->tilt[r] + length * group->bend[r])) * shrinkage[pair];
}

/* Step lengths, halved until the barrier function increases enough, zero where there is none; `trial` has the
   stabilities after the steps. `active` are the lanes to move. */
static Vector NAME(search_lines)(const Problem *problem, const Rules *rules, Group *group, Vector slope,
                                 const uint8_t *active) {
    const int n = problem->n, m = problem->m, count = problem->p * n * (n - 1) / 2;
    const Vector rise = group->move[n * m];
    Vector nearest = all(TINY), farthest = all(TINY), *squares = group->squares;
    for (int r = 0; r < count; r++)
        nearest = larger(nearest, (rise - group->tilt[r]) / (group->stabilities[r] - group->t));
    for (int i = 0; i < n; i++) {
        squares[i] = dot(group->move + i * m, group->move + i * m, m);
        farthest = larger(farthest, squares[i]);
    }
    Vector length = smaller(all(1), all((REAL)rules->boundary_share) / nearest);
    length = smaller(length, all((REAL)rules->max_step_length) / square_root(farthest));
    double before[LANES], after[LANES];
    uint8_t is_searching[LANES];
    int searching = 0;
    NAME(log_sum)(group->stabilities, group->t, count, before);
    for (int k = 0; k < LANES; k++) {
        searching += is_searching[k] = active[k];
        if (!active[k]) length[k] = 0;
    }
    const double allowance = rules->roundings * EPSILON * problem->unit;
    while (searching) {
        NAME(move_stabilities)(problem, group, length);
        const Integers is_inside = NAME(log_sum)(group->trial, group->t + length * rise, count, after);
        for (int k = 0; k < LANES; k++) {
            if (!is_searching[k]) continue;
            const double gain = (double)length[k] * rise[k] + (double)group->mu[k] * (after[k] - before[k]);
            if (is_inside[k] && gain >= rules->armijo_share * (double)length[k] * slope[k] - allowance) {
                searching -= 1;
                is_searching[k] = 0;
            } else if ((length[k] /= 2) < rules->min_step_length || length[k] != length[k]) {
                length[k] = 0;
                searching -= 1;
                is_searching[k] = 0;
            }
        }
    }
    NAME(move_stabilities)(problem, group, length);
    return length;
}

/* Take steps of the given lengths. The multipliers have lengths of their own. */
static void NAME(take_steps)(const Problem *problem, const Rules *rules, Group *group, Vector length) {
    const int n = problem->n, m = problem->m, count = problem->p * n * (n - 1) / 2;
    const Vector rise = group->move[n * m], t = group->t + length * rise;
    Vector nearest = all(TINY), *directions = group->bend;
    for (int r = 0; r < count; r++) {
        const Vector inverse = 1 / (group->stabilities[r] - group->t), multiplier = group->multipliers[r];
        directions[r] = group->mu * inverse - multiplier * (1 + (group->tilt[r] - rise) * inverse);
        nearest = larger(nearest, -directions[r] / multiplier);
    }
    const Vector dual_length = smaller(all(1), (REAL)rules->boundary_share / nearest);
    for (int r = 0; r < count; r++) {
        const Vector rate = group->mu / (group->trial[r] - t);
        const Vector moved = group->multipliers[r] + dual_length * directions[r];
        group->multipliers[r] = smaller(larger(moved, rate * (REAL)1e-8), rate * (REAL)1e8);
        group->stabilities[r] = group->trial[r];
    }
    group->t = t;
    for (int i = 0; i < n; i++) {
        Vector *w = group->W + i * m;
        for (int k = 0; k < m; k++) w[k] += length * group->move[i * m + k];
        const Vector scale = 1 / square_root(dot(w, w, m));
        for (int k = 0; k < m; k++) w[k] *= scale;
    }
}

/* The next width of a path that has converged at a width; it falls faster on a `central` path at small widths. */
static double NAME(next_width)(const Rules *rules, double width, int central) {
    double lower = rules->shrink * width;
    if (width <= rules->tail_width) {
        lower = rules->tail_shrink * width;
        if (central && pow(width, rules->tail_power) < lower) lower = pow(width, rules->tail_power);
    }
    return lower > rules->last_width ? lower : rules->last_width;
}

static void NAME(load_lane)(const Problem *problem, Group *group, const Paths *paths, int lane, int64_t path) {
    const int weights = problem->n * problem->m, count = problem->p * problem->n * (problem->n - 1) / 2;
    group->path[lane] = path;
    for (int k = 0; k < weights; k++) group->W[k][lane] = ((REAL *)paths->W)[path * weights + k];
    for (int r = 0; r < count; r++) group->multipliers[r][lane] = ((REAL *)paths->multipliers)[path * count + r];
    group->t[lane] = ((REAL *)paths->t)[path];
    group->mu[lane] = ((REAL *)paths->mu)[path];
    group->shift[lane] = ((REAL *)paths->shift)[path];
}

static void NAME(store_lane)(const Problem *problem, Group *group, const Paths *paths, int lane, int32_t status) {
    const int weights = problem->n * problem->m, count = problem->p * problem->n * (problem->n - 1) / 2;
    const int64_t path = group->path[lane];
    for (int k = 0; k < weights; k++) ((REAL *)paths->W)[path * weights + k] = group->W[k][lane];
    for (int r = 0; r < count; r++) {
        ((REAL *)paths->multipliers)[path * count + r] = group->multipliers[r][lane];
        ((REAL *)paths->stabilities)[path * count + r] = group->stabilities[r][lane];
    }
    ((REAL *)paths->t)[path] = group->t[lane];
    ((REAL *)paths->mu)[path] = group->mu[lane];
    ((REAL *)paths->shift)[path] = group->shift[lane];
    ((REAL *)paths->residual)[path] = group->residual[lane];
    paths->status[path] = status;
    group->path[lane] = -1;
}

/* One Newton step of a group. Lanes that end are stored and emptied. */
static void NAME(step)(const Problem *problem, const Rules *rules, const Paths *paths, Group *group) {
    const int n = problem->n, m = problem->m, weights = n * m, order = weights + 1, pairs = n * (n - 1) / 2;
    const REAL unit = (REAL)problem->unit;
    Vector least_slack = all(1) / (REAL)TINY;
    for (int k = 0; k < 3 * weights + 4; k++) group->sums[k] = all(0);
    for (int k = 0; k < pairs; k++) group->shares[k] = all(0);
    for (size_t k = 0; k < (size_t)order * order; k++) group->matrix[k] = all(0);
    for (int first = 0; first < problem->p; first += BLOCK)
        NAME(add_block)(problem, group, first, problem->p - first < BLOCK ? problem->p - first : BLOCK, &least_slack);
    const Vector *totals = group->sums + 3 * weights;
    Vector stationarity = all(0);
    for (int k = 0; k < weights; k++) stationarity = larger(stationarity, magnitude(group->sums[k]));
    group->residual = larger(larger(stationarity, magnitude(1 - totals[1]) * unit), totals[2]) / unit;
    NAME(complete_matrix)(problem, group);
    Vector *forces = group->move, *ones = group->solutions, *other = ones + order, gradient_of_t = -totals[0];
    for (int k = 0; k < weights; k++) {
        forces[k] = ones[k] = group->sums[weights + k];
        other[k] = all(0);
    }
    ones[weights] = gradient_of_t;
    other[weights] = all(1);
    const Integers is_solved = NAME(solve_shifted)(problem, rules, paths, group);
    const Vector first_form = dot(forces, ones, weights) + gradient_of_t * ones[weights];
    const Vector mixed_form = ones[weights], last_form = other[weights];
    uint8_t active[LANES] = {0}, arrived[LANES] = {0};
    int moving = 0;
    for (int k = 0; k < LANES; k++) {
        const int64_t path = group->path[k];
        if (path < 0) continue;
        const double mu = group->mu[k], width = mu * problem->p * pairs / problem->unit;
        const double decrement = mu * (mu * first_form[k] + 2 * mixed_form[k]) + last_form[k];
        const double limit = group->shift[k] > 0 && width < rules->tail_width ? rules->max_decrement / 10 : rules->max_decrement;
        const int is_precise = group->residual[k] <= rules->tol && width <= rules->tol;
        if (!is_solved[k] || decrement != decrement) {
            NAME(store_lane)(problem, group, paths, k, STUCK);
            continue;
        }
        const int hurries = width > 1.0001 * rules->settle_width;
        arrived[k] = !hurries && decrement < limit * mu;
        if (arrived[k]) ((REAL *)paths->arrived_t)[path] = group->t[k];
        if (arrived[k] && (is_precise || width <= 1.0001 * rules->last_width)) {
            NAME(store_lane)(problem, group, paths, k, ENDED);
        } else if (paths->age[path] >= rules->max_age) {
            NAME(store_lane)(problem, group, paths, k, TOO_OLD);
        } else {
            double next = width;
            if (arrived[k]) next = NAME(next_width)(rules, width, decrement < rules->central_decrement * mu);
            if (hurries) next = fmax(rules->hurry * width, rules->settle_width);
            if (next != width) group->mu[k] = (REAL)(next * problem->unit / (problem->p * pairs));
            active[k] = 1;
            moving++;
        }
    }
    if (!moving) return;
    for (int k = 0; k < order; k++) group->move[k] = group->mu * ones[k] + other[k];
    const Vector slope = group->mu * (group->mu * first_form + 2 * mixed_form) + last_form;
    NAME(look_along)(problem, group);
    const Vector length = NAME(search_lines)(problem, rules, group, slope, active);
    NAME(take_steps)(problem, rules, group, length);
    for (int k = 0; k < LANES; k++) {
        if (!active[k]) continue;
        paths->age[group->path[k]] += 1;
        if (!(length[k] > 0))
            NAME(store_lane)(problem, group, paths, k, STUCK);
        else if (arrived[k])
            NAME(store_lane)(problem, group, paths, k, ARRIVED);
    }
}

static size_t NAME(lay_out)(const Problem *problem, Group *group, Vector *memory) {
    const size_t n = problem->n, m = problem->m, p = problem->p, weights = n * m, pairs = n * (n - 1) / 2;
    const size_t count = p * pairs, order = weights + 1, slots = n * (n - 1) * BLOCK;
    size_t used = 0;
#define PLACE(name, size) (group->name = memory == NULL ? NULL : memory + used, used += (size))
    PLACE(W, weights), PLACE(move, order), PLACE(stabilities, count), PLACE(multipliers, count), PLACE(tilt, count);
    PLACE(bend, count), PLACE(trial, count), PLACE(signed_multipliers, count), PLACE(left, weights);
    PLACE(right, weights), PLACE(slopes, slots * m), PLACE(coefficients, 3 * slots), PLACE(sums, 3 * weights + 4);
    PLACE(matrix, order * order), PLACE(factor, order * order), PLACE(solutions, 2 * order);
    PLACE(mixture, m * m + m), PLACE(shares, pairs), PLACE(curvature, n), PLACE(squares, n);
    PLACE(shrinkage, pairs);
#undef PLACE
    return used * sizeof(Vector);
}

/* Bytes of the memory of a group. */
static size_t NAME(memory_bytes)(const Problem *problem) {
    Group group;
    return NAME(lay_out)(problem, &group, NULL);
}

/* Take steps on all paths whose status is RUNNING, at most `max_steps` of a group. */
static void NAME(follow)(const Problem *problem, const Rules *rules, const Paths *paths, void *memory) {
    Group group;
    const size_t bytes = NAME(lay_out)(problem, &group, memory);
    memset(memory, 0, bytes);
    group.t = group.mu = group.shift = group.residual = all(1);
    for (int k = 0; k < LANES; k++) group.path[k] = -1;
    int64_t next = 0;
    for (int64_t steps = 0; steps < rules->max_steps; steps++) {
        int filled = 0;
        for (int k = 0; k < LANES; k++) {
            if (group.path[k] < 0) {
                while (next < paths->count && paths->status[next] != RUNNING) next++;
                if (next < paths->count) NAME(load_lane)(problem, &group, paths, k, next++);
            }
            filled += group.path[k] >= 0;
        }
        if (!filled) return;
        NAME(step)(problem, rules, paths, &group);
    }
    for (int k = 0; k < LANES; k++)
        if (group.path[k] >= 0) NAME(store_lane)(problem, &group, paths, k, RUNNING);
}
