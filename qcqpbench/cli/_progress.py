"""Display of progress: a live view on a terminal, one line per run elsewhere, and a table of the solvers."""

import math
import os
import statistics
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from qcqpbench.analysis.metrics import SAME, gap
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.results.row import Row
from qcqpbench.run.attempt import Outcome, RunValues
from qcqpbench.run.pools.local_pool import Running
from qcqpbench.run.run_spec import RunSpec

from .common import align

if TYPE_CHECKING:
    # Imported where they are used, because rich is slow to import.
    from rich.console import Console, Group, OverflowMethod
    from rich.live import Live
    from rich.table import Table

T = TypeVar("T")

_FRAMES_PER_SECOND = 2
_MAX_SHOWN_RUNS = 8
_MIN_RUNS_FOR_ESTIMATE = 3
_TERMINALS_WITHOUT_CURSOR = ("dumb", "unknown")


def _is_expected(termination: Termination) -> bool:
    """Return whether a run ended regularly or stalled, as is usual for local solvers."""
    return termination.is_regular or termination is Termination.STALLED


class _Tally:
    """Counts, values and times of a solver's runs."""

    def __init__(self) -> None:
        self.runs = self.solved = 0
        self.kappa_bars, self.seconds = array("d"), array("d")
        # Of general QCQPs: the objectives of feasible points by problem id, empty for a problem without one.
        self.objectives: dict[str, array[float]] = {}
        self.other_terminations: Counter[str] = Counter()

    def add(self, problem_id: str, values: RunValues) -> None:
        """Count a run as solved if its point is feasible or, on a max-margin task, if its margin is positive."""
        self.runs += 1
        self.solved += values.success if values.margin is None else values.margin > 0
        if values.kappa_bar is not None:
            self.kappa_bars.append(values.kappa_bar)
        if values.sense is not None:
            objectives = self.objectives.setdefault(problem_id, array("d"))
            if _is_feasible_value(values):
                objectives.append(values.objective or 0.0)
        if values.solve_seconds is not None:
            self.seconds.append(values.solve_seconds)
        if not _is_expected(values.termination):
            self.other_terminations[str(values.termination)] += 1


def _is_feasible_value(values: RunValues) -> bool:
    objective = values.objective
    return values.point_status is PointStatus.FEASIBLE and objective is not None and math.isfinite(objective)


class Scoreboard:
    """Table of solvers: counts, margins or objectives, and times of their runs.

    Parameters
    ----------
    solvers
        Names of the solvers, in the order of the table.
    """

    def __init__(self, solvers: Iterable[str]) -> None:
        self._tallies = {name: _Tally() for name in solvers}
        # Of general QCQPs, by problem id: +1 for maximization and −1 for minimization, and the best known score.
        self._signs: dict[str, float] = {}
        self._best: dict[str, float] = {}

    def add(self, solver: str, problem_id: str, values: RunValues) -> None:
        """Count a run of the solver with this name."""
        self._tallies[solver].add(problem_id, values)
        if values.sense is None:
            return
        sign = self._signs[problem_id] = 1.0 if values.sense == "maximize" else -1.0
        for value in (values.objective if _is_feasible_value(values) else None, values.best_known):
            if value is not None:
                self._best[problem_id] = max(sign * value, self._best.get(problem_id, -math.inf))

    def cells(self) -> list[list[str]]:
        """Return the headings and a line for each solver, without columns that are empty.

        The columns best and mean refer to κ̄ of max-margin tasks. If the runs are on one general QCQP, best_objective
        and mean_objective refer to its feasible points. If they are on several, reached is the number of them on which
        the solver reached the best known objective, out of those that it was run on; median_gap and largest_gap are of
        the relative gaps of its best starts to the best known objectives, infinite without a feasible point.
        """
        columns: dict[str, Callable[[_Tally], str]] = {
            "runs": lambda tally: str(tally.runs),
            "solved": lambda tally: str(tally.solved),
            "best": lambda tally: f"{max(tally.kappa_bars):.4f}" if tally.kappa_bars else "",
            "mean": lambda tally: f"{statistics.fmean(tally.kappa_bars):.4f}" if tally.kappa_bars else "",
            **(self._objective_columns() if len(self._signs) == 1 else self._gap_columns()),
            "median_s": lambda tally: f"{statistics.median(tally.seconds):.3g}" if tally.seconds else "",
            "other_ends": lambda tally: ", ".join(f"{n} {name}" for name, n in tally.other_terminations.most_common()),
        }
        filled = {name: [write(tally) for tally in self._tallies.values()] for name, write in columns.items()}
        filled = {name: cells for name, cells in filled.items() if any(cells)}
        return [["solver", *filled], *map(list, zip(self._tallies, *filled.values(), strict=True))]

    def lines(self) -> list[str]:
        """Return the lines of the table with aligned columns."""
        cells = self.cells()
        return align(cells, left=(0, -1) if cells[0][-1] == "other_ends" else (0,))

    def _objective_columns(self) -> dict[str, Callable[[_Tally], str]]:
        ((id, sign),) = self._signs.items()

        def best(tally: _Tally) -> str:
            values = tally.objectives.get(id)
            return f"{sign * max(sign * value for value in values):.6g}" if values else ""

        def mean(tally: _Tally) -> str:
            values = tally.objectives.get(id)
            return f"{statistics.fmean(values):.6g}" if values else ""

        return {"best_objective": best, "mean_objective": mean}

    def _gap_columns(self) -> dict[str, Callable[[_Tally], str]]:
        def reached(tally: _Tally) -> str:
            gaps = self._gaps(tally)
            return f"{sum(gap <= SAME for gap in gaps)}/{len(gaps)}" if gaps else ""

        def median_gap(tally: _Tally) -> str:
            gaps = self._gaps(tally)
            return f"{statistics.median(gaps):.2g}" if gaps else ""

        def largest_gap(tally: _Tally) -> str:
            gaps = self._gaps(tally)
            return f"{max(gaps):.2g}" if gaps else ""

        return {"reached": reached, "median_gap": median_gap, "largest_gap": largest_gap}

    def _gaps(self, tally: _Tally) -> list[float]:
        """Return the relative gap of the best start of each general QCQP, infinite without a feasible point."""
        return [
            gap(max(self._signs[id] * value for value in values), self._best[id]) if values else math.inf
            for id, values in tally.objectives.items()
        ]


