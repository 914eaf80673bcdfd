"""Description of the hardware and software that produce results, without user or host names."""

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .registry import shipped_solvers

_THREAD_VARIABLES = re.compile(
    r"(OMP|OPENBLAS|MKL|BLIS|GOTO|VECLIB|NUMEXPR)_\w*(THREAD|DYNAMIC|BIND|PLACES|AFFINITY)\w*"
)


@dataclass(frozen=True)
class Machine:
    """Hardware and software of a machine; unknown values are None.

    Parameters
    ----------
    cpu, physical_cores, logical_cores, memory_bytes
        Model of the processor, numbers of its cores, and size of the memory.
    usable_cores
        Number of cores that this process may run on.
    governor
        The governor of the CPU frequency.
    system, kernel, blas, blas_version, python, qcqpbench
        Name of the operating system, release of its kernel, and versions of the software.
    blas_threads
        Number of threads of NumPy's BLAS in this process; a run uses the number of its job instead.
    commit, dirty
        The commit of the checkout that the package runs from, and whether tracked files differ from it.
    packages
        Installed version of each package that a solver needs, by name; None if the package is missing.
    thread_variables
        Values of the environment variables that control the threads of BLAS and OpenMP, by name.
    """

    cpu: str
    physical_cores: int | None
    logical_cores: int | None
    usable_cores: int | None
    memory_bytes: int | None
    system: str
    kernel: str
    governor: str | None
    blas: str | None
    blas_version: str | None
    blas_threads: int | None
    python: str
    qcqpbench: str | None
    commit: str | None
    dirty: bool | None
    packages: dict[str, str | None]
    thread_variables: dict[str, str]


def machine() -> Machine:
    """Return the description of the machine that this process runs on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    commit, dirty = _commit(Path(__file__).parents[1])
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cpu=_cpu(),
        physical_cores=_physical_cores(),
        logical_cores=os.cpu_count(),
        usable_cores=len(affinity(0)) if affinity else None,
        memory_bytes=_memory(),
        system=_system(),
        kernel=platform.release(),
        governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        blas=blas.get("name"),
        blas_version=blas.get("version"),
        blas_threads=_blas_threads(),
        python=platform.python_version(),
        qcqpbench=_version("qcqpbench"),
        commit=commit,
        dirty=dirty,
        packages=_packages(),
        thread_variables={
            name: value for name, value in sorted(os.environ.items()) if _THREAD_VARIABLES.fullmatch(name)
        },
    )


def _text(path: str) -> str:
    """Return the text of the file at `path`; empty if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _cpu() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _physical_cores() -> int | None:
    blocks = _text("/proc/cpuinfo").split("\n\n")
    places = {tuple(re.findall(r"^(?:physical|core) id\s*:\s*(\d+)", block, re.MULTILINE)) for block in blocks} - {()}
    return len(places) or None


def _memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _system() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _blas_threads() -> int | None:
    """Return the number of threads of the loaded OpenBLAS library, preferably NumPy's; None if there is none."""
    loaded = sorted(set(re.findall(r"(/\S*openblas\S*)$", _text("/proc/self/maps"), re.MULTILINE)))
    for path in sorted(loaded, key=lambda path: "numpy" not in path):
        library = ctypes.CDLL(path)
        for prefix in ("scipy_", ""):
            for suffix in ("64_", ""):
                with contextlib.suppress(AttributeError):
                    return int(getattr(library, f"{prefix}openblas_get_num_threads{suffix}")())
    return None


def _packages() -> dict[str, str | None]:
    names = {"numpy", "scipy"}.union(*(kind.requires for kind in shipped_solvers().values()))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        # The extras of qcqpbench also name packages that the solvers' packages need, such as conic solvers.
        lines = [line for line in importlib.metadata.requires("qcqpbench") or () if 'extra == "dev"' not in line]
        names |= {name for line in lines if (name := re.split(r"[^\w.-]", line)[0].lower()) != "qcqpbench"}
    return {name: _version(name) for name in sorted(names)}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the checkout that tracks `folder`/__init__.py, and whether tracked files differ from it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    git = functools.partial(
        subprocess.run, cwd=folder, env=environment, capture_output=True, text=True, timeout=20, check=True
    )
    try:
        # A virtual environment may be inside the checkout of another project.
        git(["git", "ls-files", "--error-unmatch", "__init__.py"])
        commit = git(["git", "rev-parse", "HEAD"]).stdout.strip()
        return commit, bool(git(["git", "status", "--porcelain", "--untracked-files=no"]).stdout)
    except (OSError, subprocess.SubprocessError):
        return None, None
