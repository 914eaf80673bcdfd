"""The plot of margins against the load, read from matplotlib's artists, against the rows."""

import importlib.util
import math
import statistics
from typing import Any, Literal

import pytest

from qcqpbench import problem, theory
from qcqpbench.analysis.figures.solver_capacity import plot_capacity
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.errors import QcqpbenchError
from tests.support.figure_runs import NEEDS_MATPLOTLIB
from tests.support.report_rows import general, lost, many, number, row

SPEC = "covariance_perceptron[m=10,n=2,f=0.2,c=0.5,load={},ensemble=paper,seed={}]"


def axes() -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415 (optional)

    return Figure().subplots()


def drawn(rows: list[ReportRow]) -> Any:
    return plot_capacity(rows, axes())


def bars(axis: Any) -> dict[str, dict[float, tuple[float, float, float]]]:
    """Return mean, low and high by label and load."""
    series = {}
    for container in axis.containers:
        line, _, (collection,) = container.lines
        ends = [sorted(segment[:, 1].tolist()) for segment in collection.get_segments()]
        points = zip(*line.get_data(), ends, strict=True)
        series[container.get_label()] = {float(x): (float(y), low, high) for x, y, (low, high) in points}
    return series


def hollow_points(axis: Any) -> list[tuple[float, float]]:
    lines = [line for line in axis.lines if line.get_markerfacecolor() == "white"]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


@NEEDS_MATPLOTLIB
def test_means_and_ranges_are_over_the_best_starts_on_each_instance() -> None:
    rows = many(1, 3, 4, 3, 3)
    series = bars(drawn(rows))
    assert series.keys() == {"solver0", "solver1", "solver2"}
    for solver, points in series.items():
        assert points.keys() == {0.25, 2.1, 4.0}
        for load, (mean, low, high) in points.items():
            # p is rounded: 2.125 · 20 inputs are 42 patterns.
            text = f"load={2.125 if load == 2.1 else load},"
            here = [each for each in rows if each.solver == solver and text in each.problem]
            by_problem = [
                [number(each.kappa_bar) for each in here if each.problem_id == id and each.kappa_bar is not None]
                for id in {each.problem_id for each in here}
            ]
            best = [max(values) for values in by_problem if values]
            assert [mean, low, high] == pytest.approx([statistics.fmean(best), min(best), max(best)])


@NEEDS_MATPLOTLIB
@pytest.mark.parametrize(("name", "rsb"), [("theory (full RSB)", "full"), ("replica symmetry (paper)", 0)])
def test_theories_are_smooth_curves_through_the_predictions(name: str, rsb: Literal[0, "full"]) -> None:
    axis = drawn(many(2, 4, 1, 2, 1))
    (line,) = (line for line in axis.lines if line.get_label() == name)
    loads, kappa_bars = line.get_data()
    assert len(loads) > 50 and loads[0] < 0.25 and loads[-1] > 4
    for load, kappa_bar in list(zip(loads, kappa_bars, strict=True))[::20]:
        assert kappa_bar == pytest.approx(float(theory.covariance_kappa_bar(2 * load, 1, rsb=rsb)), abs=1e-5)


@NEEDS_MATPLOTLIB
def test_theory_of_rounded_numbers_of_patterns_is_one_curve() -> None:
    """Check loads that are no multiples of 1/(nm), of a family that predicts the margin of the rounded number."""
    rows = []
    for spec in ("m=7,load=0.33", "m=7,load=1.3", "m=9,load=0.7"):
        task = problem(f"covariance_perceptron[{spec}]")
        full, symmetric = (task.metadata.notes[name] for name in ("kappa_bar_theory", "kappa_bar_rs"))
        rows.append(row(f"covariance_perceptron[n=2,{spec}]", kappa_bar_theory=full, kappa_bar_rs=symmetric))
    axis = drawn(rows)
    lines = [line for line in axis.lines if line.get_label() in ("theory (full RSB)", "replica symmetry (paper)")]
    assert [len(line.get_xdata()) > 50 for line in lines] == [True, True]
    assert lines[0].get_color() != lines[1].get_color()
    assert {load for points in bars(axis).values() for load in points} == {5 / 14, 18 / 14, 13 / 18}


