"""The finite-size study: its arithmetic against closed forms, its tables against the rows, its command."""

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from qcqpbench import MaxMargin, problem, unit_rows
from qcqpbench.analysis.figures.base import Data, entry, grid, measured
from qcqpbench.analysis.studies.extrapolation import Mean, limit, means
from qcqpbench.analysis.studies.index import STUDIES
from qcqpbench.analysis.studies.margins import lines
from qcqpbench.analysis.studies.optima import HYPERSTATIC, overlap, theory_active
from qcqpbench.analysis.studies.runs import runs
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.suite import Settings, Suite, facts
from qcqpbench.theory import covariance_kappa_bar, margin_integral
from tests.support.drawn import Panel, assert_files_show, assert_painted, columns, power, spans
from tests.support.figure_runs import COVARIANCE, NEEDS_MATPLOTLIB, raw, run, tiny

# One process makes the runs that all tests here read.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("study")]
FIGURES = STUDIES["finite-size"]


def exact(true: float, slope: float, exponent: float) -> list[Mean]:
    return [Mean(m, 4, true + slope * m**-exponent, 1e-3) for m in (25, 50, 100, 200, 400)]


@pytest.mark.parametrize("exponent", [1 / 2, 2 / 3, 1])
def test_the_limit_of_exact_means_is_found(exponent: float) -> None:
    found = limit(exact(0.4, -1.3, exponent))
    assert found is not None
    assert found.low <= 0.4 <= found.high
    if exponent == 2 / 3:
        assert found.value == pytest.approx(0.4, abs=1e-12)
        assert found.slope == pytest.approx(-1.3, abs=1e-10)
        assert found.mismatch < 1e-8


def test_the_error_of_a_limit_is_the_scatter_of_repeated_fits() -> None:
    rng = np.random.default_rng(3)
    repeated = []
    for _ in range(400):
        noisy = [Mean(each.m, 4, each.value + rng.normal(0, 1e-3), 1e-3) for each in exact(0.4, -1.3, 2 / 3)]
        found = limit(noisy)
        assert found is not None
        repeated.append((found.value, found.error if found.mismatch < 1 else found.error / found.mismatch))
    values, errors = np.array(repeated).T
    assert np.std(values) == pytest.approx(errors[0], rel=0.12)
    assert np.mean(values) == pytest.approx(0.4, abs=4 * errors[0] / math.sqrt(400))


def test_two_sizes_have_no_limit() -> None:
    assert limit(exact(0.4, 1, 1)[:2]) is None


def test_deviations_follow_a_power_of_m() -> None:
    pair = np.array([-1.0, 1.0]) / math.sqrt(2)
    values = {m: (np.tile(pair, 8) / m).tolist() for m in (10, 20, 40)} | {80: [0.1]}
    found = means(values)
    deviation = float(np.std(np.tile(pair, 8), ddof=1))
    assert [each.m for each in found] == [10, 20, 40, 80]
    assert found[0].error == pytest.approx(deviation / 10 / 4)
    assert found[-1].error == pytest.approx(deviation / 80)


def test_replica_symmetry_has_too_many_active_stabilities_from_there() -> None:
    kappa_bar = covariance_kappa_bar(2 * HYPERSTATIC, 1)
    assert margin_integral(kappa_bar) == pytest.approx(2 * ndtr(kappa_bar), rel=1e-12)
    assert theory_active(1) < 1 < theory_active(1.5)
    assert theory_active(4) == pytest.approx(2)


def test_overlaps_do_not_see_signs_and_for_symmetric_patterns_the_order() -> None:
    W = unit_rows(np.random.default_rng(1).normal(size=(2, 30)))
    assert overlap(W, -W[::-1], symmetric=True) == pytest.approx(1)
    assert overlap(W, W * [[1], [-1]], symmetric=False) == pytest.approx(1)
    assert overlap(W, W[::-1], symmetric=False) < 0.9
    assert overlap(np.eye(4)[:2], np.eye(4)[2:], symmetric=True) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few of the quick study's runs."""
    path = tmp_path_factory.mktemp("study") / "made.db"
    run(few(), path)
    return path


def few() -> Suite:
    """Some of the quick study's problems, with less effort."""
    chosen = [
        spec
        for spec in runs(quick=True).problems
        if (facts(spec).get("load") in (1, 2) or facts(spec)["n"] == 3) and facts(spec)["seed"] < 3
        if facts(spec)["m"] < 40 or (facts(spec)["n"] == 2 and facts(spec)["seed"] == 0)
    ]
    return tiny(
        chosen,
        entry("gip[starts=2]", Settings()),
        entry("gip[starts=1]", Settings(starts=4), m=25, load=2.0),
        entry("certificate", Settings(), m=12, seed=0),
    )


