"""figures: the paper's figures, computed anew."""

import argparse
from pathlib import Path
from typing import Any

from ..errors import require
from ..figures import FIGURES, FORMATS, measured, prepare, save
from ..spec import nearest
from ..store import Row, Store
from .common import DONE, INTERRUPTED
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
    command.add_argument("--quick", action="store_true", help="smaller problems, and fewer of them")
    command.add_argument("-o", "--output", metavar="FOLDER", help="where to write (figures, quick ones figures-quick)")
    command.add_argument("-r", "--results", metavar="FILE", help="run nothing, draw what is in this results file")
    command.add_argument("-j", "--jobs", type=int, metavar="N", help="runs at a time (as many as there are CPUs)")
    command.set_defaults(command=_figures)


def _figures(options: argparse.Namespace) -> int:
    for name in options.names:
        if name not in FIGURES:
            raise nearest(name, FIGURES, "figure")
    folder = Path(options.output or ("figures-quick" if options.quick else "figures"))
    prepare(folder)
    results = Path(options.results or folder / "results.db")
    for name in dict.fromkeys(options.names or FIGURES):
        figure = FIGURES[name]
        rows: list[Row] = []
        if figure.suite is not None:
            suite = figure.suite(options.quick)
            title = f"{name} → {results}"
            if not options.results and fill(str(results), suite, title, options.jobs) == INTERRUPTED:
                return INTERRUPTED
            with Store(results) as store:
                rows = measured(store, suite)
            found = any(row["point"] is not None for row in rows)
            require(found, f"{results}: has no run with a point for the figure {name}")
        save(figure, figure.data(rows), folder)
        print(f"{folder / name}: {', '.join(FORMATS)}, csv", flush=True)
    return DONE
