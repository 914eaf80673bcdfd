"""Comparisons as Markdown, HTML and JSON."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qcqpbench.analysis.report.numbers.facts import limits
from qcqpbench.analysis.report.render.html import page_file, template
from qcqpbench.analysis.report.render.markdown import escape, markdown_table
from qcqpbench.analysis.report.table import ReportTable
from qcqpbench.analysis.rows import labels_of_problems
from qcqpbench.atomic_files import Kind, magic, text_matching, writing_text
from qcqpbench.errors import require

from .comparison import Comparison, Measure, SolverComparison
from .measures import InstanceValues
from .sentences import NAMES, conventions, signed
from .sides import Side

_TITLE = "qcqpbench comparison"
_COLUMNS = ("quantity", "verdict", "instances", "first", "second", "difference or ratio", "interval", "wins", "ties",
            "losses", "p")  # fmt: skip
_INSTANCE_COLUMNS = ("quantity", "problem", "starts", "first", "second", "difference or ratio")
# Markdown and HTML list the instances with the largest losses; JSON lists all.
_MAX_LISTED = 10
# Only a file that looks like this is overwritten by a comparison.
KINDS: Mapping[str, Kind] = {
    "md": magic("a Markdown comparison of qcqpbench", f"# {_TITLE}\n".encode()),
    "html": text_matching(
        "an HTML comparison of qcqpbench", rf"\A\s*<!doctype html>[^\0]{{0,2000}}<title>{_TITLE}</title>"
    ),
    "json": text_matching("a JSON comparison of qcqpbench", rf'\A\{{\s*"title": "{_TITLE}"'),
}


def write(comparison: Comparison, path: Path, form: str | None = None) -> None:
    """Write a comparison to a file in the format `form`, by default that of the suffix of `path`."""
    form = form or path.suffix.removeprefix(".")
    require(form in RENDERERS, f"path must be a .md, .html or .json file, got {str(path)!r}")
    with writing_text(path, KINDS[form]) as file:
        file.write(RENDERERS[form](comparison))


# --- Markdown and HTML ---


def _markdown(comparison: Comparison) -> str:
    lines = [f"# {_TITLE}", "", *(f"- {escape(sentence)}" for sentence in comparison.verdict)]
    for index, solver in enumerate(comparison.solvers):
        lines += ["", f"## {escape(solver.title)}", "", *(f"- {escape(text)}" for text in _facts(solver))]
        for table in _tables(solver, index):
            lines += ["", "#" + markdown_table(table)[0], *markdown_table(table)[1:]]
    lines += ["", "## How to read this", ""]
    lines += [f"- {escape(sentence)}" for sentence in (*comparison.left_out, *conventions(comparison))]
    return "\n".join(lines) + "\n"


def _html(comparison: Comparison) -> str:
    from markupsafe import Markup  # noqa: PLC0415 (only pages need it)

    return template("comparison.html").render(
        title=_TITLE,
        style=Markup(page_file("style.css")),
        verdict=comparison.verdict,
        is_loss=comparison.is_loss,
        solvers=[
            {"title": solver.title, "facts": _facts(solver), "tables": _tables(solver, index)}
            for index, solver in enumerate(comparison.solvers)
        ],
        notes=(*comparison.left_out, *conventions(comparison)),
    )


def _facts(solver: SolverComparison) -> list[str]:
    sides = [
        f"{place}{f' ({side.label})' if side.label != side.solver_label else ''}: {side.solver_label}, {side.version}, "
        f"in {side.file}"
        for place, side in (("First", solver.first), ("Second", solver.second))
    ]
    return [*sides, f"Limits: {limits([*solver.first.rows, *solver.second.rows])}", *solver.left_out]


def _tables(solver: SolverComparison, index: int) -> list[ReportTable]:
    labels = labels_of_problems({item.problem for measure in solver.measures for item in measure.instances})
    lines = [
        (NAMES[measure.quantity], labels[item.problem], item.runs, item.first, item.second, _change(measure, item))
        for measure in solver.measures
        for item in measure.instances[: min(measure.losses, _MAX_LISTED)]
    ]
    largest = ReportTable(f"instances-{index}", "Instances with the largest losses", _INSTANCE_COLUMNS, lines)
    return [_measures(solver, index), *([largest] if lines else [])]


def _measures(solver: SolverComparison, index: int) -> ReportTable:
    lines = [
        (NAMES[m.quantity], str(m.verdict), len(m.instances), m.first, m.second, _difference(m), _interval(m), m.wins,
         m.ties, m.losses, m.adjusted_p_value)
        for m in solver.measures
    ]  # fmt: skip
    return ReportTable(f"measures-{index}", f"{solver.second.label} against {solver.first.label}", _COLUMNS, lines)


def _difference(measure: Measure) -> str:
    return f"× {measure.difference:.3g}" if measure.quantity == "seconds" else signed(measure.difference)


def _change(measure: Measure, item: InstanceValues) -> str:
    return f"× {item.second / item.first:.3g}" if measure.quantity == "seconds" else signed(item.difference)


def _interval(measure: Measure) -> str:
    if measure.interval is None:
        return ""
    show = "{:.3g}".format if measure.quantity == "seconds" else signed
    return f"{show(measure.interval.low)} to {show(measure.interval.high)}"


# --- JSON ---


def _json(comparison: Comparison) -> str:
    values = {
        "title": _TITLE,
        "is_loss": comparison.is_loss,
        "verdict": comparison.verdict,
        "effect": comparison.effect,
        "solvers": [
            {
                "title": solver.title,
                "first": _side(solver.first),
                "second": _side(solver.second),
                "measures": [_measure(measure) for measure in solver.measures],
                "left_out": solver.left_out,
            }
            for solver in comparison.solvers
        ],
        "notes": (*comparison.left_out, *conventions(comparison)),
    }
    return json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _side(side: Side) -> dict[str, Any]:
    values = {name: value for name, value in vars(side).items() if name != "rows"}
    return {**values, "runs": len(side.rows)}


def _measure(measure: Measure) -> dict[str, Any]:
    interval = None if measure.interval is None else list(measure.interval)
    return {**vars(measure), "interval": interval, "instances": [vars(item) for item in measure.instances]}


RENDERERS: Mapping[str, Callable[[Comparison], str]] = {"md": _markdown, "html": _html, "json": _json}
