"""The results of runs as users hold them: typed rows, tables, points, reports and plots of one results file."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import QcqpbenchError, require

from .export import Column, table
from .row import Row
from .store import Store

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

    from qcqpbench.analysis.compare.comparison import Comparison

Array = NDArray[np.float64]


class Results:
    """Rows of a results file, and everything made from them.

    The file is opened for each call and closed after it, so that other processes can write it in between.

    Parameters
    ----------
    path
        The results file.

    Raises
    ------
    QcqpbenchError
        If the file cannot be opened, is damaged, or is not a results file.

    Examples
    --------
    >>> results = Results.open("results.db")  # doctest: +SKIP
    >>> [row.kappa_bar for row in results if row.solver_name == "gip"]  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        require(isinstance(path, str | Path), f"path must be the path of a results file, got {path!r:.100}")
        self.path = Path(path)
        with Store(self.path) as store:
            store.count()

    @classmethod
    def open(cls, path: str | Path) -> "Results":
        """Open the results file `path` and return its results."""
        return cls(path)

    def rows(self, all_rows: bool = False) -> list[Row]:
        """Return the newest row of each run, or all rows."""
        _check_flag("all_rows", all_rows)
        with Store(self.path) as store:
            return list(store.rows(all_rows))

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the newest row of each run."""
        return iter(self.rows())

    def __len__(self) -> int:
        with Store(self.path) as store:
            left_out = store.left_out()
            return store.count() - left_out.replaced - left_out.skipped

    def point(self, row: Row) -> Array | None:
        """Return the best point of a run: W of a task, shape (n, m), or x of a QCQP, shape (n,); None if none."""
        with self._store_with(row) as store:
            return store.point(row.id)

    def trace(self, row: Row) -> tuple[tuple[float, Array], ...]:
        """Return the points that the solver reported during a run, as pairs (seconds since its entry, point)."""
        with self._store_with(row) as store:
            return store.trace(row.id)

    def multipliers(self, row: Row) -> Array | None:
        """Return the multipliers of a task's stabilities, shape (p, n(n−1)/2); None if the solver returned none."""
        with self._store_with(row) as store:
            return store.multipliers(row.id)

    def output(self, row: Row) -> str:
        """Return the end of the output that the solver printed."""
        with self._store_with(row) as store:
            return store.output(row.id)

    def to_dataframe(self, all_rows: bool = False) -> "pandas.DataFrame":
        """Return the rows as a pandas DataFrame.

        The columns are those of `Row` and of `qcqpbench export`: the parameters of problems have columns of their own
        (m, load, seed, …), those of solvers have the prefix ``solver_``.

        Parameters
        ----------
        all_rows
            Whether to return all rows, not only the newest row of each run.
        """
        _check_flag("all_rows", all_rows)
        try:
            import pandas  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError:
            raise QcqpbenchError("to_dataframe needs the package pandas: pip install 'qcqpbench[pandas]'") from None
        with Store(self.path) as store:
            columns = table(store, all_rows)
        return pandas.DataFrame({column.name: _series(column) for column in columns})

    def report(self, path: str | Path) -> None:
        """Write a report of the results: an .html page with tables and plots, or a .md file."""
        is_path = isinstance(path, str | Path)
        require(is_path, f"path must be the path of an .html or .md file, got {path!r:.100}")
        from qcqpbench.analysis.report.write import write_report  # noqa: PLC0415 (the door to a higher room)

        write_report([self.path], path)

    def compare(
        self,
        other: "str | Path | Results | None" = None,
        *,
        solvers: str | Sequence[str] = (),
        versions: Sequence[str] = (),
        labels: Sequence[str] = (),
        effect: float = 0.05,
    ) -> "Comparison":
        """Compare two solvers, two versions of a solver, or all solvers of two results files.

        The comparison is paired: it covers the instances that both sides ran from the same starts with the same limits.

        Parameters
        ----------
        other
            A second results file, which has the second side; by default the same file.
        solvers
            Specs of one or two solvers: the first and the second side. One solver is compared between the two files,
            or between its two newest versions in one file. By default, every solver that both files have, or that has
            several versions in one file.
        versions
            Texts that are parts of the first and of the second version, such as the end of their source hashes; by
            default the newest of each file, or the two newest of one file.
        labels
            Names of the first and of the second side.
        effect
            The difference that matters, as a fraction. Times that differ by less are not called faster or slower.

        Returns
        -------
        Comparison
            Verdicts and numbers; its methods write Markdown, HTML and JSON.

        Raises
        ------
        QcqpbenchError
            If the sides cannot be compared: other problems, starts or limits.

        Examples
        --------
        >>> print(Results("old.db").compare("new.db"))  # doctest: +SKIP
        >>> Results("results.db").compare(solvers=["gip", "ipopt"]).is_loss  # doctest: +SKIP
        """
        from qcqpbench.analysis.compare.comparison import compare  # noqa: PLC0415 (the door to a higher room)

        others = [] if other is None else [other.path if isinstance(other, Results) else other]
        return compare(
            [self.path, *others],
            [solvers] if isinstance(solvers, str) else solvers,
            versions,
            labels,
            effect,
        )

    def plot_capacity(self, ax: "matplotlib.axes.Axes | None" = None) -> "matplotlib.axes.Axes":
        """Plot the margin κ̄ reached by each solver over the load, with the prediction of theory.

        Parameters
        ----------
        ax
            The axes to draw into; by default new ones.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        from qcqpbench.analysis.figures.solver_capacity import plot_capacity  # noqa: PLC0415

        return plot_capacity(self.rows(), ax)

    def _store_with(self, row: Row) -> Store:
        require(isinstance(row, Row), f"row must be a Row of these results, got {row!r:.100}")
        store = Store(self.path)
        if not store.has(row):
            store.close()
            raise QcqpbenchError(f"row must be a Row of {self.path}, got one of another file: {row!r:.200}")
        return store

    def __repr__(self) -> str:
        with Store(self.path) as store:
            count, replaced = store.count(), store.left_out()
        note = f", {replaced}" if str(replaced) else ""
        return f"<Results: {count} rows in {self.path}{note}>"

    def _repr_html_(self) -> str:
        shown = ("problem", "solver", "start", "termination", "kappa_bar", "objective", "solve_seconds")
        lines: list[Any] = self.rows()
        body = "".join(
            f"<tr>{''.join(f'<td>{_cell(getattr(row, name))}</td>' for name in shown)}</tr>" for row in lines[:_SHOWN]
        )
        head = "".join(f"<th>{name}</th>" for name in shown)
        more = f"<p>{len(lines) - _SHOWN} more rows</p>" if len(lines) > _SHOWN else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}"


# Number of rows that a notebook shows.
_SHOWN = 10


def _check_flag(name: str, value: object) -> None:
    require(isinstance(value, bool | np.bool_), f"{name} must be True or False, got {value!r:.100}")


def _series(column: Column) -> object:
    """Return the values as pandas stores them: missing numbers as NaN, other missing values as <NA>."""
    if column.kind is float:
        # NumPy converts None to NaN.
        return np.array(column.values, dtype=np.float64)
    if column.kind is int and None not in column.values:
        return np.array(column.values, dtype=np.int64)
    pandas_types = {int: "Int64", bool: "boolean", str: "string"}
    import pandas  # noqa: PLC0415 (an extra)

    return pandas.array(column.values, pandas_types[column.kind])


def _cell(value: object) -> str:
    return "" if value is None else escape(f"{value:.6g}" if isinstance(value, float) else str(value))
