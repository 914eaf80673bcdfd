"""Writers and readers of one results file, kills and full disks."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QcqpbenchError
from qcqpbench.catalog.machine import Machine
from qcqpbench.results.schema import readable_errors
from qcqpbench.results.store import Store
from tests.support.results_files import ROOT, SPEC, add_outcomes, is_intact, names_beside, outcome, read_rows


def test_a_file_has_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path, write=True) as store:
        store.begin("run", Machine())
        store.add(outcome())
        with pytest.raises(QcqpbenchError, match=f"process {os.getpid()} is writing to it"):
            Store(path, write=True)
        code = f"from qcqpbench.results.store import Store\nStore({str(path)!r}, write=True)"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"process {os.getpid()} is writing to it" in done.stderr
        # Readers, in this process and in others, see committed rows while there is a writer.
        with Store(path) as reader:
            assert len(list(reader.rows())) == 1
            store.add(outcome(replace(SPEC, start=1)))
            assert len(list(reader.rows())) == 2
        code = f"import qcqpbench.results.store\nprint(len(list(qcqpbench.results.store.Store({str(path)!r}).rows())))"
        assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "2\n"
        store.add(outcome(replace(SPEC, start=2)))
    assert names_beside(path) == ["a.db"] and len(read_rows(path)) == 3
    Store(path, write=True).close()


def test_a_link_is_locked_and_written_as_the_file_it_leads_to(tmp_path: Path) -> None:
    path, link = tmp_path / "a.db", tmp_path / "other" / "link.db"
    link.parent.mkdir()
    add_outcomes(path, outcome())
    link.symlink_to(path)
    with Store(path, write=True), pytest.raises(QcqpbenchError, match=r"link\.db: process .* is writing to it"):
        Store(link, write=True)
    add_outcomes(link, outcome(replace(SPEC, start=1)))
    assert len(read_rows(path)) == 2
    assert names_beside(path) == ["a.db", "other"] and names_beside(link) == ["link.db"]


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome())
    with Store(tmp_path / "a.db") as store, pytest.raises(QcqpbenchError, match="readonly"):
        store.begin("run", Machine())


ADD_FOREVER = """
import itertools, os, sys
sys.path.insert(0, {root!r})
from dataclasses import replace
from qcqpbench.catalog.machine import Machine
from qcqpbench.results.store import Store
from tests.support.results_files import SPEC, outcome
import numpy as np
with Store({path!r}, write=True) as store:
    store.begin("run", Machine())
    first = len(list(store.rows()))
    for k in itertools.count(first):
        store.add(outcome(replace(SPEC, start=k), point=np.full((2, 50), k)))
        os.write(1, b"%d\\n" % k)
"""


def test_added_rows_outlive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    command = [sys.executable, "-c", ADD_FOREVER.format(root=str(ROOT), path=str(path))]
    last = -1
    for wanted in (1, 400, 37):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= last + wanted:
                    break
            process.send_signal(signal.SIGKILL)
            printed = [int(line), *map(int, process.stdout.read().split())]
        rows = read_rows(path)
        assert [row.start for row in rows] == list(range(len(rows)))
        # One more may have been committed and not printed.
        assert max(printed) + 1 <= len(rows) <= max(printed) + 2
        assert is_intact(path)
        with Store(path) as store:
            for row in rows:
                np.testing.assert_array_equal(store.point(row.id), np.full((2, 50), row.start))
        last = len(rows) - 1


ADD_UNTIL_FULL = """
import resource, sys
sys.path.insert(0, {root!r})
from dataclasses import replace
from qcqpbench.catalog.machine import Machine
from qcqpbench.results.store import Store
from tests.support.results_files import SPEC, outcome
import numpy as np
{limit}
k = 0
try:
    with Store({path!r}, write=True) as store:
        store.begin("run", Machine())
        for k in range(10_000):
            store.add(outcome(replace(SPEC, start=k), point=np.full((2, 50), k)))
            print(k, flush=True)
except Exception as error:
    print(type(error).__name__, error, sep="\\n")
