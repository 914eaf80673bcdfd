"""Relaxations of nodes of branch and bound, and the interior-point method for them: in NumPy, and compiled."""

import ctypes
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Cut, Groups, Leaf, leaf_bound
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.solver import Budget
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.attempt import solve
from qcqpbench.solvers import _bnb_kernel
from qcqpbench.solvers._bnb_interior_point import InteriorPoint
from qcqpbench.solvers._bnb_kernel import Kernel
from qcqpbench.solvers._bnb_node import Clock, Node, NodeResult, NodeSolver, Settings, Verdict
from qcqpbench.solvers._bnb_relaxation import Relaxation, StackedRelaxation, SymmetricRelaxation
from tests.support.perceptrons import perceptron

Array = NDArray[np.float64]
MakeSolver = Callable[[Relaxation, Settings], NodeSolver]

TASKS = ["m=6,load=1,seed=3", "m=4,load=1,seed=1,ensemble=gaussian", "m=4,n=3,p=2,seed=0", "m=3,n=4,p=3,seed=0"]
# Their rows fill several registers, and parts of one.
LARGER_TASKS = ["m=27,p=5,seed=3", "m=21,p=7,seed=1,ensemble=gaussian"]


def compiled(relaxation: Relaxation, settings: Settings) -> Kernel:
    loaded = _bnb_kernel.library()
    assert loaded is not None
    return Kernel(loaded, relaxation, settings)


def narrow_registers(size: int) -> Iterator[MakeSolver]:
    """Yield a maker of the method compiled for registers of so many bytes."""
    loaded = _bnb_kernel.library()
    if loaded is None:
        pytest.skip("qcqpbench was installed without a C compiler")
    widest = ctypes.c_int32.in_dll(loaded, "max_vector_bytes")
    before, widest.value = widest.value, size
    if loaded.vector_bytes() == size:
        yield compiled
    widest.value = before
    if loaded.vector_bytes() < size:
        pytest.skip(f"the processor has no registers of {size} bytes")


@pytest.fixture(params=[16, 32, 64])
def make_compiled(request: pytest.FixtureRequest) -> Iterator[MakeSolver]:
    yield from narrow_registers(request.param)


@pytest.fixture(params=["NumPy", "compiled"])
def make_solver(request: pytest.FixtureRequest) -> Iterator[MakeSolver]:
    if request.param == "NumPy":
        yield InteriorPoint
    else:
        loaded = _bnb_kernel.library()
        yield from narrow_registers(64 if loaded is None else loaded.vector_bytes())


def relaxation_of(task: MaxMargin) -> Relaxation:
    is_symmetric = task.n == 2 and all(np.array_equal(P, P.T) for P in task.patterns)
    return SymmetricRelaxation(task) if is_symmetric else StackedRelaxation(task)


def random_case(relaxation: Relaxation, counts: tuple[int, ...]) -> tuple[Groups, tuple[Cut, ...]]:
    """Return a group with so many random vectors for each matrix, and all of their cuts."""
    rng = np.random.default_rng(sum(counts))
    counts = counts[: relaxation.matrix_count]
    groups = tuple((unit_rows(rng.standard_normal((count, relaxation.order))),) if count else () for count in counts)
    return groups, tuple(Cut(k, 0, i, j) for k, count in enumerate(counts) for i, j in combinations(range(count), 2))


def leaf_of(task: MaxMargin, relaxation: Relaxation, groups: Groups, cuts: tuple[Cut, ...], result: NodeResult) -> Leaf:
    unit, weights = relaxation.unit, result.weights.reshape(task.labels.shape)
    return Leaf(relaxation.formulation, groups, cuts, weights, result.offsets * unit, result.cut_multipliers * unit)


@pytest.mark.solver
@pytest.mark.parametrize("spec", TASKS)
def test_relaxation_with_cuts_agrees_with_clarabel(spec: str, make_solver: MakeSolver) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    task = perceptron(spec)
    relaxation = relaxation_of(task)
    is_symmetric, d, m = relaxation.formulation == "symmetric", relaxation.order, task.m
    groups, cuts = random_case(relaxation, (4, 4))
    result = make_solver(relaxation, Settings()).solve(Node(groups, cuts, None), -1.0, 1e-7, Clock(Budget()))
    assert result.verdict is Verdict.ABOVE

    matrices = [cvxpy.Variable((d, d), PSD=True) for _ in groups]
    kappa = cvxpy.Variable()
    # The matrices that stand for w_i w_jᵀ; in the symmetric formulation aaᵀ − bbᵀ does.
    blocks = {
        (i, j): matrices[0] - matrices[1] if is_symmetric else matrices[0][i * m : (i + 1) * m, j * m : (j + 1) * m]
        for i in range(task.n)
        for j in range(i, task.n)
    }
    stabilities = [
        label * cvxpy.sum(cvxpy.multiply(pattern, blocks[pair]))
        for pattern, labels in zip(task.patterns, task.labels.tolist(), strict=True)
        for label, pair in zip(labels, zip(*task.pairs, strict=True), strict=True)
    ]
    traces = [sum(map(cvxpy.trace, matrices))] if is_symmetric else [cvxpy.trace(blocks[i, i]) for i in range(task.n)]
    constraints = [value == 1 for value in traces] + [value >= kappa for value in stabilities]
    constraints += [groups[k][g][i] @ matrices[k] @ groups[k][g][j] >= 0 for k, g, i, j in cuts]
    optimum = cvxpy.Problem(cvxpy.Maximize(kappa), constraints).solve(solver="CLARABEL")
    assert result.offsets.sum() * relaxation.unit == pytest.approx(optimum, rel=1e-6)
    assert leaf_bound(task, leaf_of(task, relaxation, groups, cuts, result)) == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("spec", ["m=5,p=4,seed=3", "m=3,n=3,p=2,ensemble=gaussian", "m=3,n=4,p=2,ensemble=gaussian"])
