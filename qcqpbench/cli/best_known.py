"""best-known: the list of best known margins."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qcqpbench.catalog.best_known import Record, read_records, shipped
from qcqpbench.run.job import labels
from qcqpbench.theory import covariance_kappa_bar

from .common import DONE, FAILED, cell, width


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "best-known",
        help="the best known margins of canonical instances: list, check, update",
        description="The best known margins of the instances of the suite best_known, with points that have them and "
        "multipliers that prove how far they are from the optimum at the most. Without an action: list.",
    )
    command.set_defaults(command=_list, file=None, json=False)
    actions = command.add_subparsers(metavar="ACTION")

    action = actions.add_parser("list", help="margins, bounds, gaps, and what theory says")
    _add_file(action)
    action.add_argument("--json", action="store_true", help="print JSON, with all that is kept but the points")
    action.set_defaults(command=_list)

    action = actions.add_parser("check", help="make every instance anew, and compute its margin and its bound again")
    _add_file(action)
    action.set_defaults(command=_check)

    action = actions.add_parser("update", help="take what is better, and only that, after computing it again")
    action.add_argument(
        "sources",
        metavar="FILE",
        nargs="+",
        help="results files; and .npz files, points W by the specs of problems",
    )
    action.add_argument("-o", "--output", metavar="LIST", help="the list to update (the one that comes with qcqpbench)")
    action.set_defaults(command=_update)


def _add_file(action: argparse.ArgumentParser) -> None:
    action.add_argument("file", metavar="LIST", nargs="?", help="a .csv file (the one that comes with qcqpbench)")


def _path(given: str | None) -> Path:
    return shipped() if given is None else Path(given)


def _list(options: argparse.Namespace) -> int:
    records = list(read_records(_path(options.file)).values())
    derived = [
        {"kappa_bar_theory": float(covariance_kappa_bar(each.p, each.m, each.n)), "gap": each.gap} for each in records
    ]
    rows = [asdict(record) | more for record, more in zip(records, derived, strict=True)]
    if options.json:
        print(json.dumps(rows, indent=2))
        return DONE
    names = labels([record.problem for record in records])
    wide = max(map(len, [*names.values(), "problem"]))
    columns = ("margin", "kappa_bar", "kappa_bar_theory", "bound", "gap")
    print(f"{'problem':<{wide}}", *(f"{name:>{width(name)}}" for name in columns), "solver")
    for row in rows:
        values = (f"{cell(row[name]):>{width(name)}}" for name in columns)
        print(f"{names[row['problem']]:<{wide}}", *values, row["solver"].partition("[")[0])
    return DONE


def _check(options: argparse.Namespace) -> int:
    from qcqpbench.results.improve_best_known import check  # noqa: PLC0415 (slow to import)

    path = _path(options.file)
    instances = wrong = 0
    for record, fault in check(path):
        instances, wrong = instances + 1, wrong + bool(fault)
        if fault:
            print(f"{record.problem}: {fault}", flush=True)
    verdict = f"{wrong} are wrong" if wrong else "all margins and bounds as stated"
    print(f"{path.name}: {instances} instances made anew: {verdict}")
    return FAILED if wrong else DONE


def _update(options: argparse.Namespace) -> int:
    from qcqpbench.results.improve_best_known import update  # noqa: PLC0415 (slow to import)

    path = _path(options.output)
    records, changes = update(path, [Path(source) for source in options.sources])
    for change in changes:
        print(f"{change.after.problem}: {_what(change.before, change.after)}")
    print(f"{path.name}: {len(changes)} of {len(records)} instances changed")
    return DONE


def _what(before: Record | None, after: Record) -> str:
    if before is None:
        return f"new, margin {after.margin:.9g} ({after.solver}), bound {after.bound:.9g}"
    told = []
    if before.margin != after.margin:
        told.append(f"margin {before.margin:.9g} → {after.margin:.9g} ({after.solver})")
    if before.bound != after.bound:
        told.append(f"bound {before.bound:.9g} → {after.bound:.9g} ({after.bound_solver})")
    return ", ".join(told)
