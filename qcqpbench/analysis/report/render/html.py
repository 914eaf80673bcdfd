"""Rendering of a report as a self-contained HTML file: inline styles, scripts and JSON data, no requests."""

import json
import math
from collections.abc import Collection, Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, get_args

from qcqpbench.analysis.report.numbers.contents import ReportContents, contents
from qcqpbench.analysis.report.numbers.sources import ReportInput
from qcqpbench.analysis.report.plot import Axis, Band, Menu, Plot, Section, Series
from qcqpbench.analysis.report.plots import missing_plots, plots
from qcqpbench.analysis.report.table import MAX_CELL_CHARACTERS, cell_text
from qcqpbench.analysis.report.tables.index import all_tables
from qcqpbench.analysis.report.verdict import left_out, verdict
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.atomic_files import text_matching

from .markdown import about, machine_facts

if TYPE_CHECKING:
    from jinja2 import Template

# Only a file that looks like this is overwritten by a report.
KIND = text_matching("an HTML report of qcqpbench", r"\A\s*<!doctype html>[^\0]{0,2000}<title>qcqpbench report</title>")
# Longer cells are wrapped.
_MAX_LINE_CHARACTERS = 70
_MAX_ROW_TEXT_CHARACTERS = 300
_SCRIPTS = ("dom.js", "plot.js", "table.js", "page.js")
_TEXT_COLUMNS = ("label", "solver", "problem_label", "problem", "termination", "point_status", "message", "version")
_NUMBER_COLUMNS = (
    *("start", "start_seed", "kappa_bar", "objective", "bound", "violation", "relative_violation", "build_seconds"),
    *("solve_seconds", "peak_memory_bytes", "iterations", "time_limit", "memory_limit_bytes", "threads"),
    "machine_number",
)
_SERIES_COLUMNS, _BAND_COLUMNS = ("x", "y", "low", "high", "hollow", "notes"), ("x", "low", "high", "notes")


def html(results: ReportInput, numbers: ReportContents | None = None) -> str:
    """Return the HTML page of a report.

    Parameters
    ----------
    results
        The input of the report.
    numbers
        The `contents` of `results`, if already computed.
    """
    from markupsafe import Markup  # noqa: PLC0415 (only reports need it)

    numbers = numbers or contents(results)
    drawn = plots(numbers)
    data = {
        "solvers": [
            {"name": solver.name, "hint": f"{solver.spec}\n{solver.limits}"}
            for solver in numbers.solvers
            if solver.competes
        ],
        **_plot_data(drawn),
        "rows": _rows(results.rows, numbers.false_rows),
    }
    # Markup is inserted as it is; everything else is escaped.
    return template("page.html").render(
        style=Markup(page_file("style.css")),
        script=Markup("\n".join(map(page_file, _SCRIPTS))),
        data=Markup(_json(data)),
        about=f"{about(numbers, len(results.rows))} From {', '.join(results.files)}.",
        has_runs=bool(results.rows),
        verdict=verdict(numbers),
        left_out=left_out(numbers, missing_plots(numbers)),
        figures={section: _first_plots(drawn, section) for section in get_args(Section)},
        tables={table.id: table for table in all_tables(numbers)},
        machines=numbers.machines,
    )


def template(name: str) -> "Template":
    """Return a template of the page, in which unknown names are errors and values are escaped."""
    import jinja2  # noqa: PLC0415 (only reports need it)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(page_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(text=cell_text, literal=_number, machine_facts=machine_facts)
    environment.tests.update(long=lambda text: len(text) > _MAX_LINE_CHARACTERS)
    return environment.get_template(name)


def page_file(name: str) -> str:
    """Return the text of a file of the page."""
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _number(value: float) -> str:
    """Return a number as a JavaScript literal."""
    return f"{value!r}" if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


# --- data of the scripts ---


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


def _first_plots(drawn: Iterable[Plot], section: str) -> list[Plot]:
    """Return the first plot of each figure of a section."""
    first: dict[str, Plot] = {}
    for plot in drawn:
        if plot.section == section:
            first.setdefault(plot.id, plot)
    return list(first.values())


def _plot_data(drawn: Sequence[Plot]) -> dict[str, Any]:
    """Return the plots and their menus as JSON values; columns of series are positions in "arrays"."""
    positions: dict[tuple[Any, ...], int] = {}

    def columns(line: Series | Band, names: Iterable[str]) -> dict[str, int]:
        # Truth values as numbers: (True,) and (1,) would share a position.
        values = {name: tuple(int(v) if isinstance(v, bool) else v for v in getattr(line, name)) for name in names}
        return {
            name: positions.setdefault(column, len(positions))
            for name, column in values.items()
            if column or name in ("x", "y")
        }

    plot_values = [
        {
            **{name: getattr(plot, name) for name in ("id", "title", "note")},
            "x": _axis(plot.x),
            "y": _axis(plot.y),
            "series": [
                {"name": line.name, "kind": line.kind, "solver": line.solver, **columns(line, _SERIES_COLUMNS)}
                for line in plot.series
            ],
            "bands": [{"name": band.name, **columns(band, _BAND_COLUMNS)} for band in plot.bands],
            "choices": [(menu.id, option) for menu, option in plot.choices],
        }
        for plot in drawn
    ]
    sections: dict[Menu, str] = {}
    for plot in drawn:
        for menu, _ in plot.choices:
            sections.setdefault(menu, plot.section)
    return {
        "plots": plot_values,
        "menus": [
            {"id": menu.id, "label": menu.label, "first": menu.first, "section": section}
            for menu, section in sections.items()
        ],
        "arrays": list(positions),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    """Return the values of an axis, without None and without ticks if there are none."""
    return {name: value for name, value in vars(axis).items() if value is not None and value != ()}


def _rows(rows: Sequence[ReportRow], false_rows: Collection[int]) -> dict[str, Any]:
    """Return the values of the rows by column, and as "false" the indices of the rows with a false claim."""
    columns: dict[str, Any] = {
        name: _coded(str(getattr(row, name) or "")[:_MAX_ROW_TEXT_CHARACTERS] for row in rows) for name in _TEXT_COLUMNS
    }
    columns |= {name: [getattr(row, name) for row in rows] for name in _NUMBER_COLUMNS}
    return {**columns, "false": list(false_rows)}


def _coded(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Return the distinct texts as "words", and the index of each text among them as "index"."""
    codes: dict[str, int] = {}
    index = [codes.setdefault(text, len(codes)) for text in texts]
    return {"words": list(codes), "index": index}
