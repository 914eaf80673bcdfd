"""Overhead and lateness of the runner, as shares of their limits; nothing here asserts a time."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.run.attempt import Outcome, spec_of_objects
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.pools.local_pool import LocalPool
from qcqpbench.run.run_spec import RunOptions
from tests.support.hostile import Hostile, Kind, install

SPEC = "covariance_perceptron[m=10,p=20,seed=1]"
RUNS = 2000

pytestmark = pytest.mark.benchmark(group=SPEC)


@pytest.fixture(autouse=True)
def with_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield


def test_overhead(benchmark: Any) -> None:
    """Compare the median time of a trivial run, less the solver's own time, with 5 ms."""
    task, solver = qcqpbench.problem(SPEC), Hostile()
    spec = spec_of_objects(task, solver.facts(), RunOptions(time_limit=60.0, memory_limit_bytes=4 * 10**9))
    specs = [replace(spec, start=number) for number in range(RUNS)]
    overheads = []
    with Worker() as worker:
        worker.run(specs[0])
        for spec in specs:
            begin = time.perf_counter()
            attempt = worker.run(spec).attempt
            seconds = time.perf_counter() - begin
            overheads.append(seconds - (attempt.build_seconds or 0.0) - (attempt.solve_seconds or 0.0))
        benchmark.extra_info.update(ratio=statistics.median(overheads) / 5e-3, limit=1.0)
        benchmark.pedantic(worker.run, (specs[0],), rounds=20)


def test_a_pool_of_two(benchmark: Any) -> None:
    """Compare the time of a pool of two workers, all of it, with 5 ms a run and worker."""
    task, solver = qcqpbench.problem(SPEC), Hostile()

    def run() -> list[Outcome]:
        spec = spec_of_objects(task, solver.facts(), RunOptions())
        return list(LocalPool(2).outcomes(replace(spec, start=number) for number in range(RUNS)))

    begin = time.perf_counter()
    run()
    benchmark.extra_info.update(ratio=2 * (time.perf_counter() - begin) / RUNS / 5e-3, limit=1.0)
    benchmark.pedantic(run, rounds=1)


@pytest.mark.parametrize("kind", ["spin", "spin_in_c", "sleep_in_c", "stop", "chatter", "threads"])
def test_deadline(benchmark: Any, kind: Kind) -> None:
    """Compare the latest of 5 ends after the deadline with 0.5 s."""
    task, limit = qcqpbench.problem(SPEC), 0.5
    late = []
    with Worker() as worker:
        for _ in range(5):
            attempt = worker.attempt(task, Hostile(kind), options=RunOptions(time_limit=limit)).attempt
            late.append((attempt.solve_seconds or 0.0) - limit)
        benchmark.extra_info.update(ratio=max(late) / 0.5, limit=1.0)
        benchmark.pedantic(worker.attempt, (task, Hostile()), rounds=20)
