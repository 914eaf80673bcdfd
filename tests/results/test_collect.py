"""Runs from Python: problems and solvers of all kinds, resumption, wrong arguments, and agreement with the command."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import qcqpbench
from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.catalog.registry import problem, solver
from qcqpbench.catalog.solver import RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.results.collect import collect, run
from qcqpbench.results.results import Results
from qcqpbench.results.reverify import Checked, reverify
from qcqpbench.results.row import COLUMNS, Row
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.run.suite import Suite
from qcqpbench.run.verify import verify
from tests.support.hostile import Hostile
from tests.support.results_files import CONVEX, ROOT, TASK, call, names_beside, read_rows

# Columns that differ between two runs of the same spec.
_OF_ONE_RUN = {
    *("id", "invocation", "number", "worker", "begun", "machine"),
    *("build_seconds", "solve_seconds", "cpu_seconds", "peak_memory_bytes"),
}
REPEATED = [name for name in COLUMNS if name not in _OF_ONE_RUN]


def disk(**changes: Any) -> QCQP:
    """Return min x + y on x² + y² ≤ 1, from sparse arrays; its optimum is −√2."""
    values: dict[str, Any] = {"q": [1.0, 1.0], "x_lower": [-2.0, -2.0], "x_upper": [2.0, 2.0], **changes}
    return QCQP(quadratic_constraints=[(sparse.eye_array(2), None, -np.inf, 1.0)], **values)


def checked(results: Results) -> list[Checked]:
    with Store(results.path) as store:
        return list(reverify(store))


def repeated_values(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in REPEATED}


# --- problems ---


def test_specs_are_run_with_the_settings(tmp_path: Path) -> None:
    results = run(
        problems=[TASK, CONVEX],
        solvers=["slsqp"],
        starts=2,
        start_seed=5,
        time_limit=np.float32(30),  # type: ignore[arg-type]
        memory_limit_bytes=4 * 10**9,
        tolerance=1e-5,
        jobs=2,
        output=tmp_path / "a.db",
    )
    assert isinstance(results, Results) and results.path == tmp_path / "a.db" and len(results) == 4
    specs = {problem(text).metadata.spec for text in (TASK, CONVEX)}
    assert {(row.problem, row.start) for row in results} == {(spec, start) for spec in specs for start in (0, 1)}
    for row in results:
        assert (row.start_seed, row.time_limit, row.memory_limit_bytes) == (5, 30.0, 4 * 10**9)
        assert (row.threads, row.tolerance, row.point_status) == (1, 1e-5, PointStatus.FEASIBLE)
        task = problem(row.problem)
        attempt = solve(task, row.solver, random_start(task, row.start, row.start_seed), tolerance=1e-5)
        # Not to the last bit: in this process the arrays may be aligned differently in memory.
        assert (row.margin, row.objective) == pytest.approx((attempt.margin, attempt.objective), rel=1e-9)
    with Store(results.path) as store:
        assert [entry.command for entry in store.invocations().values()] == ["qcqpbench.run"]
    assert names_beside(results.path) == ["a.db"]


def test_files_and_folders_are_run(tmp_path: Path) -> None:
    folder = tmp_path / "problems"
    folder.mkdir()
    for name, objective in (("one.npz", [1.0, 1.0]), ("two.lp", [1.0, 2.0]), ("three.npz", [3.0, 1.0])):
        qcqpbench.write(disk(q=objective), folder / name)
    chosen: list[str | Path] = [folder / "one.npz", str(folder / "two.lp"), folder]
    results = run(problems=chosen, solvers=["slsqp"], output=tmp_path / "a.db")
    assert {row.problem: row.objective for row in results} == {
        str(folder / "one.npz"): pytest.approx(-np.sqrt(2)),
        str(folder / "two.lp"): pytest.approx(-np.sqrt(5)),
        str(folder / "three.npz"): pytest.approx(-np.sqrt(10)),
    }


def test_qcqps_from_arrays_are_written_beside_the_results_and_can_be_verified(tmp_path: Path) -> None:
    first, second = disk(), disk(q=[1.0, 2.0], sense="maximize")
    results = run(problems=[first, second, disk()], solvers=["slsqp"], starts=2, jobs=1, output=tmp_path / "a.db")
    assert names_beside(results.path) == ["a.db", "a.db-problems"]
    files = {path.stem: path for path in (tmp_path / "a.db-problems").iterdir()}
    # The same content is one file and one problem.
    assert set(files) == {first.id[:16], second.id[:16]} and len(results) == 4
    for original in (first, second):
        path = files[original.id[:16]]
        assert path.suffix == ".npz" and qcqpbench.read(path).id == original.id
        rows = [row for row in results if row.problem_id == original.id]
        assert {row.problem for row in rows} == {str(path)} and [row.start for row in rows] == [0, 1]
        for row in rows:
            point = results.point(row)
            assert point is not None and verify(original, point).objective == row.objective
    best = {row.sense: row.objective for row in results}
    assert best == {"minimize": pytest.approx(-np.sqrt(2)), "maximize": pytest.approx(np.sqrt(5))}
    assert [(each.rows, each.points, each.differences, each.unchecked) for each in checked(results)] == [
        (2, 2, (), ()),
        (2, 2, (), ()),
    ]
    # The files are what the rows are checked against.
    shutil.rmtree(tmp_path / "a.db-problems")
    assert [each.points for each in checked(results)] == [0, 0]


def test_a_relative_output_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(problems=[disk()], solvers=["slsqp"], output="a.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [each.points for each in checked(Results(tmp_path / "a.db"))] == [1]


def test_problems_that_specs_denote_are_stored_as_specs(tmp_path: Path) -> None:
    task, convex = problem(TASK), problem(CONVEX)
    assert isinstance(task, MaxMargin) and isinstance(convex, QCQP)
    results = run(problems=[task, convex], solvers=["slsqp"], jobs=1, output=tmp_path / "a.db")
    assert [row.problem for row in results] == [task.metadata.spec, convex.metadata.spec]
    assert names_beside(results.path) == ["a.db"]


def test_objects_that_differ_from_their_spec_are_written_to_files(tmp_path: Path) -> None:
    """Check a task and a QCQP that were changed after they were generated, and keep the spec in their metadata."""
    task, convex = problem(TASK), problem(CONVEX)
    assert isinstance(task, MaxMargin) and isinstance(convex, QCQP)
    other_task = replace(task, labels=-task.labels)
    other_convex = convex.replace(lower=2 * convex.lower)
    unknown = disk(metadata=replace(disk().metadata, spec="no_such_family[m=3]"))
    assert (other_task.metadata.spec, other_convex.metadata.spec) == (task.metadata.spec, convex.metadata.spec)
    changed: list[MaxMargin | QCQP] = [other_task, other_convex, unknown]
    results = run(problems=changed, solvers=["slsqp"], time_limit=20, jobs=1, output=tmp_path / "a.db")
    assert [row.problem_id for row in results] == [other.id for other in changed]
    assert [Path(row.problem).parent.name for row in results] == ["a.db-problems"] * 3
    assert [(each.points, each.differences) for each in checked(results)] == [(1, ())] * 3


# --- solvers ---


def test_solver_objects_are_run_in_other_processes(tmp_path: Path) -> None:
    """Use a class that no entry point names, with parameters, beside a solver of the suite as an object."""
    solvers = [Hostile(), Hostile("segfault"), solver("slsqp")]
    results = run(problems=[TASK], solvers=solvers, jobs=1, output=tmp_path / "a.db")
    fine, crashed, slsqp = results
    assert [row.solver for row in results] == [each.spec for each in solvers]
    assert (fine.solver_name, fine.solver_parameters["kind"]) == ("hostile", "fine")
    task = problem(TASK)
    assert isinstance(task, MaxMargin) and fine.margin == task.margin(random_start(task))
    assert results.output(fine) == "begun\n" and fine.version == Hostile().facts().version
    # The point that it reported before.
    assert crashed.termination is Termination.CRASHED and crashed.margin == fine.margin
    assert slsqp.margin == pytest.approx(solve(task, "slsqp").margin, rel=1e-9)


def test_a_class_that_other_processes_cannot_import_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(TaskSolver):
        name = "local"
        drives = "nothing"
        citation = "none"

        def build(self, problem: MaxMargin) -> RunFunction:
            return lambda start, budget: Solution(start, Termination.FINISHED)

    with pytest.raises(QcqpbenchError, match=r"solvers must be of classes in modules, .*, got .*Local: Can't pickle"):
        run(problems=[TASK], solvers=[Local()], output=tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


IN_A_PROMPT = """
from dataclasses import dataclass
from qcqpbench.catalog.solver import Solution, TaskSolver
from qcqpbench.results.collect import run

