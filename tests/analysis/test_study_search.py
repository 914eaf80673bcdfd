"""The comparison of solvers in the finite-size study, counted by hand."""

from typing import Any

import pytest

from qcqpbench.analysis.figures.base import MeasuredRow
from qcqpbench.analysis.studies.search import SEARCH
from tests.support.figure_runs import measured_row

PROBLEMS = {
    seed: f"covariance_perceptron[m=20,n=2,f=0.2,c=0.5,load=2.0,ensemble=gaussian,seed={seed}]" for seed in range(3)
}
THEORY = 0.4


def run_row(label: str, seed: int, kappa_bar: float | None, seconds: float = 1.0) -> MeasuredRow:
    facts: dict[str, Any] = {"m": 20, "n": 2, "load": 2.0, "seed": seed}
    return measured_row(
        label=label,
        problem=PROBLEMS[seed],
        facts=facts,
        kappa_bar=kappa_bar,
        kappa_bar_theory=THEORY,
        solve_seconds=seconds,
    )


ROWS = [
    run_row("gip", 0, 0.30),
    run_row("gip", 1, 0.31),
    run_row("gip", 2, 0.35),
    run_row("slow", 0, 0.33, 10),
    run_row("slow", 1, 0.31 - 5e-6, 20),
    run_row("slow", 2, 0.35 + 5e-6, 30),
    # Two runs on each of two instances, and one instance without a point.
    run_row("IPOPT", 0, 0.20, 2),
    run_row("IPOPT", 0, 0.32, 4),
    run_row("IPOPT", 1, 0.10, 2),
    run_row("IPOPT", 1, 0.31, 4),
    run_row("IPOPT", 2, None, 3),
]


def test_solvers_are_compared_with_the_best_on_each_instance() -> None:
    lines = {line["series"]: line for line in SEARCH.data(ROWS).where(kind="solver")}
    assert lines.keys() == {"gip", "slow", "IPOPT"}
    gip, slow, ipopt = lines["gip"], lines["slow"], lines["IPOPT"]
    assert gip["shortfall"] == pytest.approx((0.03 + 0 + 5e-6) / 3)
    assert gip["reached"] == pytest.approx(2 / 3)
    assert gip["kappa_bar"] == gip["kappa_bar_single"] == pytest.approx((0.30 + 0.31 + 0.35) / 3)
    assert slow["shortfall"] == pytest.approx(5e-6 / 3)
    assert (slow["reached"], slow["seconds"]) == (1, 20)
    assert ipopt["kappa_bar_single"] == pytest.approx((0.26 + 0.205) / 2)
    assert ipopt["kappa_bar"] == pytest.approx((0.32 + 0.31) / 2)
    assert ipopt["shortfall"] == pytest.approx((0.01 + 0) / 2)
    assert ipopt["reached"] == pytest.approx(1 / 3)
    assert (ipopt["instances"], ipopt["runs"], ipopt["seconds"]) == (3, 5, 3)


def test_best_of_all_solvers_is_compared_with_full_rsb() -> None:
    (line,) = SEARCH.data(ROWS).where(kind="all")
    best = [0.33, 0.31, 0.35 + 5e-6]
    assert line["instances"] == 3
    assert line["kappa_bar"] == pytest.approx(sum(best) / 3)
    assert line["deficit"] == pytest.approx(THEORY - sum(best) / 3)
    # The best margins are 0.02 apart, so their deviation is 0.02.
    assert line["deficit_high"] - line["deficit"] == pytest.approx(0.02 / 3**0.5, rel=1e-3)


def test_solvers_without_a_point_have_no_means() -> None:
    rows = [*ROWS, run_row("broken", 0, None)]
    (line,) = [line for line in SEARCH.data(rows).table if line["series"] == "broken"]
    assert (line["instances"], line["runs"], line["reached"]) == (1, 1, 0)
    assert not {"kappa_bar", "shortfall", "deficit"} & line.keys()
