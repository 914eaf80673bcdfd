"""Rendering of a report as a self-contained HTML file: inline styles, scripts and JSON data, no requests."""

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import Results
from qcqpbench.analysis.report.numbers.tables import MAX_CELL_CHARACTERS, ReportTable, cell_text, tables
from qcqpbench.analysis.report.numbers.verdict import verdict
from qcqpbench.atomic_files import text_matching
from qcqpbench.results.store import Row

from .markdown import machine_facts

# Only a file that looks like this is overwritten by a report.
KIND = text_matching("an HTML report of qcqpbench", r"\A\s*<!doctype html>[^\0]{0,2000}<title>qcqpbench report</title>")
# Longer cells are wrapped.
_MAX_LINE_CHARACTERS = 70
_MAX_ROW_TEXT_CHARACTERS = 300
_SCRIPTS = ("dom.js", "plot.js", "table.js", "page.js")
_TEXT_COLUMNS = ("label", "solver", "problem_label", "problem", "termination", "point_status", "message", "version")
_NUMBER_COLUMNS = (
    *("start", "seed", "kappa_bar", "objective", "bound", "violation", "relative_violation", "build_seconds"),
    *("solve_seconds", "peak_memory_bytes", "iterations", "time_limit", "memory_limit", "threads", "machine"),
)


def html(results: Results, numbers: dict[str, Any] | None = None) -> str:
    """Return the HTML page of a report.

    Parameters
    ----------
    results
        The input of the report.
    numbers
        The `contents` of `results`, if already computed.
    """
    numbers = numbers or contents(results)
    parts = _parts(results, numbers)
    is_shown = {"tasks": bool(numbers["tasks"]), "general": bool(numbers["general"]["problems"])}
    page = re.sub(
        r"<!--(\w+)-->(.*?)<!--end-->", lambda part: part[2] * is_shown[part[1]], _file("page.html"), flags=re.S
    )
    # All placeholders are replaced in one pass, because inserted text may itself contain braces.
    first, *pieces = page.split("{{")
    filled = [parts.get(name, "") + rest for name, _, rest in (piece.partition("}}") for piece in pieces)]
    return first + "".join(filled)


def _parts(results: Results, numbers: dict[str, Any]) -> dict[str, str]:
    """Return the text that replaces each placeholder of the page, by its name."""
    data = {
        **{name: numbers[name] for name in ("solvers", "capacity", "sizes", "anytime", "profiles")},
        "limits": numbers["task_limits"],
        "general": {name: numbers["general"][name] for name in ("limits", "profiles")},
        "rows": _rows(results.rows, numbers["false_rows"]),
    }
    return {f"table-{table.id}": _table(table) for table in tables(numbers)} | {
        "style": _file("style.css"),
        "script": "\n".join(map(_file, _SCRIPTS)),
        "data": _json(data),
        "about": escape(
            f"{len(results.rows)} runs on {numbers['problems']} problems, from {', '.join(results.files)}. "
            f"Limits: {numbers['limits']}."
        ),
        "verdict": "".join(f"<li>{escape(sentence)}</li>" for sentence in verdict(numbers)),
        "machines": "".join(map(_machine, numbers["machines"])),
    }


def _machine(machine: dict[str, Any]) -> str:
    commands = "".join(f"<code>{escape(str(command))}</code><br>" for command in machine["commands"])
    return f"<li>{commands}{escape(', '.join(machine_facts(machine['facts'])))}</li>"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """Return JSON that is safe in a script element: it cannot end the element or start a comment."""
    text = json.dumps(_compact(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _compact(value: Any) -> Any:
    """Return a copy of a JSON value with floats rounded to six digits, None for infinite or NaN, and shortened text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return value[:MAX_CELL_CHARACTERS]
    if isinstance(value, dict):
        return {key: _compact(item) for key, item in value.items()}
    return [_compact(item) for item in value] if isinstance(value, list | tuple) else value


def _rows(rows: Sequence[Row], false_rows: Collection[int]) -> dict[str, Any]:
    """Return the values of the rows by column, and as "false" the indices of the rows with a false claim."""
    columns: dict[str, Any] = {
        name: _coded(str(row.get(name) or "")[:_MAX_ROW_TEXT_CHARACTERS] for row in rows) for name in _TEXT_COLUMNS
    }
    columns |= {name: [row[name] for row in rows] for name in _NUMBER_COLUMNS}
    return {**columns, "false": list(false_rows)}


def _coded(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Return the distinct texts as "words", and the index of each text among them as "index"."""
    codes: dict[str, int] = {}
    index = [codes.setdefault(text, len(codes)) for text in texts]
    return {"words": list(codes), "index": index}


def _table(table: ReportTable) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table" data-name="{escape(table.id)}"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _cell(value: Any) -> str:
    text = cell_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number" data-value="{_number(value)}">{escape(text)}</td>'
    return f"<td{' class=long' if len(text) > _MAX_LINE_CHARACTERS else ''}>{escape(text)}</td>"


def _number(value: float) -> str:
    """Return a number as a JavaScript literal."""
    return f"{value!r}" if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
