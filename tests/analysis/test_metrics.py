"""Metrics of rows: scores, bounds, times, profiles, theory."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import theory
from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import Place, ReportRow, extend_row, labels_of_solvers, place
from qcqpbench.catalog.status import Termination
from tests.support.report_rows import lost, many, row

TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


# --- scores ---


GENERAL: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "maximize"}


def test_only_a_feasible_point_has_a_score() -> None:
    assert metrics.score(row(**GENERAL, objective=0.7)) == 0.7
    assert metrics.score(row(**GENERAL, objective=0.7, point_status="infeasible", termination="optimal")) is None
    assert metrics.score(lost()) is None


def test_margin_of_a_task_counts_if_x_is_infeasible() -> None:
    """Check the score of a task: the margin of W with unit rows, which violates nothing."""
    assert metrics.score(row(kappa_bar=0.7)) == metrics.score(row(kappa_bar=0.7, point_status="infeasible")) == 0.7


def test_infinite_values_and_bounds_do_not_count() -> None:
    """Check an infinite objective at a feasible point, an infinite bound, and an infinite margin."""
    facts: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "maximize"}
    good, endless = row(**facts, objective=3.0), row(**facts, objective=math.inf, bound=math.inf)
    assert metrics.score(endless) is None and not metrics.is_solved(endless)
    best = metrics.best_known([good, endless])
    assert list(best.values()) == [3.0] and metrics.bounds([good, endless], best).least == {}
    assert metrics.scales([row(margin=math.inf, kappa_bar=math.inf)]) == {}


def test_unknown_termination_is_not_a_false_claim() -> None:
    newer = row(termination="bored", point_status="none", kappa_bar=None, margin=None)
    assert not metrics.is_false_claim(newer, {}, set())
    assert newer.termination.message == "bored" != Termination.OPTIMAL.message


def test_sense_sets_the_sign_of_the_score() -> None:
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "objective": 3.0}
    assert metrics.score(row(**convex, sense="minimize")) == -3.0
    assert metrics.score(row(**convex, sense="maximize")) == 3.0


def test_row_without_a_sense_has_no_score() -> None:
    old = row(margin=None, kappa_bar=None, objective=3.0, best_known=2.5, bound=2.0, termination="optimal")
    assert metrics.score(old) is None and metrics.is_solved(old)
    assert metrics.best_known([old]) == {} and metrics.bounds([old], {}).least == {}
    assert not metrics.is_false_claim(old, {}, {old.problem_id})


@pytest.mark.parametrize(
    ("changes", "solved"),
    [
        ({}, True),
        ({"kappa_bar": -0.1}, False),
        ({"kappa_bar": 0.0}, False),
        ({"margin": None, "kappa_bar": None, "objective": 1.0, "point_status": "infeasible"}, False),
        ({"point_status": "infeasible"}, True),
        ({"margin": None, "kappa_bar": None, "objective": 1.0}, True),
    ],
)
def test_solved_needs_a_verified_point_and_on_tasks_a_positive_margin(changes: dict[str, Any], solved: bool) -> None:
    assert metrics.is_solved(row(**changes)) is solved


def test_best_known_is_the_best_feasible_point_of_all_solvers() -> None:
    rows = [
        row(**GENERAL, objective=0.4),
        row(**GENERAL, solver="b", objective=0.6),
        row(**GENERAL, solver="c", objective=9, point_status="infeasible"),
    ]
    assert metrics.best_known(rows) == {rows[0].problem_id: 0.6}


def test_better_published_value_is_the_best_known() -> None:
    """Check a task, where kappa_bar is twice the published margin, and objectives of both senses."""
    published = row(kappa_bar=0.6, best_known=0.35)
    assert metrics.best_known([published, row(solver="b", kappa_bar=0.2)]) == {published.problem_id: pytest.approx(0.7)}
    assert metrics.best_known([replace(published, best_known=0.1)]) == {published.problem_id: 0.6}
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "objective": 3.0, "best_known": 2.5}
    assert metrics.best_known([row(**convex, sense="minimize")]) == {published.problem_id: -2.5}
    assert metrics.best_known([row(**convex, sense="maximize")]) == {published.problem_id: 3.0}


def test_bounds_are_on_the_margin_and_may_be_refuted() -> None:
    """Check bounds of tasks whose kappa_bar is twice the margin."""
    rows = [row(kappa_bar=0.6), row(solver="b", bound=0.4), row(solver="c", bound=0.35), row(solver="d", bound=0.2)]
    rows[1:] = [replace(each, kappa_bar=0.5, margin=0.25) for each in rows[1:]]
    bounds = metrics.bounds(rows, metrics.best_known(rows))
    assert bounds.least == {rows[0].problem_id: pytest.approx(0.7)}
    assert bounds.of_solvers == {name: {rows[0].problem_id: pytest.approx(v)} for name, v in (("b", 0.8), ("c", 0.7))}
    assert [each.solver for each in bounds.refuted] == ["d"]


def test_run_without_a_point_does_not_change_the_sense_of_a_bound() -> None:
    """Check a row that does not store the sense."""
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None}
    rows = [row(**convex, sense="maximize", objective=2.0, bound=2.5), lost(solver="b")]
    assert metrics.bounds(rows, metrics.best_known(rows)).least == {rows[0].problem_id: 2.5}


def test_lower_bound_of_a_minimum_is_its_negative_score() -> None:
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "minimize"}
    rows = [row(**convex, objective=2.0, bound=1.5), row(**convex, solver="b", objective=2.5, bound=2.2)]
    bounds = metrics.bounds(rows, metrics.best_known(rows))
    assert bounds.least == {rows[0].problem_id: -1.5}
    assert [each.solver for each in bounds.refuted] == ["b"]


# --- time ---


def test_time_to_a_score_is_the_time_of_its_report() -> None:
    run = row(kappa_bar=1.0, trace=((0.1, 0.2), (0.4, 0.95), (0.8, 0.97)))
    assert metrics.seconds_to(run, 0.9) == pytest.approx(0.5 + 0.4)
    assert metrics.seconds_to(run, 0.99) == pytest.approx(1.5)
    assert metrics.seconds_to(run, 1.01) == math.inf


def test_reported_score_counts_only_if_it_is_returned() -> None:
    trace = ((0.1, 0.99),)
    assert metrics.seconds_to(row(kappa_bar=0.5, trace=trace), 0.9) == math.inf
    assert metrics.seconds_to(row(**GENERAL, objective=0.99, point_status="infeasible"), 0.9) == math.inf


def test_expected_time_includes_failed_starts() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), row(kappa_bar=0.1, solve_seconds=3.5), lost(build_seconds=0.0)]
    assert metrics.expected_seconds(runs, 0.9) == pytest.approx(2.0 + 4.0 + 10.0)
    assert metrics.expected_seconds(runs, 0.05) == pytest.approx((2.0 + 4.0 + 10.0) / 2)
    assert metrics.expected_seconds(runs, 2.0) == math.inf


def test_expected_time_is_capped_at_the_penalty() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), *[lost(build_seconds=0.0, time_limit=4.0)] * 9]
    assert metrics.restart_seconds(runs[:2], 0.9, 7.0, 3) == pytest.approx(2 + 4)
    assert metrics.restart_seconds(runs, 0.9, 7.0, 1) == 10.0
    assert metrics.restart_seconds(runs[1:], 0.9, 7.0, 3) == 12.0
    assert metrics.restart_seconds([], 0.9, 7.0, 3) == 21.0


def test_failed_runs_count_the_penalty_times_their_limit() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), lost(time_limit=4.0)]
    assert metrics.penalized_seconds(runs, 0.9, 7.0, 1) == pytest.approx((2 + 4) / 2)
    assert metrics.penalized_seconds(runs, 0.9, 7.0, 3) == pytest.approx((2 + 12) / 2)
    assert metrics.penalized_seconds([], 0.9, 7.0, 3) == 21.0
    assert metrics.penalized_seconds([lost(time_limit=math.inf)], 0.9, 7.0, 1) == 7.0


@given(TIMES, st.floats(1e-3, 1e3))
def test_shifted_geometric_mean_lies_between_geometric_and_arithmetic(times: list[float], shift: float) -> None:
    mean = metrics.shifted_geometric_mean(times, shift)
    product = math.prod(np.longdouble(time + shift) for time in times) ** (1 / np.longdouble(len(times)))
    assert mean == pytest.approx(float(product) - shift, rel=1e-6, abs=1e-6)
    assert np.exp(np.log(times).mean()) - 1e-6 <= mean * (1 + 1e-9) + 1e-6
    assert mean <= np.mean(times) * (1 + 1e-9) + 1e-6


def test_shift_is_the_power_of_ten_nearest_to_the_median() -> None:
    assert metrics.fitting_shift([0.02, 0.08, 5.0, math.inf]) == pytest.approx(0.1)
    assert metrics.fitting_shift([math.inf]) == 1.0


def test_growth_recovers_a_power_law() -> None:
    sizes = [10, 20, 40, 40]
    fit = metrics.growth(sizes, [3e-4 * m**2.5 for m in sizes])
    assert fit is not None
    assert fit.exponent == pytest.approx(2.5) and fit.coefficient == pytest.approx(3e-4) and fit.sizes == 3
    assert metrics.growth([1, 2, 2], [1, 2, 2]) is None


def test_quality_at_times_is_the_best_value_so_far() -> None:
    run = row(kappa_bar=1.0, trace=((0.1, -0.5), (0.5, 0.5), (0.6, 0.4)))
    assert metrics.quality_at([run], 2.0, [0.1, 0.61, 1.0, 1.2, 1.5]) == [0.0, 0.0, 0.25, 0.25, 0.5]
    assert metrics.quality_at([run, lost()], 2.0, [2.0]) == [0.25]


# --- profiles ---


@given(st.integers(0, 10**6))
def test_profiles_match_counts(seed: int) -> None:
    rng = random.Random(seed)
    names, problems = ["a", "b", "c"], [str(k) for k in range(12)]
    times = {
        name: {id: rng.choice([math.inf, rng.uniform(0.1, 9)]) for id in problems if rng.random() < 0.8}
        for name in names
    }
    levels = [1.0, 1.5, 3.0, 50.0]
    profile = metrics.performance_profile(times, problems, levels)
    budgets = metrics.data_profile(times, problems, levels)
    for name in names:
        for k, level in enumerate(levels):
            good = quick = 0
            for id in problems:
                time = times[name].get(id)
                others = [times[other][id] for other in names if id in times[other]]
                good += time is not None and time < math.inf and time <= level * min(others) * (1 + 1e-12)
                quick += time is not None and time <= level
            assert profile[name][k] == pytest.approx(good / 12)
            assert budgets[name][k] == pytest.approx(quick / 12)


def test_order_of_two_solvers_in_a_profile_may_depend_on_a_third() -> None:
    """Check the reason why the report shows each pair separately."""
    times = {"a": {"1": 1.0, "2": 9.0, "3": 9.0}, "b": {"1": 3.0, "2": 3.0, "3": 3.0}}
    both = metrics.performance_profile(times, ["1", "2", "3"], [1.0])
    three = metrics.performance_profile({**times, "c": {"2": 1.0, "3": 1.0}}, ["1", "2", "3"], [1.0])
    assert both["b"] > both["a"] and three["a"] > three["b"]


# --- theory ---


RSB: tuple[Literal[0, "full"], ...] = (0, "full")


@pytest.mark.parametrize("rsb", RSB)
@pytest.mark.parametrize("loads", [(0.5, 1.0, 3.0), (1.0,)])
def test_theory_curve_matches_the_theory(loads: Sequence[float], rsb: Literal[0, "full"]) -> None:
    """Check covariances with n = 3 outputs and classical perceptrons; one load is enough."""
    margins: dict[str, Callable[[float], float]] = {
        "covariance_perceptron": lambda load: float(theory.covariance_kappa_bar(90 * load, 30, 3, rsb=rsb)),
        "classical_perceptron": lambda load: float(theory.classical_kappa_bar(90 * load, 30, rsb=rsb)),
    }
    for family, kappa_bar in margins.items():
        curve = metrics.theory_curve(family, {load: kappa_bar(load) for load in loads}, rsb)
        assert curve[0][0] == pytest.approx(0.8 * min(loads)) and curve[-1][0] == pytest.approx(1.1 * max(loads))
        assert len(curve) == 80
        for load, value in curve:
            assert value == pytest.approx(kappa_bar(load), abs=1e-5)


def test_theory_curve_ends_where_full_rsb_is_not_tabulated() -> None:
    """Check that the curve stays within the table, which ends at κ̄ = −2.5: elsewhere it takes seconds or fails."""
    load = float(theory.covariance_capacity(-2.48, 1, rsb="full")) / 2
    curve = metrics.theory_curve("covariance_perceptron", {load: -2.48}, "full")
    assert load < curve[-1][0] < 1.1 * load and -2.5 < curve[-1][1] < -2.48
    assert not np.isnan([theory.covariance_kappa_bar_error(2 * load, 1) for load, _ in curve]).any()
    outside = {0.001: 43.0}
    assert metrics.theory_curve("covariance_perceptron", outside, "full") == [(0.001, 43.0)]


@pytest.mark.parametrize("rsb", RSB)
def test_inconsistent_predictions_are_no_curve(rsb: Literal[0, "full"]) -> None:
    """Check that the predictions of the one theory are not continued by the other."""
    assert metrics.theory_curve("covariance_perceptron", {2.0: 1.0, 1.0: 1.0}, rsb) == [(1.0, 1.0), (2.0, 1.0)]
    other = {load: float(theory.covariance_kappa_bar(2 * load, 1, rsb=0 if rsb else "full")) for load in (1.0, 2.0)}
    assert metrics.theory_curve("covariance_perceptron", other, rsb) == list(other.items())
    assert metrics.theory_curve("covariance_perceptron", {}, rsb) == []


def test_skipped_rows_are_not_runs() -> None:
    rows = [*many(1, 1, 1, 2, 2), lost(termination="skipped", solver="absent")]
    assert {solver for solver, _ in metrics.group(rows)} == {"solver0", "solver1"}


# --- rows ---


def test_extended_row_has_the_values_of_the_row_and_the_further_facts() -> None:
    first = row(kappa_bar=0.7)
    extended = extend_row(ReportRow, first, {"label": "b", "variables": 3})
    assert (extended.kappa_bar, extended.label, extended.variables, extended.constraints) == (0.7, "b", 3, None)
    assert (first.label, first.variables) == ("a", None)
    with pytest.raises(FrozenInstanceError):
        extended.label = "c"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("f[m=7,n=2,load=0.33,seed=1]", Place("f[n=2]", 7, 0.33, 5, 5 / 14)),
        ("f[m=7,n=2,p=5,c=0.5]", Place("f[n=2,c=0.5]", 7, 5 / 14, 5, 5 / 14)),
        ("f[m=4,p=6]", Place("f", 4, 1.5, 6, 1.5)),
        ("f[n=2,load=1]", Place("f[n=2,load=1]")),
        ("f[m=x,load=1]", Place("f[m=x,load=1]")),
        ("data/a.npz", Place("data/a.npz")),
        ("not a [spec", Place("not a [spec")),
    ],
)
def test_place_is_read_from_the_spec(problem: str, expected: Place) -> None:
    assert place(problem) == expected


def test_labels_of_solvers_are_short_and_odd_texts_stay() -> None:
    specs = ["slsqp[ftol=1e-09,max_iter=1000]", "slsqp[ftol=1e-09,max_iter=50]", "mine[depth=3]", "no [spec"]
    labels = labels_of_solvers([row(solver=spec) for spec in specs])
    assert labels == dict(zip(specs, ["slsqp[max_iter=1000]", "slsqp[max_iter=50]", *specs[2:]], strict=True))
