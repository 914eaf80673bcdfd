"""A results file as SQLite sees it: its schema, how it is made, opened, migrated and locked."""

import contextlib
import fcntl
import itertools
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from qcqpbench.atomic_files import SQLITE_MAGIC
from qcqpbench.errors import QcqpbenchError, require

# "qcqp", at offset 68 of the file.
APPLICATION_ID = 0x71637170

# Each entry takes a file from the schema of its position to the next. Files of every schema are out there: only append.
MIGRATIONS: list[tuple[str, ...]] = [
    (
        """CREATE TABLE invocation (
            id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, command TEXT NOT NULL, begun REAL NOT NULL,
            machine TEXT NOT NULL
        )""",
        # (invocation, number) names a run in whatever file it is merged into.
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY, invocation INTEGER NOT NULL REFERENCES invocation, number INTEGER NOT NULL,
            key TEXT NOT NULL, worker TEXT NOT NULL, begun REAL NOT NULL,
            problem TEXT NOT NULL, problem_id TEXT NOT NULL, solver TEXT NOT NULL, version TEXT NOT NULL,
            formulation TEXT, start INTEGER NOT NULL, seed INTEGER NOT NULL,
            time_limit REAL, memory_limit INTEGER, threads INTEGER NOT NULL,
            termination TEXT NOT NULL, point_status TEXT NOT NULL,
            margin REAL, kappa_bar REAL, kappa_bar_theory REAL,
            objective REAL, violation REAL, relative_violation REAL, overlap REAL,
            bound REAL, gap REAL, claimed_objective REAL, iterations INTEGER,
            build_seconds REAL, solve_seconds REAL, cpu_seconds REAL, peak_memory_bytes INTEGER,
            message TEXT NOT NULL, details TEXT,
            UNIQUE (invocation, number)
        )""",
        "CREATE INDEX run_by_key ON run (key, begun, termination)",
        "CREATE INDEX run_by_problem ON run (problem_id, solver, start)",
        """CREATE TABLE payload (
            run INTEGER PRIMARY KEY REFERENCES run, output TEXT NOT NULL, point BLOB, multipliers BLOB, trace BLOB
        )""",
        """CREATE VIEW latest AS SELECT * FROM run WHERE id IN (
            SELECT id FROM (
                SELECT id, row_number() OVER (
                    PARTITION BY key ORDER BY termination = 'skipped', begun DESC, id DESC
                ) AS place FROM run
            ) WHERE place = 1
        ) AND (termination <> 'skipped' OR NOT EXISTS (
            SELECT 1 FROM run AS other WHERE other.problem_id = run.problem_id AND other.solver = run.solver
            AND other.start = run.start AND other.seed = run.seed AND other.threads = run.threads
            AND other.time_limit IS run.time_limit AND other.memory_limit IS run.memory_limit
            AND (other.termination <> 'skipped' OR (other.begun, other.id) > (run.begun, run.id))
        ))""",
    ),
    ("ALTER TABLE payload ADD COLUMN x BLOB",),
    ("ALTER TABLE run ADD COLUMN best_known REAL",),
    ("ALTER TABLE run ADD COLUMN test_accuracy REAL",),
    ("ALTER TABLE run ADD COLUMN sense TEXT",),
    (
        # Up to here the tolerance was the solver's own; from here on it is the suite's, and stored.
        "ALTER TABLE run ADD COLUMN tolerance REAL NOT NULL DEFAULT 1e-6",
        """UPDATE run SET point_status = CASE WHEN relative_violation > 1e-6 THEN 'infeasible' ELSE 'feasible' END
        WHERE point_status IN ('feasible', 'infeasible') AND relative_violation IS NOT NULL""",
        "ALTER TABLE run ADD COLUMN scope TEXT",
        # The machine of a run, where it is not the one of its invocation: a worker of a cluster.
        "CREATE TABLE machine (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE)",
        "ALTER TABLE run ADD COLUMN machine INTEGER REFERENCES machine",
        # A view of the file could be forged; each connection makes its own.
        "DROP VIEW IF EXISTS latest",
    ),
]

# Of each job the newest row that counts. A view of the connection: one of the file could be forged.
_LATEST = """CREATE TEMP VIEW latest AS SELECT * FROM run WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY key ORDER BY termination = 'skipped', begun DESC, id DESC
        ) AS place FROM run
    ) WHERE place = 1
) AND (termination <> 'skipped' OR NOT EXISTS (
    SELECT 1 FROM run AS other WHERE other.problem_id = run.problem_id AND other.solver = run.solver
    AND other.start = run.start AND other.seed = run.seed AND other.threads = run.threads
    AND other.time_limit IS run.time_limit AND other.memory_limit IS run.memory_limit
    AND (other.termination <> 'skipped' OR (other.begun, other.id) > (run.begun, run.id))
))"""

# Of schemas before 6.
_OLD_VIEW = ("view", "latest")
_MAX_REASON_CHARACTERS = 300
# The files open here. Others are looked at before they are opened; these must not be: a process that closes a file
# loses all its locks on it, also those that SQLite holds.
_open: Counter[tuple[int, int]] = Counter()


@contextlib.contextmanager
def open_database(path: Path, write: bool) -> Iterator[sqlite3.Connection]:
    """A connection to a results file, brought to the newest schema; to write, the file is made if it is missing.

    There is one writer at a time; readers may read meanwhile. What is no results file, is damaged, or has tables, views
    or triggers that are not ours is refused and left as it is.
    """
    with contextlib.ExitStack() as stack:
        with one_line(path):
            if not _open[_inode(path)]:
                _examine(path, missing_is_fine=write)
            if write:
                stack.enter_context(_only_writer(path))
                if not path.exists():
                    _create(path)
                _check_pages(path)
            connection = stack.enter_context(contextlib.closing(_connect(path, write)))
            if not write:
                _check(path, connection, "quick_check(1)")
            _check_schema(path, connection)
            if (schema := _schema(connection)) < len(MIGRATIONS):
                advice = f"has schema {schema}, and to read it as {len(MIGRATIONS)} it must be writable: make a copy"
                require(_writable(path), f"{path}: {advice}")
                with contextlib.nullcontext() if write else _only_writer(path):
                    connection.execute("PRAGMA query_only = OFF")
                    _migrate(connection)
            connection.execute("PRAGMA query_only = OFF")
            connection.execute(_LATEST)
            connection.execute(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        inode = _inode(path)
        _open[inode] += 1
        stack.callback(_open.subtract, [inode])
        yield connection


def reading(path: Path) -> str:
    """The address of a results file for SQLite, to read from it."""
    if _writable(path):
        # Opened for writing all the same: SQLite then clears away what it makes beside the file.
        return _uri(path, "mode=rw")
    return _uri(path, "mode=ro" if _has_wal(path) else "mode=ro&immutable=1")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


@contextlib.contextmanager
def one_line(path: Path) -> Iterator[None]:
    """What SQLite and the system say of a file as an error of ours."""
    try:
        yield
    except sqlite3.Error as error:
        kind = getattr(error, "sqlite_errorname", "")
        if kind == "SQLITE_FULL" or kind.startswith("SQLITE_IOERR"):
            reason = f"cannot be written: {error}; the rows before are safe, so make room and run again"
        elif kind.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            reason = f"is damaged, or no qcqpbench results file ({error})"
        else:
            reason = f"cannot be used: {error}"
        raise QcqpbenchError(f"{path}: {reason[:_MAX_REASON_CHARACTERS]}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error.strerror or error}") from error


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _uri(path: Path, options: str) -> str:
    return f"{path.absolute().as_uri()}?{options}"


def _beside(path: Path, suffix: str) -> Path:
    """A file that goes with a results file, whatever link it was named by."""
    real = path.resolve()
    return real.with_name(f"{real.name}{suffix}")


def _wal(path: Path) -> Path:
    return _beside(path, "-wal")


def _has_wal(path: Path) -> bool:
    wal = _wal(path)
    return wal.exists() and wal.stat().st_size > 0


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    address = _uri(path, "mode=rw") if write else reading(path)
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30)
    # Without a sync for each row: what is committed outlives this process, however it ends, and a power cut costs
    # the last rows but never the file. Those runs are then run again.
    connection.execute("PRAGMA synchronous = NORMAL")
    # The schema of a file may be anybody's; until it has been checked no function in it is called.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _examine(path: Path, missing_is_fine: bool) -> None:
    """Refuse what is no results file by its first bytes, before SQLite touches it."""
    require(not path.is_dir(), f"{path}: is a folder, not a results file")
    if not path.exists():
        require(missing_is_fine, f"{path}: no such file")
        require(
            not _wal(path).exists(), f"{_wal(path)}: belongs to a {path.name} that is gone; put it back, or move both"
        )
        return
    with path.open("rb") as file:
        header = file.read(100)
    ours = len(header) == 100 and header.startswith(SQLITE_MAGIC) and _number(header, 68) == APPLICATION_ID
    require(ours, f"{path}: is no qcqpbench results file")
    schema, known = _number(header, 60), len(MIGRATIONS)
    require(schema <= known, f"{path}: has schema {schema}, this qcqpbench reads up to {known}: update it")
    # A checkpoint that was interrupted leaves it short too, and its pages beside it.
    complete = _has_wal(path) or path.stat().st_size >= _number(header, 28) * int.from_bytes(header[16:18])
    require(complete, f"{path}: is damaged: its end is missing")


def _number(header: bytes, position: int) -> int:
    return int.from_bytes(header[position : position + 4])


def _check_pages(path: Path) -> None:
    """Refuse to add to a damaged file; it is read as if nobody could write to it, so that it stays as it is."""
    options = "mode=rw" if _has_wal(path) else "mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(_uri(path, options), uri=True)) as connection:
        _check(path, connection, "quick_check(1)")


def check_integrity(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file in which SQLite finds any inconsistency, in its pages, its indexes or its references."""
    with one_line(path):
        _check(path, connection, "integrity_check(1)")


