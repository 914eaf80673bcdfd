"""The report as one HTML file: the numbers as JSON, the styles and the scripts inside it, nothing from elsewhere."""

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from qcqpbench.analysis.metrics import Row
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import Results
from qcqpbench.analysis.report.numbers.tables import MAX_CELL_CHARACTERS, ReportTable, show, tables
from qcqpbench.analysis.report.numbers.verdict import verdict
from qcqpbench.atomic_files import text_matching

from .markdown import machine

# What a file must look like to be replaced by a page.
KIND = text_matching("an HTML report of qcqpbench", r"\A\s*<!doctype html>[^\0]{0,2000}<title>qcqpbench report</title>")
# Characters of a cell that may take more than a line.
_LONG = 70
_SCRIPTS = ("plot.js", "table.js", "page.js")
_WORDS = ("label", "solver", "problem_label", "problem", "termination", "point_status", "message", "version")
_NUMBERS = (
    *("start", "seed", "kappa_bar", "objective", "bound", "violation", "relative_violation", "build_seconds"),
    *("solve_seconds", "peak_memory_bytes", "iterations", "time_limit", "memory_limit", "threads", "machine"),
)


def html(results: Results, found: dict[str, Any] | None = None) -> str:
    """The page; found: the contents of the results, if they are known."""
    found = found or contents(results)
    data = {
        **{name: found[name] for name in ("solvers", "capacity", "sizes", "anytime", "profiles")},
        "limits": found["task_limits"],
        "general": {name: found["general"][name] for name in ("limits", "profiles")},
        "rows": _rows(results.rows, found["false_rows"]),
    }
    parts = {f"table-{table.id}": _table(table) for table in tables(found)} | {
        "style": _file("style.css"),
        "script": "\n".join(map(_file, _SCRIPTS)),
        "data": _json(data),
        "about": escape(
            f"{len(results.rows)} runs on {found['problems']} problems, from {', '.join(results.files)}. "
            f"Limits: {found['limits']}."
        ),
        "verdict": "".join(f"<li>{escape(sentence)}</li>" for sentence in verdict(found)),
        "machines": "".join(
            f"<li>{''.join(f'<code>{escape(str(command))}</code><br>' for command in each['commands'])}"
            f"{escape(', '.join(machine(each['facts'])))}</li>"
            for each in found["machines"]
        ),
    }
    # In one pass: what is put in is not looked at again.
    shown = {"tasks": bool(found["tasks"]), "general": bool(found["general"]["problems"])}
    page = re.sub(r"<!--(\w+)-->(.*?)<!--end-->", lambda part: part[2] * shown[part[1]], _file("page.html"), flags=re.S)
    first, *pieces = page.split("{{")
    filled = [parts.get(name, "") + rest for name, _, rest in (piece.partition("}}") for piece in pieces)]
    return first + "".join(filled)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    """Return a value with floats to six digits, null for what is not finite, and text of limited length."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return value[:MAX_CELL_CHARACTERS]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _rows(rows: Sequence[Row], false: Collection[int]) -> dict[str, Any]:
    """By column; words as numbers of a list of them. false: the rows whose claim is refuted."""
    columns: dict[str, Any] = {name: _coded(str(row.get(name) or "")[:300] for row in rows) for name in _WORDS}
    columns |= {name: [row[name] for row in rows] for name in _NUMBERS}
    return {**columns, "false": list(false)}


def _coded(words: Iterable[str]) -> dict[str, list[Any]]:
    known: dict[str, int] = {}
    index = [known.setdefault(word, len(known)) for word in words]
    return {"words": list(known), "index": index}


def _table(table: ReportTable) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table" data-name="{escape(table.id)}"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number" data-value="{_number(value)}">{escape(show(value))}</td>'
    text = show(value)
    return f"<td{' class=long' if len(text) > _LONG else ''}>{escape(text)}</td>"


def _number(value: float) -> str:
    """Return a number as JavaScript reads it."""
    return f"{value!r}" if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
