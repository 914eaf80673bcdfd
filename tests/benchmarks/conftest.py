from typing import Any

import pytest

from qcqpbench.catalog.machine import machine


def pytest_benchmark_generate_machine_info() -> dict[str, Any]:
    """Return what times depend on; pytest-benchmark's default includes the current clock rate, which always differs."""
    facts = machine()
    return {"cpu": {"brand_raw": facts.cpu}, "system": facts.system, "python_version": facts.python}


def pytest_benchmark_compare_machine_info(machine_info: dict[str, Any], compared_benchmark: dict[str, Any]) -> None:
    if machine_info != compared_benchmark["machine_info"]:
        raise pytest.UsageError(
            "the last saved run must be of this CPU, system and Python, got another: 'make bench-save' saves one here"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line for every benchmark that states a ratio, with its limit if there is one."""
    session: Any = getattr(config, "_benchmarksession", None)
    benchmarks = [entry for entry in getattr(session, "benchmarks", ()) if "ratio" in entry.extra_info]
    if benchmarks:
        terminalreporter.section("ratios")
        terminalreporter.line("ratio  limit")
    for benchmark in benchmarks:
        ratio, limit = benchmark.extra_info["ratio"], benchmark.extra_info["limit"]
        over = "  OVER" if limit and ratio > limit else ""
        terminalreporter.line(f"{ratio:5.2f}  {limit or '-':>5}  {benchmark.name}{over}")
