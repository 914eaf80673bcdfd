"""The notebook of the documentation: the same rows as a notebook, as a script and from the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from qcqpbench import Results
from qcqpbench.results.row import Row

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.solver]

TOUR = Path(__file__).parents[1] / "docs" / "tutorials" / "tour.ipynb"
COMPARED = (
    *("key", "solver", "version", "start", "termination", "point_status", "margin", "kappa_bar", "kappa_bar_theory"),
    *("objective", "violation", "iterations"),
)


def numbers(path: Path) -> list[tuple[Any, ...]]:
    """Return what the rows of a file have in common with those of the same runs in another file."""

    def values(row: Row) -> tuple[Any, ...]:
        return tuple(getattr(row, name) for name in COMPARED)

    return sorted(map(values, Results.open(path)), key=str)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Execute the notebook in an empty folder; return the folder."""
    folder = tmp_path_factory.mktemp("notebook")
    content = nbformat.read(TOUR, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(content, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    nbformat.write(content, folder / "executed.ipynb")  # type: ignore[no-untyped-call]
    return folder


def outputs(folder: Path) -> list[dict[str, Any]]:
    cells = json.loads((folder / "executed.ipynb").read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", ())]


def test_the_notebook_shows_tables_and_a_plot(notebook: Path) -> None:
    kinds = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    assert kinds.count("text/html") >= 4 and "image/png" in kinds
    assert not any(output["output_type"] == "error" for output in outputs(notebook))
    assert "<title>qcqpbench report</title>" in (notebook / "tour.html").read_text()
    rows = list(Results.open(notebook / "tour.db"))
    assert len(rows) == 3 * 3 * 2 and all(row.success for row in rows)


def test_a_script_gives_the_same_rows(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(TOUR.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "tour.py").write_text(code)
    subprocess.run([sys.executable, "tour.py"], cwd=tmp_path, check=True, capture_output=True)
    assert numbers(tmp_path / "tour.db") == numbers(notebook / "tour.db")


def test_the_command_line_gives_the_same_rows(notebook: Path, tmp_path: Path) -> None:
    (file,) = (notebook / "tour.db-problems").iterdir()
    problems = [str(file), "covariance_perceptron[m=10,load=1]", "covariance_perceptron[m=10,load=2]"]
    words = [word for problem in problems for word in ("-p", problem)]
    words += [word for solver in ("slsqp", "trust_constr", "ipopt") for word in ("-s", solver)]
    command = [str(Path(sys.executable).with_name("qcqpbench")), "run", *words, "-r", "2", "--timeout", "20"]
    subprocess.run([*command, "-o", "cli.db"], cwd=tmp_path, check=True, capture_output=True)
    assert numbers(tmp_path / "cli.db") == numbers(notebook / "tour.db")
