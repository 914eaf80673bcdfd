"""The finite-size study: arithmetic against closed forms, tables against the rows, and the command."""

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from qcqpbench import MaxMargin, problem, unit_rows
from qcqpbench.analysis.figures.base import Data, entry, grid, measured
from qcqpbench.analysis.studies.active import HYPERSTATIC_LOAD, active_fraction_theory
from qcqpbench.analysis.studies.extrapolation import Mean, limit, means
from qcqpbench.analysis.studies.index import STUDIES
from qcqpbench.analysis.studies.margins import margin_lines
from qcqpbench.analysis.studies.optima import best_optima
from qcqpbench.analysis.studies.overlaps import overlap
from qcqpbench.analysis.studies.runs import finite_size_suite
from qcqpbench.catalog.status import Termination
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.suite import Settings, Suite, facts
from qcqpbench.theory import covariance_kappa_bar, margin_integral
from tests.support.drawn import Panel, Point, assert_files_show, assert_painted, columns, power, spans
from tests.support.figure_runs import COVARIANCE, NEEDS_MATPLOTLIB, measured_row, raw, run, tiny

# One process computes the runs that all tests of this file read.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("study")]
FIGURES = STUDIES["finite-size"]


def exact_means(true: float, slope: float, exponent: float) -> list[Mean]:
    return [Mean(m, 4, true + slope * m**-exponent, 1e-3) for m in (25, 50, 100, 200, 400)]


@pytest.mark.parametrize("exponent", [1 / 2, 2 / 3, 1])
def test_limit_of_exact_means_is_recovered(exponent: float) -> None:
    fit = limit(exact_means(0.4, -1.3, exponent))
    assert fit is not None
    assert fit.low <= 0.4 <= fit.high
    if exponent == 2 / 3:
        assert fit.value == pytest.approx(0.4, abs=1e-12)
        assert fit.slope == pytest.approx(-1.3, abs=1e-10)
        assert fit.mismatch < 1e-8


def test_error_of_a_limit_is_the_scatter_of_repeated_fits() -> None:
    rng = np.random.default_rng(3)
    repeated = []
    for _ in range(400):
        noisy = [Mean(each.m, 4, each.value + rng.normal(0, 1e-3), 1e-3) for each in exact_means(0.4, -1.3, 2 / 3)]
        fit = limit(noisy)
        assert fit is not None
        repeated.append((fit.value, fit.error if fit.mismatch < 1 else fit.error / fit.mismatch))
    values, errors = np.array(repeated).T
    assert np.std(values) == pytest.approx(errors[0], rel=0.12)
    assert np.mean(values) == pytest.approx(0.4, abs=4 * errors[0] / math.sqrt(400))


def test_two_sizes_have_no_limit() -> None:
    assert limit(exact_means(0.4, 1, 1)[:2]) is None


def test_deviations_follow_a_power_of_m() -> None:
    pair = np.array([-1.0, 1.0]) / math.sqrt(2)
    values = {m: (np.tile(pair, 8) / m).tolist() for m in (10, 20, 40)} | {80: [0.1]}
    sizes = means(values)
    deviation = float(np.std(np.tile(pair, 8), ddof=1))
    assert [each.m for each in sizes] == [10, 20, 40, 80]
    assert sizes[0].error == pytest.approx(deviation / 10 / 4)
    assert sizes[-1].error == pytest.approx(deviation / 80)


def test_replica_symmetry_has_too_many_active_stabilities_above_the_hyperstatic_load() -> None:
    kappa_bar = covariance_kappa_bar(2 * HYPERSTATIC_LOAD, 1)
    assert margin_integral(kappa_bar) == pytest.approx(2 * ndtr(kappa_bar), rel=1e-12)
    assert active_fraction_theory(1) < 1 < active_fraction_theory(1.5)
    assert active_fraction_theory(4) == pytest.approx(2)