def _check(path: Path, connection: sqlite3.Connection, pragma: str) -> None:
    (found,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    require(found == "ok", f"{path}: is damaged: {str(found)[:_MAX_REASON_CHARACTERS]}")
    stray = connection.execute("PRAGMA foreign_key_check").fetchone()
    if stray is not None:
        table, row, parent, _ = stray
        raise QcqpbenchError(f"{path}: is damaged: row {row} of {table} refers to a missing row of {parent}")


def _check_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse tables, views, triggers and unique indexes that the migrations do not make."""
    schema = _schema(connection)
    ours, theirs = dict(_ours(tuple(MIGRATIONS[:schema]))), _definitions(connection)
    if ours.pop(_OLD_VIEW, None) is not None:
        # A migration drops it, and nothing reads it before.
        theirs.pop(_OLD_VIEW, None)
    for kind, name in sorted(ours.keys() | theirs.keys()):
        must, is_now = ours.get((kind, name)), theirs.get((kind, name))
        if must != is_now:
            how = "is missing" if is_now is None else "is not one of qcqpbench's" if must is None else "was changed"
            raise QcqpbenchError(
                f"{path}: must have the schema of a qcqpbench results file, but its {kind} {name} {how}"
            )


@cache
def _ours(migrations: tuple[tuple[str, ...], ...]) -> dict[tuple[str, str], str]:
    """Return the definitions that some migrations make."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        for statement in itertools.chain.from_iterable(migrations):
            model.execute(statement)
        return _definitions(model)


def _definitions(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return what a file defines by (type, name), without white space; indexes that only serve speed are left out."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
    texts = {(str(kind), str(name)): "".join(str(sql).split()) for kind, name, sql in found}
    return {
        (kind, name): text
        for (kind, name), text in texts.items()
        if kind != "index" or text.upper().startswith("CREATEUNIQUE")
    }


def _create(path: Path) -> None:
    """Make an empty results file, which appears whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _migrate(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        part.replace(path)
    finally:
        for leftover in path.parent.glob(f"{part.name}*"):
            leftover.unlink()


def _schema(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statements in MIGRATIONS[_schema(connection) :]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


@contextlib.contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of the one who may write. It dies with the process; a file that is left behind locks nobody out."""
    name = _beside(path, "-lock")
    while True:
        with name.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read(20).strip() or "?"
                raise QcqpbenchError(
                    f"{path}: process {who} is writing to it; wait until it is done, or name another file"
                ) from None
            if not (name.exists() and os.path.samestat(name.stat(), os.fstat(file.fileno()))):
                # Its last owner removed it between our opening and our locking it.
                continue
            try:
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                yield
            finally:
                name.unlink(missing_ok=True)
            return
