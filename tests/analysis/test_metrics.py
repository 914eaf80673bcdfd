import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import theory
from qcqpbench.analysis import metrics
from tests.support.report_rows import lost, many, row

TIMES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


# --- scores ---


GENERAL: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "maximize"}


def test_only_a_feasible_point_has_a_score() -> None:
    assert metrics.score(row(**GENERAL, objective=0.7)) == 0.7
    assert metrics.score(row(**GENERAL, objective=0.7, point_status="infeasible", termination="optimal")) is None
    assert metrics.score(lost()) is None


def test_the_margin_of_a_task_counts_whatever_x_violated() -> None:
    """It is that of W with unit rows, which violates nothing."""
    assert metrics.score(row(kappa_bar=0.7)) == metrics.score(row(kappa_bar=0.7, point_status="infeasible")) == 0.7


def test_what_overflowed_is_no_score_and_no_record() -> None:
    """A feasible point whose objective is infinite says nothing; nor does a bound that is."""
    facts: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "maximize"}
    good, endless = row(**facts, objective=3.0), row(**facts, objective=math.inf, bound=math.inf)
    assert metrics.score(endless) is None and not metrics.is_solved(endless)
    best = metrics.best_known([good, endless])
    assert list(best.values()) == [3.0] and metrics.bounds([good, endless], best).least == {}
    assert metrics.scales([row(margin=math.inf, kappa_bar=math.inf)]) == {}


def test_a_claim_of_a_newer_version_is_not_false() -> None:
    newer = row(termination="bored", point_status="none", kappa_bar=None, margin=None)
    assert not metrics.is_false_claim(newer, {}, set())
    assert metrics.meaning("bored") == "bored" != metrics.meaning("optimal")


def test_the_sense_of_an_objective_counts() -> None:
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "objective": 3.0}
    assert metrics.score(row(**convex, sense="minimize")) == -3.0
    assert metrics.score(row(**convex, sense="maximize")) == 3.0


def test_without_a_sense_there_is_a_solution_and_no_score() -> None:
    old = row(margin=None, kappa_bar=None, objective=3.0, best_known=2.5, bound=2.0, termination="optimal")
    assert metrics.score(old) is None and metrics.is_solved(old)
    assert metrics.best_known([old]) == {} and metrics.bounds([old], {}).least == {}
    assert not metrics.is_false_claim(old, {}, {old["problem_id"]})


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
def test_solved_is_what_was_verified(changes: dict[str, Any], solved: bool) -> None:
    assert metrics.is_solved(row(**changes)) is solved


def test_best_known_is_of_feasible_points_of_all_solvers() -> None:
    rows = [
        row(**GENERAL, objective=0.4),
        row(**GENERAL, solver="b", objective=0.6),
        row(**GENERAL, solver="c", objective=9, point_status="infeasible"),
    ]
    assert metrics.best_known(rows) == {rows[0]["problem_id"]: 0.6}


def test_a_published_value_may_be_the_best_known() -> None:
    """Of a task it is a margin, half of kappa_bar here; a worse one changes nothing."""
    known = row(kappa_bar=0.6, best_known=0.35)
    assert metrics.best_known([known, row(solver="b", kappa_bar=0.2)]) == {known["problem_id"]: pytest.approx(0.7)}
    assert metrics.best_known([known | {"best_known": 0.1}]) == {known["problem_id"]: 0.6}
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "objective": 3.0, "best_known": 2.5}
    assert metrics.best_known([row(**convex, sense="minimize")]) == {known["problem_id"]: -2.5}
    assert metrics.best_known([row(**convex, sense="maximize")]) == {known["problem_id"]: 3.0}


