"""The finite-size study: arithmetic against closed forms, tables against the rows, and the command."""

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from qcqpbench import MaxMargin, problem, theory, unit_rows
from qcqpbench.analysis.figures.base import Data, entry, grid, measured
from qcqpbench.analysis.studies.active import HYPERSTATIC_LOAD
from qcqpbench.analysis.studies.index import STUDIES
from qcqpbench.analysis.studies.measurements.optima import best_optima
from qcqpbench.analysis.studies.measurements.runs import finite_size_suite, search_suite
from qcqpbench.analysis.studies.overlaps import overlap
from qcqpbench.catalog.status import Termination
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.suite import Settings, Suite, facts
from tests.analysis.study_panels import PANELS
from tests.support.drawn import assert_files_show, assert_painted
from tests.support.figure_runs import COVARIANCE, NEEDS_MATPLOTLIB, raw, run, tiny

# One process computes the runs that all tests of this file read.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("study")]
FIGURES = STUDIES["finite-size"]


def test_replica_symmetry_has_too_many_active_stabilities_above_the_hyperstatic_load() -> None:
    kappa_bar = theory.covariance_kappa_bar(2 * HYPERSTATIC_LOAD, 1)
    assert theory.margin_integral(kappa_bar) == pytest.approx(2 * ndtr(kappa_bar), rel=1e-12)
    assert theory.active_share(2 * HYPERSTATIC_LOAD, 1, rsb=0) == pytest.approx(1, rel=1e-12)


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
    run(few_searches(), path)
    return path


def few_searches() -> Suite:
    """Return the smallest problems of the search, without IPOPT, which may not be installed."""
    suite = search_suite(quick=True)
    entries = [chosen for chosen in suite.entries if chosen.solver.name != "ipopt"]
    return tiny([spec for spec in suite.problems if facts(spec)["m"] == 12], *entries)


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
    suite = FIGURES[name].suite
    assert suite is not None
    with Store(results_file) as store:
        return FIGURES[name].data(measured(store, suite(True)))


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
        assert end["deficit"] == pytest.approx(0.99501 - end["kappa_bar"], abs=1e-5)
        assert end["kappa_bar_rs"] == pytest.approx(1.0343, abs=1e-4)
        assert end["kappa_bar_low"] < end["kappa_bar"] < end["kappa_bar_high"]
    for line in data.where(kind="bound"):
        sizes = data.where(kind="size", ensemble=line["ensemble"], load=line["load"], m=line["m"])
        assert line["kappa_bar_high"] > sizes[0]["kappa_bar"]


def test_active_stabilities_match_the_patterns(results_file: Path) -> None:
    """Count active stabilities of one optimum, and compare with the multipliers that gip returned."""
    spec = grid(COVARIANCE, m=25, n=2, load=1.0, ensemble="gaussian", seed=0)[0]
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    with Store(results_file) as store:
        best = max((row for row in store.rows() if row.problem == spec), key=lambda row: row.margin or 0.0)
        point, multipliers = store.point(best.id), store.multipliers(best.id)
        optima = best_optima(measured(store, finite_size_suite(quick=True)))
    assert point is not None
    assert multipliers is not None
    stabilities = task.labels[:, 0] * np.einsum("i,rij,j->r", point[0], task.patterns, point[1])
    (optimum,) = [row for row in optima if row.problem == spec]
    assert optimum.active == int((stabilities < stabilities.min() + 1e-4 * task.scale).sum())
    weights, kappa_bar = multipliers.ravel(), stabilities.min() / task.scale
    expected = kappa_bar**2 * weights.sum() ** 2 / (4 * 25 * (weights**2).sum())
    assert optimum.multiplier_ratio == pytest.approx(expected, rel=1e-4)


def test_active_shares_are_means_over_pattern_sets(results_file: Path) -> None:
    data = figure_data(results_file, "active")
    with Store(results_file) as store:
        optima = best_optima(measured(store, finite_size_suite(quick=True)))
    (line,) = data.where(ensemble="gaussian", m=25, load=1.0)
    group = [row for row in optima if [row.facts[key] for key in ("ensemble", "m", "load")] == ["gaussian", 25, 1.0]]
    assert (line["sets"], line["free"]) == (len(group), 48)
    assert line["share"] == pytest.approx(sum(row.active for row in group) / len(group) / 49)
    assert line["unconstrained"] == pytest.approx(1 - line["share"])
    # Full RSB at P̂ = 1, from the table of docs/background/theory.md, and replica symmetry in closed form.
    assert line["share_theory"] == pytest.approx(0.742, abs=1e-3)
    assert line["share_theory_low"] <= line["share_theory"] <= line["share_theory_high"]
    assert line["share_rs"] == pytest.approx(ndtr(theory.covariance_kappa_bar(2.0, 1)))
    # The identity holds for m → ∞; at m = 25 both sides are near 1 − 0.742.
    assert line["multiplier_ratio"] == pytest.approx(0.258, abs=0.1)
    assert all(line["share"] <= 50 / 49 for line in data.with_column("m"))


def test_points_that_are_not_locally_optimal_are_left_out(results_file: Path) -> None:
    with Store(results_file) as store:
        rows = measured(store, finite_size_suite(quick=True))
    first, *rest = best_optima(rows)
    stalled = [
        replace(row, termination=Termination.STALLED) if row.problem_id == first.problem_id else row for row in rows
    ]
    assert [row.problem_id for row in best_optima(stalled)] == [row.problem_id for row in rest]