def shown(made: Path, name: str) -> Data:
    with Store(made) as store:
        return FIGURES[name].data(measured(store, runs(quick=True)))


def margins_of(made: Path, **wanted: Any) -> dict[int, list[float]]:
    """The largest κ̄ of each problem with these parameters, by m."""
    best: dict[str, float] = defaultdict(lambda: -math.inf)
    for spec, kappa_bar in raw(made, "SELECT problem, kappa_bar FROM run"):
        best[spec] = max(best[spec], kappa_bar)
    found: dict[int, list[float]] = defaultdict(list)
    for spec, kappa_bar in best.items():
        known = facts(spec)
        if all(known.get(key) == value for key, value in wanted.items()):
            found[known["m"]].append(kappa_bar)
    return found


def test_margins_are_the_means_of_the_best(made: Path) -> None:
    data = shown(made, "margins")
    for ensemble in ("paper", "psd", "gaussian"):
        values = margins_of(made, ensemble=ensemble, load=1.0, n=2)
        lines = data.of(kind="size", ensemble=ensemble, load=1.0)
        assert {line["m"]: line["sets"] for line in lines} == {m: len(each) for m, each in values.items()}
        assert all(line["kappa_bar"] == pytest.approx(np.mean(values[line["m"]])) for line in lines)
        (end,) = data.of(kind="limit", ensemble=ensemble, load=1.0)
        assert end["difference"] == pytest.approx(end["kappa_bar"] - 1.0343, abs=1e-4)
        assert end["kappa_bar_low"] < end["kappa_bar"] < end["kappa_bar_high"]
    for line in data.of(kind="bound"):
        sizes = data.of(kind="size", ensemble=line["ensemble"], load=line["load"], m=line["m"])
        assert line["kappa_bar_high"] > sizes[0]["kappa_bar"]


def test_runs_agree_in_pairs() -> None:
    """The best of several runs agrees with itself, which says nothing."""
    common = {"kappa_bar_theory": 1.0, "series": "gip", "facts": {"m": 9}}
    found = {"a": [0.5, 0.5, 0.4], "b": [0.3, 0.2, 0.1], "c": [0.2, 0.2, 0.2]}
    rows = [common | {"problem_id": id, "kappa_bar": value} for id, values in found.items() for value in values]
    (line,) = lines(rows, ensemble="gaussian", kappa_bar_theory=1.0)
    assert line["agree"] == pytest.approx((1 + 0 + 3) / 9)
    assert line["missed"] == pytest.approx((0.1 + 0.1 + 0.2) / 9)


def test_active_stabilities_are_counted_from_the_patterns(made: Path) -> None:
    data = shown(made, "active")
    spec = grid(COVARIANCE, m=25, n=2, load=1.0, ensemble="gaussian", seed=0)[0]
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    with Store(made) as store:
        rows = [row for row in store.rows() if row["problem"] == spec]
        point = store.point(max(rows, key=lambda row: row["margin"])["id"])
    assert point is not None
    stabilities = task.labels[:, 0] * np.einsum("i,rij,j->r", point[0], task.patterns, point[1])
    count = int((stabilities < stabilities.min() + 1e-4 * task.scale).sum())
    (line,) = data.of(ensemble="gaussian", m=25, load=1.0)
    assert line["share_low"] <= count / 49 <= line["share_high"]
    assert line["free"] == 48
    assert all(line["share"] <= 50 / 49 for line in data.having("m"))


def test_gaps_are_a_density(made: Path) -> None:
    data = shown(made, "gaps")
    lines = data.of(ensemble="paper", m=25, load=2.0)
    edges = np.geomspace(1e-3, 10, 17)
    inside = sum(line["density"] * width for line, width in zip(lines, widths(lines, edges), strict=True))
    p, active = 100, next(line["active"] for line in shown(made, "active").of(ensemble="paper", m=25, load=2.0))
    assert inside == pytest.approx(1 - active / p, abs=0.02)


def widths(lines: list[dict[str, Any]], edges: np.ndarray[Any, Any]) -> list[float]:
    return [float(np.diff(edges)[np.searchsorted(edges, line["gap"]) - 1]) for line in lines]


def test_overlaps_are_of_all_pairs_of_paths(made: Path) -> None:
    data = shown(made, "overlaps")
    (line,) = data.of(kind="mean", ensemble="paper", m=25, load=2.0)
    sets = len({spec for spec, in raw(made, "SELECT problem FROM run") if "m=25," in spec and "load=2.0" in spec
                and "ensemble=paper" in spec})  # fmt: skip
    assert line["pairs"] == sets * 4 * 3 // 2
    values = [pair["overlap"] for pair in data.of(kind="pair", ensemble="paper", m=25, load=2.0)]
    assert line["overlap"] == pytest.approx(np.mean(values))
    assert all(0 <= value <= 1 + 1e-12 for value in values)