def test_bounds_are_on_the_margin_and_may_be_refuted() -> None:
    """kappa_bar is twice the margin here."""
    rows = [row(kappa_bar=0.6), row(solver="b", bound=0.4), row(solver="c", bound=0.35), row(solver="d", bound=0.2)]
    rows[1:] = [each | {"kappa_bar": 0.5, "margin": 0.25} for each in rows[1:]]
    found = metrics.bounds(rows, metrics.best_known(rows))
    assert found.least == {rows[0]["problem_id"]: pytest.approx(0.7)}
    assert found.of_solvers == {name: {rows[0]["problem_id"]: pytest.approx(v)} for name, v in (("b", 0.8), ("c", 0.7))}
    assert [each["solver"] for each in found.refuted] == ["d"]


def test_a_run_without_a_point_does_not_turn_the_sense_of_a_bound() -> None:
    """Its row does not say what the sense is."""
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None}
    rows = [row(**convex, sense="maximize", objective=2.0, bound=2.5), lost(solver="b")]
    assert metrics.bounds(rows, metrics.best_known(rows)).least == {rows[0]["problem_id"]: 2.5}


def test_a_bound_of_a_minimum_is_below_it() -> None:
    convex: dict[str, Any] = {"margin": None, "kappa_bar": None, "sense": "minimize"}
    rows = [row(**convex, objective=2.0, bound=1.5), row(**convex, solver="b", objective=2.5, bound=2.2)]
    found = metrics.bounds(rows, metrics.best_known(rows))
    assert found.least == {rows[0]["problem_id"]: -1.5}
    assert [each["solver"] for each in found.refuted] == ["b"]


# --- time ---


def test_the_time_to_a_score_is_when_it_was_reported() -> None:
    run = row(kappa_bar=1.0, trace=[(0.1, 0.2), (0.4, 0.95), (0.8, 0.97)])
    assert metrics.seconds_to(run, 0.9) == pytest.approx(0.5 + 0.4)
    assert metrics.seconds_to(run, 0.99) == pytest.approx(1.5)
    assert metrics.seconds_to(run, 1.01) == math.inf


def test_what_was_reported_but_not_returned_does_not_count() -> None:
    trace = [(0.1, 0.99)]
    assert metrics.seconds_to(row(kappa_bar=0.5, trace=trace), 0.9) == math.inf
    assert metrics.seconds_to(row(**GENERAL, objective=0.99, point_status="infeasible"), 0.9) == math.inf


def test_restarts_pay_for_their_failures() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), row(kappa_bar=0.1, solve_seconds=3.5), lost(build_seconds=0.0)]
    assert metrics.expected_seconds(runs, 0.9) == pytest.approx(2.0 + 4.0 + 10.0)
    assert metrics.expected_seconds(runs, 0.05) == pytest.approx((2.0 + 4.0 + 10.0) / 2)
    assert metrics.expected_seconds(runs, 2.0) == math.inf


def test_restarts_cost_no_more_than_failure() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), *[lost(build_seconds=0.0, time_limit=4.0)] * 9]
    assert metrics.restart_seconds(runs[:2], 0.9, 7.0, 3) == pytest.approx(2 + 4)
    assert metrics.restart_seconds(runs, 0.9, 7.0, 1) == 10.0
    assert metrics.restart_seconds(runs[1:], 0.9, 7.0, 3) == 12.0
    assert metrics.restart_seconds([], 0.9, 7.0, 3) == 21.0


def test_failures_count_at_their_limit_times_the_penalty() -> None:
    runs = [row(kappa_bar=1.0, solve_seconds=1.5), lost(time_limit=4.0)]
    assert metrics.penalized_seconds(runs, 0.9, 7.0, 1) == pytest.approx((2 + 4) / 2)
    assert metrics.penalized_seconds(runs, 0.9, 7.0, 3) == pytest.approx((2 + 12) / 2)
    assert metrics.penalized_seconds([], 0.9, 7.0, 3) == 21.0
    assert metrics.penalized_seconds([lost(time_limit=None)], 0.9, 7.0, 1) == 7.0