@dataclass(frozen=True)
class Prompted(TaskSolver):
    name, drives, citation = "prompted", "nothing", "none"

    def build(self, problem):
        return lambda start, budget: Solution(start)

run(problems=["covariance_perceptron[m=3,p=2]"], solvers=[Prompted()], output="a.db")
"""


def test_a_class_of_a_prompt_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROMPT], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("qcqpbench.errors.QcqpbenchError: solvers must be of classes in modules")
    assert last.endswith("got Prompted: it is defined in a notebook or a prompt")
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
from qcqpbench.results.collect import run

if __name__ == "__main__":
    results = run(problems=["classical_perceptron[m=4,p=3]"], solvers=["slsqp"], output="a.db", jobs=1)
    print(len(results), [str(row.termination) for row in results])
"""


def test_a_script_runs_and_prints_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1 ['locally_optimal']\n", "")


# --- resumption ---


def test_a_second_call_adds_nothing_and_force_repeats(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"problems": [CONVEX, disk()], "solvers": ["slsqp"], "jobs": 1}
    arguments["output"] = tmp_path / "a.db"
    first = [(row.id, row.begun) for row in run(**arguments)]
    assert [(row.id, row.begun) for row in run(**arguments).rows(all_rows=True)] == first
    more = run(**arguments, starts=2)
    assert [(row.id, row.begun) for row in more][:2] == first and len(more.rows(all_rows=True)) == 4
    repeated = run(**arguments, force=True)
    assert len(repeated) == 4 and len(repeated.rows(all_rows=True)) == 6
    newest = {row.id for row in repeated}
    assert newest.isdisjoint(id for id, _ in first)
    # Other options are other runs.
    assert len(run(**arguments, time_limit=60)) == 6


