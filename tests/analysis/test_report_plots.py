"""Plots of reports as data, against numbers computed directly from synthetic rows."""

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from qcqpbench import theory
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.plot import Plot, Series
from qcqpbench.analysis.report.plots import plots
from qcqpbench.analysis.rows import ReportRow
from tests.support.report_rows import general, lost, results, row


def drawn(rows: Sequence[ReportRow], id: str, **options: str) -> Plot:
    """Return the one plot of a figure that these options of its menus select."""
    found = [plot for plot in figure(rows, id) if options.items() <= chosen(plot).items()]
    assert len(found) == 1, [chosen(plot) for plot in found]
    return found[0]


def figure(rows: Sequence[ReportRow], id: str) -> list[Plot]:
    return [plot for plot in plots(contents(results(rows))) if plot.id == id]


def chosen(plot: Plot) -> dict[str, str]:
    return {menu.id: option for menu, option in plot.choices}


def line(plot: Plot, name: str) -> Series:
    (found,) = (series for series in plot.series if series.name == name)
    return found


def problem(m: int = 10, load: float = 1.0, seed: int = 0) -> str:
    return f"covariance_perceptron[m={m},n=2,load={load},seed={seed}]"


# Predictions for n = 2 by load: full RSB and replica symmetry, computed by an independent program.
FULL_RSB = {0.5: 1.71978, 2.0: 0.39376}
REPLICA_SYMMETRY = {0.5: 1.73558, 2.0: 0.47066}


def predictions(load: float) -> dict[str, float]:
    """Return the columns of a row with κ̄ that the theories predict for problems with m = 10 and n = 2."""
    p = 20 * load
    full, symmetric = (float(theory.covariance_kappa_bar(p, 10, rsb=rsb)) for rsb in ("full", 0))
    return {"kappa_bar_theory": full, "kappa_bar_rs": symmetric}


MARGINS = {(0.5, 0): (1.0, 2.0, 4.0), (0.5, 1): (3.0, 3.5, 3.0), (2.0, 0): (0.5, -0.5, -0.5), (2.0, 1): (-0.5,)}


@pytest.fixture(scope="module")
def margins() -> list[ReportRow]:
    """Return runs of solver "a" with the margins MARGINS by load and seed, and of "b" without points at load 2."""
    rows = []
    for (load, seed), values in MARGINS.items():
        spec = problem(load=load, seed=seed)
        rows += [row(spec, "a", start=k, kappa_bar=value, **predictions(load)) for k, value in enumerate(values)]
        rows.append(
            row(spec, "b", kappa_bar=1.0, formulation="epigraph")
            if load < 1
            else lost(problem=spec, solver="b", formulation="epigraph")
        )
    rows.append(row(problem(load=0.5), "prover", bound=3.0, scope="bound"))
    return rows


def test_margins_are_means_and_ranges_over_pattern_sets(margins: list[ReportRow]) -> None:
    for start, choose in (("best", max), ("median", statistics.median)):
        plot = drawn(margins, "capacity", choice=start, formulation="all")
        assert plot.title == f"κ̄ against load, {start} start"
        series = line(plot, "a")
        by_load = {load: [choose(MARGINS[load, seed]) for seed in (0, 1)] for load in (0.5, 2.0)}
        assert list(series.x) == list(by_load)
        assert list(series.y) == pytest.approx([statistics.fmean(values) for values in by_load.values()])
        assert list(series.low) == [min(values) for values in by_load.values()]
        assert list(series.high) == [max(values) for values in by_load.values()]
        assert list(series.hollow) == [False, False]
        assert list(series.notes) == [
            "6 runs, 2 of 2 pattern sets with a point",
            "4 runs, 2 of 2 pattern sets with a point",
        ]
        assert list(line(plot, "b").y) == [1.0, None] and list(line(plot, "b").hollow) == [False, True]


def test_both_theories_are_curves_and_bounds_are_a_band(margins: list[ReportRow]) -> None:
    plot = drawn(margins, "capacity", choice="best", formulation="all")
    for name, kind, values in (
        ("theory (full RSB)", "curve", FULL_RSB),
        ("replica symmetry (paper)", "dotted", REPLICA_SYMMETRY),
    ):
        curve = line(plot, name)
        assert curve.kind == kind and curve.solver == "" and len(curve.x) > 50
        for load, value in values.items():
            assert np.interp(load, curve.x, np.array(curve.y, float)) == pytest.approx(value, abs=2e-3)
    (band,) = plot.bands
    # Rows have margins of κ̄ / 2. Only the first pattern set at load 0.5 has a bound.
    assert (list(band.x), list(band.low), list(band.high)) == ([0.5], [4.0], [6.0])
    assert band.notes[0].endswith("1 of 2 pattern sets with a bound")


def test_formulations_select_series(margins: list[ReportRow]) -> None:
    names = {
        option: [series.name for series in drawn(margins, "capacity", choice="best", formulation=option).series]
        for option in ("all", "epigraph", "none (task solvers)")
    }
    theories = ["theory (full RSB)", "replica symmetry (paper)"]
    assert names == {
        "all": ["a", "b", *theories],
        "epigraph": ["b", *theories],
        "none (task solvers)": ["a", *theories],
    }
    # With one formulation there is no menu.
    assert "formulation" not in chosen(figure([each for each in margins if each.label == "a"], "capacity")[0])


