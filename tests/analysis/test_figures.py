"""Numbers of the figures against the stored rows and the paper's formulas, and the files."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QCQP, MaxMargin, problem, random_start
from qcqpbench.analysis.figures.base import Data, MeasuredRow, measured
from qcqpbench.analysis.figures.index import FIGURES
from qcqpbench.analysis.figures.style import FORMATS, save
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import solve
from tests.support.drawn import Panel, Point, assert_files_show, assert_painted, columns, spans
from tests.support.figure_runs import NEEDS_MATPLOTLIB, TINY, measured_row, outcome, raw, run

# One process computes the runs that all tests of this file read.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("figures")]

F, C = 0.2, 0.5
SCALE = math.sqrt(F) * C


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file with the tiny runs, a failed and a skipped one, and two of former settings of a solver."""
    path = tmp_path_factory.mktemp("figures") / "made.db"
    for suite in TINY.values():
        run(suite, path)
    with Store(path, write=True) as store:
        store.begin("a command", Machine())
        spec = next(spec for spec in TINY["capacity"].runs() if spec.solver.startswith("slsqp"))
        attempt = replace(solve(problem(spec.problem), spec.solver), spec=spec)
        lost = replace(attempt, termination=Termination.TIME_LIMIT, point_status=PointStatus.NONE)
        lost = replace(lost, point=None, margin=None, kappa_bar=None, spec=replace(spec, start=3))
        store.add(outcome(lost, begun=1.0))
        store.add(outcome(replace(lost, termination=Termination.SKIPPED, spec=replace(spec, start=4)), begun=1.0))
        former = replace(spec, solver=spec.solver.replace("1e-09", "1e-08"))
        store.add(outcome(replace(attempt, kappa_bar=99.0, margin=99.0, spec=former), begun=-1.0))
        # A run that the current settings have not repeated.
        store.add(outcome(replace(attempt, spec=replace(former, start=5)), begun=-1.0))
        # A run of another suite.
        other_suite = replace(spec, problem=spec.problem.replace("seed=0", "seed=7"), problem_id="other")
        store.add(outcome(replace(attempt, kappa_bar=99.0, margin=99.0, spec=other_suite), begun=1.0))
    return path


@pytest.fixture
def data(results_file: Path) -> Callable[[str], Data]:
    def data(name: str) -> Data:
        with Store(results_file) as store:
            return FIGURES[name].data(measured(store, TINY[name]) if name in TINY else information_rows())

    return data


def information_rows() -> list[MeasuredRow]:
    values = {(2, 0): 6.0, (2, 1): 6.5, (3, 0): 4.0, (3, 1): None}
    return [
        measured_row(problem=f"{n} {seed}", facts={"n": n, "seed": seed}, kappa_bar=value)
        for (n, seed), value in values.items()
    ]


def number(spec: str, name: str) -> float:
    match = re.search(rf"\b{name}=([\d.]+)", spec)
    assert match is not None
    return float(match[1])


def integral(kappa: float) -> float:
    """Return ∫_{−κ}^∞ Dt (t+κ)² by the midpoint rule."""
    edges = np.linspace(0, 12 + abs(kappa), 40_001)
    x = (edges[1:] + edges[:-1]) / 2
    return float((x**2 * np.exp(-((x - kappa) ** 2) / 2)).sum() * (edges[1] - edges[0]) / math.sqrt(2 * math.pi))


# --- numbers ---


def test_integral_has_known_values() -> None:
    assert integral(0) == pytest.approx(0.5) and integral(1.0343140614) == pytest.approx(2, rel=1e-6)


def test_capacity_matches_the_stored_rows(results_file: Path, data: Callable[[str], Data]) -> None:
    shown = data("capacity")
    stored = raw(
        results_file,
        """SELECT substr(solver, 1, instr(solver, '[') - 1) name, problem, max(kappa_bar),
        sum(coalesce(margin, 0) > 0), count(*) FROM run
        WHERE termination <> 'skipped' AND kappa_bar IS NOT 99 AND problem_id <> 'other'
        AND problem LIKE 'cov%load=%' AND (problem LIKE '%m=4,%' OR problem LIKE '%m=8,%') GROUP BY name, problem""",
    )
    names = {"slsqp": "slsqp", "soft_margin": "soft margin"}
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for name, text, *values in stored:
        if name in names:
            groups[names[name], number(text, "m"), number(text, "load")].append(tuple(values))
    assert len(groups) == 4 + 2
    lines = {(x["series"], x["m"], x["load"]): x for x in shown.table if "runs" in x}
    assert lines.keys() == groups.keys()
    for key, values in groups.items():
        best, positive, runs = zip(*values, strict=True)
        line = lines[key]
        assert line["kappa_bar"] == pytest.approx(sum(best) / 3)
        assert (line["kappa_bar_low"], line["kappa_bar_high"]) == (min(best), max(best))
        assert (line["sets"], line["positive"], line["runs"]) == (3, sum(positive), sum(runs))
        assert line["positive_fraction"] == sum(positive) / sum(runs)
    failed = [line for line in lines.values() if line["runs"] == 11]
    assert len(failed) == 1 and failed[0]["positive_fraction"] <= 10 / 11 and failed[0]["starts"] == 5


