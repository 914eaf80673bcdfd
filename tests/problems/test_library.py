"""Tests of libraries: small folders whose solutions are known, and QPLIB if it is there."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, problem, read, solve, write
from qcqpbench.analysis.report.numbers.sources import read as read_results
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import family, solver
from qcqpbench.catalog.spec import spell
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.cli.main import main
from qcqpbench.problem.formats.qplib import write_point
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, assemble
from qcqpbench.run.conformance import check_family
from qcqpbench.run.proposal import Proposal
from qcqpbench.run.suite import Suite
from qcqpbench.run.suite_file import load_suite
from qcqpbench.run.verify import evaluate, verify
from tests.support.outside import QPLIB, absence
from tests.support.results_files import reply

NAMES = [line.split(",")[0] for line in (QPLIB / "index.csv").read_text().splitlines()[1:]] if QPLIB.is_dir() else []
needs_qplib = pytest.mark.skipif(not NAMES, reason=absence(QPLIB))


def disk(sense: str, radius: float) -> QCQP:
    """Return x + y on x² + y² ≤ radius², of optimum ±√2 radius."""
    bounds: dict[str, Any] = {"x_lower": [-9.0, -9.0], "x_upper": [9.0, 9.0], "sense": sense}
    return QCQP(q=(1.0, 1.0), quadratic_constraints=[(np.eye(2), None, -np.inf, radius**2)], **bounds)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a library: one instance with best known value and point, one with a value, one with a point."""
    path = tmp_path / "a folder, [odd]"
    path.mkdir()
    for name, sense, radius in (("one", "minimize", 1.0), ("two", "maximize", 2.0), ("three", "minimize", 3.0)):
        write(disk(sense, radius), path / f"{name}.qplib")
        if name != "two":
            write_point(np.full(2, -radius / np.sqrt(2)), disk(sense, radius), path / f"{name}.sol")
    (path / "index.csv").write_text(f"who,best,name\nme,{-math.sqrt(2)!r},one\n\nyou, 2.5 ,two\n,,three\n")
    return path


def spec(folder: Path | str, **more: str) -> str:
    return spell("library", {"path": str(folder), **more})


def load(folder: Path, instance: str) -> QCQP:
    qcqp = problem(spec(folder, instance=instance))
    assert isinstance(qcqp, QCQP)
    return qcqp


def test_an_instance_has_the_content_of_its_file_and_its_best_known_value(folder: Path) -> None:
    for name, sense, radius, best, source in (
        ("one", "minimize", 1.0, -np.sqrt(2), "one.sol"),
        ("two", "maximize", 2.0, 2.5, "index.csv"),
        ("three", "minimize", 3.0, -3 * np.sqrt(2), "three.sol"),
    ):
        instance = load(folder, name)
        known = instance.metadata.best_known
        assert instance.id == disk(sense, radius).id == read(folder / f"{name}.qplib").id
        assert instance.metadata.spec == spec(folder, instance=name)
        assert known is not None and known.source == source
        assert known.value == pytest.approx(best, rel=1e-12)
        assert (instance.metadata.reference is None) == (name == "two")


def test_the_family_passes_the_conformance_check(folder: Path) -> None:
    assert all(check.passed for check in check_family(spec(folder, instance="one")))


def test_a_library_may_hold_tasks(tmp_path: Path) -> None:
    task = problem("covariance_perceptron[m=3,p=2]")
    write(task, tmp_path / "task.npz")
    (tmp_path / "index.csv").write_text("name,best\ntask,0.5\n")
    instance = problem(spec(tmp_path, instance="task"))
    assert isinstance(instance, MaxMargin) and instance.id == task.id
    assert instance.metadata.best_known is not None and instance.metadata.best_known.value == 0.5


def test_a_spec_without_an_instance_is_the_whole_index(folder: Path, tmp_path: Path) -> None:
    expected = tuple(spec(folder, instance=name) for name in ("one", "two", "three"))
    assert Suite.of([spec(folder)], ["slsqp"]).problems == expected
    assert Suite.of([expected[1]], ["slsqp"]).problems == expected[1:2]
    head = f"[[problem]]\nname = 'library'\npath = {str(folder)!r}\n"
    solvers = "[[solver]]\nname = 'slsqp'\nwhere.instance = 'two'\n"
    (tmp_path / "suite.toml").write_text(head + solvers)
    suite = load_suite(tmp_path / "suite.toml")
    assert suite.problems == expected and suite.size == 1
    (tmp_path / "suite.toml").write_text(head + "instance = ['two', 'for']\n" + solvers)
    with pytest.raises(
        QcqpbenchError, match=r"suite.toml:2: unknown instance of .*index.csv 'for'; allowed: one, three, two"
    ):
        load_suite(tmp_path / "suite.toml")


