"""Commands `report`, `compare`, `verify`, `merge`, `export`, `submit`, `sysinfo` for results and machine facts."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qcqpbench.catalog.machine import machine
from qcqpbench.catalog.registry import family
from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, require
from qcqpbench.results.export import export
from qcqpbench.results.reverify import Difference, reverify
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import solver_facts

from .common import DONE, FAILED, rows_in_words, shown

if TYPE_CHECKING:
    from qcqpbench.results.public.check_submission import Findings

# The folder of submissions in a checkout.
_SUBMISSIONS = "docs/results/submissions"


def add_commands(commands: Any) -> None:
    """Add the commands that read results files, and `sysinfo`, to the subparsers `commands`."""
    command = commands.add_parser(
        "report",
        help="write a report on results: which solvers find the largest margins, how fast, and which fail",
        description="Write a report as one HTML file that needs no network, or as Markdown, and print its verdict.",
    )
    command.add_argument("files", metavar="FILE", nargs="+", help="results files, and JSON files of pytest-benchmark")
    command.add_argument(
        "-o", "--output", metavar="FILE", help="the report (default: report.html or report.md); - prints it"
    )
    command.add_argument(
        "--format", choices=("html", "md"), help="the format (default: md if the output ends in .md, else html)"
    )
    command.set_defaults(command=_report)

    command = commands.add_parser(
        "compare",
        help="tell whether a solver is better than another, or than its last version",
        description="Compare two sides on the instances that both ran: the solvers of two results files, two solvers, "
        "or two versions of a solver in one file. Print differences with confidence intervals, wins, ties and losses, "
        "and a verdict on the second side. The exit code is 1 if the second side is significantly worse or slower.",
    )
    command.add_argument("files", metavar="FILE", nargs="+", help="one results file, or two: the first and the second")
    command.add_argument(
        "-s",
        "--solver",
        action="append",
        metavar="SOLVER",
        help="the solver, or given twice: the first and the second (default: all that both sides have)",
    )
    command.add_argument(
        "--version",
        action="append",
        dest="versions",
        metavar="TEXT",
        help="given twice: a part of the first and of the second version (default: the newest of each file, or the two "
        "newest of one file)",
    )
    command.add_argument(
        "--label", action="append", metavar="NAME", help="given twice: names for the first and the second"
    )
    command.add_argument(
        "--effect",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="the difference that matters; times that differ by less are not called faster or slower (default: 5)",
    )
    command.add_argument(
        "-o", "--output", metavar="FILE", help="write the comparison to a .md, .html or .json file, print the verdict"
    )
    command.add_argument(
        "--format", choices=("md", "json", "html"), help="the format (default: that of the output's suffix, else md)"
    )
    command.set_defaults(command=_compare)

    command = commands.add_parser("verify", help="rebuild every problem of a results file and re-evaluate its points")
    command.add_argument("file", metavar="FILE", help="a results file")
    command.set_defaults(command=_verify)

    command = commands.add_parser("merge", help="merge results files into one")
    command.add_argument("sources", metavar="FILE", nargs="+", help="results files")
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the results file to add the rows to; created if it is missing",
    )
    command.set_defaults(command=_merge)

    command = commands.add_parser("export", help="write results as a table for other programs")
    command.add_argument("file", metavar="FILE", help="a results file")
    command.add_argument("target", metavar="OUT", help="the table: a .csv or .parquet file")
    command.add_argument("--all", action="store_true", help="include rows that newer rows of the same runs replace")
    command.set_defaults(command=_export)

    command = commands.add_parser(
        "submit",
        help="check rows and write the file with which a pull request makes them public",
        description="Check every row of a results file: rebuild the problems, re-evaluate the points, check the proofs "
        "of bounds, and compare the versions of the solvers with the known ones. If nothing is wrong, write a small "
        "file of rows and points into the folder of submissions, for a pull request. The exit code is 1 if a row is "
        "refused.",
    )
    command.add_argument(
        "file",
        metavar="FILE",
        help="a results file; or a folder of submissions, which are only checked again",
    )
    command.add_argument(
        "-o", "--output", metavar="FOLDER", default=_SUBMISSIONS, help=f"the folder (default: {_SUBMISSIONS})"
    )
    for flag, kind in (("-s", "solver"), ("-p", "problem")):
        command.add_argument(
            flag,
            f"--{kind}",
            action="append",
            metavar=kind.upper(),
            help=f"the name or the spec of a {kind}: submit only its rows; may be repeated",
        )
    command.set_defaults(command=_submit)

    command = commands.add_parser("sysinfo", help="print the machine and the software as results files store them")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_sysinfo)


def _report(options: argparse.Namespace) -> int:
    from qcqpbench.analysis.report.write import report_text, write_report  # noqa: PLC0415 (slow to import)

    form = options.format or ("md" if Path(options.output or "").suffix == ".md" else "html")
    if options.output == "-":
        sys.stdout.write(report_text(options.files, form))
        return DONE
    report = write_report(options.files, options.output or f"report.{form}", form)
    print("\n".join(report.verdict))
    if report.rows_left_out:
        print(f"Rows left out: {report.rows_left_out}.")
    print(f"{report.path}: {report.runs} runs, {report.bytes / 1e6:.1f} MB")
    return DONE


def _compare(options: argparse.Namespace) -> int:
    from qcqpbench.analysis.compare.comparison import compare  # noqa: PLC0415 (slow to import)
    from qcqpbench.analysis.compare.output import RENDERERS, write  # noqa: PLC0415

    chosen = options.solver or (), options.versions or (), options.label or ()
    comparison = compare(options.files, *chosen, options.effect / 100)
    if options.output in (None, "-"):
        sys.stdout.write(RENDERERS[options.format or "md"](comparison))
    else:
        write(comparison, Path(options.output), options.format)
        print("\n".join(comparison.verdict))
    return FAILED if comparison.is_loss else DONE


def _verify(options: argparse.Namespace) -> int:
    rows = points = differences = unchecked = 0
    with Store(options.file) as store:
        for checked in reverify(store):
            rows, points = rows + checked.rows, points + checked.points
            differences += len(checked.differences)
            for difference in checked.differences:
                print(_difference_in_words(difference, checked.problem))
            for part in checked.unchecked:
                unchecked += part.rows
                print(f"could not be checked: {rows_in_words(part.rows)}: {part.reason[:MAX_MESSAGE_CHARACTERS]}")
    parts = [f"{differences} differ"] if differences else []
    parts += [f"could not be checked: {rows_in_words(unchecked)}"] if unchecked else []
    print(f"{options.file}: {rows} rows, {points} points re-evaluated: {', '.join(parts) or 'all as stored'}")
    return FAILED if parts else DONE


def _difference_in_words(difference: Difference, problem: str) -> str:
    row, stored = difference.row, shown(repr(difference.stored))
    run = f"{shown(row.solver)} start {row.start} on {shown(problem)}"
    return f"run {row.id}: {difference.name} is {difference.recomputed!r}, stored is {stored} ({run})"


def _merge(options: argparse.Namespace) -> int:
    counts = []
    for source in options.sources:
        # All files are read first, so that a wrong name or an unreadable row does not leave half of them merged.
        with Store(source) as store:
            counts.append(sum(1 for _ in store.rows(all_rows=True)))
    with Store(options.output, write=True) as store:
        for source, count in zip(options.sources, counts, strict=True):
            added = store.merge(source)
            left_out = f", {count - added} left out: {options.output} has them already" if added < count else ""
            print(f"{source}: {added} new rows{left_out}", flush=True)
    return DONE


def _export(options: argparse.Namespace) -> int:
    with Store(options.file) as store:
        count = export(store, options.target, options.all)
        left_out = "" if options.all else str(store.left_out())
    print(f"{options.target}: {count} rows" + (f"; left out: {left_out} (--all has them)" if left_out else ""))
    return DONE


def _submit(options: argparse.Namespace) -> int:
    from qcqpbench.results.public.check_submission import check_folder, submit  # noqa: PLC0415 (slow to import)

    if Path(options.file).is_dir():
        faults = 0
        for name, findings in check_folder(Path(options.file)):
            faults += len(findings.faults)
            print("\n".join(_findings_in_words(name, findings)), flush=True)
        return FAILED if faults else DONE
    folder = Path(options.output)
    require(folder.is_dir(), f"-o must name the folder of submissions of a checkout of qcqpbench, got {folder}")
    solvers = _full_specs(options.solver, lambda text: solver_facts(text).spec)
    problems = _full_specs(options.problem, lambda text: family(text).spec)

    def is_chosen(row: Row) -> bool:
        is_solver = not solvers or bool(solvers & {row.solver, row.solver_name})
        return is_solver and (not problems or bool(problems & {row.problem, row.problem_name}))

    with Store(options.file) as store:
        path, findings = submit(store, folder, is_chosen)
    print("\n".join(_findings_in_words(options.file, findings)))
    if findings.faults:
        return FAILED
    print(f"{path}: {path.stat().st_size / 1e3:.1f} KB; commit the changes of this folder, and open a pull request")
    return DONE


def _findings_in_words(name: str, findings: "Findings") -> list[str]:
    checked = f"{rows_in_words(findings.rows)}, {findings.points} points re-evaluated, {findings.proofs} proofs checked"
    result = f"{len(findings.faults)} faults: refused" if findings.faults else "accepted"
    return [*map(shown, findings.faults), f"{name}: {checked}: {result}"]


def _full_specs(texts: Sequence[str] | None, full_spec: Callable[[str], str]) -> set[str]:
    """Return the full specs of the specs in `texts`; names stay, which stand for all specs of the name."""
    return {full_spec(text) if "[" in text else text for text in texts or ()}


def _sysinfo(options: argparse.Namespace) -> int:
    facts = asdict(machine())
    if options.json:
        print(json.dumps(facts, indent=2))
        return DONE
    for name, value in facts.items():
        text = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else value
        print(f"{name:<17} {'' if text is None else text}")
    return DONE
