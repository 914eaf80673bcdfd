"""figures, study: the paper's figures, computed anew, and those of studies of our own."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qcqpbench.analysis.figures.base import Figure, count_replaced, measured, mixed_versions
from qcqpbench.analysis.figures.index import FIGURES
from qcqpbench.analysis.figures.style import FORMATS, prepare, save
from qcqpbench.analysis.studies.index import STUDIES
from qcqpbench.errors import nearest, require
from qcqpbench.results.store import Row, Store

from .common import DONE, INTERRUPTED, rows_in_words
from .running import fill


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "figures",
        help="compute and draw the figures of the paper",
        description="Run what the figures of the paper need, and draw them, theory and measured points in one picture, "
        "as PDF, SVG and PNG, with their numbers as CSV. Runs are kept in FOLDER/results.db, so the same command goes "
        "on after an interruption. All figures take hours, with --quick less than three minutes on two cores.",
    )
    command.add_argument("names", metavar="NAME", nargs="*", help=f"{', '.join(FIGURES)} (all)")
    _add_options(command, "figures")
    command.set_defaults(command=lambda options: _draw(FIGURES, "figures", options))

    command = commands.add_parser(
        "study",
        help="run a study and draw its figures",
        description="Run a study, and draw its figures, as PDF, SVG and PNG, with their numbers as CSV. Runs are kept "
        "in FOLDER/results.db, so the same command goes on after an interruption. finite-size: do the margins tend to "
        "theory as m grows? An hour and a half on two cores, with --quick about a minute.",
    )
    command.add_argument("study", metavar="STUDY", help=", ".join(STUDIES))
    names = "; ".join(f"of {study}: {', '.join(figures)}" for study, figures in STUDIES.items())
    command.add_argument("names", metavar="NAME", nargs="*", help=f"figures, {names} (all)")
    _add_options(command, "STUDY")
    command.set_defaults(command=_study)


def _add_options(command: argparse.ArgumentParser, folder: str) -> None:
    command.add_argument("--quick", action="store_true", help="smaller problems, and fewer of them")
    command.add_argument(
        "-o", "--output", metavar="FOLDER", help=f"where to write ({folder}, quick ones {folder}-quick)"
    )
    command.add_argument("-r", "--results", metavar="FILE", help="run nothing, draw what is in this results file")
    command.add_argument("-j", "--jobs", type=int, metavar="N", help="runs at a time (as many as there are CPUs)")


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
    # By the function that makes the suite: figures of a study share their runs.
    rows_of: dict[Any, list[Row]] = {None: []}
    for name in dict.fromkeys(options.names or figures):
        figure = figures[name]
        if figure.suite is not None and figure.suite not in rows_of:
            suite = figure.suite(options.quick)
            title = f"{suite.name or name} → {results}"
            if not options.results and fill(str(results), suite, title, options.jobs) == INTERRUPTED:
                return INTERRUPTED
            with Store(results) as store:
                rows_of[figure.suite] = measured(store, suite)
                if count := count_replaced(store, suite):
                    print(f"{results}: {rows_in_words(count)} left out: replaced by newer rows of the same runs")
        rows = rows_of[figure.suite]
        found = figure.suite is None or any(row["point"] is not None for row in rows)
        require(found, f"{results}: has no run with a point for the figure {name}")
        data = figure.data(rows)
        if note := mixed_versions(rows):
            data = replace(data, caption=f"{data.caption} {note}")
        save(figure, data, folder)
        print(f"{folder / name}: {', '.join(FORMATS)}, csv", flush=True)
    return DONE