def test_capacity_has_theories_and_certified_bounds(results_file: Path, data: Callable[[str], Data]) -> None:
    """Check that the line of the paper is replica symmetry, and that full RSB is another one, at load 1 at 0.99501."""
    shown = data("capacity")
    full = shown.where(series="theory (full RSB)")
    assert full[-1]["load"] == pytest.approx(1) and full[-1]["kappa_bar"] == pytest.approx(0.99501, abs=5e-5)
    theory = shown.where(series="replica symmetry (paper)")
    assert theory[0]["load"] < 0.5 and theory[-1]["load"] == pytest.approx(1)
    for line in theory[::40]:
        assert line["load"] * integral(line["kappa_bar"]) == pytest.approx(2, rel=1e-6)
    bounds = defaultdict(list)
    for text, bound in raw(
        results_file, "SELECT problem, min(bound) FROM run WHERE solver LIKE 'cert%' GROUP BY problem"
    ):
        bounds[number(text, "m"), number(text, "load")].append(bound / SCALE)
    lines = {(x["m"], x["load"]): x for x in shown.table if x["series"] == "certified bound"}
    assert lines.keys() == bounds.keys()
    for key, values in bounds.items():
        assert lines[key]["kappa_bar"] == pytest.approx(sum(values) / 3)
    assert "certificate" not in {line["series"] for line in shown.table}


