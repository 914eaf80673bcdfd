"""Display of progress: a live view on a terminal, one line per run elsewhere, and a table of the solvers."""

import shutil
import statistics
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from qcqpbench.catalog.status import Termination
from qcqpbench.run.job import Outcome
from qcqpbench.run.pools.local_pool import Running

from .common import align

_FRAME_SECONDS = 0.5
_MAX_SHOWN_RUNS = 8
_MIN_RUNS_FOR_ESTIMATE = 3
_EXPECTED_TERMINATIONS = (Termination.OPTIMAL, Termination.LOCALLY_OPTIMAL, Termination.STALLED, Termination.FINISHED)


class Tally:
    """Counts and times of a solver's runs.

    A run counts as solved if its point is feasible or, on a max-margin task, if its margin is positive.
    """

    def __init__(self) -> None:
        self.runs = self.solved = 0
        self.kappa_bars, self.seconds = array("d"), array("d")
        self.other_terminations: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a run, given a row or the fields of an `Attempt`."""
        margin, kappa_bar, seconds = row["margin"], row["kappa_bar"], row["solve_seconds"]
        self.runs += 1
        self.solved += str(row["point_status"]) == "feasible" if margin is None else margin > 0
        if kappa_bar is not None:
            self.kappa_bars.append(kappa_bar)
        if seconds is not None:
            self.seconds.append(seconds)
        if str(row["termination"]) not in map(str, _EXPECTED_TERMINATIONS):
            self.other_terminations[str(row["termination"])] += 1

    def cells(self) -> list[str]:
        """Return the cells of the solver's line in the table, without its name."""
        kappa_bars = self.kappa_bars
        return [
            str(self.runs),
            str(self.solved),
            f"{max(kappa_bars):.4f}" if kappa_bars else "",
            f"{statistics.fmean(kappa_bars):.4f}" if kappa_bars else "",
            f"{statistics.median(self.seconds):.3g}" if self.seconds else "",
            ", ".join(f"{count} {name}" for name, count in self.other_terminations.most_common()),
        ]


_HEADINGS = ["solver", "runs", "solved", "best", "mean", "median_s", "other_ends"]


def table(tallies: Mapping[str, Tally]) -> list[str]:
    """Return the lines of a table with one row per solver; the columns best and mean refer to κ̄."""
    return align([_HEADINGS, *([name, *tally.cells()] for name, tally in tallies.items())], left=(0, -1))


class Progress:
    """Display of the progress of a suite, as a context manager.

    Parameters
    ----------
    title
        Text in front of the counts.
    total
        Largest possible number of runs, including those of earlier invocations.
    names
        Short names of problems and solvers by spec.
    solvers
        Short names of the solvers, in the order of the table.
    running
        Function that returns the active runs.
    stream
        Output stream, by default standard error.
    """

    def __init__(
        self,
        title: str,
        total: int,
        names: Mapping[str, str],
        solvers: Iterable[str],
        running: Callable[[], list[Running]],
        stream: TextIO | None = None,
    ) -> None:
        self.title, self.total, self.names, self.running = title, total, names, running
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.tallies = {name: Tally() for name in solvers}
        self.done = self.earlier = 0
        self._start_seconds = time.monotonic()
        self._drawn_lines = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._painter = threading.Thread(target=self._paint, daemon=True)

    def __enter__(self) -> "Progress":
        if self.live:
            self.stream.write("\x1b[?25l")
            self._painter.start()
        else:
            self._write(f"{self.title}: {self.total} runs\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.live:
            self._painter.join()
            with self._lock:
                self._erase()
                self._write("\x1b[?25h")

    def skip(self) -> None:
        """Count a run that an earlier invocation completed."""
        self.earlier += 1

    def drop(self, count: int) -> None:
        """Reduce the total by `count` runs that will not take place."""
        self.total -= count

    def tally(self, solver: str, row: Mapping[str, Any]) -> None:
        """Count a row in the table line of the solver with this spec."""
        self.tallies[self._name(solver)].add(row)

    def add(self, outcome: Outcome) -> None:
        """Count a completed run; print a line about it unless the view is live."""
        attempt, name = outcome.attempt, self._name(outcome.job.solver)
        with self._lock:
            self.done += 1
            self.tally(outcome.job.solver, vars(attempt))
        if not self.live:
            quantity = "objective" if attempt.kappa_bar is None else "kappa_bar"
            value = getattr(attempt, quantity)
            facts = [
                f"{name} on {self._name(outcome.job.problem)} start {outcome.job.start}: {attempt.termination}",
                f"{quantity} {value:.5g}" if value is not None else "",
                f"{attempt.solve_seconds:.3g} s" if attempt.solve_seconds is not None else "",
                attempt.message if attempt.termination not in _EXPECTED_TERMINATIONS else "",
            ]
            self._write(f"[{self.earlier + self.done}/{self.total}] {', '.join(filter(None, facts))}\n")

    def say(self, text: str) -> None:
        """Print a line of text above the live view."""
        with self._lock:
            self._erase()
            self._write(f"{text}\n")

    def _paint(self) -> None:
        while not self._over.wait(_FRAME_SECONDS):
            # Called without the lock, because on a cluster this call waits for the scheduler.
            running = self.running()
            with self._lock:
                lines = self._lines(running)
                self._erase()
                self._write("\n".join(lines) + "\n")
                self._drawn_lines = len(lines)

    def _lines(self, running: list[Running]) -> list[str]:
        """Return the lines of the live view, truncated to the size of the terminal."""
        size = shutil.get_terminal_size()
        now = time.monotonic()
        longest = sorted(running, key=lambda run: run.since)[:_MAX_SHOWN_RUNS]
        worker_width = max((len(run.worker) for run in longest), default=0)
        lines = [self._headline(now - self._start_seconds)]
        lines += [
            f"  {run.worker:<{worker_width}} {now - run.since:6.1f} s  {self._name(run.job.solver)} on "
            f"{self._name(run.job.problem)} start {run.job.start}"
            for run in longest
        ]
        lines += [f"  and {len(running) - _MAX_SHOWN_RUNS} more"] if len(running) > _MAX_SHOWN_RUNS else []
        lines += table(self.tallies)
        return [
            line if len(line) < size.columns else f"{line[: size.columns - 2]}…" for line in lines[: size.lines - 1]
        ]

    def _headline(self, elapsed_seconds: float) -> str:
        """Return the line with the counts, the elapsed time and an estimate of the remaining time."""
        remaining = self.total - self.earlier - self.done
        facts = [f"{self.earlier + self.done}/{self.total} done"]
        facts += [f"{self.earlier} of them before"] if self.earlier else []
        facts += [_clock(elapsed_seconds)]
        if self.done >= _MIN_RUNS_FOR_ESTIMATE and remaining:
            facts += [f"about {_clock(elapsed_seconds / self.done * remaining)} left"]
        return f"{self.title}: {', '.join(facts)}"

    def _erase(self) -> None:
        if self._drawn_lines:
            self.stream.write(f"\x1b[{self._drawn_lines}F\x1b[J")
            self._drawn_lines = 0

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _name(self, spec: str) -> str:
        return self.names.get(spec, spec)


def _clock(duration: float) -> str:
    """Return a duration in seconds as hours:minutes:seconds."""
    minutes, seconds = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