"""


def add_until_full(path: Path, limit: str = "") -> list[str]:
    command = [sys.executable, "-c", ADD_UNTIL_FULL.format(root=str(ROOT), path=str(path), limit=limit)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def check_full(path: Path, printed: list[str]) -> None:
    assert printed[-2] == "QcqpbenchError"
    assert printed[-1].startswith(f"{path}: cannot be written: ")
    assert printed[-1].endswith("the rows stored so far are safe, so free disk space and run again")
    stored = int(printed[-3]) + 1
    assert stored > 10
    assert [row.start for row in read_rows(path)] == list(range(stored))
    assert is_intact(path)


def test_a_file_that_may_not_grow_loses_no_row(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))"
    printed = add_until_full(tmp_path / "a.db", limit)
    check_full(tmp_path / "a.db", printed)
    add_outcomes(tmp_path / "a.db", outcome(replace(SPEC, start=99_999)))
    assert len(read_rows(tmp_path / "a.db")) == int(printed[-3]) + 2


def test_a_full_disk_loses_no_row(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        printed = add_until_full(disk / "a.db")
        copy = Path(shutil.copytree(disk, tmp_path / "copy"))
    finally:
        subprocess.run(["umount", disk], check=True)
    check_full(copy / "a.db", [line.replace(str(disk), str(copy)) for line in printed])


def test_a_file_without_room_is_not_created(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    printed = add_until_full(tmp_path / "a.db", limit)
    assert printed[-2] == "QcqpbenchError"
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_file_can_be_read_and_not_written(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "a.db"
        add_outcomes(path, outcome())
        path.chmod(0o644)
        before = path.read_bytes()
        code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from qcqpbench.results.store import Store
os.setgid(65534)
os.setuid(65534)
print(len(list(Store({str(path)!r}).rows())))
try:
    Store({str(path)!r}, write=True)
except Exception as error:
    print(type(error).__name__, error)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["1", f"QcqpbenchError {path}: cannot be written: Permission denied"]
        assert path.read_bytes() == before and names_beside(path) == ["a.db"]


READ_WITHOUT_ROOM = """
import resource, sys
from qcqpbench.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["report", "-o", "-"], ["export", "a.csv"], ["verify"]], ids=lambda words: words[0])
def test_a_reader_without_room_names_the_file_that_cannot_be_written(tmp_path: Path, words: list[str]) -> None:
    """Check a file on a full disk, where SQLite cannot create the -shm file that readers need."""
    add_outcomes(tmp_path / "a.db", outcome())
    command = [sys.executable, "-c", READ_WITHOUT_ROOM, words[0], "a.db", *words[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"qcqpbench: {tmp_path / 'a.db-shm'}: cannot be written: ")
    assert "rows" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["report.html", "table.csv"])
def test_a_full_disk_of_the_target_names_the_target(tmp_path: Path, name: str) -> None:
    """Check a report and a table that do not fit, of a results file that needs no room."""
    add_outcomes(tmp_path / "a.db", *(outcome(replace(SPEC, start=k), message="m" * 900) for k in range(100)))
    words = ["export", "a.db", name] if name.endswith(".csv") else ["report", "a.db", "-o", name]
    code = READ_WITHOUT_ROOM.replace("2000", "40_000")
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"qcqpbench: {name}: cannot be written: File too large\n")


@pytest.mark.parametrize(
    ("kind", "adding_rows", "message"),
    [
        (
            "SQLITE_FULL",
            True,
            "a.db: cannot be written: reason; the rows stored so far are safe, so free disk space and run again",
        ),
        (
            "SQLITE_IOERR_WRITE",
            True,
            "a.db: cannot be written: reason; the rows stored so far are safe, so free disk space",
        ),
        ("SQLITE_FULL", False, "a.db: cannot be written: reason"),
        ("SQLITE_IOERR_SHMSIZE", False, "a.db-shm: cannot be written: reason"),
        ("SQLITE_IOERR_READ", False, "a.db: cannot be read: reason"),
        ("SQLITE_BUSY", True, "a.db: cannot be used: reason"),
    ],
)
def test_advice_to_run_again_is_given_only_where_rows_are_added(
    tmp_path: Path, kind: str, adding_rows: bool, message: str
) -> None:
    error = sqlite3.OperationalError("reason")
    error.sqlite_errorname = kind
    with pytest.raises(QcqpbenchError) as caught, readable_errors(tmp_path / "a.db", adding_rows):
        raise error
    assert str(caught.value).startswith(f"{tmp_path / message}")
    assert ("safe" in str(caught.value)) is ("safe" in message)
