"""Run the benchmarks of asv once, on tiny problems, as asv would."""

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import core, solving
from qcqpbench import solve
from qcqpbench.catalog.registry import solvers
from qcqpbench.catalog.status import PointStatus

ROOT = Path(__file__).parents[1]
TINY = "covariance_perceptron[m=4,load=1]"
KINDS = ("time_", "timeraw_", "peakmem_", "track_")


def is_benchmark(member: object) -> bool:
    return inspect.isfunction(member) and member.__name__.startswith(KINDS)


def run(group: type, *arguments: object) -> dict[str, Any]:
    """Run every benchmark of a class, each on a new instance; return the results by name."""
    results = {}
    for name, function in inspect.getmembers(group, is_benchmark):
        instance = group()
        instance.setup(*arguments)
        results[name] = function(instance, *arguments)
    assert results
    return results


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SPEC", TINY)
    monkeypatch.setattr(solving, "SPEC", TINY)
    monkeypatch.setattr(solving, "STARTS", 2)


def test_the_configuration_names_existing_paths() -> None:
    lines = (ROOT / "asv.conf.json").read_text().splitlines()
    config = json.loads("\n".join(line for line in lines if not line.strip().startswith("//")))
    assert {path.stem for path in (ROOT / config["benchmark_dir"]).glob("*.py")} == {"__init__", "core", "solving"}
    assert all(config[key].startswith(".asv/") for key in ("env_dir", "results_dir", "html_dir"))
    assert ".asv/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("function", [core.timeraw_import, core.timeraw_import_all])
def test_import_statements_run(function: Callable[[], str]) -> None:
    # As timeit does, inside a function.
    exec(f"def body():\n    {function()}\nbody()", {})


@pytest.mark.parametrize("group", [core.Generate, core.Encode])
def test_groups_with_a_parameter_run(group: Any) -> None:
    for value in group.params:
        run(group, value)


def test_evaluation_runs() -> None:
    run(core.Evaluate)


def test_solvers_run_and_have_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert solving.Solve.params == solving.Gaps.params == tuple(solvers())
    run(solving.Solve, "slsqp")
    monkeypatch.setattr(solving, "solvers", lambda: {"slsqp": None, "trust_constr": None})
    attempts = solving.Gaps().setup_cache()
    assert {name: len(runs) for name, runs in attempts.items()} == {"slsqp": 2, "trust_constr": 2}
    assert all(math.isfinite(gap) for gap in run(solving.Gaps, attempts, "slsqp").values())


def test_only_feasible_points_with_a_positive_margin_count() -> None:
    attempt = solve(core.make_task(TINY), "slsqp")
    results = [
        (PointStatus.FEASIBLE, 0.5),
        (PointStatus.FEASIBLE, -0.1),
        (PointStatus.INFEASIBLE, 0.9),
        (PointStatus.NONE, None),
    ]
    attempts = [replace(attempt, point_status=status, kappa_bar=kappa_bar) for status, kappa_bar in results]
    # From κ̄ = .99501 of full RSB at load 1, and from the best known margin of the problem that asv runs.
    expected = {"track_gap_to_full_rsb": 0.495, "track_gap_to_best_known": 0.2913, "track_unsolved": 0.75}
    assert run(solving.Gaps, {"slsqp": attempts}, "slsqp") == expected


def test_a_missing_solver_is_skipped() -> None:
    for group, arguments in ((solving.Solve, ["no_such_solver"]), (solving.Gaps, [{}, "no_such_solver"])):
        with pytest.raises(NotImplementedError):
            run(group, *arguments)
