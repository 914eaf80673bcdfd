"""Commands `figures` and `study`: draw the figures of the paper and of further studies."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qcqpbench.analysis.figures.base import Figure, MeasuredRow, count_replaced, measured, mixed_versions
from qcqpbench.analysis.figures.index import FIGURES
from qcqpbench.analysis.figures.style import FORMATS, prepare, save
from qcqpbench.analysis.studies.index import STUDIES
from qcqpbench.errors import nearest, require
from qcqpbench.results.store import Store
from qcqpbench.run.suite import Suite

from .common import DONE, INTERRUPTED, rows_in_words
from .running import run_suite


def add_commands(commands: Any) -> None:
    """Add the commands `figures` and `study` to the subparsers `commands`."""
    command = commands.add_parser(
        "figures",
        help="run the solvers for the paper's figures and draw them",
        description="Run the suites of the paper's figures and draw theory and measured points as PDF, SVG and PNG, "
        "with the numbers as CSV. Runs are stored in FOLDER/results.db, so the same command resumes after an "
        "interruption. All figures take hours, with --quick less than three minutes on two cores.",
    )
    command.add_argument("names", metavar="NAME", nargs="*", help=f"{', '.join(FIGURES)} (default: all)")
    _add_options(command, "figures")
    command.set_defaults(command=lambda options: _draw(FIGURES, "figures", options))

    command = commands.add_parser(
        "study",
        help="run a study and draw its figures",
        description="Run a study and draw its figures as PDF, SVG and PNG, with the numbers as CSV. Runs are stored in "
        "FOLDER/results.db, so the same command resumes after an interruption. finite-size: do the margins tend to the "
        "predictions of theory (full RSB, replica symmetry) as m grows? It takes about two hours on two cores, with "
        "--quick about a minute.",
    )
    command.add_argument("study", metavar="STUDY", help=", ".join(STUDIES))
    names = "; ".join(f"of {study}: {', '.join(figures)}" for study, figures in STUDIES.items())
    command.add_argument("names", metavar="NAME", nargs="*", help=f"figures, {names} (default: all)")
    _add_options(command, "STUDY")
    command.set_defaults(command=_study)


def _add_options(command: argparse.ArgumentParser, folder: str) -> None:
    command.add_argument("--quick", action="store_true", help="run smaller and fewer problems")
    command.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help=f"the folder to write to (default: {folder}, with --quick {folder}-quick)",
    )
    command.add_argument("-r", "--results", metavar="FILE", help="draw the rows of this results file, run nothing")
    command.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="number of simultaneous runs (default: one per CPU)"
    )


def _study(options: argparse.Namespace) -> int:
    if options.study not in STUDIES:
        raise nearest(options.study, STUDIES, "study")
    return _draw(STUDIES[options.study], options.study, options)


def _draw(figures: Mapping[str, Figure], folder_name: str, options: argparse.Namespace) -> int:
    for name in options.names:
        if name not in figures:
            raise nearest(name, figures, "figure")
    folder = Path(options.output or (f"{folder_name}-quick" if options.quick else folder_name))
    prepare(folder)
    results = Path(options.results or folder / "results.db")
    # The figures of a study share a suite, so the rows are read once per suite.
    rows_by_suite: dict[Any, list[MeasuredRow]] = {None: []}
    for name in dict.fromkeys(options.names or figures):
        figure = figures[name]
        if figure.suite is not None and figure.suite not in rows_by_suite:
            suite = figure.suite(options.quick)
            title = f"{suite.name or name} → {results}"
            if not options.results and run_suite(str(results), suite, title, options.jobs) == INTERRUPTED:
                return INTERRUPTED
            rows_by_suite[figure.suite] = _read_rows(results, suite)
        _draw_figure(name, figure, rows_by_suite[figure.suite], results, folder)
    return DONE


def _read_rows(results: Path, suite: Suite) -> list[MeasuredRow]:
    """Return the rows of a suite's runs, and print the number of rows left out."""
    with Store(results) as store:
        rows = measured(store, suite)
        if count := count_replaced(store, suite):
            print(f"{results}: {rows_in_words(count)} left out: replaced by newer rows of the same runs")
    return rows


def _draw_figure(name: str, figure: Figure, rows: list[MeasuredRow], results: Path, folder: Path) -> None:
    has_points = figure.suite is None or any(row.point is not None for row in rows)
    require(has_points, f"{results}: must hold a run with a point for the figure {name}, got none")
    data = figure.data(rows)
    if note := mixed_versions(rows):
        data = replace(data, caption=f"{data.caption} {note}")
    save(figure, data, folder)
    print(f"{folder / name}: {', '.join(FORMATS)}, csv", flush=True)
