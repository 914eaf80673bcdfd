"""The live view, plain lines, and the table of solvers."""

import io
import re
import time
from dataclasses import replace
from typing import Any

from rich.console import Console

import qcqpbench
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.cli._progress import Progress, Scoreboard, track
from qcqpbench.run.attempt import RunValues
from qcqpbench.run.pools.local_pool import Running
from qcqpbench.run.run_spec import RunSpec
from qcqpbench.run.suite import problem_labels
from tests.support.results_files import SPEC, outcome


def values(**changes: Any) -> RunValues:
    fields = {"termination": Termination.FINISHED, "point_status": PointStatus.FEASIBLE, "solve_seconds": 1.0}
    return RunValues(**{**fields, **changes})


def task(margin: float | None, **changes: Any) -> RunValues:
    return values(margin=margin, kappa_bar=margin, **changes)


def qcqp(objective: float | None, sense: str = "minimize", **changes: Any) -> RunValues:
    return values(objective=objective, sense=sense, **changes)


def table(*runs: tuple[str, str, RunValues], solvers: tuple[str, ...] = ("x", "long name")) -> list[str]:
    board = Scoreboard(solvers)
    for run in runs:
        board.add(*run)
    return board.lines()


# --- the table ---


def test_table_of_tasks() -> None:
    lines = table(
        ("x", "a", task(2.0)),
        ("x", "a", task(-1.0, termination=Termination.TIME_LIMIT)),
        ("x", "b", task(None, termination=Termination.CRASHED, point_status=PointStatus.NONE)),
    )
    assert lines == [
        "solver    runs solved   best   mean median_s other_ends",
        "x            3      1 2.0000 0.5000        1 1 time_limit, 1 crashed",
        "long name    0      0",
    ]


def test_table_of_one_qcqp_shows_objectives_of_feasible_points() -> None:
    """Check that an infeasible point with a smaller objective is not the best, and that no column is empty."""
    infeasible = qcqp(-9.0, point_status=PointStatus.INFEASIBLE)
    assert table(
        ("x", "a", qcqp(2.0)), ("x", "a", qcqp(3.0)), ("x", "a", infeasible), ("long name", "a", qcqp(4.0))
    ) == [
        "solver    runs solved best_objective mean_objective median_s",
        "x            3      2              2            2.5        1",
        "long name    1      1              4              4        1",
    ]
    lines = table(("x", "a", qcqp(2.0, "maximize")), ("x", "a", qcqp(3.0, "maximize")), solvers=("x",))
    assert lines[1].split() == ["x", "2", "2", "3", "2.5", "1"]


def test_table_of_several_qcqps_counts_the_problems_solved_to_the_best_known_value() -> None:
    """Compare with the best of all solvers on `a`, and with a published value that no solver reached on `b`."""
    lines = table(
        ("x", "a", qcqp(2.0)),
        ("x", "a", qcqp(7.0)),
        ("x", "b", qcqp(10.0, "maximize", best_known=20.0)),
        ("x", "c", qcqp(None, point_status=PointStatus.NONE)),
        ("long name", "a", qcqp(2.0003)),
        ("long name", "c", qcqp(0.0)),
    )
    assert lines == [
        "solver    runs solved reached median_gap largest_gap median_s",
        "x            4      3     1/3        0.5         inf        1",
        "long name    2      2     1/2    7.5e-05     0.00015        1",
    ]


def test_table_of_tasks_and_a_qcqp_has_no_empty_column() -> None:
    lines = table(("x", "a", task(2.0)), ("long name", "q", qcqp(4.0)))
    assert lines[0].split() == [
        "solver",
        "runs",
        "solved",
        "best",
        "mean",
        "best_objective",
        "mean_objective",
        "median_s",
    ]


# --- plain lines ---


def shown(progress: Progress) -> str:
    assert isinstance(progress.stream, io.StringIO)
    return progress.stream.getvalue()


def progress(labels: dict[str, str] | None = None) -> Progress:
    return Progress("t", labels or {}, [SPEC.solver], io.StringIO())


def test_counters_end_at_the_total_that_was_printed_first() -> None:
    """Drop two runs before the display begins, and two later; the total stays and the counter only grows."""
    display = progress()
    display.drop(2)
    with display.watch(8, list):
        display.skip(1)
        display.add(outcome())
        display.drop(0)
        display.drop(2)
        display.add(outcome())
        display.add(outcome())
    first, *lines = shown(display).splitlines()
    assert first == "t: 6 runs"
    assert [line.split()[0] for line in lines] == ["[2/6]", "[4/6]", "[5/6]", "[6/6]"]
    assert lines[1] == "[4/6] 2 runs are equal to earlier runs of the suite"


def test_lines_have_specs_that_denote_the_same_problem() -> None:
    """Paste the problem of a line back: it must be the problem that was run, not one with the default m."""
    text = "covariance_perceptron[m=20,n=2,f=0.2,c=0.5,load=1.0,ensemble=paper,seed=0]"
    spec = replace(SPEC, problem=text, problem_id=qcqpbench.problem(text).id)
    display = progress(problem_labels([text]))
    with display.watch(1, list):
        display.add(outcome(spec, kappa_bar=0.5))
    match = re.search(r" on (\S+) start 0: finished, kappa_bar 0.5$", shown(display))
    assert match and "m=20" in match[1] and len(match[1]) < len(text)
    assert qcqpbench.problem(match[1]).id == spec.problem_id


def test_messages_of_unexpected_terminations_are_one_line() -> None:
    display = progress()
    with display.watch(1, list):
        display.add(outcome(termination=Termination.ERROR, message="first\n  second"))
    assert shown(display).splitlines()[1].endswith(": error, first second")


# --- the live view ---


def test_many_workers_do_not_fill_the_screen() -> None:
    spec: RunSpec = replace(SPEC, problem="covariance_perceptron[m=20,load=1.0]")
    running = [Running(f"tcp://10.0.0.{k}:4000", spec, time.monotonic() - k) for k in range(100)]
    display = progress()
    display.stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    display.add(outcome())
    console = Console(file=io.StringIO(), width=60, height=15, force_terminal=True, markup=False)
    console.print(display._view(running))
    assert isinstance(console.file, io.StringIO)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in console.file.getvalue().splitlines()]
    assert len(lines) <= 13 and max(map(len, lines)) <= 60
    assert lines[1].startswith("  tcp://10.0.0.99:4000   99.") and lines[9].startswith("  and 92 more")
    assert "gip[starts=8] on" in lines[1]


# --- items of long work ---


def test_track_prints_a_line_for_each_item_before_the_next_is_computed() -> None:
    stream = io.StringIO()
    items = track(iter("abc"), 3, lambda item: f"item {item}", stream)
    assert next(items) == "a" and stream.getvalue() == "[1/3] item a\n"
    assert list(items) == ["b", "c"] and stream.getvalue().endswith("[3/3] item c\n")