def test_a_relative_path_may_be_run_and_verified_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run with two workers in one folder, verify from the specs in another."""
    monkeypatch.chdir(folder.parent)
    here = spec(folder.name)
    assert main(["run", "-p", here, "-s", "slsqp", "-r", "2", "--timeout", "20", "-j", "2", "-o", "results.db"]) == 0
    results = Path("results.db").absolute()
    (folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(folder.parent / "elsewhere")
    assert main(["verify", str(results)]) == 0
    assert "6 rows, 6 points re-evaluated: all as stored" in capsys.readouterr().out
    with Store(results) as store:
        rows = list(store.rows())
    assert {row.problem for row in rows} == {spec(folder, instance=name) for name in ("one", "two", "three")}
    best = {row.problem_id: row.best_known for row in rows}
    assert best == {
        disk("minimize", 1).id: pytest.approx(-np.sqrt(2)),
        disk("maximize", 2).id: 2.5,
        disk("minimize", 3).id: pytest.approx(-3 * np.sqrt(2)),
    }
    assert main(["report", str(results), "--format", "md", "-o", "-"]) == 0
    text = capsys.readouterr().out
    # 2√2 is better than the 2.5 of the index.
    assert "New best known values: 2.828427" in text and "previously 2.5." in text
    assert {row.point_status for row in rows} == {PointStatus.FEASIBLE}
    assert "Runs without a feasible point" not in text and "Margins" not in text


def test_the_report_reads_the_best_known_values_again(folder: Path, tmp_path: Path) -> None:
    """Check instances of both kinds; values that cannot be read any more are those of the newest row."""
    task = problem("covariance_perceptron[m=3,p=2]")
    write(task, folder / "task.npz")
    index = folder / "index.csv"
    index.write_text("name,best\ntwo,2.5\ntask,0.5\n")
    for chosen, name in (("slsqp", "two"), ("gip", "task")):
        with Store(tmp_path / "results.db", write=True) as store:
            store.begin("test", Machine())
            (run,) = Suite.of([spec(folder, instance=name)], [chosen]).runs()
            attempt = solve(problem(run.problem), chosen, start=np.eye(3)[:2] if name == "task" else [0.5, 0.5])
            store.add(Outcome(replace(attempt, spec=run), reply()))

    def known() -> set[float | None]:
        return {row.best_known for row in read_results([tmp_path / "results.db"]).rows}

    assert known() == {2.5, 0.5}
    index.write_text("name,best\ntwo,2.75\ntask,0.75\n")
    assert known() == {2.75, 0.75}
    index.write_text("name,best\ntwo,\ntask,0.75\n")
    assert known() == {None, 0.75}
    write(disk("maximize", 7), folder / "two.qplib")
    assert known() == {2.5, 0.75}
    index.unlink()
    assert known() == {2.5, 0.5}


@pytest.mark.filterwarnings("default")
def test_two_names_of_one_problem_are_run_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check the message too, and that a damaged instance is refused before anything runs."""
    monkeypatch.chdir(folder.parent)
    write(disk("maximize", 2), folder / "again.lp")
    index = folder / "index.csv"
    index.write_text("name,best\ntwo,2.5\nagain,2.75\n")
    command = ["run", "-p", spec(folder.name), "-s", "slsqp", "--timeout", "20", "-j", "1", "-o", "results.db"]
    assert main(command) == 0
    lines = capsys.readouterr().err.splitlines()
    first, second = (spec(folder, instance=name) for name in ("two", "again"))
    same = f"qcqpbench: {second} is the same problem as {first}"
    assert lines[0] == f"{same}; the runs and the best known value of {first} are used"
    assert lines[1] == "run → results.db: 1 runs"
    assert lines[2].startswith("[1/1] slsqp on ") and len(lines) == 3
    (row,) = read_results(["results.db"]).rows
    assert (row.problem, row.best_known) == (first, 2.5)
    (folder / "one.qplib").write_text("nothing")
    index.write_text("name,best\nthree,\ntwo,2.5\none,\n")
    assert main(command) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"qcqpbench: {folder}/one.qplib:")
    with Store("results.db") as store:
        assert len(list(store.rows())) == 1