def test_overlap_matches_the_stored_points(results_file: Path, data: Callable[[str], Data]) -> None:
    overlaps: dict[float, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    with Store(results_file) as store:
        for id, text in raw(results_file, "SELECT id, problem FROM run WHERE problem LIKE '%m=5,n=2%load=%'"):
            W = store.point(id)
            assert W is not None
            value = float(W[0] @ W[1] / np.sqrt((W[0] @ W[0]) * (W[1] @ W[1])))
            overlaps[number(text, "load")][number(text, "seed")].append(value)
    shown = data("overlap")
    assert overlaps.keys() == {0.5, 2.0}
    for load, sets in overlaps.items():
        runs = [line["overlap"] for line in shown.where(kind="run", load=load)]
        assert sorted(runs) == pytest.approx(sorted(value for values in sets.values() for value in values))
        (line,) = shown.where(kind="mean", load=load)
        means = [np.mean(values) for values in sets.values()]
        error = np.std(means, ddof=1) / math.sqrt(3)
        expected = [np.mean(means), np.mean(means) - error, np.mean(means) + error]
        assert [line["overlap"], line["overlap_low"], line["overlap_high"]] == pytest.approx(expected)


def test_pattern_capacity_matches_the_stored_rows(results_file: Path, data: Callable[[str], Data]) -> None:
    shown = data("pattern_capacity")
    for line in shown.where(kind="theory")[::17]:
        n, integrated = line["n"], integral(line["kappa_bar"])
        assert line["p"] == pytest.approx((9 if n == 1 else 36 / (n - 1)) / integrated, rel=1e-6)
        assert line["load"] == pytest.approx(line["p"] / (9 * n))
    for n in (2, 3):
        for p in (2, 4):
            query = f"SELECT max(kappa_bar) FROM run WHERE problem LIKE '%m=9,n={n}%p={p},%' GROUP BY problem"
            values = [value for (value,) in raw(results_file, query)]
            (line,) = shown.where(kind="measured", n=n, p=p)
            assert line["kappa_bar"] == pytest.approx(sum(values) / 2) and line["load"] == p / (9 * n)
            assert (line["kappa_bar_low"], line["kappa_bar_high"], line["sets"]) == (min(values), max(values), 2)
    # 60 patterns in 9 dimensions are not separable. The margin of 3 is the largest κ with ζ x·w ≥ κ, ‖w‖ = 1.
    (line,) = shown.where(kind="measured", n=1)
    assert line["p"] == 3 and line["sets"] == 2
    with Store(results_file) as store:
        for id, text in raw(results_file, "SELECT id, problem FROM run WHERE problem LIKE 'classical%p=3,%'"):
            w = store.point(id)
            assert w is not None
            qcqp = problem(text)
            assert isinstance(qcqp, QCQP)
            margin = qcqp.values(w).min() / np.linalg.norm(w)
            assert min(abs(margin - line[f"kappa_bar_{end}"]) for end in ("low", "high")) < 1e-6


def test_information_capacity_matches_the_formulas(data: Callable[[str], Data]) -> None:
    shown = data("information_capacity")
    m = 500

    def bits(n: int, f: float) -> float:
        entropy = -sum(q * math.log2(q) for q in (f, 1 - f) if q)
        return m * (m - 1) / 2 * (f + entropy) + n * (n - 1) / 2

    for line in shown.where(kind="theory", f=1.0):
        n = line["n"]
        assert line["ratio"] == pytest.approx(2 * (m * (m - 1) + n * (n - 1)) / ((n - 1) * (m + n)))
    for line in shown.where(kind="theory")[::13]:
        assert line["information_per_synapse"] == pytest.approx(
            8 * bits(line["n"], line["f"]) / (line["n"] - 1) / line["n"]
        )
    for line in shown.where(kind="classical"):
        assert line["information_per_synapse"] == pytest.approx(2 * (m + line["n"]) / line["n"])
    two, three = shown.where(kind="measured")
    ratios = [50 * bits(2, F) * integral(kappa) / m / (m + 2) for kappa in (6.0, 6.5)]
    assert [two["ratio_low"], two["ratio_high"], two["ratio"]] == pytest.approx([*ratios, sum(ratios) / 2], rel=1e-6)
    assert three["ratio"] == pytest.approx(50 * bits(3, F) * integral(4.0) / m / (m + 3), rel=1e-6)
    assert three["sets"] == 1


def test_training_matches_the_patterns(results_file: Path, data: Callable[[str], Data]) -> None:
    shown = data("training")
    (spec,) = TINY["training"].problems
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    ((id,),) = raw(results_file, "SELECT id FROM run WHERE problem LIKE '%m=6,%'")
    with Store(results_file) as store:
        weights = {"before": random_start(task), "after": store.point(id)}
    for phase, W in weights.items():
        assert W is not None
        unit = W / np.linalg.norm(W, axis=1, keepdims=True)
        Q = np.einsum("ik,rkl,jl->rij", unit, task.patterns, unit)
        lines = [line for line in shown.where(phase=phase) if "pattern" in line]
        np.testing.assert_allclose([[line["Q12"], line["Q13"]] for line in lines], Q[:, 0, 1:], atol=1e-12)
        assert [[line["label12"], line["label13"]] for line in lines] == task.labels[:, :2].tolist()
        (line,) = (line for line in shown.where(phase=phase) if "margin" in line)
        least = min(
            task.labels[r, k] * Q[r, i, j] for r in range(5) for k, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)])
        )
        assert line["margin"] == pytest.approx(least)
    (line,) = shown.where(phase="theory")
    assert 2 * 5 * integral(line["margin"] / SCALE) == pytest.approx(4 * 6, rel=1e-6)


def test_optimization_is_the_ascent_of_the_paper() -> None:
    """Compare with a naive implementation of the paper's step, and with the solver soft_margin."""
    shown = FIGURES["optimization"].data([])
    task = problem("covariance_perceptron[m=100,n=2,f=0.2,c=0.5,p=20]")
    assert isinstance(task, MaxMargin)
    zeta, W = task.labels[:, 0], random_start(task)
    for step in range(101):
        Q = np.array([W[0] @ P @ W[1] for P in task.patterns])
        A = np.exp(-4 * zeta * Q)
        if step % 50 == 0:
            (line,) = (line for line in shown.where(step=step) if "margin" in line)
            assert [line["margin"], line["soft_margin"]] == pytest.approx([min(zeta * Q), -np.log(A.sum()) / 4])
            lines = [line for line in shown.where(step=step) if "pattern" in line]
            np.testing.assert_allclose([line["Q12"] for line in lines], Q, atol=1e-10)
            assert [line["label"] for line in lines] == zeta.tolist()
        ascent = [sum(a * z * P @ w for a, z, P in zip(A, zeta, task.patterns, strict=True)) / A.sum() for w in W[::-1]]
        W = W + 0.01 * np.array(ascent)
        W /= np.linalg.norm(W, axis=1, keepdims=True)
    best = solve(task, "soft_margin[max_iter=3001,tol=1e-300]").margin
    assert f"κ is {best:.3f} at step" in shown.caption
    (line,) = shown.with_column("theory")
    assert 20 * integral(line["theory"] / SCALE) == pytest.approx(4 * 100, rel=1e-6)


