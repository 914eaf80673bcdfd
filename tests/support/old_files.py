"""Results files of older schemas, for tests."""

import contextlib
import sqlite3
from pathlib import Path

from qcqpbench.results.schema import APPLICATION_ID, MIGRATIONS, apply_migrations

# Columns that a migration renamed, by their older names.
_NEW_NAMES = {
    "run": {"memory_limit": "memory_limit_bytes", "seed": "start_seed"},
    "payload": {"x": "formulation_point"},
}


def make_older(path: Path, schema: int) -> None:
    """Make a results file one of an older schema; columns that it did not have are lost."""
    old = path.with_suffix(".old")
    with contextlib.closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        apply_migrations(connection, MIGRATIONS[:schema])
        connection.execute(f"PRAGMA user_version = {schema}")
        connection.execute("ATTACH ? AS new", (str(path),))
        for table in ("invocation", "run", "payload"):
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})")]
            sources = [_NEW_NAMES.get(table, {}).get(name, name) for name in columns]
            if "kappa_bar_theory" in columns and "kappa_bar_rs" not in columns:
                # The column was the replica-symmetric prediction of these families.
                sources[columns.index("kappa_bar_theory")] = "coalesce(kappa_bar_rs, kappa_bar_theory)"
            connection.execute(
                f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {', '.join(sources)} FROM new.{table}"
            )
        connection.execute("DETACH new")
    old.replace(path)
