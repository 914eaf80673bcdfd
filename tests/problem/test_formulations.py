import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, formulation, problem, unit_rows
from qcqpbench.problem import formulations
from qcqpbench.problem.formulations import FORMULATIONS
from qcqpbench.problem.metadata import BestKnown, Bound, Metadata

Array = NDArray[np.float64]
MakeTask = Callable[..., MaxMargin]

both = pytest.mark.parametrize("name", ["min_norm", "epigraph"])


def separable(
    make_task: MakeTask, p: int, m: int, n: int, seed: int = 0, zeros: float = 0.0
) -> tuple[MaxMargin, Array]:
    """Return a task and a W of unit rows with positive margin, by taking as labels the signs that W gives."""
    task = make_task(p, m, n, seed, zeros)
    W = unit_rows(np.random.default_rng(seed).standard_normal((n, m)))
    task = MaxMargin(task.patterns, np.where(task.stabilities(W) * task.labels >= 0, 1, -1), task.scale)
    return task, W


def encode_term_by_term(task: MaxMargin, name: str) -> QCQP:
    """Return the encoded task, term by term from the definition."""
    quadratic: list[tuple[int, int, int, float]] = []
    linear: list[tuple[int, int, float]] = []
    m, n = task.m, task.n
    t, row = n * m, 0
    for column, (i, j) in enumerate(combinations(range(n), 2)):
        for r in range(task.p):
            row += 1
            for k, l in np.ndindex(m, m):  # noqa: E741
                quadratic.append((row, i * m + k, j * m + l, float(task.labels[r, column] * task.patterns[r, k, l])))
            linear.append((row, t, -1.0))
    if name == "min_norm":
        quadratic += [(0, k, k, 1.0) for k in range(m)]
        for i in range(1, n):
            quadratic += [(row + i, k, k, 1.0) for k in range(m)]
            quadratic += [(row + i, i * m + k, i * m + k, -1.0) for k in range(m)]
        return QCQP.from_terms(
            n * m,
            quadratic=list(zip(*quadratic, strict=True)),
            lower=[1.0] * row + [0.0] * (n - 1),
            upper=[np.inf] * row + [0.0] * (n - 1),
        )
    for i in range(n):
        quadratic += [(row + 1 + i, i * m + k, i * m + k, 1.0) for k in range(m)]
    return QCQP.from_terms(
        n * m + 1,
        sense="maximize",
        quadratic=list(zip(*quadratic, strict=True)),
        linear=list(zip(*linear, (0, t, 1.0), strict=True)),
        lower=[0.0] * row + [1.0] * n,
        upper=[np.inf] * row + [1.0] * n,
    )


@both
@pytest.mark.parametrize(("p", "m", "n"), [(1, 2, 2), (5, 3, 2), (4, 3, 3), (3, 2, 4), (2, 2, 5)])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9, 1.0])
def test_encoding_agrees_with_the_definition(
    make_task: MakeTask, name: str, p: int, m: int, n: int, zeros: float
) -> None:
    task = make_task(p, m, n, seed=p, zeros=zeros)
    fast, slow = formulation(name).encode(task), encode_term_by_term(task, name)
    assert fast.id == slow.id
    np.testing.assert_array_equal(fast.products, slow.products)


@both
def test_encoding_in_several_chunks_is_the_same(
    make_task: MakeTask, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(7, 3, 3, zeros=0.4)
    monkeypatch.setattr(formulations, "_CHUNK_BYTES", 2 * 8 * 9)
    assert formulation(name).encode(task).id == encode_term_by_term(task, name).id


@both
@pytest.mark.parametrize("n", [2, 3, 4])
def test_constraints_are_the_stabilities_and_lengths(make_task: MakeTask, name: str, n: int) -> None:
    task = make_task(5, 4, n)
    encoded = formulation(name).encode(task)
    W = np.random.default_rng(3).standard_normal((n, 4))
    stabilities, squares = task.stabilities(W).T.ravel(), (W**2).sum(axis=1)
    if name == "min_norm":
        x, expected, objective = W.ravel(), [*stabilities, *(squares[0] - squares[1:])], squares[0]
    else:
        x, expected, objective = np.append(W, 0.3), [*(stabilities - 0.3), *squares], 0.3
    np.testing.assert_allclose(encoded.values(x), expected, rtol=1e-12, atol=1e-13)
    assert encoded.objective(x) == pytest.approx(objective, rel=1e-14)


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.0, 0.6]))
def test_feasible_point_decodes_to_its_margin(make_task: MakeTask, seed: int, n: int, zeros: float) -> None:
    """Check that a start is feasible in both formulations, and that objective and decoded W have its margin."""
    task, W = separable(make_task, 4, 5, n, seed, zeros)
    margin = task.margin(W)
    if margin < 1e-6:
        return
    min_norm, epigraph = (formulation(name) for name in ("min_norm", "epigraph"))
    x, y = min_norm.encode_start(task, 7 * W), epigraph.encode_start(task, W / 7)
    first, second = min_norm.encode(task), epigraph.encode(task)
    assert first.violation(x) < 1e-12 / margin
    assert second.violation(y) < 1e-12
    assert 1 / first.objective(x) == pytest.approx(margin, rel=1e-12)
    assert second.objective(y) == pytest.approx(margin, abs=1e-12)
    for encoder, point in ((min_norm, x), (epigraph, y)):
        V = encoder.decode(task, point)
        np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1, rtol=1e-15)
        assert task.margin(V) == pytest.approx(margin, abs=1e-12)
    # A longer point is feasible too, and represents the same W.
    assert first.violation(2 * x) < 1e-11 / margin
    assert task.margin(min_norm.decode(task, 2 * x)) == pytest.approx(margin, abs=1e-12)