class Progress:
    """Display of the progress of a suite; a `Monitor` of `qcqpbench.results.collect`.

    The total is fixed when the display begins, so that counters only grow.

    Parameters
    ----------
    title
        Text in front of the counts.
    labels
        Short specs of problems and solvers, by full spec.
    solvers
        Labels of the solvers, in the order of the table.
    stream
        Output stream, by default standard error.
    """

    def __init__(
        self, title: str, labels: Mapping[str, str], solvers: Iterable[str], stream: TextIO | None = None
    ) -> None:
        self.title, self.labels = title, labels
        self.stream = stream or sys.stderr
        self.total = self.done = self.earlier = self.repeated = 0
        self._scoreboard = Scoreboard(solvers)
        self._start_seconds = time.monotonic()
        # Pools take runs from the suite in threads of their own.
        self._lock = threading.RLock()
        self._running: Callable[[], list[Running]] | None = None
        self._live: Live | None = None

    @contextmanager
    def watch(self, total: int, running: Callable[[], list[Running]]) -> Iterator[None]:
        """Show the progress during a `with` block: `total` runs, those in progress from `running`."""
        self.total += total
        self._running, self._start_seconds = running, time.monotonic()
        if not is_live(self.stream):
            self._write(f"{self.title}: {self.total} runs")
            yield
            return
        from rich.live import Live  # noqa: PLC0415 (slow to import)

        live = Live(
            get_renderable=lambda: self._view(running()),
            console=console_on(self.stream),
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def drop(self, count: int) -> None:
        """Subtract `count` runs that will not take place from the total; once it is shown, count them as done."""
        if self._running is None:
            self.total -= count
        elif count:
            with self._lock:
                self.repeated += count
                self._write_counted(f"{count} runs are equal to earlier runs of the suite")

    def skip(self, count: int) -> None:
        """Count runs that are in the file already."""
        with self._lock:
            self.earlier += count

    def add(self, outcome: Outcome) -> None:
        """Count a run that has ended; print a line about it unless the view is live."""
        spec = outcome.spec
        with self._lock:
            self.done += 1
            self._scoreboard.add(self._label(spec.solver), spec.problem_id, outcome.attempt)
            self._write_counted(self._describe(outcome))

    def add_earlier(self, row: Row) -> None:
        """Count the row of a run that was in the file already."""
        with self._lock:
            self._scoreboard.add(self._label(row.solver), row.problem_id, row)

    def say(self, text: str) -> None:
        """Print a line of text, above the live view if there is one."""
        if self._live is None:
            self._write(text)
        else:
            self._live.console.print(text, soft_wrap=True)

    def table(self) -> list[str]:
        """Return the lines of the table of the solvers."""
        return self._scoreboard.lines()

    @property
    def counted(self) -> int:
        """Number of runs that are done: now, in earlier calls, or as equal runs of the same suite."""
        return self.earlier + self.repeated + self.done

    def _describe(self, outcome: Outcome) -> str:
        attempt = outcome.attempt
        quantity = "objective" if attempt.kappa_bar is None else "kappa_bar"
        value = getattr(attempt, quantity)
        facts = [
            f"{self._run_label(outcome.spec)}: {attempt.termination}",
            f"{quantity} {value:.5g}" if value is not None else "",
            f"{attempt.solve_seconds:.3g} s" if attempt.solve_seconds is not None else "",
            " ".join(attempt.message.split()) if not _is_expected(attempt.termination) else "",
        ]
        return ", ".join(filter(None, facts))

    def _view(self, running: list[Running]) -> "Group":
        """Return the live view: counts, the longest runs in progress, and the table of the solvers."""
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        with self._lock:
            cells = self._scoreboard.cells()
            headline = self._headline(time.monotonic() - self._start_seconds)
        overflow: OverflowMethod = "ellipsis" if self.stream.encoding.lower().startswith("utf") else "crop"
        # Specs are Texts, because rich reads brackets in a str as markup.
        lines = [Text(line, no_wrap=True, overflow=overflow) for line in (headline, *self._run_lines(running))]
        return Group(*lines, _solvers_view(cells, overflow))

    def _run_lines(self, running: list[Running]) -> list[str]:
        """Return a line for each of the longest runs in progress, and one with the number of the others."""
        now = time.monotonic()
        longest = sorted(running, key=lambda run: run.since)[:_MAX_SHOWN_RUNS]
        worker_width = max((len(run.worker) for run in longest), default=0)
        lines = [
            f"  {run.worker:<{worker_width}} {now - run.since:6.1f} s  {self._run_label(run.spec)}" for run in longest
        ]
        others = len(running) - len(longest)
        return lines + ([f"  and {others} more"] if others else [])

    def _headline(self, elapsed_seconds: float) -> str:
        """Return the line with the counts, the elapsed time and an estimate of the remaining time."""
        remaining = self.total - self.counted
        facts = [f"{self.counted}/{self.total} done"]
        facts += [f"{self.earlier} of them before"] if self.earlier else []
        facts += [_clock(elapsed_seconds)]
        if self.done >= _MIN_RUNS_FOR_ESTIMATE and remaining:
            facts += [f"about {_clock(elapsed_seconds / self.done * remaining)} left"]
        return f"{self.title}: {', '.join(facts)}"

    def _run_label(self, spec: RunSpec) -> str:
        return f"{self._label(spec.solver)} on {self._label(spec.problem)} start {spec.start}"

    def _label(self, spec: str) -> str:
        return self.labels.get(spec, spec)

    def _write_counted(self, text: str) -> None:
        """Print a line with the counts, unless the view is live, which shows them."""
        if self._live is None:
            self._write(f"[{self.counted}/{self.total}] {text}")

    def _write(self, text: str) -> None:
        with self._lock:
            self.stream.write(f"{text}\n")
            self.stream.flush()


def _solvers_view(cells: list[list[str]], overflow: "OverflowMethod") -> "Table":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    headings, *lines = cells
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading in headings:
        left = heading in ("solver", "other_ends")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True, overflow=overflow)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def track(items: Iterable[T], total: int, describe: Callable[[T], str], stream: TextIO | None = None) -> Iterator[T]:
    """Yield the items and show how many there were: a bar on a terminal, a line for each item elsewhere.

    Parameters
    ----------
    items
        The items; computing one may take long.
    total
        Number of items.
    describe
        Function that returns the text of an item.
    stream
        Output stream, by default standard error.
    """
    stream = stream or sys.stderr
    if not is_live(stream):
        for number, item in enumerate(items, 1):
            print(f"[{number}/{total}] {describe(item)}", file=stream, flush=True)
            yield item
        return
    from rich import progress  # noqa: PLC0415 (slow to import)

    bar = progress.Progress(
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=console_on(stream),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task("", total=total)
        for item in items:
            bar.update(task, advance=1, description=describe(item))
            yield item


def is_live(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal on which lines can be redrawn."""
    return stream.isatty() and os.environ.get("TERM") not in _TERMINALS_WITHOUT_CURSOR


def console_on(stream: TextIO) -> "Console":
    """Return a console of rich that writes to a terminal."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    return Console(file=stream, force_terminal=True, highlight=False, markup=False)


def _clock(duration: float) -> str:
    """Return a duration in seconds as hours:minutes:seconds."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
