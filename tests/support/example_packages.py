"""Installation of the packages of examples/ into a folder for tests."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ("augmented_lagrangian", "random_search", "trust_region")


def install_examples(target: Path) -> Path:
    """Install copies of the examples into the folder `target`, for PYTHONPATH, and return it."""
    ignored = shutil.ignore_patterns("build", "__pycache__", "*.egg*")
    with tempfile.TemporaryDirectory() as folder:
        copies = [shutil.copytree(ROOT / "examples" / name, Path(folder) / name, ignore=ignored) for name in EXAMPLES]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
        subprocess.run([*command, str(target), *map(str, copies)], check=True)
    return target