def test_full_suites_have_the_parameters_of_the_paper() -> None:
    """Compare with the captions of the paper, and check that the quick suites are smaller."""
    for name, part, sets, starts in (
        ("training", "n=3,f=0.2,c=0.5", 1, 1),
        ("overlap", "m=50,n=2,f=0.1,c=0.5", 5, 10),
        ("pattern_capacity", "m=100,n=2,f=0.2,c=0.5", 5, 1),
        ("information_capacity", "m=500,n=2,f=0.2,c=0.5", 3, 1),
        ("capacity", "m=100,n=2,f=0.2,c=0.5", 3, 10),
    ):
        make = FIGURES[name].suite
        assert make is not None
        fitting = [each for each in make(False).problems if part in each]
        assert len({number(each, "seed") for each in fitting}) == sets, name
        assert max(each.settings.starts for each in make(False).entries) == starts
        assert 0 < make(True).size <= make(False).size


# --- files ---


EVERYWHERE = (-math.inf, math.inf)
RED, BLUE, ORANGE, GREEN = "#C1272D", "#0072B2", "#E69F00", "#009E73"


def training_panels(shown: Data) -> list[Panel]:
    """Return the patterns before and after training, and after it the margin as a band and theory as lines."""
    margins = {line["phase"]: line["margin"] for line in shown.with_column("margin")}
    signs = {1: RED, -1: BLUE}, {1: "o", -1: "s"}
    panels = []
    for phase in ("before", "after"):
        lines = shown.where(phase=phase)[:5]
        assert all("pattern" in line for line in lines)
        looks: dict[tuple[str, str], list[Point]] = {(color, marker): [] for color in (RED, BLUE) for marker in "os"}
        for line in lines:
            looks[signs[0][line["label12"]], signs[1][line["label13"]]].append((line["Q12"], line["Q13"]))
        levels = [(axis, value) for axis in (0, 1) for value in (0, -margins["theory"], margins["theory"])]
        panels.append(
            Panel(
                ("G₁ = Q₁₂", "G₂ = Q₁₃"),
                columns(lines, "Q12", "Q13"),
                looks=looks,
                shown=EVERYWHERE,
                levels=levels if phase == "after" else [(0, 0), (1, 0)],
                bands=[(axis, -margins[phase], margins[phase]) for axis in (0, 1)] if phase == "after" else [],
            )
        )
    return panels


def overlap_panels(shown: Data) -> list[Panel]:
    """Return runs and means, theory, which is 0, and the band ±1/√m at m = 5."""
    means = shown.where(kind="mean")
    points = columns([*shown.where(kind="run"), *means], "load", "overlap")
    return [
        Panel(
            ("load P̂", "overlap R₁₂"),
            points,
            bars=(1, spans(means, "overlap")),
            shift=0.02,
            series={"gip": columns(means, "load", "overlap")},
            shown=EVERYWHERE,
            levels=[(1, 0)],
            bands=[(1, -1 / math.sqrt(5), 1 / math.sqrt(5))],
        )
    ]


def optimization_panels(shown: Data) -> list[Panel]:
    steps, patterns = shown.with_column("margin"), shown.with_column("pattern")
    margin, soft = (columns(steps, "step", name) for name in ("margin", "soft_margin"))
    looks = {
        (color, "None"): columns([line for line in patterns if line["label"] == label], "step", "Q12")
        for label, color in ((1, RED), (-1, BLUE))
    }
    last = steps[-1]["margin"]
    (theory,) = shown.with_column("theory")
    return [
        Panel(
            ("step", "readout covariance Q₁₂ʳ"),
            columns(patterns, "step", "Q12"),
            looks=looks,
            levels=[(1, -last), (1, last)],
            shown=EVERYWHERE,
        ),
        Panel(
            ("step", "margin"),
            margin + soft,
            series={"margin κ": margin, "soft margin $κ_η$": soft},
            levels=[(1, theory["theory"])],
            shown=EVERYWHERE,
        ),
    ]