def test_tails_and_densities_are_counts_over_all_stabilities(results_file: Path) -> None:
    data = figure_data(results_file, "stabilities")
    name = {"ensemble": "paper", "m": 25, "load": 2.0}
    with Store(results_file) as store:
        optima = best_optima(measured(store, finite_size_suite(quick=True)))
    gaps = np.concatenate([row.gaps for row in optima if all(row.facts[key] == value for key, value in name.items())])
    for line in data.where(kind="tail", **name):
        assert line["share"] == np.count_nonzero(gaps > line["delta"]) / len(gaps)
    lines = data.where(kind="density", **name)
    edges = np.geomspace(1e-3, 10, 21)
    assert sum(line["count"] for line in lines) == np.count_nonzero((gaps >= 1e-3) & (gaps <= 10))
    for line in lines:
        k = int(np.searchsorted(edges, line["gap"]))
        assert line["density"] * (edges[k] - edges[k - 1]) * len(gaps) == pytest.approx(line["count"])


@pytest.mark.parametrize(
    ("load", "tails"),
    [(1.0, [0.237, 0.218, 0.182, 0.125, 0.054, 0.021]), (2.0, [0.488, 0.456, 0.399, 0.302, 0.160, 0.075])],
)
def test_predicted_tails_are_those_of_an_independent_computation(
    results_file: Path, load: float, tails: list[float]
) -> None:
    """Check full RSB against values of a separate program with 20 steps, and replica symmetry in closed form."""
    lines = figure_data(results_file, "stabilities").where(kind="tail", ensemble="gaussian", m=25, load=load)
    deltas = [0.05, 0.1, 0.2, 0.4, 0.8, 1.2]
    chosen = [line for line in lines if line["delta"] in deltas]
    assert [line["share_theory"] for line in chosen] == pytest.approx(tails, abs=3e-3)
    symmetric = float(theory.covariance_kappa_bar(2 * load, 1))
    expected = [math.erfc((symmetric + delta) / math.sqrt(2)) / 2 for delta in deltas]
    assert [line["share_rs"] for line in chosen] == pytest.approx(expected)


def test_predicted_densities_are_means_over_the_bins(results_file: Path) -> None:
    lines = figure_data(results_file, "stabilities").where(kind="density", ensemble="gaussian", m=25, load=2.0)
    line = next(line for line in lines if line["gap"] > 0.5)
    low, high = line["gap"] / 10**0.1, line["gap"] * 10**0.1
    full, symmetric = theory.stability_density(4.0, 1), float(theory.covariance_kappa_bar(4.0, 1))
    area, _ = quad(lambda gap: full.density(full.kappa_bar + gap), low, high)
    assert line["density_theory"] == pytest.approx(area / (high - low), rel=1e-3)
    area, _ = quad(lambda gap: math.exp(-((symmetric + gap) ** 2) / 2) / math.sqrt(2 * math.pi), low, high)
    assert line["density_rs"] == pytest.approx(area / (high - low), rel=1e-9)


def test_overlaps_are_computed_for_all_pairs_of_paths(results_file: Path) -> None:
    data = figure_data(results_file, "overlaps")
    (line,) = data.where(kind="mean", ensemble="paper", m=25, load=2.0)
    sets = len({spec for spec, in raw(results_file, "SELECT problem FROM run") if "m=25," in spec and "load=2.0" in spec
                and "ensemble=paper" in spec})  # fmt: skip
    assert line["pairs"] == sets * 4 * 3 // 2
    values = [pair["overlap"] for pair in data.where(kind="pair", ensemble="paper", m=25, load=2.0)]
    assert line["overlap"] == pytest.approx(np.mean(values))
    assert all(0 <= value <= 1 + 1e-12 for value in values)


def test_outputs_are_compared_at_equal_numbers_of_stabilities_per_weight(results_file: Path) -> None:
    data = figure_data(results_file, "outputs")
    assert {line["n"] for line in data.table} == {2, 3}
    for line in data.where(kind="size", n=3):
        p = line["alpha"] * 2 * line["m"] / 2
        assert line["kappa_bar_theory"] == pytest.approx(theory.covariance_kappa_bar(p, line["m"], 3, rsb="full"))
        assert line["kappa_bar_rs"] == pytest.approx(theory.covariance_kappa_bar(p, line["m"], 3))
        assert line["deficit"] == pytest.approx(line["kappa_bar_theory"] - line["kappa_bar"])


def test_exponents_are_fitted_to_the_means_of_the_figure_margins(results_file: Path) -> None:
    data, margins = figure_data(results_file, "exponents"), figure_data(results_file, "margins")
    columns_of_size = ("ensemble", "load", "m", "sets", "kappa_bar", "deficit", "deficit_low", "deficit_high")
    assert [[line[name] for name in columns_of_size] for line in data.where(kind="size")] == [
        [line[name] for name in columns_of_size] for line in margins.where(kind="size")
    ]
    # Three sizes are too few for a fitted limit.
    assert {line["model"] for line in data.where(kind="fit")} == {"fixed", "two_thirds"}
    for line in data.where(kind="fit"):
        assert line["kappa_bar"] == line["kappa_bar_theory"]
        assert line["dof"] == (1 if line["model"] == "fixed" else 2)


def test_search_has_every_solver(results_file: Path) -> None:
    data = figure_data(results_file, "search")
    assert {line["series"] for line in data.where(kind="solver")} == {"gip", "gip, slow paths", "multistart"}
    for line in data.where(kind="all"):
        seeds = {facts(spec)["seed"] for spec in few_searches().problems}
        best = [stored_margins(results_file, load=line["load"], m=12, seed=seed)[12] for seed in seeds]
        assert line["instances"] == len(seeds)
        assert line["kappa_bar"] == pytest.approx(np.mean(best))


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