@given(TIMES, st.floats(1e-3, 1e3))
def test_the_shifted_geometric_mean_lies_between_geometric_and_arithmetic(times: list[float], shift: float) -> None:
    found = metrics.shifted_geometric_mean(times, shift)
    product = math.prod(np.longdouble(time + shift) for time in times) ** (1 / np.longdouble(len(times)))
    assert found == pytest.approx(float(product) - shift, rel=1e-6, abs=1e-6)
    assert np.exp(np.log(times).mean()) - 1e-6 <= found * (1 + 1e-9) + 1e-6
    assert found <= np.mean(times) * (1 + 1e-9) + 1e-6


def test_the_shift_is_the_power_of_ten_nearest_the_median() -> None:
    assert metrics.fitting_shift([0.02, 0.08, 5.0, math.inf]) == pytest.approx(0.1)
    assert metrics.fitting_shift([math.inf]) == 1.0


def test_growth_of_a_power() -> None:
    sizes = [10, 20, 40, 40]
    found = metrics.growth(sizes, [3e-4 * m**2.5 for m in sizes])
    assert found is not None
    assert found.exponent == pytest.approx(2.5) and found.coefficient == pytest.approx(3e-4) and found.sizes == 3
    assert metrics.growth([1, 2, 2], [1, 2, 2]) is None


def test_quality_against_time() -> None:
    run = row(kappa_bar=1.0, trace=[(0.1, -0.5), (0.5, 0.5), (0.6, 0.4)])
    assert metrics.quality_at([run], 2.0, [0.1, 0.61, 1.0, 1.2, 1.5]) == [0.0, 0.0, 0.25, 0.25, 0.5]
    assert metrics.quality_at([run, lost()], 2.0, [2.0]) == [0.25]


# --- profiles ---


@given(st.integers(0, 10**6))
def test_profiles_by_counting(seed: int) -> None:
    rng = random.Random(seed)
    names, problems = ["a", "b", "c"], [str(k) for k in range(12)]
    times = {
        name: {id: rng.choice([math.inf, rng.uniform(0.1, 9)]) for id in problems if rng.random() < 0.8}
        for name in names
    }
    levels = [1.0, 1.5, 3.0, 50.0]
    found = metrics.performance_profile(times, problems, levels)
    budgets = metrics.data_profile(times, problems, levels)
    for name in names:
        for k, level in enumerate(levels):
            good = quick = 0
            for id in problems:
                own = times[name].get(id)
                others = [times[other][id] for other in names if id in times[other]]
                good += own is not None and own < math.inf and own <= level * min(others) * (1 + 1e-12)
                quick += own is not None and own <= level
            assert found[name][k] == pytest.approx(good / 12)
            assert budgets[name][k] == pytest.approx(quick / 12)


def test_the_order_of_a_pair_may_depend_on_a_third() -> None:
    """Which is why pairs are shown alone."""
    times = {"a": {"1": 1.0, "2": 9.0, "3": 9.0}, "b": {"1": 3.0, "2": 3.0, "3": 3.0}}
    both = metrics.performance_profile(times, ["1", "2", "3"], [1.0])
    three = metrics.performance_profile({**times, "c": {"2": 1.0, "3": 1.0}}, ["1", "2", "3"], [1.0])
    assert both["b"] > both["a"] and three["a"] > three["b"]


# --- theory ---


def test_the_curve_is_that_of_the_theory() -> None:
    loads = [0.5, 1.0, 3.0]
    curve = metrics.theory_curve(loads, [float(theory.covariance_kappa_bar(2 * 30 * load, 30)) for load in loads])
    assert curve[0][0] == pytest.approx(0.4) and curve[-1][0] == pytest.approx(3.3)
    for load, kappa_bar in curve:
        assert kappa_bar == pytest.approx(theory.covariance_kappa_bar(60 * load, 30), abs=1e-5)


def test_predictions_of_no_one_theory_have_no_curve() -> None:
    assert metrics.theory_curve([1.0, 2.0], [1.0, 1.0]) == []


def test_rows_that_were_skipped_are_no_runs() -> None:
    rows = [*many(1, 1, 1, 2, 2), lost(termination="skipped", solver="absent")]
    assert {solver for solver, _ in metrics.group(rows)} == {"solver0", "solver1"}