def pattern_capacity_panels(shown: Data) -> list[Panel]:
    panels = []
    names = {1: "classical", 2: "n = 2", 3: "n = 3"}
    for column, label, outputs in (("load", "patterns per synapse P̂", (1, 2)), ("p", "patterns P", (1, 2, 3))):
        lines = [line for line in shown.table if line["n"] in outputs]
        ranges = spans([line for line in lines if line["kind"] == "measured"], "kappa_bar")
        panels.append(
            Panel(
                ("margin κ̄", label),
                columns(lines, "kappa_bar", column),
                bars=(0, ranges),
                series={names[n]: columns(shown.where(kind="measured", n=n), "kappa_bar", column) for n in outputs},
                shown=(0, 3),
            )
        )
    return panels


def information_capacity_panels(shown: Data) -> list[Panel]:
    theory, measured_lines = shown.where(kind="theory"), shown.where(kind="measured")
    classical = columns(shown.where(kind="classical"), "n", "information_per_synapse")
    bits, ratios = (
        {f"f = {f:g}": columns(shown.where(kind="theory", f=f), "n", name) for f in (1.0, 0.5, F, 0.05, 0.01)}
        for name in ("information_per_synapse", "ratio")
    )
    return [
        Panel(
            ("outputs n", "bits per synapse Î"),
            columns(theory, "n", "information_per_synapse") + classical,
            series=bits | {"classical": classical},
            shown=EVERYWHERE,
        ),
        Panel(
            ("outputs n", "ratio to classical Î"),
            columns([*theory, *measured_lines], "n", "ratio"),
            bars=(1, spans(measured_lines, "ratio")),
            series=ratios | {"measured, f = 0.2": columns(measured_lines, "n", "ratio")},
            levels=[(1, 2)],
            shown=EVERYWHERE,
        ),
    ]


def capacity_panels(shown: Data) -> list[Panel]:
    """Return the panels of each series at its largest m: 8, and 4 for soft_margin."""
    series = {
        "theory (full RSB)": shown.where(series="theory (full RSB)"),
        "replica symmetry (paper)": shown.where(series="replica symmetry (paper)"),
        "certified bound": shown.where(series="certified bound", m=8),
        "slsqp": shown.where(series="slsqp", m=8),
        "soft margin, m = 4": shown.where(series="soft margin", m=4),
    }
    assert all(series.values())
    _, symmetric, bounds, slsqp, soft = series.values()
    points = {label: columns(lines, "kappa_bar", "load") for label, lines in series.items()}
    return [
        Panel(
            ("margin κ̄", "load P̂"),
            [point for of_series in points.values() for point in of_series],
            bars=(0, spans([*bounds, *slsqp, *soft], "kappa_bar")),
            series=points,
            levels=[(0, 0)],
            shown=(-1, max(line["kappa_bar"] for line in symmetric)),
        ),
        Panel(
            ("load P̂", "fraction of positive margins"),
            columns([*slsqp, *soft], "load", "positive_fraction"),
            looks={
                (GREEN, "P"): columns(slsqp, "load", "positive_fraction"),
                (ORANGE, "^"): columns(soft, "load", "positive_fraction"),
            },
            shown=EVERYWHERE,
        ),
    ]


PANELS = {
    "training": training_panels,
    "overlap": overlap_panels,
    "optimization": optimization_panels,
    "pattern_capacity": pattern_capacity_panels,
    "information_capacity": information_capacity_panels,
    "capacity": capacity_panels,
}


@NEEDS_MATPLOTLIB
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn(name: str, data: Callable[[str], Data], tmp_path: Path) -> None:
    """Check that the panels and files show exactly the numbers of the table."""
    shown = FIGURES[name].data([]) if FIGURES[name].suite is None else data(name)
    assert_painted(FIGURES[name], shown, PANELS[name](shown))
    save(FIGURES[name], shown, tmp_path)
    assert_files_show(tmp_path, FIGURES[name], PANELS[name](shown))
    with (tmp_path / f"{name}.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    values = [{key: value for key, value in line.items() if value} for line in lines]
    assert values == [{key: str(value) for key, value in line.items()} for line in shown.table]
    assert "= " in shown.caption and "theory" in shown.caption and "Parameters: m = " in shown.caption


@NEEDS_MATPLOTLIB
def test_equal_data_give_equal_bytes(
    data: Callable[[str], Data], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check at two dates, with two settings of the user."""
    import matplotlib as mpl  # noqa: PLC0415 (optional)

    written = []
    for when, width in ((1, 1.0), (1_000_000_000, 9.0)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(when))
        with mpl.rc_context({"lines.linewidth": width, "xtick.major.size": width}):
            save(FIGURES["capacity"], data("capacity"), tmp_path)
            assert mpl.rcParams["lines.linewidth"] == width
        written.append([(tmp_path / f"capacity.{form}").read_bytes() for form in (*FORMATS, "csv")])
    assert written[0] == written[1]