WRONG = [
    ("", r"index.csv:1: header must have exactly one column 'name', as in 'name,best', got ''$"),
    ("who,best\nme,3\n", "index.csv:1: header must have exactly one column 'name', as in 'name,best', got 'who,best'$"),
    (
        "name,best,best\none,3,4\n",
        "index.csv:1: header must have at most one column 'best', as in 'name,best', got 'name,best,best'$",
    ),
    ("name,best\n", "index.csv: must have at least one line after the header, got none$"),
    ("name,best\none\n", "index.csv:2: line must have 2 cells, as the header has, got 1$"),
    ("name,best\n\none,1,2\n", "index.csv:3: line must have 2 cells, as the header has, got 3$"),
    ("name,best\n,3\n", "index.csv:2: name must be neither empty nor repeated, got ''$"),
    ("name,best\none,\none,\n", "index.csv:3: name must be neither empty nor repeated, got 'one'$"),
    ("name,best\none,many\n", "index.csv:2: best must be a finite number or empty, got 'many'$"),
    ("name,best\none,nan\n", "index.csv:2: best must be a finite number or empty, got 'nan'$"),
    ("name,best\none,inf\n", "index.csv:2: best must be a finite number or empty, got 'inf'$"),
    ("name,best\none,1e999\n", "index.csv:2: best must be a finite number or empty, got '1e999'$"),
    ("name,best\none,-1_0\n", "index.csv:2: best must be a finite number or empty, got '-1_0'$"),
    ("name,best\none,\u0663\n", "index.csv:2: best must be a finite number or empty, got '\u0663'$"),
    ('name,best\none,"1\n', "index.csv:2: line must be valid CSV, got "),
    (
        "name,best\none,-1.4142135\n",
        r"index.csv:2: stated objective must be -1.4142.*, that of the point in one.sol, got -1.4142135$",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_index_is_refused_in_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "index.csv").write_text(text)
    with pytest.raises(QcqpbenchError, match=message) as caught:
        problem(spec(folder, instance="one"))
    assert str(caught.value).startswith(str(folder / "index.csv"))


def test_missing_files_and_names_are_refused(folder: Path) -> None:
    for given, message in (
        ({}, "instance must be one of the 3 instances, such as instance=one, got None"),
        ({"instance": "on"}, "unknown instance of .*index.csv 'on'; did you mean 'one'"),
    ):
        with pytest.raises(QcqpbenchError, match=message):
            problem(spec(folder, **given))
    (folder / "one.qplib").rename(folder / "four.qplib")
    with pytest.raises(
        QcqpbenchError, match=r"index.csv:2: exactly one of the files one.npz, .* must exist, got none$"
    ):
        load(folder, "one")
    for end in ("qplib", "npz"):
        write(disk("minimize", 1), folder / f"one.{end}")
    with pytest.raises(QcqpbenchError, match=r"got one.npz, one.qplib$"):
        load(folder, "one")
    with pytest.raises(QcqpbenchError, match=r"nowhere.index.csv: cannot be read: No such file"):
        problem(spec("nowhere", instance="one"))
    (folder / "index.csv").write_bytes(b"name,best\none\xff,3\n")
    with pytest.raises(QcqpbenchError, match=r"index.csv: must be UTF-8 text, got other bytes: "):
        Suite.of([spec(folder)], ["slsqp"])
    with pytest.raises(
        QcqpbenchError, match=r"path must be a folder with an index.csv, as in library.path=FOLDER., got None$"
    ):
        family("library")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "objvar -1.4142136\nx2 -0.707106781187\nx3 -0.707106781187\n",
            r"one.sol: stated objective must be .*, that of the point in one.sol, got -1.4142136$",
        ),
        ("objvar -2\nx2 -1\nx3 -1\n", "index.csv:2: stated objective must be -2.0, .*, got -1.4142135"),
        ("objvar 1\nx2 1\n", "index.csv:2: stated objective must be"),
        ("objvar much\n", "one.sol:1: "),
    ],
)
def test_a_point_that_contradicts_its_objective_is_refused_in_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "one.sol").write_text(text)
    with pytest.raises(QcqpbenchError, match=message) as caught:
        load(folder, "one")
    assert str(caught.value).startswith(str(folder))


def test_an_infeasible_point_is_refused(folder: Path) -> None:
    (folder / "three.sol").write_text("objvar -4.5\nx2 -2.25\nx3 -2.25\n")
    with pytest.raises(QcqpbenchError, match=r"three.sol: relative violation must be at most 1e-06, got 0.125$"):
        load(folder, "three")


