"""verify, merge, export, sysinfo: results files, and the machine they come from."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from ..errors import MAX_MESSAGE_CHARACTERS
from ..export import export
from ..machine import machine
from ..recheck import recheck
from ..store import Store
from .common import DONE, FAILED, rows_in_words, shown


def add_commands(commands: Any) -> None:
    command = commands.add_parser("verify", help="judge every point in a results file again, from its problem's spec")
    command.add_argument("file", metavar="FILE", help="a results file")
    command.set_defaults(command=_verify)

    command = commands.add_parser("merge", help="bring results files together in one")
    command.add_argument("sources", metavar="FILE", nargs="+", help="results files")
    command.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the file to add them to; made if missing"
    )
    command.set_defaults(command=_merge)

    command = commands.add_parser("export", help="write results as a table for other programs")
    command.add_argument("file", metavar="FILE", help="a results file")
    command.add_argument("target", metavar="OUT", help="a file: .csv, .parquet")
    command.add_argument("--all", action="store_true", help="also rows that newer ones of the same run replace")
    command.set_defaults(command=_export)

    command = commands.add_parser("sysinfo", help="the machine and the software, as results files keep them")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_sysinfo)


def _verify(options: argparse.Namespace) -> int:
    rows = points = differences = unchecked = 0
    with Store(options.file) as store:
        for checked in recheck(store):
            rows, points = rows + checked.rows, points + checked.points
            differences += len(checked.differences)
            for each in checked.differences:
                start = f"{shown(each.row['solver'])} start {each.row['start']} on {shown(checked.problem)}"
                stored = shown(repr(each.stored))
                print(f"run {each.row['id']}: {each.name} is {each.found!r}, stored is {stored} ({start})")
            for part in checked.unchecked:
                unchecked += part.rows
                print(f"could not be checked: {rows_in_words(part.rows)}: {part.reason[:MAX_MESSAGE_CHARACTERS]}")
    parts = [f"{differences} differ"] if differences else []
    parts += [f"could not be checked: {rows_in_words(unchecked)}"] if unchecked else []
    print(f"{options.file}: {rows} rows, {points} points judged again: {', '.join(parts) or 'all as stored'}")
    return FAILED if parts else DONE


def _merge(options: argparse.Namespace) -> int:
    counts = []
    for source in options.sources:
        # All of them first: a wrong name, or a row that cannot be read, should not leave half of them merged.
        with Store(source) as store:
            counts.append(sum(1 for _ in store.rows(all_rows=True)))
    with Store(options.output, write=True) as store:
        for source, count in zip(options.sources, counts, strict=True):
            added = store.merge(source)
            known = f", {count - added} left out: {options.output} has them already" if added < count else ""
            print(f"{source}: {added} new rows{known}", flush=True)
    return DONE


def _export(options: argparse.Namespace) -> int:
    with Store(options.file) as store:
        count = export(store, options.target, options.all)
        left_out = "" if options.all else str(store.left_out())
    print(f"{options.target}: {count} rows" + (f"; left out: {left_out} (--all has them)" if left_out else ""))
    return DONE


def _sysinfo(options: argparse.Namespace) -> int:
    facts = asdict(machine())
    if options.json:
        print(json.dumps(facts, indent=2))
        return DONE
    for name, value in facts.items():
        text = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        print(f"{name:<17} {'' if text is None else text}")
    return DONE
