"""The numbers of a report, computed from the rows: one dict of plain values, which the pages only draw."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import Row

from .facts import Facts, limits, limits_of_solvers, median, problem_label, scores_of
from .general import general_problems
from .sources import Results
from .timing import timing


def contents(results: Results) -> dict[str, Any]:
    """Everything a report says, in its order, as values for JSON."""
    facts, general = Facts(results.rows), metrics.general(results.rows)
    unknown = general - {row["problem_id"] for row in results.rows if row["sense"]}
    tasks = Facts([row for row in results.rows if row["problem_id"] not in general])
    rest = Facts([row for row in results.rows if row["problem_id"] in general - unknown])
    return {
        "files": results.files,
        "solvers": _solvers(facts),
        "problems": len(facts.problems),
        "tasks": len(tasks.problems),
        "limits": limits(facts.rows),
        "task_limits": limits(tasks.rows),
        "limits_of_solvers": limits_of_solvers(tasks),
        "summary": _summary(tasks),
        "bounds": _bounds(tasks),
        "unsolved": _where(tasks, [id for id in tasks.limits if id not in tasks.solved]),
        "capacity": _capacity(tasks),
        **timing(tasks.runs, tasks.best, tasks.limits, tasks.solvers, tasks.problems, tasks.places),
        "general": general_problems(rest),
        "general_bounds": _bounds(rest),
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
    """Return how many rows of the files are not in the report, and why; empty if there are none."""
    repeated = f"{results.repeated} that stand in several files" if results.repeated else ""
    return ", ".join(filter(None, [str(results.left_out), repeated]))


def _solvers(facts: Facts) -> list[dict[str, Any]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in facts.rows:
        found[metrics.label(row)].append(row)
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
        for name, rows in sorted(found.items())
    ]


def _summary(facts: Facts) -> list[dict[str, Any]]:
    """A line per solver: what the verdict is made from."""
    lines = []
    for name in facts.solvers:
        own = facts.of(name, facts.problems)
        rows = [row for each in own.values() for row in each]
        best = {id: max(scores) for id, each in own.items() if (scores := scores_of(each))}
        gaps = [metrics.gap(value, facts.best[id]) for id, value in best.items()]
        proved = [metrics.gap(value, facts.bounds.least[id]) for id, value in best.items() if id in facts.bounds.least]
        lines.append(
            {
                "solver": name,
                "problems": len(own),
                "missing": len(facts.problems) - len(own),
                "starts": max(map(len, own.values())),
                "runs": len(rows),
                "solved": sum(map(metrics.is_solved, rows)),
                "failed": _failed(facts, own),
                "best": sum(gap <= metrics.SAME for gap in gaps),
                "no_point": len(own) - len(best),
                "gap_median": median(gaps, len(own)),
                "gap_max": max(gaps, default=None),
                "gap_bound": median(proved, len(own.keys() & facts.bounds.least.keys())),
                "bounded": len(proved),
                "false_claims": sum(map(facts.is_false, rows)),
            }
        )
    return lines


def _failed(facts: Facts, own: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Runs that do not solve what some other run does: how many of how many, how they ended, on which problems."""
    tried = [row for id, each in own.items() if id in facts.solved for row in each]
    failed = [row for row in tried if not metrics.is_solved(row)]
    return {
        "runs": len(failed),
        "of": len(tried),
        "ways": dict(Counter(row["termination"] for row in failed).most_common()),
        "where": _where(facts, {row["problem_id"] for row in failed}),
    }


def _where(facts: Facts, problems: Collection[str]) -> dict[str, Any]:
    """How many problems, and the least and the largest load among them."""
    loads = [load for id in problems if (load := facts.places[id]["load"]) is not None]
    return {"problems": len(problems), "loads": [min(loads), max(loads)] if len(loads) == len(problems) > 0 else None}