@both
def test_start_with_negative_margin_is_encoded(make_task: MakeTask, name: str) -> None:
    task, W = separable(make_task, 4, 5, 3)
    task = replace(task, labels=-task.labels)
    x = formulation(name).encode_start(task, W)
    assert (formulation(name).encode(task).violation(x) > 1e-12) == (name == "min_norm")
    assert task.margin(formulation(name).decode(task, x)) == pytest.approx(task.margin(W), abs=1e-12)


@both
@pytest.mark.parametrize("n", [2, 3])
def test_derivatives_agree_with_those_of_the_task(make_task: MakeTask, name: str, n: int) -> None:
    """Compare with the gradients of the stabilities that MaxMargin computes."""
    task = make_task(5, 4, n, zeros=0.3)
    encoded = formulation(name).encode(task)
    rng = np.random.default_rng(1)
    W, multipliers = rng.standard_normal((n, 4)), rng.standard_normal(task.labels.shape)
    x = np.append(W, np.zeros(encoded.n_variables - W.size))
    weights = np.append(multipliers.T, np.zeros(encoded.n_constraints - multipliers.size))
    expected = task.stability_gradient(W, multipliers).ravel()
    np.testing.assert_allclose((weights @ encoded.jacobian(x))[: W.size], expected, rtol=1e-11, atol=1e-12)
    curvature = encoded.hessian(weights, 0.0).toarray()[: W.size, : W.size]
    np.testing.assert_allclose(curvature @ W.ravel(), expected, rtol=1e-11, atol=1e-12)


def test_metadata_is_encoded(make_task: MakeTask) -> None:
    task, W = separable(make_task, 4, 5, 2)
    metadata = Metadata("spec", 3, W, BestKnown(0.25, "me"), (Bound(0.5, "shor"),), {"fact": 1.0})
    task = replace(task, metadata=metadata)
    first, second = (formulation(name).encode(task).metadata for name in ("min_norm", "epigraph"))
    assert (first.best_known, first.bounds) == (BestKnown(4.0, "me"), (Bound(2.0, "shor"),))
    assert (second.best_known, second.bounds) == (metadata.best_known, metadata.bounds)
    assert first.notes == {"fact": 1.0, "formulation": "min_norm", "task_id": task.id}
    for name, encoded in (("min_norm", first), ("epigraph", second)):
        assert (encoded.spec, encoded.seed) == ("spec", 3)
        assert encoded.reference is not None
        decoded = formulation(name).decode(task, encoded.reference)
        assert task.margin(decoded) == pytest.approx(task.margin(W), abs=1e-12)


@both
@pytest.mark.parametrize("ensemble", ["paper", "gaussian"])
def test_encoding_takes_little_memory(name: str, ensemble: str) -> None:
    task = problem(f"covariance_perceptron[m=100,p=800,ensemble={ensemble}]")
    assert isinstance(task, MaxMargin)
    formulation(name).encode(problem("covariance_perceptron[m=3,p=2]"))  # type: ignore[arg-type]
    task.id  # noqa: B018 (hashed once, kept)
    tracemalloc.start()
    encoded = formulation(name).encode(task)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    matrices = [
        getattr(each, part) for each in (encoded.quadratic, encoded.linear) for part in ("data", "indices", "indptr")
    ]
    vectors = [encoded.products, encoded.lower, encoded.upper, encoded.x_lower, encoded.x_upper]
    assert peak <= 3 * sum(array.nbytes for array in matrices + vectors)


@both
def test_wrong_points_are_refused(make_task: MakeTask, name: str) -> None:
    task, encoder = make_task(2, 3, 2), formulation(name)
    for x in (np.ones(5), np.ones((2, 6)), 1.0):
        with pytest.raises(QcqpbenchError, match="x must be a vector of at least 6 numbers"):
            encoder.decode(task, x)
    for x in (np.zeros(7), np.full(7, np.nan)):
        with pytest.raises(QcqpbenchError, match="must be finite and not zero"):
            encoder.decode(task, x)
    for W in (np.ones((3, 3)), np.ones((2, 2)), np.ones((4, 2, 3))):
        with pytest.raises(QcqpbenchError, match=r"W must have shape \(2, 3\), got"):
            encoder.encode_start(task, W)


def test_unknown_formulation_is_refused() -> None:
    assert list(FORMULATIONS) == ["min_norm", "epigraph"]
    with pytest.raises(QcqpbenchError, match=r"'min-norm'; did you mean 'min_norm'\? allowed: epigraph, min_norm"):
        formulation("min-norm")
