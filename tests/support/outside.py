"""Data that is not part of the project: the tests that need it are skipped without it.

The environment variable QCQPBENCH_DATA names a folder with

qplib/        the QPLIB instances and points named in its index.csv
timeseries/   japanesevowels.npz and fsdd_mfcc_3v8.npz
"""

import os
from pathlib import Path

# No file lies beneath the null device, so every look for data fails if the variable is not set.
DATA = Path(os.environ.get("QCQPBENCH_DATA") or os.devnull).absolute()
QPLIB = DATA / "qplib"
TIME_SERIES = DATA / "timeseries"


def absence(path: Path) -> str:
    """Return why a test that needs `path` is skipped."""
    name = path.relative_to(DATA).as_posix()
    return f"needs {name} in the folder that QCQPBENCH_DATA names, which is not part of the project"
