from typing import Any

import pytest

from qcqpbench.catalog.machine import machine


def pytest_benchmark_generate_machine_info() -> dict[str, Any]:
    """What times depend on; pytest-benchmark's own facts have the clock of the moment among them, so none are alike."""
    here = machine()
    return {"cpu": {"brand_raw": here.cpu}, "system": here.system, "python_version": here.python}


def pytest_benchmark_compare_machine_info(machine_info: dict[str, Any], compared_benchmark: dict[str, Any]) -> None:
    if machine_info != compared_benchmark["machine_info"]:
        raise pytest.UsageError(
            "the last saved run is of another CPU, system or Python: 'make bench-save' saves one here"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for every benchmark that states a ratio, with its limit if it has one."""
    session: Any = getattr(config, "_benchmarksession", None)
    rows = [each for each in getattr(session, "benchmarks", ()) if "ratio" in each.extra_info]
    if rows:
        terminalreporter.section("ratios")
        terminalreporter.line("ratio  limit")
    for each in rows:
        ratio, limit = each.extra_info["ratio"], each.extra_info["limit"]
        over = "  OVER" if limit and ratio > limit else ""
        terminalreporter.line(f"{ratio:5.2f}  {limit or '-':>5}  {each.name}{over}")
