"""How far a long run is: a view drawn again and again on a terminal, plain lines elsewhere; a table at the end."""

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
from qcqpbench.run.local_pool import Running

_FRAME = 0.5
_SHOWN = 8
_FINE = (Termination.OPTIMAL, Termination.LOCALLY_OPTIMAL, Termination.STALLED, Termination.FINISHED)


class Tally:
    """What a solver has done so far. Solved is a feasible point, on a task one with a positive margin."""

    def __init__(self) -> None:
        self.runs = self.points = self.solved = 0
        self.kappa_bars, self.seconds = array("d"), array("d")
        self.others: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """A row with the fields of an attempt."""
        margin, kappa_bar, seconds = row["margin"], row["kappa_bar"], row["solve_seconds"]
        self.runs += 1
        self.points += str(row["point_status"]) == "feasible"
        self.solved += str(row["point_status"]) == "feasible" if margin is None else margin > 0
        if kappa_bar is not None:
            self.kappa_bars.append(kappa_bar)
        if seconds is not None:
            self.seconds.append(seconds)
        if str(row["termination"]) not in map(str, _FINE):
            self.others[str(row["termination"])] += 1

    def cells(self) -> list[str]:
        kappa_bars = self.kappa_bars
        return [
            str(self.runs),
            str(self.solved),
            f"{max(kappa_bars):.4f}" if kappa_bars else "",
            f"{statistics.fmean(kappa_bars):.4f}" if kappa_bars else "",
            f"{statistics.median(self.seconds):.3g}" if self.seconds else "",
            ", ".join(f"{count} {name}" for name, count in self.others.most_common()),
        ]


_HEADINGS = ["runs", "solved", "best", "mean", "median_s", "otherwise"]


def table(tallies: Mapping[str, Tally]) -> list[str]:
    """The lines of a table, a solver each; best and mean are of kappa_bar."""
    rows = [["solver", *_HEADINGS], *([name, *tally.cells()] for name, tally in tallies.items())]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        " ".join(
            text.ljust(width) if k in (0, len(row) - 1) else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


class Progress:
    """The view of a run, from outcomes that it is told of and a function that says what runs now.

    total     runs at the most, those done before among them
    names     what to call problems and solvers, by their specs; solvers: those to come, by name
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
        self.done = self.before = 0
        self._begun = time.monotonic()
        self._drawn = 0
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
        """A run was done before."""
        self.before += 1

    def drop(self, count: int) -> None:
        """So many runs fewer are to be done."""
        self.total -= count

    def add(self, outcome: Outcome) -> None:
        attempt, name = outcome.attempt, self._name(outcome.job.solver)
        with self._lock:
            self.done += 1
            self.tallies[name].add(vars(attempt))
        if not self.live:
            value = attempt.objective if attempt.kappa_bar is None else attempt.kappa_bar
            what = "objective" if attempt.kappa_bar is None else "kappa_bar"
            facts = [
                f"{name} on {self._name(outcome.job.problem)} start {outcome.job.start}: {attempt.termination}",
                f"{what} {value:.5g}" if value is not None else "",
                f"{attempt.solve_seconds:.3g} s" if attempt.solve_seconds is not None else "",
                attempt.message if attempt.termination not in _FINE else "",
            ]
            self._write(f"[{self.before + self.done}/{self.total}] {', '.join(filter(None, facts))}\n")

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        with self._lock:
            self._erase()
            self._write(f"{text}\n")

    def _paint(self) -> None:
        while not self._over.wait(_FRAME):
            # Before the lock: on a cluster it asks the scheduler.
            running = self.running()
            with self._lock:
                lines = self._lines(running)
                self._erase()
                self._write("\n".join(lines) + "\n")
                self._drawn = len(lines)

    def _lines(self, running: list[Running]) -> list[str]:
        size = shutil.get_terminal_size()
        elapsed = time.monotonic() - self._begun
        left = self.total - self.before - self.done
        facts = [f"{self.before + self.done}/{self.total} done"]
        facts += [f"{self.before} of them before"] if self.before else []
        facts += [_clock(elapsed)]
        facts += [f"about {_clock(elapsed / self.done * left)} left"] if self.done >= 3 and left else []
        now = time.monotonic()
        eldest = sorted(running, key=lambda each: each.since)[:_SHOWN]
        wide = max((len(each.worker) for each in eldest), default=0)
        lines = [f"{self.title}: {', '.join(facts)}"]
        lines += [
            f"  {each.worker:<{wide}} {now - each.since:6.1f} s  {self._name(each.job.solver)} on "
            f"{self._name(each.job.problem)} start {each.job.start}"
            for each in eldest
        ]
        lines += [f"  and {len(running) - _SHOWN} more"] if len(running) > _SHOWN else []
        lines += table(self.tallies)
        return [
            line if len(line) < size.columns else f"{line[: size.columns - 2]}…" for line in lines[: size.lines - 1]
        ]

    def _erase(self) -> None:
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _name(self, spec: str) -> str:
        return self.names.get(spec, spec)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
