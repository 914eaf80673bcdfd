"""Results files that older versions of qcqpbench wrote, each kept in tests/data as that version left it."""

import shutil
from pathlib import Path

import pytest

import qcqpbench
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.job import load_problem
from qcqpbench.run.verify import verify

DATA = Path(__file__).parents[1] / "data"
DETERMINISTIC = ("slsqp", "gip")


@pytest.fixture(params=["schema-5.db", "schema-6.db"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / request.param, tmp_path))


def test_rows_of_older_files_have_the_findings_of_their_points(results: Path) -> None:
    with Store(results) as store:
        rows = list(store.rows())
        assert len(rows) == 7
        for row in rows:
            problem = load_problem(row["problem"])
            assert problem.id == row["problem_id"]
            finding = verify(problem, store.point(row["id"]), row["tolerance"])
            name = "margin" if row["margin"] is not None else "objective"
            assert row[name] == pytest.approx(getattr(finding, name), rel=1e-9)


def test_feasibility_in_older_files_is_that_of_the_tolerance_in_the_row(results: Path) -> None:
    """Versions before schema 6 let each solver declare the tolerance of its points: 1e-2 for qcqp."""
    with Store(results) as store:
        statuses = {row["solver"].partition("[")[0]: row["point_status"] for row in store.rows()}
        assert {row["tolerance"] for row in store.rows()} == {1e-6}
    assert statuses == {"gip": "feasible", "slsqp": "feasible", "ipopt": "feasible", "qcqp": "infeasible"}


def test_deterministic_solvers_return_the_margins_of_older_files(results: Path) -> None:
    with Store(results) as store:
        rows = [row for row in store.rows() if row["solver"].startswith(DETERMINISTIC)]
    assert len(rows) == 3
    for row in rows:
        problem = load_problem(row["problem"])
        attempt = qcqpbench.solve(problem, row["solver"], qcqpbench.random_start(problem, row["start"], row["seed"]))
        name = "margin" if row["margin"] is not None else "objective"
        assert getattr(attempt, name) == pytest.approx(row[name], rel=1e-6)


def test_older_files_are_reported_and_exported(results: Path, tmp_path: Path) -> None:
    assert main(["report", str(results), "-o", str(tmp_path / "report.html")]) == 0
    assert main(["export", str(results), str(tmp_path / "table.csv")]) == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 8
