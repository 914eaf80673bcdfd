"""Reports written to files: form, overwriting, and errors."""

import re
from pathlib import Path

import pytest

from qcqpbench.analysis.report import write
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.verdict import verdict
from qcqpbench.analysis.report.write import report_text, write_report
from qcqpbench.errors import QcqpbenchError
from tests.support.results_files import add_outcomes, add_runs, outcome


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("write") / "made.db"
    add_runs(path, ["covariance_perceptron[m=4,load=1]"], ["slsqp"], starts=2)
    return path


@pytest.mark.parametrize(("name", "start"), [("a.html", "<!doctype html>"), ("a.md", "# qcqpbench report\n")])
def test_form_follows_the_suffix(results_file: Path, tmp_path: Path, name: str, start: str) -> None:
    target = tmp_path / name
    written = write_report([results_file], target)
    text = target.read_text(encoding="utf-8")
    assert text.startswith(start) and text == report_text([results_file], target.suffix[1:])
    assert (written.path, written.runs, written.bytes) == (target, 2, target.stat().st_size)
    assert list(written.verdict) == verdict(contents(read([results_file])))


def test_form_may_be_given(results_file: Path, tmp_path: Path) -> None:
    write_report([results_file], tmp_path / "report", "md")
    assert (tmp_path / "report").read_text(encoding="utf-8").startswith("# qcqpbench report\n")


def test_earlier_report_is_replaced_and_other_files_are_not(results_file: Path, tmp_path: Path) -> None:
    target, other = tmp_path / "a.md", tmp_path / "thesis.md"
    write_report([results_file], target)
    longer = tmp_path / "longer.db"
    add_outcomes(longer, outcome())
    assert write_report([results_file, longer], target).runs == 3
    assert target.read_text(encoding="utf-8").startswith("# qcqpbench report\n\n3 runs on 2 problems")
    other.write_text("# My thesis\n")
    with pytest.raises(QcqpbenchError, match="a Markdown report of qcqpbench"):
        write_report([results_file], other)
    assert other.read_text() == "# My thesis\n"


def test_failure_leaves_the_earlier_report(results_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.md"
    write_report([results_file], target)
    before = target.read_bytes()
    # Not a text, so that the error is raised while the file is written.
    monkeypatch.setitem(write._RENDERERS, "md", lambda *_: 1.5)
    with pytest.raises(TypeError):
        write_report([results_file], target)
    assert target.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["a.md"]


@pytest.mark.parametrize("name", ["report.pdf", "report", ".html"])
def test_unknown_suffix_is_an_error(results_file: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(
        QcqpbenchError, match=re.escape(f"target must be an .html or .md file, got '{tmp_path / name}'")
    ):
        write_report([results_file], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_unknown_form_is_an_error(results_file: Path, tmp_path: Path) -> None:
    for call in (lambda: write_report([results_file], tmp_path / "a.md", "pdf"), lambda: report_text([], "pdf")):
        with pytest.raises(QcqpbenchError, match="form must be one of html, md, got 'pdf'"):
            call()


def test_target_is_checked_before_the_files_are_read(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.write_text("a page of the user\n")
    with pytest.raises(QcqpbenchError, match=re.escape(str(target))):
        write_report([tmp_path / "missing.db"], target)
