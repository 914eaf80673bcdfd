"""Check equality, copies and notebook output of problems, QCQPs and tasks alike."""

import copy
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from qcqpbench import QCQP, MaxMargin, QcqpbenchError, problem
from qcqpbench.problem.metadata import BestKnown, Bound, Metadata


def disk() -> QCQP:
    start, metadata = np.array([0.1, 0.2]), Metadata(reference=np.array([1.0, 0.0]))
    return QCQP(
        q=[1, 2],
        quadratic_constraints=[(np.eye(2), None, None, 1)],
        linear_constraints=([[1, 1]], 0, None),
        start=start,
        variable_names=["x", "y"],
        metadata=metadata,
    )


def pair() -> MaxMargin:
    held_out = MaxMargin([np.eye(2)], [[1]])
    return MaxMargin([np.eye(2), np.ones((2, 2))], [[1], [-1]], 0.5, Metadata(seed=3), held_out=held_out)


both = pytest.mark.parametrize("make", [disk, pair])
Make = Callable[[], QCQP | MaxMargin]


@both
def test_equal_content_compares_equal(make: Make) -> None:
    first, second = make(), make().replace(metadata=Metadata(spec="other", seed=7))
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second}) == 1
    assert (first != second) is False


def test_other_content_compares_unequal() -> None:
    problems = [
        disk(),
        disk().replace(sense="maximize"),
        disk().replace(constant=1.0),
        pair(),
        pair().replace(scale=1.0),
    ]
    assert len(set(problems)) == len(problems)
    assert all((a == b) is (a is b) for a in problems for b in problems)


def test_replaced_patterns_are_checked() -> None:
    with pytest.raises(QcqpbenchError, match="patterns must be finite"):
        pair().replace(patterns=np.full((2, 2, 2), np.nan))


@both
def test_other_types_are_not_compared(make: Make) -> None:
    assert make().__eq__("text") is NotImplemented
    assert make().__eq__(make().id) is NotImplemented
    assert disk().__eq__(pair()) is NotImplemented
    assert make() != make().id and make() is not None


@both
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda value, protocol=protocol: pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, 6)),
    ],
)
def test_copies_are_equal_and_read_only(make: Make, duplicate: Callable[[QCQP | MaxMargin], QCQP | MaxMargin]) -> None:
    original = make()
    point = np.ones((2, 2)) if isinstance(original, MaxMargin) else np.ones(2)
    values = original.margin(point) if isinstance(original, MaxMargin) else original.values(point)
    other = duplicate(original)
    assert other == original and other is not original
    assert vars(other).keys() - {"id"} == {*original.__dataclass_fields__}
    result = other.margin(point) if isinstance(other, MaxMargin) else other.values(point)
    np.testing.assert_array_equal(result, values)
    arrays = [value for value in vars(other).values() if isinstance(value, np.ndarray)]
    for value in vars(other).values():
        if sparse.issparse(value):
            arrays += [value.data, value.indices, value.indptr]
    assert len(arrays) >= 2
    assert not any(array.flags.writeable for array in arrays)
    held_out = other.held_out if isinstance(other, MaxMargin) else None
    assert held_out is None or not held_out.patterns.flags.writeable


def test_reprs_are_one_line() -> None:
    assert repr(disk()) == f"<QCQP: minimize, 2 variables, 2 constraints (1 quadratic), id {disk().id[:12]}…>"
    one = QCQP(Q=[[1]], sense="maximize")
    assert repr(one) == f"<QCQP: maximize, 1 variable, 0 constraints (0 quadratic), id {one.id[:12]}…>"
    assert repr(pair()) == f"<MaxMargin: p=2, m=2, n=2, load 0.5, id {pair().id[:12]}…>"
    task = problem("covariance_perceptron[m=20,p=80]")
    assert repr(task) == f"<MaxMargin: p=80, m=20, n=2, load 2, {task.metadata.spec}>"
    assert str(task) == repr(task)


def test_repr_of_metadata_has_no_arrays() -> None:
    assert repr(Metadata()) == "Metadata()"
    metadata = Metadata("x[m=2]", 0, np.ones((2, 400)), BestKnown(1.5, "a paper"), (Bound(2.0, "shor"),), {"a": 1.0})
    assert repr(metadata) == (
        "Metadata(spec='x[m=2]', seed=0, best_known=BestKnown(value=1.5, source='a paper'), "
        "bounds=(Bound(value=2.0, kind='shor'),), notes={'a': 1.0}, reference=<array of shape (2, 400)>)"
    )


def test_notebooks_show_a_small_table() -> None:
    cells = dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", disk()._repr_html_()))
    assert cells == {
        "": "QCQP",
        "sense": "minimize",
        "variables": "2",
        "constraints": "2 (1 quadratic)",
        "quadratic terms": "2",
        "linear terms": "4",
        "id": f"{disk().id[:12]}…",
    }
    task = pair().replace(metadata=Metadata(spec="<b>[m=2]"))
    cells = dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", task._repr_html_()))
    assert (cells[""], cells["p"], cells["load"], cells["held-out trials"]) == ("MaxMargin", "2", "0.5", "1")
    assert cells["spec"] == "&lt;b&gt;[m=2]"
