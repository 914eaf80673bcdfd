"""Reading of the JSON files of pytest-benchmark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qcqpbench.catalog.machine import Machine
from qcqpbench.errors import QcqpbenchError, describe_error


@dataclass(frozen=True)
class MicroBenchmark:
    """Result of pytest-benchmark: statistics of the seconds of a call, and further values in words."""

    name: str
    group: str
    min: float
    median: float
    stddev: float
    rounds: int
    extra: str


def read_pytest_benchmark(path: Path) -> tuple[list[MicroBenchmark], Machine]:
    """Return the benchmarks of a JSON file and its machine."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        machine, commit = content.get("machine_info") or {}, content.get("commit_info") or {}
        facts = {
            "cpu": (machine.get("cpu") or {}).get("brand_raw"),
            "system": machine.get("system"),
            "python": machine.get("python_version"),
            "commit": commit.get("id"),
            "dirty": commit.get("dirty"),
        }
        benchmarks = [_benchmark(entry) for entry in content["benchmarks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise QcqpbenchError(f"{path}: must be JSON of pytest-benchmark, got {describe_error(error)}") from error
    return benchmarks, Machine.from_facts(facts)


def _benchmark(entry: Mapping[str, Any]) -> MicroBenchmark:
    extra = {name: value for name, value in (entry.get("extra_info") or {}).items() if value is not None}
    seconds = {name: float(entry["stats"][name]) for name in ("min", "median", "stddev")}
    return MicroBenchmark(
        name=str(entry["name"]),
        group=str(entry.get("group") or ""),
        **seconds,
        rounds=int(entry["stats"]["rounds"]),
        extra=", ".join(
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in extra.items()
        ),
    )