def test_very_negative_margins_are_cut_off_and_the_note_says_so() -> None:
    rows = [row(problem(load=load), kappa_bar=value) for load, value in ((0.5, 2.0), (1.0, -1.0))]
    plot = drawn(rows, "capacity", choice="best")
    assert plot.y.floor == pytest.approx(-0.5)
    assert plot.note.startswith("m = 10. The plot may cut off lines at the bottom. Limits: 10 s a run")
    plot = drawn(rows[:1], "capacity", choice="best")
    assert "cut off" not in plot.note


def test_fractions_with_a_positive_margin_count_failed_runs(margins: list[ReportRow]) -> None:
    sets = drawn(margins, "positive", choice="best", formulation="all")
    runs = drawn(margins, "positive", choice="median", formulation="all")
    assert (list(line(sets, "a").y), list(line(sets, "b").y)) == ([1.0, 0.5], [1.0, 0.0])
    assert (list(line(runs, "a").y), list(line(runs, "b").y)) == ([1.0, 0.25], [1.0, 0.0])
    assert (sets.y.label, runs.y.label) == ("fraction of pattern sets", "fraction of runs")


def test_gaps_are_medians_of_the_best_start(margins: list[ReportRow]) -> None:
    best = drawn(margins, "gap-best", formulation="all")
    # "b" has 1 where the best are 4 and 3.5.
    assert list(line(best, "a").y) == [1e-4, 1e-4]
    assert line(best, "b").y[0] == pytest.approx((3 / 4 + 2.5 / 3.5) / 2) and line(best, "b").y[1] is None
    bound = drawn(margins, "gap-bound", formulation="all")
    assert list(line(bound, "a").y) == [pytest.approx(2 / 6), None]


def test_growth_names_the_fitted_exponents() -> None:
    rows = [
        row(problem(m), build_seconds=m / 100, solve_seconds=m**2 / 100, start=k) for m in (10, 20, 40) for k in (0, 1)
    ]
    rows.append(lost(problem=problem(40), solver="a", start=2, build_seconds=0.4))
    option = "covariance_perceptron[n=2], load 1"
    build, solve = drawn(rows, "build", size=option), drawn(rows, "solve", size=option)
    assert [series.name for series in build.series] == ["a ∝ m^1.0"]
    assert [series.name for series in solve.series] == ["a ∝ m^2.0"]
    assert list(solve.series[0].y) == [1.0, 4.0, 16.0] and list(solve.series[0].low) == [1.0, 4.0, 10.0]
    assert list(solve.series[0].hollow) == [False, False, True] and not any(build.series[0].hollow)
    assert solve.series[0].notes[2] == "3 runs, 1 at the time limit"
    assert build.x.ticks == (10, 20, 40) and build.x.scale == build.y.scale == "log"


def test_anytime_has_a_curve_of_the_best_known_margin_at_one_load(margins: list[ReportRow]) -> None:
    titles = {option: plot.title for plot in figure(margins, "anytime") for option in chosen(plot).values()}
    name = "covariance_perceptron[n=2], m = 10"
    assert titles == {
        f"{name}, all loads": "Fraction of the best known margin against time",
        f"{name}, load 0.5": "κ̄ against time, load 0.5",
        f"{name}, load 2": "κ̄ against time, load 2",
    }
    plot = drawn(margins, "anytime", anytime=f"{name}, load 0.5")
    assert set(line(plot, "best known").y) == {(4.0 + 3.5) / 2}
    assert {series.kind for series in plot.series} == {"steps", "curve"}
    assert plot.note.startswith(f"{name}, 2 problems. Limits: ")


def test_profiles_of_each_pair_hold_its_solvers_only() -> None:
    seconds = {"a": 1.0, "b": 2.0, "c": 4.0}
    rows = [row(solver=name, build_seconds=0.0, solve_seconds=value) for name, value in seconds.items()]
    target = "90 % of the best known margin"
    names = ["all", *(f"{a} and {b}" for a, b in itertools.combinations(seconds, 2))]
    for id in ("performance", "data"):
        assert [chosen(plot)["pair"] for plot in figure(rows, id)] == names * 3
        pair = drawn(rows, id, quality=target, pair="b and c")
        assert [series.solver for series in pair.series] == ["b", "c"]
    everyone, pair = (drawn(rows, "performance", quality=target, pair=option) for option in ("all", "b and c"))
    # "b" is the fastest of the pair, and twice as slow as the fastest of all.
    assert (line(everyone, "b").y[0], line(pair, "b").y[0]) == (0.0, 1.0)
    assert pair.title == "Performance profile, b and c only"
    data = drawn(rows, "data", quality=target, pair="all")
    assert [dict(zip(s.x, s.y, strict=True))[max(s.x)] for s in data.series] == [1.0, 1.0, 1.0]
    solved = [x for x, y in zip(data.series[1].x, data.series[1].y, strict=True) if y]
    assert solved[0] == pytest.approx(2.0, rel=0.05)


def test_general_problems_have_their_own_plots_and_limits() -> None:
    rows = [row(), general("x.qplib", "g", time_limit=7.0)]
    everything = plots(contents(results(rows)))
    assert {plot.id for plot in everything if plot.section == "general"} == {"general-data", "general-performance"}
    for plot in everything:
        limit = "7 s a run" if plot.section == "general" else "10 s a run"
        assert plot.note.endswith(f"Limits: {limit}, no memory limit, 1 thread."), plot.id
        assert {series.solver for series in plot.series} <= ({"g"} if plot.section == "general" else {"a", ""})


def test_no_plots_without_rows() -> None:
    assert plots(contents(results([]))) == ()
