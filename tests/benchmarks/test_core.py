"""Costs of the core, as multiples of the least work; nothing here asserts a time."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from qcqpbench import MaxMargin, formulation, problem
from qcqpbench.catalog.registry import family

M, P = 100, 800

pytestmark = pytest.mark.benchmark(group=f"covariance_perceptron[m={M},p={P}]")


def compare(
    benchmark: Any, limit: float | None, work: Callable[[], object], need: Callable[[], object], rounds: int = 25
) -> None:
    """Time work and the least it needs in turns, so that both see the machine's changes; keep the ratio of minima."""
    seconds: dict[Callable[[], object], list[float]] = {need: [], work: []}
    for _ in range(rounds):
        for function, times in seconds.items():
            begin = perf_counter()
            function()
            times.append(perf_counter() - begin)
    benchmark.extra_info.update(ratio=min(seconds[work]) / min(seconds[need]), limit=limit)
    benchmark.pedantic(work, rounds=10)


def test_margin_of_ten_candidates(benchmark: Any) -> None:
    """Compare with the one matrix product it needs."""
    task = problem(f"covariance_perceptron[m={M},p={P}]")
    assert isinstance(task, MaxMargin)
    W = np.random.default_rng(0).standard_normal((10, 2, M))
    products = (W[:, 0, :, None] * W[:, 1, None, :]).reshape(10, -1)
    patterns = task.patterns.reshape(P, -1)
    compare(benchmark, 1.5, lambda: task.margin(W), lambda: products @ patterns.T)


@pytest.mark.parametrize(("ensemble", "limit"), [("paper", 3.0), ("psd", None), ("gaussian", None)])
def test_generate(benchmark: Any, ensemble: str, limit: float | None) -> None:
    """Compare with drawing as many random numbers with NumPy; psd also checks itself, by p factorizations."""
    maker = family(f"covariance_perceptron[m={M},p={P},ensemble={ensemble}]")
    rng = np.random.default_rng(0)
    if ensemble == "gaussian":
        compare(benchmark, limit, maker.generate, lambda: rng.standard_normal(P * M**2))
    else:
        compare(benchmark, limit, maker.generate, lambda: rng.random(P * M * (M - 1) // 2))


@pytest.mark.parametrize("ensemble", ["paper", "gaussian"])
@pytest.mark.parametrize("name", ["min_norm", "epigraph"])
def test_encoding_memory(benchmark: Any, name: str, ensemble: str) -> None:
    """Compare the peak with the size of the result."""
    task = problem(f"covariance_perceptron[m={M},p={P},ensemble={ensemble}]")
    assert isinstance(task, MaxMargin)
    task.id  # noqa: B018 (hashed once, kept)
    tracemalloc.start()
    encoded = formulation(name).encode(task)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    parts = [
        getattr(matrix, part)
        for matrix in (encoded.quadratic, encoded.linear)
        for part in ("data", "indices", "indptr")
    ]
    parts += [encoded.products, encoded.lower, encoded.upper, encoded.x_lower, encoded.x_upper]
    benchmark.extra_info.update(ratio=peak / sum(array.nbytes for array in parts), limit=3.0)
    benchmark.pedantic(formulation(name).encode, (task,), rounds=3)


@pytest.mark.benchmark(group="import")
@pytest.mark.parametrize("statement", ["import qcqpbench", "from qcqpbench import *"])
def test_import(benchmark: Any, statement: str) -> None:
    """Compare with importing NumPy and SciPy, in fresh interpreters in turns, without their startup.

    The package loads its parts when they are first used; the second statement loads all of them.
    """
    code = "from time import perf_counter; begin = perf_counter(); {}; print(perf_counter() - begin)"

    def seconds(statement: str) -> float:
        command = [sys.executable, "-c", code.format(statement)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    pairs = [(seconds(statement), seconds("import numpy, scipy")) for _ in range(10)]
    package, needed = (min(column) for column in zip(*pairs, strict=True))
    benchmark.extra_info.update(ratio=package / needed, limit=2.0 if statement == "import qcqpbench" else None)
    benchmark.pedantic(seconds, (statement,), rounds=3)
