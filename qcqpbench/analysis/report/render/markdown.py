"""Rendering of a report as Markdown: verdict and tables with one line per row, so that diff can compare reports."""

import re
from typing import Any

from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import Results
from qcqpbench.analysis.report.numbers.tables import ReportTable, cell_text, tables
from qcqpbench.analysis.report.numbers.verdict import verdict
from qcqpbench.atomic_files import magic

# Only a file that starts like this is overwritten by a report.
KIND = magic("a Markdown report of qcqpbench", b"# qcqpbench report\n")


def markdown(results: Results, numbers: dict[str, Any] | None = None) -> str:
    """Return the Markdown text of a report.

    Parameters
    ----------
    results
        The input of the report.
    numbers
        The `contents` of `results`, if already computed.
    """
    numbers = numbers or contents(results)
    lines = [
        "# qcqpbench report",
        "",
        f"{len(results.rows)} runs on {numbers['problems']} problems; {numbers['limits']}.",
        "",
        "## Verdict",
        "",
        *(f"- {_escape(sentence)}" for sentence in verdict(numbers)),
    ]
    for table in tables(numbers):
        lines += ["", *_table(table)]
    for number, machine in enumerate(numbers["machines"], 1):
        lines += ["", f"## Machine {number}", ""]
        lines += [f"- {_escape(fact)}" for fact in (*machine["commands"], *machine_facts(machine["facts"]))]
    lines += [
        "",
        "To repeat the run with start number k: "
        "qcqpbench run smoke -p PROBLEM -s SETTINGS -r k+1 --timeout S -o again.db",
    ]
    return "\n".join(lines) + "\n"


def machine_facts(facts: dict[str, Any]) -> list[str]:
    """Return the facts of a machine as texts, package versions last."""
    packages = facts.get("packages") or {}
    others = {key: value for key, value in facts.items() if key not in ("packages", "thread_variables")}
    versions = {key: value for key, value in packages.items() if value} if isinstance(packages, dict) else {}
    return [f"{key} {cell_text(value)}" for key, value in {**others, **versions}.items() if value not in (None, "")]


def _table(table: ReportTable) -> list[str]:
    head = [f"## {table.title}", ""] + ([table.note, ""] if table.note else [])
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    return head + ["| " + " | ".join(_escape(cell_text(cell)) for cell in line) + " |" for line in lines]


def _escape(text: str) -> str:
    """Escape a text so that Markdown and HTML display it literally, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
