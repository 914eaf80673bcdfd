import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from qcqpbench.analysis.figures.index import FIGURES
from qcqpbench.analysis.figures.style import FORMATS
from qcqpbench.cli import drawing
from qcqpbench.cli.common import INTERRUPTED
from qcqpbench.cli.main import main
from qcqpbench.run.suite import Suite
from tests.support.figure_runs import NEEDS_MATPLOTLIB, TINY, raw, run

pytestmark = pytest.mark.slow


def run_command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out + err


def use_tiny_suites(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:

        def suite(_: bool, tiny: Suite = TINY[name]) -> Suite:
            return tiny

        monkeypatch.setitem(FIGURES, name, replace(FIGURES[name], suite=suite))


@NEEDS_MATPLOTLIB
def test_an_interrupted_figure_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run only the missing jobs; a third call runs nothing and draws the same bytes."""
    use_tiny_suites(monkeypatch, "overlap")
    path = tmp_path / "results.db"
    run(TINY["overlap"], path, 5)
    before = raw(path, "SELECT id, key FROM run ORDER BY id")
    code, text = run_command(capsys, "figures", "overlap", "-o", tmp_path, "-j", "1")
    assert code == 0 and "12 runs, 5 of them done before" in text
    after = raw(path, "SELECT id, key, worker FROM run ORDER BY id")
    assert [(id, key) for id, key, worker in after if worker == "here"] == before
    assert len(after) == len({key for _, key, _ in after}) == 12
    names = {f"overlap.{form}" for form in (*FORMATS, "csv")}
    assert {path.name for path in tmp_path.iterdir()} >= names
    drawn = [(tmp_path / name).read_bytes() for name in sorted(names)]
    assert run_command(capsys, "figures", "overlap", "-o", tmp_path)[0] == 0
    assert drawn == [(tmp_path / name).read_bytes() for name in sorted(names)]
    assert len(raw(path, "SELECT id FROM run")) == 12


@NEEDS_MATPLOTLIB
def test_figures_are_drawn_from_a_results_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Draw from a results file: nothing is run, and the file stays as it is."""
    use_tiny_suites(monkeypatch, "training", "overlap")
    path, target = tmp_path / "other.db", tmp_path / "a" / "b"
    run(TINY["overlap"], path)
    before = path.read_bytes()
    code, text = run_command(capsys, "figures", "overlap", "overlap", "-r", path, "-o", target)
    assert code == 0 and text == f"{target / 'overlap'}: pdf, svg, png, csv\n"
    code, text = run_command(capsys, "figures", "training", "-r", path, "-o", target)
    assert code == 2 and text == f"qcqpbench: {path}: must hold a run with a point for the figure training, got none\n"
    assert path.read_bytes() == before


@NEEDS_MATPLOTLIB
def test_an_interrupt_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "run_suite", lambda *_: INTERRUPTED)
    assert run_command(capsys, "figures", "training", "-o", tmp_path) == (INTERRUPTED, "")
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_is_reported_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, text = run_command(capsys, "figures", "-o", tmp_path / "figures")
    assert code == 2 and text == "qcqpbench: figures need the package matplotlib: pip install 'qcqpbench[figures]'\n"
    assert not list(tmp_path.iterdir())


@NEEDS_MATPLOTLIB
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["capacities"],
            "unknown figure 'capacities'; did you mean 'capacity'? allowed: capacity, information_capacity, ",
        ),
        (["training", "-o", "FOLDER/file"], "FOLDER/file: cannot be created: File exists"),
        (["training", "-o", "FOLDER", "-r", "FOLDER/none.db"], "FOLDER/none.db: "),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    code, text = run_command(capsys, "figures", *(word.replace("FOLDER", str(tmp_path)) for word in words))
    assert code == 2 and text.count("\n") == 1
    assert text.startswith("qcqpbench: " + answer.replace("FOLDER", str(tmp_path)))
