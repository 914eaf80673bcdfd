import contextlib
import errno
import os
import resource
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.analysis.figures import style
from qcqpbench.analysis.figures.base import Data, Figure
from qcqpbench.analysis.figures.style import save
from qcqpbench.atomic_files import absolute, check_target, magic, writing, writing_text
from qcqpbench.cli.main import main
from qcqpbench.problem.formats.qplib import write_point
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import solve
from qcqpbench.run.job import Outcome, load_problem
from qcqpbench.run.suite import Suite
from tests.support.figure_runs import NEEDS_MATPLOTLIB

PROBLEM = "classical_perceptron[m=3,p=4]"
ANY = magic("anything", b"")
LINES = magic("lines", b"line")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "made.db"
    with Store(path, write=True) as store:
        store.begin("a command", {"cpu": "a CPU"})
        for job in Suite.of([PROBLEM], ["slsqp"], 1).jobs():
            store.add(Outcome(job, solve(load_problem(job.problem), job.solver), begun=1.0))
    return path


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "results.db"))


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str]]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Act as a full disk does, for this process alone."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# --- the writer ---


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
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


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"line 1")
    refused = pytest.raises(QcqpbenchError, match=r"a: cannot be written: File too large$")
    with no_file_larger_than(1000), refused, writing(tmp_path / "a", LINES) as file:
        file.write(b"line" * 10_000)
    assert content(tmp_path) == {"a": b"line 1"}


def fail(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"line 1")
    monkeypatch.setattr(os, "fsync", fail)
    refused = pytest.raises(QcqpbenchError, match=r"a: cannot be written: No space left on device$")
    with refused, writing(tmp_path / "a", LINES) as file:
        file.write(b"line 2")
    assert content(tmp_path) == {"a": b"line 1"}


def test_only_a_file_of_the_same_kind_is_replaced(tmp_path: Path, made: Path) -> None:
    path = tmp_path / "a"
    others = {
        "a SQLite database": made.read_bytes(),
        "a zip archive": b"PK\x03\x04...",
        "a PNG image": b"\x89PNG....",
        "binary data": bytes(range(256)),
        "text that looks different": b"dear diary\n",
    }
    for name, there in others.items():
        path.write_bytes(there)
        refused = pytest.raises(QcqpbenchError, match=f"a: must be a new file or lines to be replaced, got {name}$")
        with refused, writing(path, LINES):
            pass
        assert content(tmp_path) == {"a": there}
    # Not even by a writer that takes everything for its own.
    path.write_bytes(made.read_bytes())
    with pytest.raises(QcqpbenchError, match="SQLite"), writing(path, ANY):
        pass
    for there in (b"line 1", b""):
        path.write_bytes(there)
        with writing(path, LINES) as file:
            file.write(b"line 2")
        assert path.read_bytes() == b"line 2"


def test_links_and_permissions_stay(tmp_path: Path) -> None:
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
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with writing(pipe, LINES) as file:
        file.write(b"line 1")
    reader.join()
    assert got == [b"line 1"] and stat.S_ISFIFO(pipe.stat().st_mode)
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


def test_a_path_needs_no_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert absolute("a/b") == f"{gone}/a/b"
    gone.rmdir()
    assert absolute("/a/b") == "/a/b"
    with pytest.raises(QcqpbenchError, match="a/b: must be an absolute path where the working directory is gone"):
        absolute("a/b")
    with pytest.raises(QcqpbenchError, match="must be UTF-8 to be kept in results files"):
        absolute(os.fsdecode(b"/a/\xff"))


# --- every command that writes ---


def targets(results: Path) -> list[tuple[str, ...]]:
    """Commands that would write over a results file, or over a file of somebody else's."""
    here, folder = str(results), results.parent
    other = str(shutil.copy(results, folder / "other.db"))
    for name in ("a.csv", "a.parquet", "a.npz", "a.lp", "a.mps", "a.nl", "a.qplib", "a.qplib.gz", "a.html", "a.md"):
        shutil.copy(results, folder / name)
    (folder / "home.html").write_text("<!doctype html><title>My page</title>")
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "table.csv").write_text("name,age\nme,3\n")
    (folder / "story.lp").write_text("Once upon a time\n")
    np.savez(folder / "arrays.npz", X=np.ones(2))
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
        code, lines = said(capsys, *words)
        assert code == 2 and len(lines) == 1, words
        assert "to be replaced, got" in lines[0] or "unknown file format '.db'" in lines[0], words
        assert content(results.parent) == before, words


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
def test_what_a_command_wrote_it_replaces_or_leaves(
    words: tuple[str, ...], results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(results.parent)
    words = tuple("results.db" if word == "RESULTS" else word for word in words)
    assert said(capsys, *words)[0] == 0
    before = content(results.parent)
    assert said(capsys, *words)[0] == 0
    # SQLite writes beside the results file too, so that the size of files cannot be limited here.
    monkeypatch.setattr(os, "fsync", fail)
    code, lines = said(capsys, *words)
    assert code == 2 and len(lines) == 1 and "cannot be written: No space left on device" in lines[0]
    assert content(results.parent) == before


@NEEDS_MATPLOTLIB
def test_figures_replace_figures_only(tmp_path: Path, made: Path) -> None:
    figure = Figure("f", None, lambda rows: Data([], ""), lambda axes, data: None)
    data = Data([{"x": 1.0, "y": 2.0}], "A caption.")
    save(figure, data, tmp_path)
    before = content(tmp_path)
    assert sorted(before) == ["f.csv", "f.pdf", "f.png", "f.svg"]
    for name, there in before.items():
        path, kind = tmp_path / name, style._KINDS[name.partition(".")[2]]
        check_target(path, kind)
        shutil.copy(made, path)
        with pytest.raises(QcqpbenchError, match=rf"{name}: must be a new file or .* got a SQLite database"):
            check_target(path, kind)
        path.write_bytes(there)
    shutil.copy(made, tmp_path / "f.pdf")
    with pytest.raises(QcqpbenchError, match=r"f\.pdf: must be a new file or a PDF file"):
        save(figure, data, tmp_path)
    assert content(tmp_path) == before | {"f.pdf": made.read_bytes()}


def test_points_replace_points_only(tmp_path: Path) -> None:
    square = qcqpbench.problem(PROBLEM)
    assert isinstance(square, QCQP)
    path = tmp_path / "a.sol"
    for _ in range(2):
        write_point(np.zeros(square.n_variables), square, path)
    path.write_text("Once upon a time\n")
    with pytest.raises(QcqpbenchError, match=r"must be a new file or a \.sol file"):
        write_point(np.zeros(square.n_variables), square, path)