@NEEDS_MATPLOTLIB
def test_inconsistent_predictions_are_joined_by_lines() -> None:
    rows = [row(SPEC.format(load, 0), kappa_bar_theory=2.0 - load) for load in (1.0, 0.5)]
    (line,) = (line for line in drawn(rows).lines if line.get_label().startswith("theory"))
    assert [list(values) for values in line.get_data()] == [[0.5, 1.0], [1.5, 1.0]]


@NEEDS_MATPLOTLIB
def test_marks_are_hollow_where_an_instance_has_no_point() -> None:
    rows = [row(SPEC.format(1.0, 0), kappa_bar=0.8), row(SPEC.format(2.0, 0), kappa_bar=0.5)]
    assert hollow_points(drawn(rows)) == []
    rows.append(lost(problem=SPEC.format(2.0, 1)))
    assert hollow_points(drawn(rows)) == [(2.0, 0.5)]
    assert hollow_points(drawn([*rows, row(SPEC.format(2.0, 1), start=1, kappa_bar=0.5)])) == []


@NEEDS_MATPLOTLIB
def test_sizes_and_variants_are_named_only_if_there_are_several() -> None:
    one, other = SPEC.format(1.0, 0), SPEC.format(1.0, 0).replace("m=10", "m=20")
    assert bars(drawn([row(one), row(one, "b")])).keys() == {"a", "b"}
    assert bars(drawn([row(one), row(other)])).keys() == {"a, m = 10", "a, m = 20"}
    gaussian = one.replace("paper", "gaussian")
    variant = "covariance_perceptron[n=2,f=0.2,c=0.5,ensemble={}]"
    assert bars(drawn([row(one), row(gaussian)])).keys() == {
        f"a, {variant.format(name)}" for name in ("paper", "gaussian")
    }


@NEEDS_MATPLOTLIB
def test_solvers_look_different_and_a_large_legend_is_outside() -> None:
    few, crowd = drawn(many(1, 2, 1, 3, 1)), drawn(many(1, 2, 1, 40, 1))
    looks = {(each.lines[0].get_color(), each.lines[0].get_marker()) for each in crowd.containers}
    assert len(looks) == len(crowd.containers) == 40
    inside, outside = (axis.get_legend().get_bbox_to_anchor() for axis in (few, crowd))
    assert inside.width > 0 and outside.width == 0 and outside.x0 > crowd.bbox.x1


@NEEDS_MATPLOTLIB
def test_very_negative_margins_are_cut_off_and_the_axis_says_so() -> None:
    rows = [row(SPEC.format(1.0, 0), kappa_bar=1.0), row(SPEC.format(2.0, 0), kappa_bar=-9.0)]
    axis = drawn(rows)
    assert axis.get_ylim()[0] == pytest.approx(-0.4) and axis.get_ylabel() == "margin κ̄ (below −0.4 not shown)"
    assert drawn(rows[:1]).get_ylabel() == "margin κ̄" and drawn(rows[:1]).get_xlabel() == "load p/(nm)"


@NEEDS_MATPLOTLIB
def test_only_competing_solvers_on_tasks_with_a_load_are_drawn() -> None:
    rows = [row(), row(solver="prover", scope="bound"), row(solver="absent", termination="skipped"), general()]
    assert bars(drawn([*rows, row("recorded.npz", "b"), row(solver="c", kappa_bar=math.inf)])).keys() == {"a"}
    classical = row(SPEC.format(1.0, 0), "d", margin=None, kappa_bar=None, objective=1.0, sense="minimize")
    assert bars(drawn([*rows, classical])).keys() == {"a"}
    for unsuitable in ([], [general()], [classical], rows[1:], [lost()], [row("recorded.npz")]):
        with pytest.raises(QcqpbenchError, match="rows must hold a run with a margin on a problem with a load, got no"):
            drawn(unsuitable)


@NEEDS_MATPLOTLIB
def test_new_axes_are_those_of_pyplot() -> None:
    from matplotlib import pyplot  # noqa: PLC0415 (optional)

    axis = plot_capacity([row()])
    assert pyplot.gca() is axis
    pyplot.close(pyplot.gcf())


def test_missing_matplotlib_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(QcqpbenchError, match=r"pip install 'qcqpbench\[figures\]'"):
        plot_capacity([row()])
