"""Rendering of a report as Markdown: verdict and tables with one line per row, so that diff can compare reports."""

import re
from dataclasses import fields

from qcqpbench.analysis.report.numbers.contents import ReportContents, contents
from qcqpbench.analysis.report.numbers.sources import ReportInput
from qcqpbench.analysis.report.table import ReportTable, cell_text
from qcqpbench.analysis.report.tables.index import tables
from qcqpbench.analysis.report.verdict import left_out, verdict
from qcqpbench.atomic_files import magic
from qcqpbench.catalog.machine import Machine

# Only a file that starts like this is overwritten by a report.
KIND = magic("a Markdown report of qcqpbench", b"# qcqpbench report\n")


def markdown(results: ReportInput, numbers: ReportContents | None = None) -> str:
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
        about(numbers, len(results.rows)),
        "",
        "## Verdict",
        "",
        *(f"- {escape(sentence)}" for sentence in verdict(numbers)),
    ]
    for table in tables(numbers):
        lines += ["", *markdown_table(table)]
    if omissions := left_out(numbers):
        lines += ["", "## What was left out", "", *(f"- {escape(sentence)}" for sentence in omissions)]
    for number, machine in enumerate(numbers.machines, 1):
        lines += ["", f"## Machine {number}", ""]
        lines += [f"- {escape(fact)}" for fact in (*machine.commands, *machine_facts(machine.facts))]
    lines += [
        "",
        "To repeat the run with start number k: "
        "qcqpbench run smoke -p PROBLEM -s SETTINGS -r k+1 --timeout S -o again.db",
    ]
    return "\n".join(lines) + "\n"


def about(numbers: ReportContents, run_count: int) -> str:
    """Return a sentence with the number of runs and problems, and the limits."""
    runs = f"{run_count} run{'s' * (run_count != 1)}"
    problems = f"{numbers.problems} problem{'s' * (numbers.problems != 1)}"
    return f"{runs} on {problems}; {numbers.limits}." if run_count else "No runs."


def machine_facts(machine: Machine) -> list[str]:
    """Return the known facts of a machine as texts, package versions last."""
    names = [field.name for field in fields(machine) if field.name not in ("packages", "thread_variables")]
    facts = {name: getattr(machine, name) for name in names} | dict(machine.packages)
    return [f"{name} {cell_text(value)}" for name, value in facts.items() if value not in (None, "")]


def markdown_table(table: ReportTable) -> list[str]:
    """Return the lines of a table with its title and note."""
    head = [f"## {escape(table.title)}", ""] + ([table.note, ""] if table.note else [])
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    return head + ["| " + " | ".join(escape(cell_text(cell)) for cell in line) + " |" for line in lines]


def escape(text: str) -> str:
    """Escape a text so that Markdown and HTML display it literally, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
