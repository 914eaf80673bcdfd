"""report: what results files say, as a page."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..files import check_target, writing_text
from .common import DONE


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "report",
        help="make a page of results: who finds the largest margins, how fast, who fails",
        description="Make a page that needs nothing but a browser, or the same in Markdown, and print its verdict.",
    )
    command.add_argument("files", metavar="FILE", nargs="+", help="results files; and JSON of pytest-benchmark")
    command.add_argument("-o", "--output", metavar="FILE", help="where to write (report.html, report.md); - prints")
    command.add_argument("--format", choices=("html", "md"), help="by default what the output's name says")
    command.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    from ..report import HTML, MARKDOWN, contents, html, markdown, read, verdict  # noqa: PLC0415 (slow to import)

    suffix = Path(options.output or "").suffix
    form = options.format or ("md" if suffix == ".md" else "html")
    kind = MARKDOWN if form == "md" else HTML
    target = Path(options.output or f"report.{form}")
    if options.output != "-":
        # Before the files are read, which may take long.
        check_target(target, kind)
    results = read(options.files)
    found = contents(results)
    text = (markdown if form == "md" else html)(results, found)
    if options.output == "-":
        sys.stdout.write(text)
        return DONE
    with writing_text(target, kind) as file:
        file.write(text)
    print("\n".join(verdict(found)))
    print(f"{target}: {len(results.rows)} runs, {len(text.encode(errors='replace')) / 1e6:.1f} MB")
    return DONE
