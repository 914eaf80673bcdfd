"""Results files for tests: files of made-up outcomes and of real runs, ways to change them, and the commands."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench import Termination
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus
from qcqpbench.cli.main import main
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Attempt, Outcome, solve
from qcqpbench.run.proposal import Proposal, RunReply
from qcqpbench.run.run_spec import RunSpec, random_start
from qcqpbench.run.suite import Settings, Suite

ROOT = Path(__file__).parents[2]
TASK, CONVEX = "covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"
SPEC = RunSpec(
    problem="parity[m=2]",
    problem_id="abc",
    solver="gip[starts=8]",
    version="scipy 1",
    formulation=None,
    start=0,
    time_limit=10.0,
)
BEGUN = 1.7e9


def outcome(spec: RunSpec = SPEC, begun: float = BEGUN, output: str = "", **values: Any) -> Outcome:
    """Return a made-up outcome of a run."""
    values = {"termination": Termination.FINISHED, "point_status": PointStatus.FEASIBLE, **values}
    return Outcome(Attempt(spec=spec, **values), reply(output), begun=begun)


def reply(output: str = "") -> RunReply:
    """Return a reply with this output of the solver."""
    return RunReply(Proposal(Termination.FINISHED), output=output)


def add_outcomes(path: Path, *outcomes: Outcome) -> list[int]:
    """Add outcomes to a results file as one invocation; return the ids of their rows."""
    with Store(path, write=True) as store:
        store.begin("run", Machine(cpu="fast"))
        return [store.add(item) for item in outcomes]


def add_runs(path: Path, problems: list[str], solvers: list[str], starts: int = 1) -> None:
    """Run solvers on problems in this process, and add the rows to a results file."""
    with Store(path, write=True) as store:
        store.begin("a, command", Machine(cpu="a CPU", commit="c0ffee"))
        for number, spec in enumerate(Suite.of(problems, solvers, Settings(starts=starts)).runs()):
            problem = qcqpbench.problem(spec.problem)
            attempt = solve(problem, spec.solver, random_start(problem, spec.start, spec.start_seed))
            attempt = replace(attempt, spec=spec)
            store.add(Outcome(attempt, reply("printed\n"), f"local-{number % 2}", BEGUN + number))


def read_rows(path: Path, all_rows: bool = False) -> list[Row]:
    with Store(path) as store:
        return list(store.rows(all_rows))


def change(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """Execute SQL statements on a results file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement, values)


def rewrite_keys(path: Path) -> None:
    """Give all rows the keys of their columns, as a careful forger does."""
    for row in read_rows(path, all_rows=True):
        change(path, "UPDATE run SET key = ? WHERE id = ?", values=(row.spec.key, row.id))


def is_intact(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


def names_beside(path: Path) -> list[str]:
    """Return the names of all files in the folder of a file."""
    return sorted(file.name for file in path.parent.iterdir())


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str]]:
    """Run a command; return its exit code and the lines that it printed."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def reading_commands(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands that read a results file."""
    yield "verify", str(path)
    yield "report", str(path), "-o", str(path.with_name("report.html"))
    yield "export", str(path), str(path.with_name("table.csv"))
    yield "merge", str(path), "-o", str(path.with_name("all.db"))
