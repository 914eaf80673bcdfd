"""The expected contents of the panels of the finite-size study, for the runs of test_studies.py."""

from typing import Any

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Data
from tests.support.drawn import Panel, Point, columns, power, spans

RS = "replica symmetry (paper)"


def by_name(lines: list[dict[str, Any]], name: str, form: str, x: str, y: str) -> dict[str, list[Point]]:
    """Return the points of the lines by the label that the column `name` gives them."""
    return {
        form.format(value): columns([line for line in lines if line[name] == value], x, y)
        for value in {line[name] for line in lines}
    }


def theory_points(low: float, high: float, column: str) -> list[Point]:
    """Return the curve of full RSB ("full"), of replica symmetry ("rs"), or of rs minus full ("difference")."""
    x = np.linspace(low, high, 101)
    full, symmetric = theory.covariance_kappa_bar(2 * x, 1, rsb="full"), theory.covariance_kappa_bar(2 * x, 1)
    y = {"full": full, "rs": symmetric, "difference": symmetric - full}[column]
    return list(zip(x.tolist(), y.tolist(), strict=True))


def differences(lines: list[dict[str, Any]], x: str) -> list[dict[str, Any]]:
    return [{**line, "y": line["kappa_bar"] - line["kappa_bar_theory"], "x": line[x]} for line in lines]


def margins_panels(data: Data) -> list[Panel]:
    """Return the panels. Each limit adds the ends of its fit on the left, at m → ∞ and beyond the smallest m."""
    sizes = [line | {"x": power(line["m"])} for line in data.where(kind="size", ensemble="gaussian")]
    at_zero = {(0.0, line[name]) for line in sizes for name in ("kappa_bar_theory", "kappa_bar_rs")}
    limits = differences(data.where(kind="limit"), "load")
    ends = [
        (x, line["kappa_bar"] + line["slope"] * x)
        for line in limits
        if line["ensemble"] == "gaussian"
        for x in (0.0, 1.1 * max(size["x"] for size in sizes if size["load"] == line["load"]))
    ]
    difference = theory_points(1, 2, "difference")
    return [
        Panel(
            ("m^(−2/3)", "margin κ̄"),
            columns(sizes, "x", "kappa_bar") + list(at_zero) + ends,
            series=by_name(sizes, "load", "P̂ = {:g}", "x", "kappa_bar"),
        ),
        Panel(
            ("load P̂", "κ̄∞ − full RSB"),
            columns(limits, "x", "y") + difference,
            shift=0.05,
            series=by_name(limits, "ensemble", "{}", "x", "y") | {RS: difference},
            levels=[(1, 0)],
        ),
    ]


def exponents_panels(data: Data) -> list[Panel]:
    sizes = [line for line in data.where(kind="size", ensemble="gaussian") if line["deficit"] > 0]
    smallest, largest = min(line["m"] for line in sizes), max(line["m"] for line in sizes)
    fits = data.where(kind="fit", model="fixed")
    curves = [
        (m, line["amplitude"] * m ** -line["exponent"])
        for line in fits
        if line["ensemble"] == "gaussian"
        for m in (0.9 * smallest, 1.1 * largest)
    ]
    factor = min(line["deficit"] * line["m"] ** (2 / 3) for line in sizes) / 2
    guide = [(m, factor * power(m)) for m in (smallest, largest)]
    inside = [line for line in fits if line["ensemble"] != "psd" and not line["at_bound"]]
    return [
        Panel(
            ("inputs m", "full RSB − κ̄"),
            columns(sizes, "m", "deficit") + curves + guide,
            series=by_name(sizes, "load", "P̂ = {:g}", "m", "deficit") | {"m^(−2/3)": guide},
        ),
        Panel(
            ("load P̂", "exponent ω"),
            columns(inside, "load", "exponent"),
            bars=(1, spans(inside, "exponent")),
            shift=0.04,
            series=by_name(inside, "ensemble", "{}", "load", "exponent"),
            levels=[(1, 2 / 3)],
        ),
    ]


