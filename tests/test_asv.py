"""Run the benchmarks of asv once, on tiny problems, as asv would."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import core, solving
from qcqpbench import problem
from qcqpbench.analysis.metrics import PROVED_GAP
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.registry import solver_names
from qcqpbench.integrations.asv import SolverBenchmarks
from qcqpbench.run.suite import expand_problem
from qcqpbench.run.suite_file import load_suite

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


def test_every_solver_is_measured() -> None:
    assert all(group.params[0] == tuple(solver_names()) for group in (solving.Gaps, solving.Times))


def test_the_tasks_are_those_of_the_suites() -> None:
    """Check that the best margin of each task is listed, and proved optimal where the group says so."""
    for name, specs in solving.TASKS.items():
        assert {member for spec in specs for member in expand_problem(spec)} <= set(load_suite(name).problems)
        records = [shipped_records()[problem(spec).id] for spec in specs]
        assert name != "proved" or max(record.gap for record in records) <= PROVED_GAP


@pytest.mark.parametrize("group", [solving.Gaps, solving.Times])
def test_solvers_run(group: type[SolverBenchmarks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the benchmarks on the smallest group, or on a tiny task."""
    monkeypatch.chdir(tmp_path)
    tiny: type[SolverBenchmarks] = type("Tiny", (group,), {"solvers": ("slsqp",), "problems": (TINY,)})
    results = run(tiny, "slsqp", TINY)
    expected = {
        solving.Gaps: {"track_gap", "track_gap_to_theory", "track_missed_optima", "track_unsolved"},
        solving.Times: {"time_solve", "track_peak_memory"},
    }
    assert set(results) == expected[group]
    assert results.get("track_unsolved", 0.0) == 0.0 and results.get("track_peak_memory", 1.0) > 0.0
