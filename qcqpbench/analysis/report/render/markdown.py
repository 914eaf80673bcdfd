"""The report in Markdown: the verdict and the tables, a line per row, so that two reports can be compared with diff."""

import re
from typing import Any

from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import Results
from qcqpbench.analysis.report.numbers.tables import ReportTable, show, tables
from qcqpbench.analysis.report.numbers.verdict import verdict
from qcqpbench.atomic_files import magic

# What a file must look like to be replaced by a report.
KIND = magic("a Markdown report of qcqpbench", b"# qcqpbench report\n")


def markdown(results: Results, found: dict[str, Any] | None = None) -> str:
    """The text; found: the contents of the results, if they are known."""
    found = found or contents(results)
    lines = [
        "# qcqpbench report",
        "",
        f"{len(results.rows)} runs on {found['problems']} problems; {found['limits']}.",
        "",
        "## Verdict",
        "",
        *(f"- {_safe(sentence)}" for sentence in verdict(found)),
    ]
    for table in tables(found):
        lines += ["", *_table(table)]
    for number, each in enumerate(found["machines"], 1):
        lines += ["", f"## Machine {number}", ""]
        lines += [f"- {_safe(fact)}" for fact in (*each["commands"], *machine(each["facts"]))]
    lines += [
        "",
        "One row again, with start number k: qcqpbench run smoke -p PROBLEM -s SETTINGS -r k+1 --timeout S -o again.db",
    ]
    return "\n".join(lines) + "\n"


def machine(facts: dict[str, Any]) -> list[str]:
    """What is known of a machine, versions of packages at the end."""
    packages = facts.get("packages") or {}
    rest = {key: value for key, value in facts.items() if key not in ("packages", "thread_variables")}
    versions = {key: value for key, value in packages.items() if value} if isinstance(packages, dict) else {}
    return [f"{key} {show(value)}" for key, value in {**rest, **versions}.items() if value not in (None, "")]


def _table(table: ReportTable) -> list[str]:
    head = [f"## {table.title}", ""] + ([table.note, ""] if table.note else [])
    lines = [table.columns, tuple("---" for _ in table.columns), *table.rows]
    return head + ["| " + " | ".join(_safe(show(cell)) for cell in line) + " |" for line in lines]


def _safe(text: str) -> str:
    """Text that Markdown shows as it is, also where HTML would do something."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
