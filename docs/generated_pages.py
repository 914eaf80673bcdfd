"""Text of the site that is made from the code. A line `<!-- generated: NAME -->` of a page becomes GENERATED[NAME]().

To add generated text, write a function that returns Markdown and name it in GENERATED.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from numpydoc.docscrape import NumpyDocString

from qcqpbench.analysis.leaderboard import leaderboard
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.cli.main import every_command
from qcqpbench.results.export import ADDED_COLUMNS
from qcqpbench.results.row import COLUMNS, STORED_TYPES, Row
from qcqpbench.run.attempt import RunValues
from qcqpbench.run.run_spec import OPTIONS, RunOptions
from qcqpbench.run.verify import Finding

ROOT = Path(__file__).parents[1]


def result_columns() -> str:
    """Return the table of the columns of rows, from the docstrings of the classes that declare them."""
    described: dict[str, tuple[str, str]] = {}
    owners = ((Row, "Attributes"), (RunOptions, "Parameters"), (RunValues, "Attributes"), (Finding, "Attributes"))
    for owner, section in owners:
        for entry in NumpyDocString(owner.__doc__ or "")[section]:
            described[entry.name] = (entry.type, " ".join(entry.desc).replace("``", "`"))
    lines = [_line("column", "type", "unit", "meaning"), _line(*["---"] * 4)]
    for name in COLUMNS:
        if name not in described:
            raise KeyError(f"the column {name} must have an entry in the docstring of its class")
        unit, meaning = described[name]
        kind, may_be_missing = STORED_TYPES.get(name, (dict, name == "details"))
        if kind in (int, float) and not unit:
            raise KeyError(f"the column {name} must have a unit in the docstring of its class")
        type_name = {int: "integer", float: "number", str: "text", dict: "JSON"}[kind]
        lines.append(_line(f"`{name}`", type_name + (", or missing" if may_be_missing else ""), unit or "–", meaning))
    return "\n".join(lines)


def export_columns() -> str:
    """Return the table of the columns that exports and data frames add to those of rows."""
    rows = [_line(f"`{name}`", meaning) for name, meaning in ADDED_COLUMNS.items()]
    return "\n".join([_line("column", "meaning"), _line("---", "---"), *rows])


def status_values() -> str:
    """Return the table of the values of the columns that hold enums."""
    lines = [_line("column", "value", "meaning"), _line(*["---"] * 3)]
    for name, values in (("termination", Termination), ("point_status", PointStatus), ("scope", Scope)):
        lines += [_line(f"`{name}`", f"`{member}`", member.message) for member in values]
    return "\n".join(lines)


def suite_settings() -> str:
    """Return the table of the settings of suite files."""
    lines = [_line("key", "value", "default", "meaning"), _line(*["---"] * 4)]
    lines.append(_line("`starts`", "a whole number, at least 1", "1", "number of random starts per solver and problem"))
    defaults = RunOptions()
    for name, facts in OPTIONS.items():
        value = getattr(defaults, name)
        default = "none" if value is None or value == float("inf") else f"{value:g}"
        unit = f"a number of {facts.metavar}" if facts.scale != 1 else facts.requirement
        lines.append(_line(f"`{facts.setting}`", unit, default, facts.help))
    return "\n".join(lines)


def command_line() -> str:
    """Return a section for each command, from the parser of the command line."""
    return "\n\n".join(_command(name, parser, summary) for name, (parser, summary) in every_command().items())


def _command(name: str, parser: argparse.ArgumentParser, summary: str) -> str:
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=84)
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    about = parser.description or f"{summary[0].upper()}{summary[1:]}."
    parts = [f"## {name}", _text(about), f"```text\n{usage}\n```"]
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        words = action.option_strings or [action.metavar or action.dest]
        value = "" if action.nargs == 0 or not action.option_strings else f" {_metavar(action)}"
        rows.append(_line(", ".join(f"`{word}{value}`" for word in words), _text(action.help or "")))
    if rows:
        parts.append("\n".join([_line("argument", "meaning"), _line("---", "---"), *rows]))
    return "\n\n".join(parts)


def _metavar(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or [action.dest.upper()])


def _text(text: str) -> str:
    """Return help of argparse as Markdown: options and specs as code."""
    parts = text.replace("%%", "%").split("`")
    parts[::2] = [re.sub(r"(?<![\w-])(--[\w-]+|\w+\[[^\]]*\]|-[a-z](?=[ ,.)]))", r"`\1`", part) for part in parts[::2]]
    return "`".join(parts)


def _line(*cells: str) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _page_outside(name: str) -> Callable[[], str]:
    """Return a function that returns a page from outside docs/, with its links as seen from docs/development."""

    def text() -> str:
        content = (ROOT / name).read_text(encoding="utf-8").partition("\n")[2]
        return re.sub(r"\]\(docs/", "](../", content)

    return text


def submitted_results() -> str:
    """Return the tables of the leaderboard."""
    return leaderboard(ROOT / "docs" / "results" / "submissions")


GENERATED: dict[str, Callable[[], str]] = {
    "result-columns": result_columns,
    "export-columns": export_columns,
    "status-values": status_values,
    "suite-settings": suite_settings,
    "command-line": command_line,
    "leaderboard": submitted_results,
    "contributing": _page_outside("CONTRIBUTING.md"),
    "changelog": _page_outside("CHANGELOG.md"),
}
