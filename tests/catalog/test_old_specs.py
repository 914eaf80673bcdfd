"""Check figures made of rows that other versions wrote."""

from dataclasses import replace
from pathlib import Path

import qcqpbench
from qcqpbench.analysis.figures.base import count_replaced, entry, grid, measured, mixed_versions, series_name
from qcqpbench.catalog.machine import Machine
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.suite import Settings, Suite
from tests.support.results_files import reply


def test_rows_without_a_parameter_that_was_added_later_still_count(tmp_path: Path) -> None:
    """Use specs from before `ensemble` and `improve` were parameters; unknown specs stay as they are."""
    problems = grid("covariance_perceptron", m=4, load=1.0)
    suite = Suite("", "", tuple(problems), (entry("gip[starts=8]", Settings()), entry("qcqp", Settings())))
    assert "ensemble=paper" in problems[0]
    older = problems[0].replace(",ensemble=paper", "")
    specs = list(suite.runs())
    attempt = solve(qcqpbench.problem(problems[0]), "slsqp")
    with Store(tmp_path / "a.db", write=True) as store:
        store.begin("a command", Machine())
        for number, spec in enumerate(specs):
            name = spec.solver.partition("[")[0]
            old = replace(spec, problem=older, solver=name, version="old")
            store.add(Outcome(replace(attempt, spec=old), reply(), begun=1.0 + number))
        strange = replace(specs[0], problem="bygone[m=3]", solver="no [spec")
        store.add(Outcome(replace(attempt, spec=strange), reply(), begun=0.0))
        rows = measured(store, suite)
        assert {row.problem for row in rows} == set(problems)
        assert {row.series for row in rows} == {series_name(entry.solver.spec) for entry in suite.entries}
        assert count_replaced(store, suite) == 0 and mixed_versions(rows) == ""
        # The same run by another version replaces the row, and the figure says so.
        for spec in (replace(specs[0], start=1), specs[0]):
            store.add(Outcome(replace(attempt, spec=spec), reply(), begun=9.0))
        rows = measured(store, suite)
        assert len(rows) == len(specs) + 1 and count_replaced(store, suite) == 1
        other = replace(specs[0], start=2, version="other")
        store.add(Outcome(replace(attempt, spec=other), reply(), begun=9.0))
        sentence = mixed_versions(measured(store, suite))
    versions = "; ".join(sorted([specs[0].version, "other"]))
    assert sentence == f"Runs of several versions, the newest of each run: gip ({versions})."
