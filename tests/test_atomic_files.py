import contextlib
import errno
import gzip
import os
import resource
import shutil
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.analysis.figures.base import Data, Figure
from qcqpbench.analysis.figures.style import save
from qcqpbench.atomic_files import absolute, is_text, magic, writing, writing_text
from qcqpbench.catalog.machine import Machine
from qcqpbench.cli.main import main
from qcqpbench.problem.formats.qplib import write_point
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.suite import Suite
from tests.support.figure_runs import NEEDS_MATPLOTLIB
from tests.support.results_files import reply

PROBLEM = "classical_perceptron[m=3,p=4]"
ANY = magic("anything", b"")
LINES = magic("lines", b"line")


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "results.db"
    with Store(path, write=True) as store:
        store.begin("a command", Machine(cpu="a CPU"))
        for spec in Suite.of([PROBLEM], ["slsqp"]).runs():
            attempt = replace(solve(qcqpbench.problem(spec.problem), spec.solver), spec=spec)
            store.add(Outcome(attempt, reply(), begun=1.0))
    return path


@pytest.fixture
def results(results_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(results_file, tmp_path / "results.db"))


def run_command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str]]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Limit the size of files of this process, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# --- the writer ---


def test_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with writing(path, LINES) as file:
        file.write(b"line 1")
        file.flush()
        assert not path.exists()
    assert content(tmp_path) == {"a": b"line 1"}
    with pytest.raises(RuntimeError), writing(path, LINES) as file:
        file.write(b"line 2")
        raise RuntimeError
    assert content(tmp_path) == {"a": b"line 1"}
    with writing_text(path, LINES) as text:
        text.write("line é \udcff\n")
    assert content(tmp_path) == {"a": "line é \\udcff\n".encode()}


def test_full_disk_leaves_the_existing_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"line 1")
    refused = pytest.raises(QcqpbenchError, match=r"a: cannot be written: File too large$")
    with no_file_larger_than(1000), refused, writing(tmp_path / "a", LINES) as file:
        file.write(b"line" * 10_000)
    assert content(tmp_path) == {"a": b"line 1"}


def fail(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_failing_flush_leaves_the_existing_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"line 1")
    monkeypatch.setattr(os, "fsync", fail)
    refused = pytest.raises(QcqpbenchError, match=r"a: cannot be written: No space left on device$")
    with refused, writing(tmp_path / "a", LINES) as file:
        file.write(b"line 2")
    assert content(tmp_path) == {"a": b"line 1"}


def test_only_files_of_the_same_kind_are_replaced(tmp_path: Path, results_file: Path) -> None:
    path = tmp_path / "a"
    others = {
        "a SQLite database": results_file.read_bytes(),
        "a zip archive": b"PK\x03\x04...",
        "a PNG image": b"\x89PNG....",
        "binary data": bytes(range(256)),
        "text of another format": b"dear diary\n",
    }
    for name, old in others.items():
        path.write_bytes(old)
        refused = pytest.raises(
            QcqpbenchError, match=f"a: must be a new file or lines to be replaced, got {name}; move the file away$"
        )
        with refused, writing(path, LINES):
            pass
        assert content(tmp_path) == {"a": old}
    # A results file is not replaced even by a writer that accepts every kind.
    path.write_bytes(results_file.read_bytes())
    with pytest.raises(QcqpbenchError, match="SQLite"), writing(path, ANY):
        pass
    for old in (b"line 1", b""):
        path.write_bytes(old)
        with writing(path, LINES) as file:
            file.write(b"line 2")
        assert path.read_bytes() == b"line 2"


def test_file_that_another_process_writes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(QcqpbenchError, match="to be replaced, got"), writing(path, LINES) as file:
        file.write(b"line 1")
        path.write_bytes(b"dear diary\n")
    assert content(tmp_path) == {"a": b"dear diary\n"}


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "a", tmp_path / "link"
    target.write_bytes(b"line 1")
    target.chmod(0o640)
    link.symlink_to(target)
    with writing(link, LINES) as file:
        file.write(b"line 2")
    assert link.is_symlink() and content(target.parent) == {"a": b"line 2"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_pipes_and_devices_are_written_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pipe, received = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    with writing(pipe, LINES) as file:
        file.write(b"line 1")
    reader.join()
    assert received == [b"line 1"] and stat.S_ISFIFO(pipe.stat().st_mode)
    print("before")
    with writing("/dev/stdout", LINES) as file:
        file.write(b"line 2\n")
    print("after")
    assert capfd.readouterr().out == "before\nline 2\nafter\n"
    with writing("/dev/null", LINES) as file:
        file.write(b"line 3")
    with pytest.raises(QcqpbenchError, match="/dev/full: cannot be written: No space left"):  # noqa: SIM117
        with writing("/dev/full", LINES) as file:
            file.write(b"line 4")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_absolute_paths_need_no_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert absolute("a/b") == f"{folder}/a/b"
    folder.rmdir()
    assert absolute("/a/b") == "/a/b"
    with pytest.raises(QcqpbenchError, match="a path must be absolute if the working directory is deleted, got 'a/b'"):
        absolute("a/b")
    with pytest.raises(QcqpbenchError, match="must be UTF-8 to be stored in results files"):
        absolute(os.fsdecode(b"/a/\xff"))


# --- every command that writes ---


def targets(results: Path) -> list[tuple[str, ...]]:
    """Return commands that would write over a results file, or over a file of another program."""
    here, folder = str(results), results.parent
    other = str(shutil.copy(results, folder / "other.db"))
    for name in ("a.csv", "a.parquet", "a.npz", "a.lp", "a.mps", "a.nl", "a.qplib", "a.qplib.gz", "a.html", "a.md"):
        shutil.copy(results, folder / name)
    (folder / "home.html").write_text("<!doctype html><title>My page</title>")
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "table.csv").write_text("name,age\nme,3\n")
    (folder / "story.lp").write_text("Once upon a time\n")
    np.savez(folder / "arrays.npz", header=np.ones(2))
    return [
        *(("report", here, "-o", str(path)) for path in (here, other, folder / "a.html", folder / "home.html")),
        *(("report", here, "-o", str(folder / name)) for name in ("a.md", "notes.md")),
        *(("export", here, str(folder / name)) for name in ("results.db", "a.csv", "a.parquet", "table.csv")),
        *(("convert", PROBLEM, str(folder / name)) for name in ("results.db", "a.npz", "arrays.npz")),
        *(
            ("convert", PROBLEM, str(folder / name))
            for name in ("a.lp", "a.mps", "a.nl", "a.qplib", "a.qplib.gz", "story.lp")
        ),
    ]