def test_overlap_ignores_signs_and_for_symmetric_patterns_the_order() -> None:
    W = unit_rows(np.random.default_rng(1).normal(size=(2, 30)))
    assert overlap(W, -W[::-1], symmetric=True) == pytest.approx(1)
    assert overlap(W, W * [[1], [-1]], symmetric=False) == pytest.approx(1)
    assert overlap(W, W[::-1], symmetric=False) < 0.9
    assert overlap(np.eye(4)[:2], np.eye(4)[2:], symmetric=True) == 0


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file with a few runs of the quick study."""
    path = tmp_path_factory.mktemp("study") / "made.db"
    run(few_runs(), path)
    return path


def few_runs() -> Suite:
    """Return some problems of the quick study, with less effort."""
    parameters: dict[str, dict[str, Any]] = {spec: facts(spec) for spec in finite_size_suite(quick=True).problems}
    chosen = [
        spec
        for spec, values in parameters.items()
        if (values.get("load") in (1, 2) or values["n"] == 3) and values["seed"] < 3
        if values["m"] < 40 or (values["n"] == 2 and values["seed"] == 0)
    ]
    return tiny(
        chosen,
        entry("gip[starts=2]", Settings()),
        entry("gip[starts=1]", Settings(starts=4), m=25, load=2.0),
        entry("certificate", Settings(), m=12, seed=0),
    )


def figure_data(results_file: Path, name: str) -> Data:
    with Store(results_file) as store:
        return FIGURES[name].data(measured(store, finite_size_suite(quick=True)))


def stored_margins(results_file: Path, **parameters: Any) -> dict[int, list[float]]:
    """Return the largest κ̄ of each problem with these parameters, by m."""
    best: dict[str, float] = defaultdict(lambda: -math.inf)
    for spec, kappa_bar in raw(results_file, "SELECT problem, kappa_bar FROM run"):
        best[spec] = max(best[spec], kappa_bar)
    margins: dict[int, list[float]] = defaultdict(list)
    for spec, kappa_bar in best.items():
        problem_parameters: dict[str, Any] = facts(spec)
        if all(problem_parameters.get(key) == value for key, value in parameters.items()):
            margins[problem_parameters["m"]].append(kappa_bar)
    return margins


def test_margins_are_means_of_the_best_runs(results_file: Path) -> None:
    data = figure_data(results_file, "margins")
    for ensemble in ("paper", "psd", "gaussian"):
        values = stored_margins(results_file, ensemble=ensemble, load=1.0, n=2)
        lines = data.where(kind="size", ensemble=ensemble, load=1.0)
        assert {line["m"]: line["sets"] for line in lines} == {m: len(each) for m, each in values.items()}
        assert all(line["kappa_bar"] == pytest.approx(np.mean(values[line["m"]])) for line in lines)
        (end,) = data.where(kind="limit", ensemble=ensemble, load=1.0)
        assert end["difference"] == pytest.approx(end["kappa_bar"] - 1.0343, abs=1e-4)
        assert end["kappa_bar_low"] < end["kappa_bar"] < end["kappa_bar_high"]
    for line in data.where(kind="bound"):
        sizes = data.where(kind="size", ensemble=line["ensemble"], load=line["load"], m=line["m"])
        assert line["kappa_bar_high"] > sizes[0]["kappa_bar"]


def test_agreement_is_counted_over_pairs_of_runs() -> None:
    """Check that the best run is not compared with itself."""
    common: dict[str, Any] = {"kappa_bar_rs": 1.0, "label": "gip", "facts": {"m": 9}}
    kappa_bars = {"a": [0.5, 0.5, 0.4], "b": [0.3, 0.2, 0.1], "c": [0.2, 0.2, 0.2]}
    rows = [
        measured_row(**common, problem_id=id, kappa_bar=value) for id, values in kappa_bars.items() for value in values
    ]
    (line,) = margin_lines(rows, ensemble="gaussian", kappa_bar_rs=1.0)
    assert line["agree"] == pytest.approx((1 + 0 + 3) / 9)
    assert line["missed"] == pytest.approx((0.1 + 0.1 + 0.2) / 9)


def test_active_stabilities_match_the_patterns(results_file: Path) -> None:
    data = figure_data(results_file, "active")
    spec = grid(COVARIANCE, m=25, n=2, load=1.0, ensemble="gaussian", seed=0)[0]
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    with Store(results_file) as store:
        rows = [row for row in store.rows() if row.problem == spec]
        point = store.point(max(rows, key=lambda row: row.margin or 0.0).id)
    assert point is not None
    stabilities = task.labels[:, 0] * np.einsum("i,rij,j->r", point[0], task.patterns, point[1])
    count = int((stabilities < stabilities.min() + 1e-4 * task.scale).sum())
    (line,) = data.where(ensemble="gaussian", m=25, load=1.0)
    assert line["share_low"] <= count / 49 <= line["share_high"]
    assert line["free"] == 48
    assert all(line["share"] <= 50 / 49 for line in data.with_column("m"))


def test_points_that_are_not_locally_optimal_are_left_out(results_file: Path) -> None:
    with Store(results_file) as store:
        rows = measured(store, finite_size_suite(quick=True))
    first, *rest = best_optima(rows)
    stalled = [
        replace(row, termination=Termination.STALLED) if row.problem_id == first.problem_id else row for row in rows
    ]
    assert [row.problem_id for row in best_optima(stalled)] == [row.problem_id for row in rest]


def test_density_of_gaps_integrates_to_the_inactive_fraction(results_file: Path) -> None:
    data = figure_data(results_file, "gaps")
    lines = data.where(ensemble="paper", m=25, load=2.0)
    edges = np.geomspace(1e-3, 10, 17)
    inside = sum(line["density"] * width for line, width in zip(lines, widths(lines, edges), strict=True))
    (line,) = figure_data(results_file, "active").where(ensemble="paper", m=25, load=2.0)
    p = 100
    assert inside == pytest.approx(1 - line["active"] / p, abs=0.02)


def widths(lines: list[dict[str, Any]], edges: np.ndarray[Any, Any]) -> list[float]:
    return [float(np.diff(edges)[np.searchsorted(edges, line["gap"]) - 1]) for line in lines]


def test_overlaps_are_computed_for_all_pairs_of_paths(results_file: Path) -> None:
    data = figure_data(results_file, "overlaps")
    (line,) = data.where(kind="mean", ensemble="paper", m=25, load=2.0)
    sets = len({spec for spec, in raw(results_file, "SELECT problem FROM run") if "m=25," in spec and "load=2.0" in spec
                and "ensemble=paper" in spec})  # fmt: skip
    assert line["pairs"] == sets * 4 * 3 // 2
    values = [pair["overlap"] for pair in data.where(kind="pair", ensemble="paper", m=25, load=2.0)]
    assert line["overlap"] == pytest.approx(np.mean(values))
    assert all(0 <= value <= 1 + 1e-12 for value in values)


def test_outputs_are_compared_at_equal_fractions_of_the_capacity(results_file: Path) -> None:
    data = figure_data(results_file, "outputs")
    assert {line["n"] for line in data.table} == {2, 3}
    for line in data.where(kind="size", n=3):
        p = line["fraction"] * 4 * line["m"] / 2
        assert line["capacity_ratio"] == pytest.approx(p * 2 * margin_integral(line["kappa_bar"]) / (4 * line["m"]))
        assert line["kappa_bar_rs"] == pytest.approx(covariance_kappa_bar(p, line["m"], 3))


def by_name(lines: list[dict[str, Any]], name: str, form: str, x: str, y: str) -> dict[str, list[Point]]:
    """Return the points of the lines by the label that the column `name` gives them."""
    return {
        form.format(value): columns([line for line in lines if line[name] == value], x, y)
        for value in {line[name] for line in lines}
    }


def margins_panels(data: Data) -> list[Panel]:
    """Return the panels. Each limit adds the ends of its fit on the left, at m → ∞ and beyond the smallest m."""
    sizes = [line | {"x": power(line["m"])} for line in data.where(kind="size", ensemble="paper")]
    loads = {line["load"]: line["kappa_bar_rs"] for line in sizes}
    limits = data.where(kind="limit")
    ends = [
        (x, line["kappa_bar"] + line["slope"] * x)
        for line in limits
        if line["ensemble"] == "paper"
        for x in (0.0, 1.1 * max(size["x"] for size in sizes if size["load"] == line["load"]))
    ]
    bounds = [line for line in data.where(kind="bound", ensemble="paper") if line["m"] == 12]
    return [
        Panel(
            ("m^(−2/3)", "margin κ̄"),
            columns(sizes, "x", "kappa_bar") + [(0.0, value) for value in loads.values()] + ends,
            series=by_name(sizes, "load", "P̂ = {:g}", "x", "kappa_bar"),
        ),
        Panel(
            ("load P̂", "κ̄∞ − replica symmetry"),
            columns([*limits, *bounds], "load", "difference"),
            shift=0.05,
            series=by_name(limits, "ensemble", "{}", "load", "difference")
            | {"bound, m = 12": columns(bounds, "load", "difference")},
            levels=[(0, HYPERSTATIC_LOAD), (1, 0)],
        ),
    ]


def active_panels(data: Data) -> list[Panel]:
    labels, theory = ("load P̂", "active / (2m − 1)"), data.where(ensemble="theory")
    runs = [line for line in data.table if line["ensemble"] != "theory"]
    ensembles = {line["ensemble"] for line in runs}
    common = max(set.intersection(*({line["m"] for line in data.where(ensemble=each)} for each in ensembles)))
    parts = {"m": data.where(ensemble="paper"), "ensemble": [line for line in runs if line["m"] == common]}
    return [
        Panel(
            labels,
            columns([*theory, *lines], "load", "share"),
            bars=(1, spans(lines, "share")),
            series=by_name(lines, name, "m = {}" if name == "m" else "{}", "load", "share")
            | {"replica symmetry": columns(theory, "load", "share")},
            levels=[(0, HYPERSTATIC_LOAD), (1, 1)],
        )
        for name, lines in parts.items()
    ]


def gaps_panels(data: Data) -> list[Panel]:
    """Return the panels: both loads with theory at the largest size, and all sizes at load 2 with a power law."""
    lines = data.where(ensemble="paper")
    largest = max(line["m"] for line in lines)
    left = data.where(ensemble="paper", m=largest)
    densities = columns(left, "gap", "density") + columns(left, "gap", "density_theory")
    right = data.where(ensemble="paper", load=2)
    middle = [line for line in right if line["m"] == largest and 0.01 < line["gap"] < 0.3]
    # The exponent of the gaps between jammed spheres; its factor is the geometric mean over the gaps.
    factor = math.prod(line["density"] * line["gap"] ** 0.41269 for line in middle) ** (1 / len(middle))
    guide = [(gap, factor * gap**-0.41269) for gap in (1e-3, 1.0)]
    return [
        Panel(("gap h", "density"), densities, series=by_name(left, "load", "P̂ = {:g}", "gap", "density")),
        Panel(
            ("gap h", "density"),
            columns(right, "gap", "density") + guide,
            series=by_name(right, "m", "m = {}", "gap", "density") | {"h^(−0.41)": guide},
        ),
    ]


def overlaps_panels(data: Data) -> list[Panel]:
    pairs, means = data.where(kind="pair", ensemble="paper"), data.where(kind="mean", ensemble="paper")
    ((_, load),) = {(line["m"], line["load"]) for line in pairs}
    values = sorted(line["overlap"] for line in pairs)
    steps = [(q, (k + 1) / len(values)) for k, q in enumerate(values)]
    return [
        Panel(("overlap q", "share of pairs ≤ q"), steps, series={f"P̂ = {load:g}": steps}),
        Panel(
            ("load P̂", "mean overlap"),
            columns(means, "load", "overlap"),
            series=by_name(means, "m", "m = {}", "load", "overlap"),
        ),
    ]


def outputs_panels(data: Data) -> list[Panel]:
    """Return the panels: one ensemble with its largest sizes and theory on the left, limits of both on the right."""
    limits = data.where(kind="limit")
    sizes = data.where(kind="size", ensemble="paper")
    largest = {n: max(line["m"] for line in sizes if line["n"] == n) for n in {line["n"] for line in sizes}}
    left = [line for line in sizes if line["m"] == largest[line["n"]]]
    ends = [line for line in limits if line["ensemble"] == "paper"]
    fractions = [line["fraction"] for line in data.table]
    grid_fractions = np.linspace(min(fractions), max(fractions), 101).tolist()
    theory = [(x, float(covariance_kappa_bar(4 * x, 1))) for x in grid_fractions]
    x = "p (n−1)/(4m)"
    return [
        Panel(
            (x, "margin κ̄"),
            columns([*left, *ends], "fraction", "kappa_bar") + theory,
            shift=0.02,
            series=by_name(ends, "n", "n = {}", "fraction", "kappa_bar") | {"replica symmetry, m → ∞": theory},
        ),
        Panel(
            (x, "p (n−1) I(κ̄∞)/(4m)"),
            columns(limits, "fraction", "capacity_ratio"),
            shift=0.02,
            series=by_name(ends, "n", "n = {}", "fraction", "capacity_ratio"),
            levels=[(1, 1)],
        ),
    ]


PANELS = {
    "margins": margins_panels,
    "active": active_panels,
    "gaps": gaps_panels,
    "overlaps": overlaps_panels,
    "outputs": outputs_panels,
}


@NEEDS_MATPLOTLIB
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_shows_its_table(results_file: Path, name: str) -> None:
    data = figure_data(results_file, name)
    assert_painted(FIGURES[name], data, PANELS[name](data))


@NEEDS_MATPLOTLIB
def test_command_draws_from_a_results_file(
    results_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "finite-size", "--quick", "-r", str(results_file), "-o", str(tmp_path)]) == 0
    for name in FIGURES:
        assert_files_show(tmp_path, FIGURES[name], PANELS[name](figure_data(results_file, name)))
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(figure_data(results_file, name).table)
    assert main(["study", "finite-sise"]) == 2
    assert "did you mean 'finite-size'?" in capsys.readouterr().err
    assert main(["study", "finite-size", "margin"]) == 2
    assert "did you mean 'margins'?" in capsys.readouterr().err
