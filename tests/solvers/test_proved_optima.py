"""Solvers on tasks whose optima are proved: no margin is above the bound, and good solvers reach nearly all optima."""

from functools import cache

import pytest

import qcqpbench
from qcqpbench import MaxMargin
from qcqpbench.catalog.best_known import Record, shipped_records
from qcqpbench.run.suite_file import load_suite

MAX_INPUTS = 16


@cache
def proved() -> list[tuple[Record, MaxMargin]]:
    """Return the small tasks of the suite `proved` with their records."""
    records = {record.problem: record for record in shipped_records().values()}
    tasks = ((records[spec], qcqpbench.problem(spec)) for spec in load_suite("proved").problems)
    return [(record, task) for record, task in tasks if isinstance(task, MaxMargin) and task.m <= MAX_INPUTS]


def test_every_optimum_of_the_suite_is_proved() -> None:
    records = {record.problem: record for record in shipped_records().values()}
    problems = load_suite("proved").problems
    assert len(problems) == 51 and set(problems) <= records.keys()
    for spec in problems:
        record = records[spec]
        # Relative to a hundredth of the unit of κ̄ if the margin is smaller, as in branch and bound.
        reference = max(abs(record.margin), 0.01 * record.margin / record.kappa_bar)
        assert 0 <= record.bound - record.margin <= 1.01e-4 * reference, spec


def test_gip_reaches_nearly_all_proved_optima() -> None:
    shares = []
    for record, task in proved():
        margin = qcqpbench.solve(task, "gip").margin
        assert margin is not None and margin <= record.bound
        shares.append(margin >= record.margin - 1e-4 * abs(record.margin))
    assert len(shares) >= 40 and sum(shares) >= 0.95 * len(shares)


@pytest.mark.solver
@pytest.mark.parametrize("name", ["ipopt", "slsqp"])
def test_no_margin_is_above_a_proved_bound(name: str) -> None:
    for record, task in proved():
        margin = qcqpbench.solve(task, name, time_limit=20).margin
        assert margin is not None and margin <= record.bound * (1 + 1e-9)
