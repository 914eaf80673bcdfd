"""Computation of all numbers of a report, as one dict of JSON values."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from qcqpbench.analysis import metrics
from qcqpbench.results.store import Row

from .capacity import capacity
from .facts import Facts, limits, limits_of_solvers, median, problem_label, scores_of
from .general import general_problems
from .sources import Results
from .timing import timing

_MAX_MESSAGE_CHARACTERS = 300
# Messages of these terminations are not listed, unless the claim is false.
_SUCCESSES = {"optimal", "locally_optimal", "finished"}


def contents(results: Results) -> dict[str, Any]:
    """Return all numbers of a report as JSON values, in the order of the report."""
    facts, general = Facts(results.rows), metrics.general(results.rows)
    unknown = general - {row["problem_id"] for row in results.rows if row["sense"]}
    tasks = Facts([row for row in results.rows if row["problem_id"] not in general])
    ranked_general = Facts([row for row in results.rows if row["problem_id"] in general - unknown])
    return {
        "files": results.files,
        "solvers": _solvers(facts),
        "problems": len(facts.problems),
        "tasks": len(tasks.problems),
        "limits": limits(facts.rows),
        "task_limits": limits(tasks.rows),
        "limits_of_solvers": limits_of_solvers(tasks),
        "summary": [_summary_line(tasks, name) for name in tasks.solvers],
        "bounds": _bounds(tasks),
        "unsolved": _location(tasks, [id for id in tasks.limits if id not in tasks.solved]),
        "capacity": capacity(tasks),
        **timing(tasks.runs, tasks.best, tasks.limits, tasks.solvers, tasks.problems, tasks.places),
        "general": general_problems(ranked_general),
        "general_bounds": _bounds(ranked_general),
        "unknown_sense": list({row["problem"]: None for row in results.rows if row["problem_id"] in unknown}),
        "statuses": _statuses(facts),
        "messages": _messages(facts),
        "refuted": [
            {"solver": metrics.label(row), "problem": problem_label(row), "bound": row["bound"]}
            for row in facts.bounds.refuted
        ],
        "false_rows": [k for k, row in enumerate(facts.rows) if facts.is_false(row)],
        "machines": results.machines,
        "micro": results.micro,
        "left_out": left_out(results),
    }


def left_out(results: Results) -> str:
    """Return a text with the number of rows left out of the report, by reason; empty if there are none."""
    repeated = f"{results.repeated} present in several files" if results.repeated else ""
    return ", ".join(filter(None, [str(results.left_out), repeated]))


def _solvers(facts: Facts) -> list[dict[str, Any]]:
    rows_by_solver: dict[str, list[Row]] = defaultdict(list)
    for row in facts.rows:
        rows_by_solver[metrics.label(row)].append(row)
    return [
        {
            "name": name,
            "spec": rows[0]["solver"],
            "version": ", ".join(sorted({str(row["version"]) for row in rows})),
            "formulation": rows[0]["formulation"],
            "limits": limits(rows),
            "ran": any(map(metrics.was_run, rows)),
            "competes": name in facts.solvers,
        }
        for name, rows in sorted(rows_by_solver.items())
    ]


# --- margins and bounds ---


def _summary_line(facts: Facts, name: str) -> dict[str, Any]:
    runs = facts.of(name, facts.problems)
    rows = [row for group in runs.values() for row in group]
    best = {id: max(scores) for id, group in runs.items() if (scores := scores_of(group))}
    gaps = [metrics.gap(score, facts.best[id]) for id, score in best.items()]
    bounds = facts.bounds.least
    optimality_gaps = [metrics.gap(score, bounds[id]) for id, score in best.items() if id in bounds]
    return {
        "solver": name,
        "problems": len(runs),
        "missing": len(facts.problems) - len(runs),
        "starts": max(map(len, runs.values())),
        "runs": len(rows),
        "solved": sum(map(metrics.is_solved, rows)),
        "failed": _failed(facts, runs),
        "best": sum(gap <= metrics.SAME for gap in gaps),
        "no_point": len(runs) - len(best),
        "gap_median": median(gaps, len(runs)),
        "gap_max": max(gaps, default=None),
        "gap_bound": median(optimality_gaps, len(runs.keys() & bounds.keys())),
        "bounded": len(optimality_gaps),
        "false_claims": sum(map(facts.is_false, rows)),
    }


def _failed(facts: Facts, runs: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the number of failed runs on problems that some run solved, with their terminations and location."""
    attempts = [row for id, group in runs.items() if id in facts.solved for row in group]
    failed = [row for row in attempts if not metrics.is_solved(row)]
    return {
        "runs": len(failed),
        "of": len(attempts),
        "ways": dict(Counter(row["termination"] for row in failed).most_common()),
        "where": _location(facts, {row["problem_id"] for row in failed}),
    }


