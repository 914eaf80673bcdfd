"""SQLite schema of results files, and functions that create, open, check, migrate and lock them."""

import contextlib
import fcntl
import itertools
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from qcqpbench.atomic_files import SQLITE_MAGIC
from qcqpbench.errors import QcqpbenchError, require, system_reason
from qcqpbench.theory import full_rsb_from_table

# The bytes "qcqp", which SQLite stores at offset 68 of the file.
APPLICATION_ID = 0x71637170

# Each entry takes a file from the schema of its position to the next. Users have files of every schema: only append.
MIGRATIONS: list[tuple[str, ...]] = [
    (
        """CREATE TABLE invocation (
            id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, command TEXT NOT NULL, begun REAL NOT NULL,
            machine TEXT NOT NULL
        )""",
        # (invocation, number) identifies a run in every file that it is merged into.
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
        # The machine of a run if it differs from that of the invocation, as on a cluster.
        "CREATE TABLE machine (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE)",
        "ALTER TABLE run ADD COLUMN machine INTEGER REFERENCES machine",
        # A view in the file could be forged; each connection creates its own.
        "DROP VIEW IF EXISTS latest",
    ),
    (
        # One name for a quantity in Python, files and exports; `seed` is a parameter of problems.
        "ALTER TABLE run RENAME COLUMN memory_limit TO memory_limit_bytes",
        "ALTER TABLE run RENAME COLUMN seed TO start_seed",
        "ALTER TABLE payload RENAME COLUMN x TO formulation_point",
        "ALTER TABLE payload ADD COLUMN offsets BLOB",
    ),
    (
        "ALTER TABLE run ADD COLUMN kappa_bar_rs REAL",
        # Up to here kappa_bar_theory was the replica-symmetric prediction; from here on it is that of full RSB.
        *(
            f"""UPDATE run SET kappa_bar_rs = kappa_bar_theory, kappa_bar_theory = full_rsb(kappa_bar_theory, {power})
            WHERE substr(problem || '[', 1, {len(name) + 1}) = '{name}[' AND typeof(kappa_bar_theory) = 'real'"""
            for name, power in (("classical_perceptron", 1), ("covariance_perceptron", 2))
        ),
    ),
    ("ALTER TABLE payload ADD COLUMN tree BLOB",),
]

# The newest row of each job, without superseded skipped rows. The view is temporary: one in the file could be forged.
_LATEST = """CREATE TEMP VIEW latest AS SELECT * FROM run WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY key ORDER BY termination = 'skipped', begun DESC, id DESC
        ) AS place FROM run
    ) WHERE place = 1
) AND (termination <> 'skipped' OR NOT EXISTS (
    SELECT 1 FROM run AS other WHERE other.problem_id = run.problem_id AND other.solver = run.solver
    AND other.start = run.start AND other.start_seed = run.start_seed AND other.threads = run.threads
    AND other.time_limit IS run.time_limit AND other.memory_limit_bytes IS run.memory_limit_bytes
    AND (other.termination <> 'skipped' OR (other.begun, other.id) > (run.begun, run.id))
))"""

# View that files before schema 6 contain.
_OLD_VIEW = ("view", "latest")
_MAX_REASON_CHARACTERS = 300
_HEADER_BYTES = 100
_LOCK_TIMEOUT_SECONDS = 30
# Results files that this process has open, by inode. Such a file must not be opened a second time just to read its
# header: a process that closes a file loses all its locks on it, including those that SQLite holds.
_open: Counter[tuple[int, int]] = Counter()


