from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Solver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import solve
from qcqpbench.run.conformance import Case, cases, check_family, check_solver, checks_of_solver, tolerance_notice
from tests.support.bad_solvers import (
    ClaimsTheInfeasible,
    Fine,
    IgnoresTheTimeLimit,
    IsKilled,
    LeavesFiles,
    LiesAboutItsObjective,
    NeedsWhatIsMissing,
    Prints,
    PrintsALot,
    ProvesTooMuch,
    Raises,
    ReturnsNaN,
    ReturnsNothing,
    StopsTooEarly,
)

Array = NDArray[np.float64]
pytestmark = pytest.mark.slow
PLANE = [case for case in cases(Fine().facts()) if isinstance(case.problem, MaxMargin) and case.problem.m == 2]
QCQPS = [case for case in cases(ClaimsTheInfeasible().facts()) if isinstance(case.problem, QCQP)]


def test_a_fine_solver_passes() -> None:
    assert [check for check in check_solver(Fine()) if not check.passed] == []


@pytest.mark.parametrize(
    ("solver", "complaint"),
    [
        (LiesAboutItsObjective(), "claims the objective"),
        (IgnoresTheTimeLimit(), "killed while solving"),
        (Prints(), "printed 'iteration 1"),
        (LeavesFiles(), "left files behind: solver.log"),
        (Raises(), "error: KeyError: 'my own'"),
        (ReturnsNaN(), "not finite"),
        (ReturnsNothing(), "error: TypeError: run must return a Solution, got NoneType"),
        (IsKilled(), "crashed: its process died: SIGKILL"),
        (StopsTooEarly(), "the optimum is"),
        (ProvesTooMuch(), "claims to have proved the bound"),
        (ClaimsTheInfeasible(), "says locally_optimal, but its point violates"),
        (NeedsWhatIsMissing(), "not_installed: a_package_nobody_has missing: pip install 'qcqpbench[missing]'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Solver) else "",
)
def test_a_bad_solver_fails(solver: Solver, complaint: str) -> None:
    complaints = [check.message for check in check_solver(solver) if not check.passed]
    assert any(complaint in text for text in complaints), complaints


def test_messages_are_whole() -> None:
    """Let a solver print more than fits on a line; the end of its output is in the message."""
    (check,) = check_solver(PrintsALot(), case="one pattern")
    assert not check.passed and "line 1\\n" in check.message and check.message.endswith("the line that matters\\n'")


def test_one_case_can_be_run() -> None:
    assert [check.case for check in check_solver(Fine(), case="Singular")] == [
        "one pattern: its largest singular value"
    ]
    assert [check.case for check in check_solver(Fine(), case="time limit")] == ["time limit of 2 s"]
    with pytest.raises(QcqpbenchError, match="case must be part of the name of a case, got 'nonsense'; cases: one"):
        check_solver(Fine(), case="nonsense")


def test_checks_are_yielded_as_the_cases_end() -> None:
    """Take the first check of a solver that would hang in the last case."""
    assert next(checks_of_solver(IgnoresTheTimeLimit())).passed


def test_a_looser_tolerance_is_noticed() -> None:
    facts = Fine().facts()
    assert tolerance_notice(replace(facts, tolerance=1e-6)) == tolerance_notice(replace(facts, tolerance=1e-9)) == ""
    notice = "declares tolerance 0.05; the suite counts its points as infeasible above 1e-06"
    assert tolerance_notice(replace(facts, tolerance=0.05)) == notice


@pytest.mark.parametrize("case", PLANE, ids=lambda case: case.name)
def test_optima_of_the_tasks(case: Case) -> None:
    """Compare with a search over all angles, refined around its best points, and with SCIP's bound."""
    task = case.problem
    assert isinstance(task, MaxMargin) and case.optimum is not None
    steps = 120 if task.n == 2 else 60
    angles = _grid([np.linspace(0, 2 * np.pi, steps, endpoint=False)] * task.n)
    width = 2 * np.pi / steps
    best = angles[np.argsort(_margins(task, angles))[-100:]]
    for _ in range(20):
        near = (best[:, None] + _grid([np.linspace(-width, width, 5)] * task.n)).reshape(-1, task.n)
        margins = _margins(task, near).reshape(len(best), -1)
        best = near.reshape(len(best), -1, task.n)[np.arange(len(best)), margins.argmax(axis=1)]
        width *= 0.7
    assert case.optimum - 1e-3 < _margins(task, best).max() < case.optimum + 1e-6
    scip = solve(task, "scip", time_limit=30)
    if scip.termination is Termination.SKIPPED:
        pytest.skip(scip.message)
    assert scip.margin == pytest.approx(case.optimum, abs=1e-6)
    assert scip.bound == pytest.approx(case.optimum, abs=1e-6)


@pytest.mark.parametrize("case", QCQPS, ids=lambda c: c.name)
def test_optima_of_the_qcqps_by_exhaustive_search(case: Case) -> None:
    problem = case.problem
    assert isinstance(problem, QCQP)
    points = _grid([np.linspace(-4, 4, 801)] * 2)
    violations = np.stack([problem.lower - problem.values(points), problem.values(points) - problem.upper]).max(
        initial=0, axis=(0, 2)
    )
    inside = ((points >= problem.x_lower) & (points <= problem.x_upper)).all(axis=1)
    sense = 1 if problem.sense == "minimize" else -1
    objectives = (sense * problem.objective(points))[inside & (violations < 0.02)]
    match case.answer:
        case "infeasible":
            assert objectives.size == 0
        case "unbounded":
            far = problem.objective(np.array([[0.0, 1e6]]))[0]
            assert problem.violation([0.0, 1e6]) == 0 and sense * far < -1e11
        case _:
            assert objectives.min() == pytest.approx(sense * (case.optimum or 0.0), abs=0.05)


@pytest.mark.parametrize("name", ["classical_perceptron", "covariance_perceptron", "parity"])
def test_every_family_passes(name: str) -> None:
    assert all(check.passed for check in check_family(f"{name}[m=5,p=4,seed=3]"))


def _grid(axes: list[Array]) -> Array:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _margins(task: MaxMargin, angles: Array) -> Array:
    parts = np.array_split(angles, max(1, len(angles) // 100_000))
    return np.concatenate([task.margin(np.stack([np.cos(part), np.sin(part)], axis=-1)) for part in parts])