def test_no_command_replaces_a_file_of_another_kind(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = targets(results)
    before = content(results.parent)
    for words in commands:
        code, lines = run_command(capsys, *words)
        assert code == 2 and len(lines) == 1, words
        assert "to be replaced, got" in lines[0] or "unknown file format '.db'" in lines[0], words
        assert content(results.parent) == before, words


# Text of other kinds that has words of the formats on a line of its own.
OTHER_TEXTS = {
    "a.lp": ["Dear diary\nmax is a nice guy\n", "max is a nice guy\n", "\\ a comment\nMaximum of fun\nand joy\n"],
    "a.mps": [
        *("my stuff\nNAME your price\n", "NAME your price\nand more\n", "* a list\nROWS of trees\n"),
        *("ROWS\n", "ROWS", "ROWS\nof trees\n", "ROWS\n of trees\n", "NAME\nROWS\nENDATA\n"),
        *("OBJSENSE MAX\n", "NAME\nOBJSENSE\n  MAX\n", "OBJNAME of the game\n", "OBJSENSE\n\nROWS\nN\n"),
    ],
    "a.qplib": ["hi\nQCQ", "hi\nQCQ\nand more\n", "QCQ\nminimize\n"],
    "a.nl": ["g3 is a chess move\n", "g3 1 1 0\n", "g3 1 1 0\n" + " 1 1 1 0 0\n" * 8 + "and more\n"],
}


@pytest.mark.parametrize("name", OTHER_TEXTS)
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_text_of_another_kind_is_not_replaced(name: str, compress: bool, tmp_path: Path) -> None:
    path = tmp_path / (f"{name}.gz" if compress else name)
    problem = qcqpbench.problem(PROBLEM)
    for text in OTHER_TEXTS[name]:
        old = gzip.compress(text.encode()) if compress else text.encode()
        path.write_bytes(old)
        with pytest.raises(QcqpbenchError, match="to be replaced, got"):
            qcqpbench.write(problem, path)
        assert content(tmp_path) == {path.name: old}


# Beginnings as CPLEX, Gurobi, SCIP, AMPL, Pyomo and QPLIB write them.
FOREIGN_TEXTS = {
    "a.lp": [
        "\\ENCODING=ISO-8859-1\n\\Problem name: a\n\nMinimize\n obj1: 3 x1 + 2 x2\nSubject To\n",
        "\\ Model a\n\\ LP format - for model browsing.\nMaximize\n  x + 2 y + [ x ^2 ] / 2\nSubject To\n",
        "\\ SCIP STATISTICS\n\\   Problem name     : a\nMinimize\n Obj:\n  +3.5 x1\nSubject to\n",
        "min 3 x + y\nst\n x >= 1\nend\n",
        "\\* Problem *\\\nMaximize\n obj: [ 2 x ^2 ] / 2\nSubject To\n",
        "MINIMIZE\r\n obj: x\r\nSUBJECT TO\r\n",
        "minimize\nobj:\nsubject to\n",
    ],
    "a.mps": [
        "NAME          a\nROWS\n N  obj\n",
        "*ENCODING=ISO-8859-1\n\n*SENSE:Maximize\nNAME\n* Max problem is converted into Min one\nROWS\n N obj\n",
        "NAME a\r\nOBJSENSE\r\n  MAX\r\nROWS\r\n N  obj\r\n",
        "OBJSENSE MAX\nROWS\n* a comment\n\n\tL\tc1\n",
        "NAME a\nOBJNAME\n  cost\nOBJSENSE\n  MIN\nROWS\n G  c1\n",
    ],
    "a.qplib": [
        "QPLIB_0018\nQCB # a comment\nminimize\n50 # variables\n",
        "! a comment\n\nQPLIB_0018\n% another\nlcq\nMAXIMIZE # sense\n",
    ],
    "a.nl": [
        "g3 1 1 0\t# problem a\n" + " 2 1 1 0 0\t# counts\n" * 9,
        "g3 3 1 1 1e-06\n" + " 2 1 1 0 0 \n" * 9,
    ],
}


@pytest.mark.parametrize("name", FOREIGN_TEXTS)
def test_file_of_another_program_in_the_same_format_is_replaced(name: str, tmp_path: Path) -> None:
    problem = qcqpbench.problem(PROBLEM)
    for text in FOREIGN_TEXTS[name]:
        (tmp_path / name).write_bytes(text.encode())
        qcqpbench.write(problem, tmp_path / name)
        assert (tmp_path / name).read_bytes() != text.encode()


@pytest.mark.parametrize(
    "words",
    [
        ("report", "RESULTS", "-o", "a.html"),
        ("report", "RESULTS", "-o", "a.md"),
        ("export", "RESULTS", "a.csv"),
        ("export", "RESULTS", "a.parquet"),
        ("convert", PROBLEM, "a.npz"),
        *(("convert", PROBLEM, f"a{suffix}") for suffix in (".lp", ".mps", ".nl", ".qplib", ".qplib.gz", ".npz")),
    ],
    ids=lambda words: f"{words[0]} {next(word for word in words if word.startswith('a.'))}",
)
def test_command_replaces_its_output_or_leaves_it_unchanged(
    words: tuple[str, ...], results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(results.parent)
    words = tuple("results.db" if word == "RESULTS" else word for word in words)
    assert run_command(capsys, *words)[0] == 0
    before = content(results.parent)
    assert run_command(capsys, *words)[0] == 0
    # The size of files cannot be limited here, because SQLite writes beside the results file.
    monkeypatch.setattr(os, "fsync", fail)
    code, lines = run_command(capsys, *words)
    assert code == 2 and len(lines) == 1 and "cannot be written: No space left on device" in lines[0]
    assert content(results.parent) == before


@NEEDS_MATPLOTLIB
def test_figures_replace_only_figures(tmp_path: Path, results_file: Path) -> None:
    figure = Figure("f", None, lambda rows: Data([], ""), lambda axes, data: None)
    data = Data([{"x": 1.0, "y": 2.0, "z": 3.0}], "A caption.")
    save(figure, data, tmp_path)
    before = content(tmp_path)
    assert sorted(before) == ["f.csv", "f.pdf", "f.png", "f.svg"]
    save(figure, data, tmp_path)
    assert content(tmp_path) == before
    save(figure, Data([{"x": 1.0, "y": 2.0, "z": 3.0, "sets": 4}], "Another caption."), tmp_path)
    others = {
        "f.csv": b"name,age\nme,3\n",
        "f.pdf": before["f.pdf"].replace(b"(qcqpbench)", b"(Writer)"),
        "f.png": before["f.png"].replace(b"qcqpbench", b"Sketcher!"),
        "f.svg": before["f.svg"].replace(b"qcqpbench", b"Sketcher!"),
    }
    for name, old in before.items():
        for other in (results_file.read_bytes(), others[name]):
            (tmp_path / name).write_bytes(other)
            with pytest.raises(QcqpbenchError, match=rf"{name}: must be a new file or .* of .* got .*; move the file"):
                save(figure, data, tmp_path)
            assert (tmp_path / name).read_bytes() == other
        (tmp_path / name).write_bytes(old)


@NEEDS_MATPLOTLIB
def test_large_figures_are_recognized(tmp_path: Path) -> None:
    """Write more than the bytes that are read at either end of a file."""
    points = np.random.default_rng(0).random((2, 20_000))
    paint: Any = lambda axes, data: axes[0].plot(*points)  # noqa: E731
    figure = Figure("f", None, lambda rows: Data([], ""), paint, panels=1)
    for _ in range(2):
        save(figure, Data([{"x": 1.0, "y": 2.0}], "A caption."), tmp_path)
    assert min((tmp_path / name).stat().st_size for name in ("f.pdf", "f.svg")) > 1 << 17


def test_points_replace_only_points(tmp_path: Path) -> None:
    problem = qcqpbench.problem(PROBLEM)
    assert isinstance(problem, QCQP)
    path = tmp_path / "a.sol"
    for _ in range(2):
        write_point(np.zeros(problem.n_variables), problem, path)
    path.write_text("Once upon a time\nobjvar 1\n")
    with pytest.raises(QcqpbenchError, match=r"must be a new file or a \.sol file"):
        write_point(np.zeros(problem.n_variables), problem, path)


@pytest.mark.parametrize("text", ["", "a", "é", "é}\n", "aé", "∑", "x∑", "𝓘", "a𝓘b"])
def test_text_is_recognized_wherever_it_is_cut(text: str) -> None:
    content = text.encode()
    for length in range(len(content) + 1):
        assert is_text(content[:length])
    assert not is_text(content + b"\xff") and not is_text(content + b"\0")
