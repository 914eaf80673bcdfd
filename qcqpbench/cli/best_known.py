"""Command `best-known`: list, check and update the best known margins."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qcqpbench.catalog.best_known import Record, read_records, shipped_path
from qcqpbench.catalog.certificate.global_certificate import GlobalCertificate
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.suite import problem_labels
from qcqpbench.theory import covariance_kappa_bar

from ._progress import track
from .common import DONE, FAILED, align, cell

_LEGEND = (
    "kappa_bar_theory: theory with full replica-symmetry breaking (RSB), m → ∞; gap_to_theory: kappa_bar_theory − "
    "kappa_bar; gap: (bound − margin) / max(|bound|, |margin|)"
)


def add_commands(commands: Any) -> None:
    """Add the command `best-known` to the subparsers `commands`."""
    command = commands.add_parser(
        "best-known",
        help="list, check or update the best known margins of canonical instances",
        description="The best known margins of the instances of the suites best_known and proved, with the points that "
        "attain them and the proofs of upper bounds. The default action is list.",
    )
    command.set_defaults(command=_list, file=None, json=False)
    actions = command.add_subparsers(metavar="ACTION")

    action = actions.add_parser(
        "list", help="print margins, upper bounds, optimality gaps, and the margins that theory (full RSB) predicts"
    )
    _add_file(action)
    action.add_argument(
        "--json", action="store_true", help="print JSON, with every field of the list except points and multipliers"
    )
    action.set_defaults(command=_list)

    action = actions.add_parser(
        "check",
        help="generate every instance from its spec and recompute its margin and its bound",
        description="Generate every instance of a list from its spec, and recompute its margin from the point and its "
        "bound from the multipliers or the tree. A global certificate (.npz), which `qcqpbench certify --global` "
        "writes, is checked in the same way. The exit code is 1 if a value differs.",
    )
    _add_file(action, "a .csv file, or a global certificate (default: the list shipped with qcqpbench)")
    action.set_defaults(command=_check)

    action = actions.add_parser("update", help="recompute points and bounds of other files, and add the better ones")
    action.add_argument(
        "sources",
        metavar="FILE",
        nargs="+",
        help="results files, global certificates, and .npz files of points W, each under the spec of its problem",
    )
    action.add_argument(
        "-o", "--output", metavar="LIST", help="the list to update (default: the one shipped with qcqpbench)"
    )
    action.set_defaults(command=_update)


def _add_file(
    action: argparse.ArgumentParser, help: str = "a .csv file (default: the one shipped with qcqpbench)"
) -> None:
    action.add_argument("file", metavar="LIST", nargs="?", help=help)


def _path(name: str | None) -> Path:
    return shipped_path() if name is None else Path(name)


def _list(options: argparse.Namespace) -> int:
    records = list(read_records(_path(options.file)).values())
    if options.json:
        print(json.dumps([asdict(record) | _predictions(record) | {"gap": record.gap} for record in records], indent=2))
        return DONE
    labels = problem_labels([record.problem for record in records])
    headings = ["problem", "margin", "kappa_bar", "kappa_bar_theory", "gap_to_theory", "bound", "gap", "solver"]
    lines = [
        [labels[record.problem], *map(cell, _values(record)), record.solver.partition("[")[0]] for record in records
    ]
    print("\n".join(align([headings, *lines], left=(0, -1))))
    print(_LEGEND)
    return DONE


def _values(record: Record) -> tuple[float | None, ...]:
    predictions = _predictions(record)
    theory_values = predictions["kappa_bar_theory"], predictions["gap_to_theory"]
    return record.margin, record.kappa_bar, *theory_values, record.bound, record.gap


def _predictions(record: Record) -> dict[str, float | None]:
    """Return κ̄ with full RSB and with replica symmetry, and by how much the best known κ̄ is below full RSB.

    All are None for a task of which theory predicts nothing.
    """
    if not record.problem.startswith("covariance_perceptron["):
        return dict.fromkeys(("kappa_bar_theory", "kappa_bar_rs", "gap_to_theory"))
    full, symmetric = (float(covariance_kappa_bar(record.p, record.m, record.n, rsb=rsb)) for rsb in ("full", 0))
    return {"kappa_bar_theory": full, "kappa_bar_rs": symmetric, "gap_to_theory": full - record.kappa_bar}


def _check(options: argparse.Namespace) -> int:
    from qcqpbench.results.public.improve_best_known import check, check_certificate  # noqa: PLC0415 (slow to import)

    path = _path(options.file)
    if path.suffix == ".npz":
        return _check_certificate(path, check_certificate)
    total, instances, wrong = len(read_records(path)), 0, 0
    for record, fault in track(check(path), total, lambda checked: checked[0].problem):
        instances, wrong = instances + 1, wrong + bool(fault)
        if fault:
            print(f"{record.problem}: {fault}", flush=True)
    verdict = f"{wrong} differ" if wrong else "all margins and bounds agree"
    print(f"{path.name}: {instances} instances recomputed: {verdict}")
    return FAILED if wrong else DONE


def _check_certificate(path: Path, check: Callable[[Path], GlobalCertificate]) -> int:
    try:
        proof = check(path)
    except QcqpbenchError as error:
        print(error)
        return FAILED
    leaves = len(proof.tree.bounds)
    print(f"{path.name}: {proof.problem}: margin {proof.margin:.9g}, bound {proof.bound:.9g}, gap {proof.gap:.2e}")
    print(f"{path.name}: margin and bound agree; {leaves} leaves cover all points")
    return DONE


def _update(options: argparse.Namespace) -> int:
    from qcqpbench.results.public.improve_best_known import update  # noqa: PLC0415 (slow to import)

    path = _path(options.output)
    records, changes = update(path, [Path(source) for source in options.sources])
    for change in changes:
        print(f"{change.after.problem}: {_describe_change(change.before, change.after)}")
    print(f"{path.name}: {len(changes)} of {len(records)} instances changed")
    return DONE


def _describe_change(before: Record | None, after: Record) -> str:
    """Return a text with the changed values of a record, old and new."""
    if before is None:
        return f"new, margin {after.margin:.9g} ({after.solver}), bound {after.bound:.9g}"
    changes = []
    if before.margin != after.margin:
        changes.append(f"margin {before.margin:.9g} → {after.margin:.9g} ({after.solver})")
    if before.bound != after.bound:
        changes.append(f"bound {before.bound:.9g} → {after.bound:.9g} ({after.bound_solver})")
    return ", ".join(changes)
