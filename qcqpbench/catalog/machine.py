"""Description of the hardware and software that produce results, without user or host names."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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

    cpu: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    memory_bytes: int | None = None
    system: str | None = None
    kernel: str | None = None
    governor: str | None = None
    blas: str | None = None
    blas_version: str | None = None
    blas_threads: int | None = None
    python: str | None = None
    qcqpbench: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    thread_variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> "Machine":
        """Return the machine with the fields in `facts`; unknown names and values of other types are ignored."""
        values: dict[str, Any] = {}
        for known in fields(cls):
            value = facts.get(known.name)
            if isinstance(value, dict):
                values[known.name] = {str(name): None if text is None else str(text) for name, text in value.items()}
            elif isinstance(value, str | int | float | bool) and known.name not in ("packages", "thread_variables"):
                values[known.name] = value
        return cls(**values)


def machine() -> Machine:
    """Return the description of the machine that this process runs on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    commit, dirty = _commit(Path(__file__).parents[1])
    return Machine(
        cpu=_cpu(),
        physical_cores=_physical_cores(),
        logical_cores=os.cpu_count(),
        usable_cores=usable_cores(),
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


def usable_cores() -> int | None:
    """Return the number of cores that this process may run on; None if the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else None


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
    """Return the number of threads of the loaded BLAS library, preferably NumPy's; None if there is none."""
    from threadpoolctl import threadpool_info  # noqa: PLC0415 (`import qcqpbench` loads NumPy and SciPy only)

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    libraries.sort(key=lambda library: ("numpy" not in library["filepath"], library["filepath"]))
    return libraries[0]["num_threads"] if libraries else None


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