def _location(facts: Facts, problems: Collection[str]) -> dict[str, Any]:
    """Return the number of problems and the range of their loads, which is None if some problem has no load."""
    loads = [load for id in problems if (load := facts.places[id]["load"]) is not None]
    return {"problems": len(problems), "loads": [min(loads), max(loads)] if len(loads) == len(problems) > 0 else None}


def _bounds(facts: Facts) -> list[dict[str, Any]]:
    """Return one line per solver with bounds in its rows or of scope "bound"."""
    rows_by_solver: dict[str, list[Row]] = defaultdict(list)
    for row in facts.rows:
        if metrics.was_run(row) and (row["bound"] is not None or not metrics.competes(row)):
            rows_by_solver[metrics.label(row)].append(row)
    return [_bound_line(facts, name, rows) for name, rows in sorted(rows_by_solver.items())]


def _bound_line(facts: Facts, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the number of bounds of a solver and their gaps to the best known scores."""
    bounds = facts.bounds.of_solvers.get(name, {})
    gaps = [metrics.gap(facts.best[id], bound) for id, bound in bounds.items()]
    return {
        "solver": name,
        "problems": len({row["problem_id"] for row in rows}),
        "bounded": len(gaps),
        "least": sum(metrics.gap(facts.bounds.least[id], bound) <= metrics.SAME for id, bound in bounds.items()),
        "gap_median": statistics.median(gaps) if gaps else None,
        "gap_max": max(gaps, default=None),
        "tight": sum(gap <= metrics.SAME for gap in gaps),
        "refuted": sum(metrics.label(row) == name for row in facts.bounds.refuted),
        "median": statistics.median(map(metrics.seconds, rows)),
        "limits": limits(rows),
    }


# --- statuses ---


def _statuses(facts: Facts) -> list[dict[str, Any]]:
    """Count rows, skipped ones included, by solver, claimed termination and verified point status."""
    rows_by_status: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in facts.rows:
        rows_by_status[metrics.label(row), row["termination"], row["point_status"]].append(row)
    return [
        {
            "solver": name,
            "termination": termination,
            "claim": metrics.meaning(termination),
            "point_status": status,
            "runs": len(rows),
            "solved": sum(map(metrics.is_solved, rows)),
            "false": sum(map(facts.is_false, rows)),
            "seconds": max(map(metrics.seconds, rows)),
            "memory": max((row["peak_memory_bytes"] for row in rows if row["peak_memory_bytes"]), default=None),
        }
        for (name, termination, status), rows in sorted(rows_by_status.items())
    ]


def _messages(facts: Facts) -> list[dict[str, Any]]:
    """Return the messages of unsuccessful runs and false claims, merging messages that differ only in numbers."""
    rows_by_message: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in facts.rows:
        if (row["termination"] not in _SUCCESSES or facts.is_false(row)) and row["message"]:
            pattern = re.sub(r"\d[\d.e+-]*", "#", row["message"])
            rows_by_message[metrics.label(row), row["termination"], pattern].append(row)
    return [
        {
            "solver": solver,
            "termination": termination,
            "message": " ".join(rows[0]["message"].split())[:_MAX_MESSAGE_CHARACTERS],
            "runs": len(rows),
            "first": problem_label(rows[0]),
        }
        for (solver, termination, _), rows in sorted(rows_by_message.items())
    ]