def _bounds(facts: Facts) -> list[dict[str, Any]]:
    """A line per solver that proves bounds: how far above the best known its own least ones are."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in facts.rows:
        if metrics.was_run(row) and (row["bound"] is not None or not metrics.competes(row)):
            found[metrics.label(row)].append(row)
    lines = []
    for name, rows in sorted(found.items()):
        own = facts.bounds.of_solvers.get(name, {})
        gaps = [metrics.gap(facts.best[id], bound) for id, bound in own.items()]
        lines.append(
            {
                "solver": name,
                "problems": len({row["problem_id"] for row in rows}),
                "bounded": len(gaps),
                "least": sum(metrics.gap(facts.bounds.least[id], own[id]) <= metrics.SAME for id in own),
                "gap_median": statistics.median(gaps) if gaps else None,
                "gap_max": max(gaps, default=None),
                "tight": sum(gap <= metrics.SAME for gap in gaps),
                "refuted": sum(metrics.label(row) == name for row in facts.bounds.refuted),
                "median": statistics.median(map(metrics.seconds, rows)),
                "limits": limits(rows),
            }
        )
    return lines


def _spread(values: Sequence[float]) -> list[float] | None:
    """Mean, least, largest."""
    return [statistics.fmean(values), min(values), max(values)] if values else None


# --- capacity ---


def _capacity(facts: Facts) -> list[dict[str, Any]]:
    """A panel per variant and m: κ̄ of every solver by load, theory, the band between best known and proved."""
    panels: dict[tuple[str, int], dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    tasks = metrics.scales(facts.rows)
    for id in facts.problems:
        where = facts.places[id]
        if where["load"] is not None and id in tasks:
            panels[where["variant"], where["m"]][where["load"]].append(id)
    theory = {row["problem_id"]: row["kappa_bar_theory"] for row in facts.rows if row["kappa_bar_theory"] is not None}
    found = []
    for (variant, m), loads in sorted(panels.items(), key=lambda item: item[0]):
        predicted = {load: theory[ids[0]] for load, ids in sorted(loads.items()) if ids[0] in theory}
        points = [
            _capacity_point(facts, name, load, ids) for name in facts.solvers for load, ids in sorted(loads.items())
        ]
        found.append(
            {
                "variant": variant,
                "m": m,
                "theory": metrics.theory_curve(list(predicted), list(predicted.values())),
                "predicted": predicted,
                "points": [each for each in points if each["runs"]],
                "band": [band for load, ids in sorted(loads.items()) if (band := _band(facts, load, ids))],
            }
        )
    return found


def _capacity_point(facts: Facts, solver: str, load: float, ids: Sequence[str]) -> dict[str, Any]:
    own = facts.of(solver, ids)
    scored = {id: scores for id, rows in own.items() if (scores := scores_of(rows))}
    rows = [row for each in own.values() for row in each]

    def per_set(choose: Callable[[list[float]], float]) -> list[float] | None:
        return _spread([choose(scores) for scores in scored.values()])

    gaps = [metrics.gap(max(scores), facts.best[id]) for id, scores in scored.items()]
    proved = [
        metrics.gap(max(scores), facts.bounds.least[id]) for id, scores in scored.items() if id in facts.bounds.least
    ]
    return {
        "solver": solver,
        "load": load,
        "best": per_set(max),
        "median": per_set(statistics.median),
        "sets": len(ids),
        "with_point": len(scored),
        "runs": len(rows),
        "positive_runs": sum(map(metrics.is_solved, rows)),
        "positive_sets": sum(any(map(metrics.is_solved, each)) for each in own.values()),
        "gap_best": median(gaps, len(own)),
        "gap_bound": median(proved, len(own.keys() & facts.bounds.least.keys())),
    }


def _band(facts: Facts, load: float, ids: Sequence[str]) -> list[float] | None:
    """Load, mean best known κ̄, mean bound on it, over the pattern sets that have a bound; how many of how many."""
    proved = [id for id in ids if id in facts.bounds.least]
    if not proved:
        return None
    low, high = (statistics.fmean(of[id] for id in proved) for of in (facts.best, facts.bounds.least))
    return [load, low, high, len(proved), len(ids)]


# --- statuses ---


def _statuses(facts: Facts) -> list[dict[str, Any]]:
    """How runs ended, as claimed, and what the suite found their points to be; rows that were skipped among them."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in facts.rows:
        found[metrics.label(row), row["termination"], row["point_status"]].append(row)
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
        for (name, termination, status), rows in sorted(found.items())
    ]


_SILENT = {"optimal", "locally_optimal", "finished"}


def _messages(facts: Facts) -> list[dict[str, Any]]:
    """What was said of runs that did not end well, each message once, those that differ in numbers counted as one."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in facts.rows:
        if (row["termination"] not in _SILENT or facts.is_false(row)) and row["message"]:
            found[metrics.label(row), row["termination"], re.sub(r"\d[\d.e+-]*", "#", row["message"])].append(row)
    return [
        {
            "solver": solver,
            "termination": termination,
            "message": " ".join(rows[0]["message"].split())[:300],
            "runs": len(rows),
            "first": problem_label(rows[0]),
        }
        for (solver, termination, _), rows in sorted(found.items())
    ]
