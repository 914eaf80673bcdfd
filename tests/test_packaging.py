import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.snippets import check_types, link_numpy, type_check, write_scripts

# One process builds the wheel.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]

ROOT = Path(__file__).parents[1]


def run(*command: object, **rest: object) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, **rest)  # type: ignore[call-overload]


def succeed(*command: object, **rest: object) -> str:
    done = run(*command, **rest)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from a copy of the repository's files, and the wheel from the sdist."""
    copy, target = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    copy_files(copy)
    succeed(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, copy)
    assert len(list(target.glob("*.tar.gz"))) == 1
    (built,) = target.glob("*.whl")
    return built


def copy_files(copy: Path) -> None:
    """Copy the files of the repository that git lists."""
    try:
        listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    except FileNotFoundError:
        pytest.skip("git is missing, which lists the files of the repository")
    if listed.returncode:
        pytest.skip(f"this is not a git checkout: {listed.stderr.strip()}")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that contains only the wheel."""
    path = tmp_path_factory.mktemp("environment")
    venv.create(path, with_pip=False, symlinks=True)
    python = path / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-compile")
    succeed(*pip, "--no-deps", "--no-index", wheel)
    return python


def site_packages(python: Path) -> Path:
    return Path(succeed(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def test_the_wheel_holds_the_package(wheel: Path) -> None:
    """Compare with the modules and data of the checkout, the marker for types and the command."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert "qcqpbench = qcqpbench.cli.main:main" in entry_points
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "qcqpbench").rglob("*.py")}
    for folder in ("problems", "solvers"):
        modules |= {f"qcqpbench/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / folder).rglob("*.py")}
    files = [
        path for folder in ("data", "suites") for path in (ROOT / "problems" / folder).rglob("*") if path.is_file()
    ]
    shipped = {f"qcqpbench/{path.relative_to(ROOT).as_posix()}" for path in files}
    page = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "qcqpbench" / "analysis" / "report" / "render" / "page").iterdir()
    }
    kernel = {f"qcqpbench/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "solvers").glob("*/*.[ch]")}
    assert kernel and modules | shipped | page | kernel | {"qcqpbench/py.typed"} <= names


def test_the_package_installs_without_a_compiler(tmp_path: Path) -> None:
    """Build from a copy of the files of the repository with a compiler that fails."""
    copy = tmp_path / "checkout"
    copy_files(copy)
    environment = {**os.environ, "CC": "false"}
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, copy],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not any(name.endswith(".so") for name in archive.namelist())


def test_the_wheel_puts_nothing_else_in_site_packages(environment: Path) -> None:
    entries = {path.name for path in site_packages(environment).iterdir()}
    (info,) = (name for name in entries if name.endswith(".dist-info"))
    assert info.startswith("qcqpbench-")
    assert entries == {"qcqpbench", info}


def test_the_wheel_requires_five_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    names = [re.split(r"[ <>=;]+", line)[1] for line in required]
    assert names == ["jinja2", "numpy", "rich", "scipy", "threadpoolctl"]


def test_the_package_works_with_numpy_and_scipy_only(environment: Path, tmp_path: Path) -> None:
    """Link the installed files of both into the environment: pip would only unpack the same ones again."""
    for package in ("numpy", "scipy"):
        for name in {file.parts[0] for file in distribution(package).files or ()} - {"..", "bin"}:
            if not (site_packages(environment) / name).exists():
                (site_packages(environment) / name).symlink_to(Path(str(distribution(package).locate_file(name))))
    location = succeed(environment, "-c", "import qcqpbench; print(qcqpbench.__file__)", cwd=tmp_path)
    assert Path(location.strip()).is_relative_to(site_packages(environment))
    listed = succeed(environment.with_name("qcqpbench"), "list", "problems", "--json", cwd=tmp_path)
    assert {row["name"] for row in json.loads(listed)} >= {"covariance_perceptron", "classical_perceptron", "parity"}
    suites = json.loads(succeed(environment.with_name("qcqpbench"), "list", "suites", "--json", cwd=tmp_path))
    assert {row["name"] for row in suites} >= {"smoke", "default", "paper"}
    best_known = json.loads(succeed(environment.with_name("qcqpbench"), "best-known", "list", "--json", cwd=tmp_path))
    assert best_known[0]["margin"] <= best_known[0]["bound"]
    specs = ["covariance_perceptron[m=4,p=3]", "recorded"]
    code = f"import qcqpbench; print([qcqpbench.problem(spec).id for spec in {specs}])"
    assert succeed(environment, "-c", code, cwd=tmp_path) == succeed(sys.executable, "-c", code, cwd=tmp_path)
    code = "from qcqpbench.catalog.registry import solver; print(solver('branch_and_bound').version())"
    compiled = "steps compiled" if shutil.which("gcc") else "steps NumPy"
    assert succeed(environment, "-c", code, cwd=tmp_path).strip().endswith(compiled)


def test_types_are_found_in_a_normal_install(environment: Path, tmp_path: Path) -> None:
    """Check a wrong script, and the Python of the documentation and the examples, with mypy --strict."""
    link_numpy(environment)
    check_types(environment, tmp_path)
    assert type_check(environment, *write_scripts(tmp_path)) == []


@pytest.mark.parametrize(
    "use",
    [
        "import qcqpbench",
        "import qcqpbench; [getattr(qcqpbench, name) for name in qcqpbench.__all__]",
        "import qcqpbench; qcqpbench.problem('covariance_perceptron[m=4,p=3]').smallest_eigenvalue",
        "from qcqpbench.cli.main import main; main(['list', 'problems'])",
    ],
)
def test_the_package_imports_numpy_and_scipy_only(use: str, tmp_path: Path) -> None:
    """List what is imported from site-packages beyond what every start of Python imports."""
    code = f"""
import contextlib, io, sys
before = set(sys.modules)
with contextlib.redirect_stdout(io.StringIO()):
    {use}
files = [getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name not in before]
print(*{{file.partition("site-packages/")[2].partition("/")[0] for file in files}})
"""
    # numpy.f2py, which SciPy imports, uses charset_normalizer where another package (here Sphinx) has installed it.
    assert set(succeed(sys.executable, "-c", code, cwd=tmp_path).split()) <= {"numpy", "scipy", "charset_normalizer"}


def test_the_public_names_are_lazy_and_complete(tmp_path: Path) -> None:
    """Check that importing the package does not load scipy.sparse, and that it has all public names and no others."""
    code = """
import sys, qcqpbench
assert "scipy.sparse" not in sys.modules
assert dir(qcqpbench) == sorted(qcqpbench.__all__)
for name in qcqpbench.__all__:
    getattr(qcqpbench, name)
assert not hasattr(qcqpbench, "nothing")
"""
    succeed(sys.executable, "-c", code, cwd=tmp_path)
