from typing import Any

import pytest


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