def test_counts_tell_new_runs_from_earlier_ones(tmp_path: Path) -> None:
    def counts(*problems: str) -> tuple[int, int, int]:
        counted = collect(Suite.of(problems, ["slsqp"]), tmp_path / "a.db", "test")
        return counted.new, counted.points, counted.earlier

    assert counts(CONVEX) == (1, 1, 0)
    assert counts(CONVEX) == (0, 0, 1)
    assert counts(CONVEX, TASK) == (1, 1, 1)


def test_a_suite_is_run_by_its_name_or_file(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(f"starts = 2\nseed = 3\n[[problem]]\nname = {CONVEX!r}\n[[solver]]\nname = 'slsqp'\n")
    names: list[str | Path] = [path, str(path)]
    for number, name in enumerate(names):
        results = run(name, jobs=1, output=tmp_path / f"{number}.db")
        assert [(row.start, row.start_seed) for row in results] == [(0, 3), (1, 3)]
        with Store(results.path) as store:
            (entry,) = store.invocations().values()
        assert entry.command == f"qcqpbench.run({str(path)!r})"


# --- wrong arguments ---


class NotASolver:
    pass


def test_settings_override_those_of_a_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'starts = 3\ntime_limit = 9\n[[problem]]\nname = "parity"\nm = 2\n[[solver]]\nname = "slsqp"\n'
    )
    rows = list(run(tmp_path / "mine.toml", starts=2, start_seed=4, jobs=1, output=tmp_path / "a.db"))
    assert [(row.start, row.start_seed, row.time_limit) for row in rows] == [(0, 4, 9.0), (1, 4, 9.0)]
    suite = Suite.of(["parity[m=2]"], ["slsqp"])
    assert [row.start for row in run(suite, starts=2, jobs=1, output=tmp_path / "b.db")] == [0, 1]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"problems": None, "solvers": None}, "got no problems and solvers"),
    "no solvers": ({"solvers": None}, "got no solvers"),
    "no problems": ({"problems": None}, "got no problems"),
    "suite and problems": ({"suite": "smoke"}, "problems and solvers must not be given with a suite"),
    "unknown suite": ({"suite": "smokey", "problems": None, "solvers": None}, "unknown suite 'smokey'; did you mean"),
    "suite of another type": ({"suite": 3, "problems": None, "solvers": None}, "unknown suite '3'"),
    "missing suite file": ({"suite": "no.toml", "problems": None, "solvers": None}, "no.toml"),
    "time limit of a suite": (
        {"suite": "smoke", "problems": None, "solvers": None, "time_limit": 0.0},
        "time_limit must be a positive number of seconds, got 0.0",
    ),
    "empty problems": ({"problems": []}, "problems must hold at least one"),
    "empty solvers": ({"solvers": []}, "solvers must hold at least one"),
    "one problem as text": ({"problems": TASK}, "problems must be a list, got 'covariance_perceptron"),
    "one problem as an object": ({"problems": disk()}, "problems must be a list, got <QCQP"),
    "one solver as text": ({"solvers": "slsqp"}, "solvers must be a list, got 'slsqp'"),
    "one solver as an object": ({"solvers": Hostile()}, "solvers must be a list, got Hostile"),
    "a number as problem": ({"problems": [3]}, "problems must hold specs, files, MaxMargins or QCQPs, got 3"),
    "an array as problem": (
        {"problems": [np.eye(2)]},
        "problems must hold specs, files, MaxMargins or QCQPs, got array",
    ),
    "a class as solver": ({"solvers": [Hostile]}, "solvers must hold specs or solvers, got <class"),
    "another object as solver": ({"solvers": [NotASolver()]}, "solvers must hold specs or solvers, got <"),
    "unknown problem": ({"problems": ["covariance_perceptrn"]}, "unknown problem 'covariance_perceptrn'; did you mean"),
    "unknown parameter": ({"problems": ["parity[q=3]"]}, "q"),
    "unknown solver": ({"solvers": ["slspq"]}, "unknown solver 'slspq'; did you mean 'slsqp'"),
    "missing file": ({"problems": ["missing.npz"]}, "missing.npz: no such file"),
    "no starts": ({"starts": 0}, "starts must be a whole number, at least 1, got 0"),
    "half a start": ({"starts": 1.5}, "starts must be a whole number, at least 1, got 1.5"),
    "negative seed": ({"start_seed": -1}, "start_seed must be a whole number, at least 0, got -1"),
    "no time": ({"time_limit": 0}, "time_limit must be a positive number of seconds, got 0"),
    "time as text": ({"time_limit": "5"}, "time_limit must be a positive number of seconds, got '5'"),
    "no memory": ({"memory_limit_bytes": 0}, "memory_limit_bytes must be a finite positive number of bytes, got 0"),
    "no threads": ({"threads": 0}, "threads must be a whole number, at least 1, got 0"),
    "tolerance nan": ({"tolerance": np.nan}, "tolerance must be a finite relative violation, at least 0, got nan"),
    "no jobs": ({"jobs": 0}, "jobs must be a whole number, at least 1, got 0"),
    "jobs as truth value": ({"jobs": True}, "jobs must be a whole number, at least 1, got True"),
    "jobs as text": ({"jobs": "2"}, "jobs must be a whole number, at least 1, got '2'"),
    "output None": ({"output": None}, "output must be the path of a results file, got None"),
    "output in no folder": ({"output": "no/a.db"}, "output must be in an existing folder, got no/a.db"),
    "dask as a number": ({"dask": 8786}, "dask must be 'local', an address or None, got 8786"),
    "objects on dask": ({"dask": "local", "solvers": [Hostile()]}, "solvers on a Dask cluster must be given by"),
    "force as text": ({"force": "no"}, "force must be True or False, got 'no'"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"problems": [TASK], "solvers": ["slsqp"], "output": "a.db"} | changes
    with pytest.raises(QcqpbenchError) as caught:
        run(**arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 and list(tmp_path.iterdir()) == []


def test_an_output_that_is_no_results_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("notes")
    for output, message in ((path, "must be a qcqpbench results file, got another kind"), (tmp_path, "got a folder")):
        with pytest.raises(QcqpbenchError, match=message):
            run(problems=[CONVEX], solvers=["slsqp"], output=output)
    assert path.read_text() == "notes" and names_beside(path) == ["notes.txt"]


# --- the command line ---


@pytest.mark.filterwarnings("default")
def test_the_command_gives_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = tmp_path / "disk.npz"
    qcqpbench.write(disk(), instance)
    problems, solvers = [TASK, CONVEX, str(instance)], ["gip[starts=1]", "slsqp", "slsqp[formulation=min_norm]"]
    words: list[str | Path] = ["run", "-r", "2", "--seed", "4", "--timeout", "60", "--memory", "4", "-j", "1"]
    words += [word for text in problems for word in ("-p", text)] + [word for text in solvers for word in ("-s", text)]
    assert call(capsys, *words, "-o", tmp_path / "command.db")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        results = run(
            problems=problems,
            solvers=solvers,
            starts=2,
            start_seed=4,
            time_limit=60,
            memory_limit_bytes=4 * 10**9,
            jobs=1,
            output=tmp_path / "python.db",
        )
    rows, other_rows = list(results), read_rows(tmp_path / "command.db")
    assert len(rows) == len(other_rows) == 14
    for row, other in zip(rows, other_rows, strict=True):
        assert repeated_values(row) == repeated_values(other)
    with Store(tmp_path / "command.db") as store:
        for row, other in zip(rows, other_rows, strict=True):
            np.testing.assert_array_equal(results.point(row), store.point(other.id))
    # The command finds the runs of Python in the file, and adds none.
    assert call(capsys, *words, "-o", tmp_path / "python.db")[0] == 0
    assert len(results.rows(all_rows=True)) == 14


@pytest.mark.parametrize("read", [list, len, repr, Results._repr_html_], ids=["list", "len", "repr", "html"])
def test_results_can_be_read_during_a_run(tmp_path: Path, read: Callable[[Results], object]) -> None:
    results = run(problems=[CONVEX], solvers=["slsqp"], output=tmp_path / "a.db")
    with Store(results.path, write=True):
        assert read(results)
