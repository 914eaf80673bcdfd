"""The Python of the documentation and the examples as scripts of a user, and their check with mypy."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/howto/python.md")
# Packages without type information, for which every user of them has these lines.
CONFIGURATION = """[mypy]
[mypy-pandas.*,scipy.*,sklearn.*]
ignore_missing_imports = true
"""

_SCRIPT = """
import qcqpbench
from qcqpbench.problems.parity import Parity
from qcqpbench.solvers.slsqp import Slsqp
reveal_type(qcqpbench.problem("parity[m=3]"))
reveal_type(qcqpbench.run(problems=["parity[m=3]"], solvers=[Slsqp()], output="results.db"))
reveal_type(Parity().m)
qcqpbench.solve(3, "gip")
qcqpbench.probelm("parity[m=3]")
"""
_MESSAGES = [
    'Revealed type is "qcqpbench.problem.maxmargin.MaxMargin | qcqpbench.problem.qcqp.QCQP"',
    'Revealed type is "qcqpbench.results.results.Results"',
    'Revealed type is "int"',
    'Argument 1 to "solve" has incompatible type "int"; expected ',
    "Module has no attribute ",
]


def snippets(page: str) -> list[str]:
    """Return the Python blocks of a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def write_scripts(folder: Path) -> list[Path]:
    """Write each Python block of `PAGES` and each example to a script in a folder outside the checkout."""
    (folder / "mypy.ini").write_text(CONFIGURATION)
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*/*.py"))}
    for page in PAGES:
        blocks = snippets(page)
        assert blocks, f"{page} has no Python"
        sources |= {f"{Path(page).stem.lower()}_{number}.py": block for number, block in enumerate(blocks, 1)}
    for name, text in sources.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in sources]


def type_check(python: Path, *scripts: Path) -> list[str]:
    """Return the errors that mypy --strict reports in scripts, with the packages of the interpreter `python`."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MYPYPATH", "PYTHONPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), *map(str, scripts)]
    folder = scripts[0].parent
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line or ": note: Revealed" in line]


def check_types(python: Path, folder: Path) -> None:
    """Check that mypy infers the types of public names, and reports wrong arguments and unknown names."""
    script = folder / "script.py"
    script.write_text(_SCRIPT)
    lines = type_check(python, script)
    assert len(lines) == len(_MESSAGES), lines
    assert [line for line, message in zip(lines, _MESSAGES, strict=True) if message not in line] == []


def link_numpy(python: Path) -> None:
    """Link NumPy, whose types those of qcqpbench contain, into the environment of `python`; pip would only copy it."""
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    target = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()) / "numpy"
    if not target.exists():
        target.symlink_to(Path(str(distribution("numpy").locate_file("numpy"))))