def active_panels(data: Data) -> list[Panel]:
    runs, curves = data.where(ensemble="gaussian"), data.where(ensemble="theory")
    full, symmetric = columns(curves, "load", "share_theory"), columns(curves, "load", "share_rs")
    crosses = [(1 - share, 1 - share) for share in {line["share_theory"] for line in runs}]
    return [
        Panel(
            ("load P̂", "active / (2m − 1)"),
            columns(runs, "load", "share") + full + symmetric,
            bars=(1, spans(runs, "share")),
            series=by_name(runs, "m", "m = {}", "load", "share") | {"full RSB": full, RS: symmetric},
            levels=[(1, 1)],
        ),
        Panel(
            ("1 − c = 1 − active / (2m − 1)", "κ̄²(Σl)²/(4mΣl²)"),
            columns(runs, "unconstrained", "multiplier_ratio") + crosses + [(0, 0), (1, 1)],
            series=by_name(runs, "m", "m = {}", "unconstrained", "multiplier_ratio") | {"full RSB": crosses},
        ),
    ]


def stabilities_panels(data: Data) -> list[Panel]:
    """Return the panels: both loads at the largest size, and all sizes at the higher load."""
    left = data.where(kind="tail", ensemble="gaussian", m=50)
    tails = [point for name in ("share", "share_theory", "share_rs") for point in columns(left, "delta", name)]
    right = data.where(kind="density", ensemble="gaussian", load=2)
    full, symmetric = (list(set(columns(right, "gap", name))) for name in ("density_theory", "density_rs"))
    return [
        Panel(
            ("δ", "share of stabilities above κ + δ"), tails, series=by_name(left, "load", "P̂ = {:g}", "delta", "share")
        ),
        Panel(
            ("gap h", "density"),
            columns(right, "gap", "density") + full + symmetric,
            series=by_name(right, "m", "m = {}", "gap", "density") | {"full RSB": full, RS: symmetric},
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
    limits = differences(data.where(kind="limit"), "alpha")
    sizes = data.where(kind="size", ensemble="paper")
    largest = {n: max(line["m"] for line in sizes if line["n"] == n) for n in {line["n"] for line in sizes}}
    left = [line for line in sizes if line["m"] == largest[line["n"]]]
    ends = [line for line in limits if line["ensemble"] == "paper"]
    alphas = [line["alpha"] for line in data.table]
    full, symmetric, difference = (
        theory_points(min(alphas), max(alphas), name) for name in ("full", "rs", "difference")
    )
    x = "α = p(n−1)/(2m)"
    return [
        Panel(
            (x, "margin κ̄"),
            columns([*left, *ends], "alpha", "kappa_bar") + full + symmetric,
            shift=0.04,
            series=by_name(ends, "n", "n = {}", "alpha", "kappa_bar") | {"full RSB": full, RS: symmetric},
        ),
        Panel(
            (x, "κ̄∞ − full RSB"),
            columns(limits, "x", "y") + difference,
            shift=0.04,
            series=by_name(ends, "n", "n = {}", "x", "y") | {RS: difference},
            levels=[(1, 0)],
        ),
    ]


def search_panels(data: Data) -> list[Panel]:
    best, gip = data.where(kind="all"), data.where(kind="solver", series="gip")
    positions = {line["load"]: number for number, line in enumerate(best)}
    solvers = [line | {"x": positions[line["load"]]} for line in data.where(kind="solver")]
    factor = min(line["deficit"] for line in best + gip) / 2
    # Both ends of the power law are at the only size.
    guide = [(12.0, factor), (12.0, factor)]
    return [
        Panel(
            ("inputs m, and load P̂ below", "shortfall of κ̄ from the best"),
            columns(solvers, "x", "shortfall"),
            shift=0.12,
            series=by_name(solvers, "series", "{}", "x", "shortfall"),
        ),
        Panel(
            ("inputs m", "full RSB − κ̄"),
            columns(best + gip, "m", "deficit") + guide,
            bars=(1, spans(best + gip, "deficit")),
            series=by_name(best, "load", "P̂ = {:g}", "m", "deficit") | {"m^(−2/3)": guide},
        ),
    ]


PANELS = {
    "margins": margins_panels,
    "exponents": exponents_panels,
    "active": active_panels,
    "stabilities": stabilities_panels,
    "overlaps": overlaps_panels,
    "outputs": outputs_panels,
    "search": search_panels,
}