# --- QPLIB ---


@needs_qplib
def test_published_points_of_qplib_have_the_published_objectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check objective and feasibility of the points in the family, in rows, and with the command verify."""
    index = [line.split(",") for line in (QPLIB / "index.csv").read_text().splitlines()]
    echo = solver("slsqp")
    with Store(tmp_path / "points.db", write=True) as store:
        store.begin("a command", Machine())
        for line in index[1:]:
            row = dict(zip(index[0], line, strict=True))
            instance = load(QPLIB, row["name"])
            best, x = float(row["best"]), instance.metadata.reference
            assert (instance.n_variables, instance.n_constraints) == (int(row["nvars"]), int(row["ncons"]))
            finding = verify(instance, x)
            assert finding.objective == pytest.approx(best, rel=1e-8)
            assert max(finding.violation or 0.0, finding.relative_violation or 0.0) <= 1e-8
            assert x is not None and instance.metadata.best_known is not None
            proposal = Proposal(Termination.FINISHED, x)
            (run,) = Suite.of([spec(QPLIB, instance=row["name"])], ["slsqp"]).runs()
            attempt = assemble(run, echo.scope, proposal, evaluate(instance, None, proposal, 1e-6))
            assert (attempt.objective, attempt.best_known) == (finding.objective, finding.objective)
            store.add(Outcome(attempt, reply()))
    assert main(["verify", str(tmp_path / "points.db")]) == 0
    assert "16 rows, 16 points re-evaluated: all as stored" in capsys.readouterr().out


@pytest.mark.solver
@needs_qplib
@pytest.mark.parametrize("name", NAMES)
def test_pyomo_evaluates_qplib_alike(name: str) -> None:
    pyo = pytest.importorskip("pyomo.environ")
    from qcqpbench.solvers._pyomo_model import pyomo_model, set_point  # noqa: PLC0415

    instance = load(QPLIB, name)
    model = pyomo_model(instance)
    assert instance.metadata.reference is not None
    random = np.random.default_rng(0).uniform(instance.x_lower, instance.x_upper)
    for x in (instance.metadata.reference, random):
        set_point(model, x)
        assert pyo.value(model.objective) == pytest.approx(instance.objective(x), rel=1e-12)
        bodies = [pyo.value(model.constraints[r].body) for r in range(instance.n_constraints)]
        np.testing.assert_allclose(bodies, instance.values(x), rtol=1e-11, atol=1e-11)


@pytest.mark.solver
@needs_qplib
@pytest.mark.parametrize("name", NAMES)
def test_scip_evaluates_qplib_alike(name: str) -> None:
    """Give SCIP the suite's values at a point as bounds, ±1e-6: it accepts the point, and not with shifted values."""
    pytest.importorskip("pyscipopt")
    from qcqpbench.solvers.scip import scip_model  # noqa: PLC0415

    instance = load(QPLIB, name)
    x = np.random.default_rng(1).uniform(instance.x_lower, instance.x_upper)
    accepted = []
    for shift, objective in ((0.0, 0.0), (3e-5, 0.0), (0.0, -3e-5)):
        values = instance.values(x) + shift
        model, variables = scip_model(instance.replace(lower=values - 1e-6, upper=values + 1e-6))
        solution = model.createSol()
        for variable, value in zip(variables, [*x, instance.objective(x) + objective], strict=True):
            model.setSolVal(solution, variable, float(value))
        accepted.append(model.checkSol(solution, original=True))
    assert accepted == [True, False, False]


@pytest.mark.solver
@needs_qplib
@pytest.mark.parametrize("chosen", ["pyomo", "scip"])
def test_rows_of_other_packages_are_verified(chosen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if solver(chosen).availability()[1]:
        pytest.skip(solver(chosen).availability()[1])
    target, where = tmp_path / "rows.db", spec(QPLIB, instance="QPLIB_1157")
    assert main(["run", "-p", where, "-s", chosen, "-r", "1", "--timeout", "4", "-j", "1", "-o", str(target)]) == 0
    assert main(["verify", str(target)]) == 0
    assert "1 rows, 1 points re-evaluated: all as stored" in capsys.readouterr().out
    with Store(target) as store:
        (row,) = store.rows()
    assert row.point_status is PointStatus.FEASIBLE and row.objective is not None
    assert row.best_known is not None and row.best_known == pytest.approx(-10.94820362)
    assert row.objective >= row.best_known - 1e-4
    assert row.bound is None or row.bound <= row.best_known