def test_congruences_and_traces_are_those_of_the_derivatives(spec: str) -> None:
    """Compare with dense derivatives of F, which are its values at unit vectors because F is linear."""
    relaxation = relaxation_of(perceptron(spec))
    ny, R, K, d = relaxation.offset_count, relaxation.stability_count, relaxation.matrix_count, relaxation.order
    E = np.array([relaxation.dual_matrices(unit[:ny], unit[ny:]) for unit in np.eye(ny + R)])
    L, Z = np.random.default_rng(0).standard_normal((2, K, d, d))
    L, Z = np.tril(L), Z + Z.swapaxes(1, 2)
    np.testing.assert_allclose(relaxation.congruences(L), L.swapaxes(1, 2) @ E @ L, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(relaxation.traces(Z), np.einsum("ikae,kae->i", E, Z), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("spec", [*TASKS, *LARGER_TASKS])
@pytest.mark.parametrize("counts", [(0, 0), (3, 0), (0, 3), (5, 2)])
def test_compiled_steps_are_those_in_numpy(spec: str, counts: tuple[int, int], make_compiled: MakeSolver) -> None:
    """Stop after each number of steps, with and without the point of a parent, and compare the points."""
    task = perceptron(spec)
    relaxation = relaxation_of(task)
    margin = solve(task, "gip[starts=8]").margin
    assert margin is not None
    groups, cuts = random_case(relaxation, counts)
    start = None
    for target in (0.5 * margin / relaxation.unit, 1.2 * margin / relaxation.unit, 3 * margin / relaxation.unit):
        for max_steps in (0, 1, 2, 4, 8, 80):
            node, settings = Node(groups, cuts, start), Settings(max_steps=max_steps)
            one, other = (
                make(relaxation, settings).solve(node, target, np.inf, Clock(Budget()))
                for make in (InteriorPoint, make_compiled)
            )
            assert (one.verdict, one.steps) == (other.verdict, other.steps)
            for name in ("offsets", "weights", "cut_multipliers", "matrices"):
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-8)
        new = np.arange(len(cuts)) % 2 == 0
        start = one.offsets, one.weights, np.where(new, np.nan, one.cut_multipliers)


@pytest.mark.parametrize("spec", TASKS)
def test_verdicts_agree_with_the_bounds_that_the_points_prove(spec: str, make_solver: MakeSolver) -> None:
    task = perceptron(spec)
    relaxation = relaxation_of(task)
    groups, cuts = random_case(relaxation, (4, 4))
    method = make_solver(relaxation, Settings())
    value = method.solve(Node(groups, cuts, None), -1.0, 1e-7, Clock(Budget())).offsets.sum()
    for target, verdict in ((0.9 * value, Verdict.ABOVE), (1.1 * value, Verdict.BELOW)):
        result = method.solve(Node(groups, cuts, None), target, np.inf, Clock(Budget()))
        assert result.verdict is verdict
        bound = leaf_bound(task, leaf_of(task, relaxation, groups, cuts, result)) / relaxation.unit
        assert value - 1e-6 <= bound and (bound <= target + 1e-9) == (verdict is Verdict.BELOW)
        # The matrices of an upper verdict are feasible, with a value above the target.
        if verdict is Verdict.ABOVE:
            vectors = [(result.matrices[k], groups[k][g][i], groups[k][g][j]) for k, g, i, j in cuts]
            assert min(u @ X @ v for X, u, v in vectors) > 0 and np.linalg.eigvalsh(result.matrices).min() > 0
            no_offsets = np.zeros(relaxation.offset_count)
            E = [relaxation.dual_matrices(no_offsets, unit) for unit in np.eye(relaxation.stability_count)]
            assert -max(np.vdot(each, result.matrices) for each in E) > target


def test_no_step_begins_without_time(make_solver: MakeSolver) -> None:
    relaxation = relaxation_of(perceptron(TASKS[0]))
    clock = Clock(Budget(0.0))
    result = make_solver(relaxation, Settings()).solve(Node(((), ()), (), None), 0.1, np.inf, clock)
    assert (result.verdict, result.steps, clock.is_out_of_time) == (Verdict.UNDECIDED, 0, True)
    # Nor does one that would take longer than the rest of the time.
    clock = Clock(Budget(100.0))
    clock.longest_seconds = 1000.0
    result = make_solver(relaxation, Settings()).solve(Node(((), ()), (), None), 0.1, np.inf, clock)
    assert (result.steps, clock.is_out_of_time) == (0, True)


@pytest.mark.parametrize("spec", TASKS[:3])
def test_a_run_without_the_compiled_library_proves_the_same_optimum(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = perceptron(spec)
    with_library = solve(task, "branch_and_bound[max_nodes=300]")
    monkeypatch.setattr(_bnb_kernel, "library", lambda: None)
    without = solve(task, "branch_and_bound[max_nodes=300]")
    assert solver("branch_and_bound").version().endswith("steps NumPy")
    assert with_library.bound is not None and with_library.termination is without.termination
    assert without.bound == pytest.approx(with_library.bound, rel=1e-3)
    assert with_library.termination is Termination.OPTIMAL or task.n > 2