def test_outputs_compare_the_same_share_of_the_capacity(made: Path) -> None:
    data = shown(made, "outputs")
    assert {line["n"] for line in data.table} == {2, 3}
    for line in data.of(kind="size", n=3):
        p = line["fraction"] * 4 * line["m"] / 2
        assert line["capacity_ratio"] == pytest.approx(p * 2 * margin_integral(line["kappa_bar"]) / (4 * line["m"]))
        assert line["kappa_bar_theory"] == pytest.approx(covariance_kappa_bar(p, line["m"], 3))


def margins_panels(data: Data) -> list[Panel]:
    """One limit beside the sizes has two points of its line and one of theory."""
    sizes = data.of(kind="size", ensemble="paper")
    loads = {line["load"]: line["kappa_bar_theory"] for line in sizes}
    left = [(power(line["m"]), line["kappa_bar"]) for line in sizes] + [(0.0, value) for value in loads.values()]
    limits = data.of(kind="limit")
    ends = [line for line in limits if line["ensemble"] == "paper"]
    bounds = [line for line in data.of(kind="bound", ensemble="paper") if line["m"] == 12]
    return [
        Panel(("m^(−2/3)", "margin κ̄"), left, guides=2 * len(ends)),
        Panel(("load P̂", "κ̄∞ − theory"), columns([*limits, *bounds], "load", "difference"), shift=0.05),
    ]


def active_panels(data: Data) -> list[Panel]:
    labels, theory = ("load P̂", "active / (2m − 1)"), data.of(ensemble="theory")
    runs = [line for line in data.table if line["ensemble"] != "theory"]
    ensembles = {line["ensemble"] for line in runs}
    common = max(set.intersection(*({line["m"] for line in data.of(ensemble=each)} for each in ensembles)))
    parts = data.of(ensemble="paper"), [line for line in runs if line["m"] == common]
    return [
        Panel(labels, columns([*theory, *lines], "load", "share"), bars=(1, spans(lines, "share"))) for lines in parts
    ]


def gaps_panels(data: Data) -> list[Panel]:
    """At load 2, the larger of the two, all sizes; at the largest size both loads, with theory."""
    lines = data.of(ensemble="paper")
    largest = max(line["m"] for line in lines)
    left = data.of(ensemble="paper", m=largest)
    densities = columns(left, "gap", "density") + columns(left, "gap", "density_theory")
    last = columns(data.of(ensemble="paper", load=2), "gap", "density")
    return [Panel(("gap h", "density"), densities), Panel(("gap h", "density"), last, guides=2)]


def overlaps_panels(data: Data) -> list[Panel]:
    pairs, means = data.of(kind="pair", ensemble="paper"), data.of(kind="mean", ensemble="paper")
    assert len({(line["m"], line["load"]) for line in pairs}) == 1
    values = sorted(line["overlap"] for line in pairs)
    return [
        Panel(("overlap q", "share of pairs ≤ q"), [(q, (k + 1) / len(values)) for k, q in enumerate(values)]),
        Panel(("load P̂", "mean overlap"), columns(means, "load", "overlap")),
    ]


def outputs_panels(data: Data) -> list[Panel]:
    """Limits of both ensembles on the right; on the left those of one, beside its largest sizes and theory's curve."""
    limits = data.of(kind="limit")
    sizes = data.of(kind="size", ensemble="paper")
    largest = {n: max(line["m"] for line in sizes if line["n"] == n) for n in {line["n"] for line in sizes}}
    left = [line for line in sizes if line["m"] == largest[line["n"]]]
    left += [line for line in limits if line["ensemble"] == "paper"]
    x = "p (n−1)/(4m)"
    return [
        Panel((x, "margin κ̄"), columns(left, "fraction", "kappa_bar"), guides=101, shift=0.02),
        Panel((x, "p (n−1) I(κ̄∞)/(4m)"), columns(limits, "fraction", "capacity_ratio"), shift=0.02),
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
def test_every_figure_shows_its_table(made: Path, name: str) -> None:
    data = shown(made, name)
    assert_painted(FIGURES[name], data, PANELS[name](data))


@NEEDS_MATPLOTLIB
def test_the_command_draws_from_rows(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "finite-size", "--quick", "-r", str(made), "-o", str(tmp_path)]) == 0
    for name in FIGURES:
        assert_files_show(tmp_path, FIGURES[name], PANELS[name](shown(made, name)))
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(shown(made, name).table)
    assert main(["study", "finite-sise"]) == 2
    assert "did you mean 'finite-size'?" in capsys.readouterr().err
    assert main(["study", "finite-size", "margin"]) == 2
    assert "did you mean 'margins'?" in capsys.readouterr().err