@contextlib.contextmanager
def open_database(path: Path, write: bool) -> Iterator[sqlite3.Connection]:
    """Open a results file and migrate it to the newest schema.

    A file has at most one writer at a time, and any number of readers. A file that is damaged, or that is not a results
    file, is not modified.

    Parameters
    ----------
    write
        Open the file for adding rows, and create it if it does not exist.

    Raises
    ------
    QcqpbenchError
        If the file cannot be opened, is damaged, or has tables, views or triggers that qcqpbench does not create.
    """
    with contextlib.ExitStack() as stack:
        with readable_errors(path, adding_rows=write):
            if not _open[_inode(path)]:
                _check_header(path, may_be_missing=write)
            if write:
                stack.enter_context(_writer_lock(path))
                if not path.exists():
                    _create(path)
                _check_pages(path)
            connection = stack.enter_context(contextlib.closing(_connect(path, write)))
            if not write:
                _check(path, connection, "quick_check(1)")
            _check_definitions(path, connection)
            _upgrade(path, connection, write)
            connection.execute("PRAGMA query_only = OFF")
            connection.execute(_LATEST)
            connection.execute(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        inode = _inode(path)
        _open[inode] += 1
        stack.callback(_open.subtract, [inode])
        yield connection


def _upgrade(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    """Migrate a file with an older schema to the newest one; raise QcqpbenchError if it is not writable."""
    if (schema := _schema(connection)) == len(MIGRATIONS):
        return
    require(
        _writable(path),
        f"{path}: must be writable to be migrated from schema {schema} to {len(MIGRATIONS)}; copy it elsewhere",
    )
    with contextlib.nullcontext() if write else _writer_lock(path):
        connection.execute("PRAGMA query_only = OFF")
        _migrate(connection)


def read_uri(path: Path) -> str:
    """Return the URI under which SQLite opens a results file for reading."""
    if _writable(path):
        # Opened for writing, because SQLite then removes the files that it creates beside the database.
        return _uri(path, "mode=rw")
    return _uri(path, "mode=ro" if _has_wal(path) else "mode=ro&immutable=1")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


@contextlib.contextmanager
def readable_errors(path: Path, adding_rows: bool = False) -> Iterator[None]:
    """Convert SQLite and operating system errors to a QcqpbenchError whose message is one line with the file name.

    Parameters
    ----------
    adding_rows
        Whether rows are being added; on a full disk the message then says that earlier rows are safe.
    """
    try:
        yield
    except sqlite3.Error as error:
        file, reason = _describe(error, path, adding_rows)
        raise QcqpbenchError(f"{file}: {reason[:_MAX_REASON_CHARACTERS]}") from error
    except OSError as error:
        verb = "written" if adding_rows else "read"
        raise QcqpbenchError(f"{path}: cannot be {verb}: {system_reason(error)}") from error


def _describe(error: sqlite3.Error, path: Path, adding_rows: bool) -> tuple[Path, str]:
    """Return the file that an SQLite error concerns, and a description of the error."""
    kind = getattr(error, "sqlite_errorname", "")
    if kind.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return path, f"must be a qcqpbench results file, but it is damaged or of another kind: {error}"
    if kind != "SQLITE_FULL" and not kind.startswith("SQLITE_IOERR"):
        return path, f"cannot be used: {error}"
    if adding_rows:
        return path, f"cannot be written: {error}; the rows stored so far are safe, so free disk space and run again"
    if kind.startswith("SQLITE_IOERR_SHM"):
        # Readers create this file too.
        return _sidecar(path, "-shm"), f"cannot be written: {error}"
    return path, f"cannot be read: {error}" if kind.startswith("SQLITE_IOERR_READ") else f"cannot be written: {error}"


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _uri(path: Path, options: str) -> str:
    return f"{path.absolute().as_uri()}?{options}"


def _sidecar(path: Path, suffix: str) -> Path:
    """Return the path of the results file, links resolved, with `suffix` appended to its name."""
    real = path.resolve()
    return real.with_name(f"{real.name}{suffix}")


def _wal(path: Path) -> Path:
    return _sidecar(path, "-wal")


def _has_wal(path: Path) -> bool:
    wal = _wal(path)
    return wal.exists() and wal.stat().st_size > 0


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    address = _uri(path, "mode=rw") if write else read_uri(path)
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_LOCK_TIMEOUT_SECONDS)
    # No sync for each row: committed rows outlive this process, however it ends. A power cut may cost the last rows,
    # never the file; those jobs are then run again.
    connection.execute("PRAGMA synchronous = NORMAL")
    # Sort in memory, so that reading needs no free disk space.
    connection.execute("PRAGMA temp_store = MEMORY")
    # The schema of the file may be forged; no function in it is called before it has been checked.
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _check_header(path: Path, may_be_missing: bool) -> None:
    """Raise QcqpbenchError if the header of a file is not that of a complete results file of a known schema."""
    require(not path.is_dir(), f"{path}: must be a qcqpbench results file, got a folder")
    if not path.exists():
        require(may_be_missing, f"{path}: no such file")
        require(
            not _wal(path).exists(),
            f"{_wal(path)}: must not exist without {path.name}; restore {path.name}, or move this file away",
        )
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    is_database = len(header) == _HEADER_BYTES and header.startswith(SQLITE_MAGIC)
    is_results = is_database and _header_number(header, 68) == APPLICATION_ID
    require(is_results, f"{path}: must be a qcqpbench results file, got another kind of file")
    schema, newest = _header_number(header, 60), len(MIGRATIONS)
    require(schema <= newest, f"{path}: schema must be {newest} or older, got {schema}: update qcqpbench")
    # An interrupted checkpoint also leaves the file short; the missing pages are then in the write-ahead log.
    pages, page_bytes = _header_number(header, 28), int.from_bytes(header[16:18])
    complete = _has_wal(path) or path.stat().st_size >= pages * page_bytes
    require(complete, f"{path}: must be a qcqpbench results file, but it is damaged: its end is missing")


def _header_number(header: bytes, position: int) -> int:
    return int.from_bytes(header[position : position + 4])


def _check_pages(path: Path) -> None:
    """Raise QcqpbenchError if a file is damaged. A file without a write-ahead log is opened read-only."""
    options = "mode=rw" if _has_wal(path) else "mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(_uri(path, options), uri=True)) as connection:
        _check(path, connection, "quick_check(1)")


def check_integrity(path: Path, connection: sqlite3.Connection) -> None:
    """Raise QcqpbenchError if the pages, indexes or foreign keys of a file are inconsistent."""
    with readable_errors(path):
        _check(path, connection, "integrity_check(1)")


def _check(path: Path, connection: sqlite3.Connection, pragma: str) -> None:
    (result,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    damaged = f"{path}: must be a qcqpbench results file, but it is damaged"
    require(result == "ok", f"{damaged}: {str(result)[:_MAX_REASON_CHARACTERS]}")
    dangling = connection.execute("PRAGMA foreign_key_check").fetchone()
    if dangling is not None:
        table, row, parent, _ = dangling
        raise QcqpbenchError(f"{damaged}: row {row} of {table} refers to a missing row of {parent}")


def _check_definitions(path: Path, connection: sqlite3.Connection) -> None:
    """Raise QcqpbenchError if tables, views, triggers or unique indexes differ from those the migrations create."""
    schema = _schema(connection)
    expected, actual = dict(_migrated_definitions(tuple(MIGRATIONS[:schema]))), _definitions(connection)
    if expected.pop(_OLD_VIEW, None) is not None:
        # A migration drops this view, and no code reads it before.
        actual.pop(_OLD_VIEW, None)
    for kind, name in sorted(expected.keys() | actual.keys()):
        text, expected_text = actual.get((kind, name)), expected.get((kind, name))
        if text != expected_text:
            how = "is missing" if text is None else "was changed" if expected_text else "is not one of qcqpbench's"
            raise QcqpbenchError(
                f"{path}: must have the schema of a qcqpbench results file, but its {kind} {name} {how}"
            )


@cache
def _migrated_definitions(migrations: tuple[tuple[str, ...], ...]) -> dict[tuple[str, str], str]:
    """Return the definitions, as by `_definitions`, that `migrations` create in an empty database."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        apply_migrations(model, migrations)
        return _definitions(model)


def _definitions(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the SQL definitions by (type, name), without white space; non-unique indexes are left out."""
    entries = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'")
    texts = {(str(kind), str(name)): "".join(str(sql).split()) for kind, name, sql in entries}
    return {
        (kind, name): text
        for (kind, name), text in texts.items()
        if kind != "index" or text.upper().startswith("CREATEUNIQUE")
    }


def _create(path: Path) -> None:
    """Create an empty results file atomically."""
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


def apply_migrations(connection: sqlite3.Connection, migrations: Iterable[tuple[str, ...]]) -> None:
    """Execute the statements of `migrations`, which may call the SQL function full_rsb."""
    connection.create_function("full_rsb", 2, full_rsb_from_table, deterministic=True)
    for statement in itertools.chain.from_iterable(migrations):
        connection.execute(statement)


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    apply_migrations(connection, MIGRATIONS[_schema(connection) :])
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


@contextlib.contextmanager
def _writer_lock(path: Path) -> Iterator[None]:
    """Hold the writer lock of a results file. The system releases the lock if the process dies."""
    lock = _sidecar(path, "-lock")
    while True:
        with lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                writer = file.read(20).strip() or "?"
                raise QcqpbenchError(
                    f"{path}: process {writer} is writing to it; wait until that process ends, or use another file"
                ) from None
            if not (lock.exists() and os.path.samestat(lock.stat(), os.fstat(file.fileno()))):
                # The last writer removed the lock file after it was opened here and before it was locked.
                continue
            try:
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                yield
            finally:
                lock.unlink(missing_ok=True)
            return
