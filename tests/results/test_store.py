"""Rows of a results file: their values, the rows that count, and merging."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import QcqpbenchError, Termination
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope
from qcqpbench.results._encoding import pack, unpack
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Attempt, Outcome, RunValues
from qcqpbench.run.run_spec import RunSpec
from tests.support.results_files import BEGUN, SPEC, add_outcomes, is_intact, names_beside, outcome, read_rows, reply

# --- rows ---

numbers = st.none() | st.floats() | st.integers().map(float)
text = st.text(st.characters(), max_size=30) | st.just("\ud800 lone") | st.just("x\0y")
arrays = st.sampled_from([(2, 3), (4,), (0,), (), (2, 0, 3), (1, 1, 1, 1)]).flatmap(
    lambda shape: st.lists(st.floats(), min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda values: np.array(values, dtype=np.float64).reshape(shape)
    )
)
# Repeated skips add no row.
FINAL = [termination for termination in Termination if termination is not Termination.SKIPPED]
FLOATS = [field.name for field in fields(RunValues) if field.type in ("float | None", float | None)]
SECONDS = [name for name in FLOATS if name.endswith("_seconds")]


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    spec = RunSpec(
        problem=draw(text),
        problem_id=draw(text),
        solver=draw(text),
        version=draw(text),
        formulation=draw(st.none() | text),
        start=draw(st.integers(0, 1 << 40)),
        start_seed=draw(st.integers(0, 1 << 60)),
        time_limit=draw(st.floats(1e-9, math.inf)),
        memory_limit_bytes=draw(st.none() | st.integers(1, 1 << 50)),
        threads=draw(st.integers(1, 1 << 20)),
        tolerance=draw(st.floats(0.0, 1e300)),
    )
    rest: dict[str, Any] = {name: draw(numbers) for name in FLOATS}
    attempt = Attempt(
        spec=spec,
        termination=draw(st.sampled_from(FINAL)),
        point_status=draw(st.sampled_from(PointStatus)),
        sense=draw(st.none() | text),
        scope=draw(st.none() | st.sampled_from(Scope)),
        iterations=draw(st.none() | st.integers(0, 1 << 80)),
        message=draw(text),
        details=draw(st.none() | st.dictionaries(text, text | st.floats(), max_size=3)),
        point=draw(st.none() | arrays),
        formulation_point=draw(st.none() | arrays),
        multipliers=draw(st.none() | arrays),
        offsets=draw(st.none() | arrays),
        tree=draw(st.none() | arrays),
        trace=tuple(draw(st.lists(st.tuples(st.floats(0, 1e6), arrays), max_size=4))),
        **rest,
    )
    return Outcome(attempt, reply(draw(text)), draw(text), draw(st.floats(0, 1e10)))


def as_stored(value: Any) -> Any:
    """Return a value as it is read back: Unicode text, numbers of 64 bits, None for NaN."""
    if isinstance(value, str):
        return "".join("?" if "\ud800" <= character <= "\udfff" else character for character in value)
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return None if isinstance(value, int) and value >= 1 << 63 else value


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    with Store(path, write=True) as store:
        store.begin("a command", Machine())
        yield store
    assert is_intact(path)


@given(given_outcome=outcomes())
def test_a_row_holds_the_values_of_its_outcome(store: Store, given_outcome: Outcome) -> None:
    id, spec, attempt = store.add(given_outcome), given_outcome.spec, given_outcome.attempt
    (row,) = (row for row in store.rows(all_rows=True) if row.id == id)
    assert (row.key, row.begun, row.worker) == (spec.key, given_outcome.begun, as_stored(given_outcome.worker))
    for field in fields(RunSpec):
        assert getattr(row, field.name) == as_stored(getattr(spec, field.name)), field.name
    for name in (*FLOATS, "iterations", "message", "sense"):
        value = as_stored(getattr(attempt, name))
        is_unknown = name in SECONDS and value is not None and not 0 <= value < math.inf
        assert getattr(row, name) == (None if is_unknown else value), name
    assert (row.termination, row.point_status, row.scope) == (attempt.termination, attempt.point_status, attempt.scope)
    assert row.details == (attempt.details and {
        name: value if isinstance(value, str) or math.isfinite(value) else str(value)
        for name, value in attempt.details.items()
    })  # fmt: skip
    assert store.output(id) == as_stored(given_outcome.reply.output)
    same_bits(store.point(id), attempt.point)
    same_bits(store.formulation_point(id), attempt.formulation_point)
    same_bits(store.multipliers(id), attempt.multipliers)
    same_bits(store.offsets(id), attempt.offsets)
    same_bits(store.tree(id), attempt.tree)
    trace = store.trace(id)
    assert [seconds for seconds, _ in trace] == [seconds for seconds, _ in attempt.trace]
    for (_, got), (_, wanted) in zip(trace, attempt.trace, strict=True):
        same_bits(got, wanted)


@pytest.mark.parametrize("seconds", [-5.0, -1e-300, math.inf, -math.inf])
def test_impossible_times_are_stored_as_unknown(tmp_path: Path, seconds: float) -> None:
    """Check that a solver that sets back the clock of its process does not make the file unreadable."""
    times: dict[str, Any] = {"build_seconds": seconds, "solve_seconds": seconds, "cpu_seconds": seconds}
    add_outcomes(tmp_path / "a.db", outcome(**times), outcome(replace(SPEC, start=1), solve_seconds=0.0))
    first, second = read_rows(tmp_path / "a.db")
    assert {name: getattr(first, name) for name in times} == dict.fromkeys(times)
    assert second.solve_seconds == 0.0


def test_missing_facts_about_the_machine_stay_none(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", write=True) as store:
        machine = Machine(cpu="a", governor=None, dirty=False, memory_bytes=1 << 40, packages={"scip": None})
        id = store.begin("run", machine)
        assert store.invocations()[id].machine == machine


def test_long_output_is_stored_whole(tmp_path: Path) -> None:
    long = "é\0" * 10_000_000
    (id,) = add_outcomes(tmp_path / "a.db", outcome(output=long))
    with Store(tmp_path / "a.db") as store:
        assert store.output(id) == long


def same_bits(got: Any, wanted: Any) -> None:
    if wanted is None:
        assert got is None
    else:
        assert (got.shape, got.tobytes()) == (wanted.shape, wanted.tobytes())


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1j]), np.array([None]), "text", [[1], [2, 3]]])
def test_points_that_are_not_numbers_are_not_stored(tmp_path: Path, value: Any) -> None:
    good = np.ones(2)
    (id,) = add_outcomes(tmp_path / "a.db", outcome(point=value, multipliers=value, trace=((1.0, good), (2.0, value))))
    with Store(tmp_path / "a.db") as store:
        assert store.point(id) is None and store.multipliers(id) is None
        assert [seconds for seconds, _ in store.trace(id)] == [1.0]


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i4", "u1", "?"])
def test_numbers_of_other_types_become_float64(kind: str) -> None:
    array = np.array([[0, 1], [3, 1]], dtype=kind)
    got = unpack(pack(array) or b"")
    assert got.dtype == np.float64 and np.array_equal(got, array)


def test_the_bytes_of_an_array_do_not_change() -> None:
    assert pack(np.array([[1.0, -2.0]])) == bytes.fromhex(
        "0200000000000000" "0100000000000000" "0200000000000000" "000000000000f03f" "00000000000000c0"
    )  # fmt: skip


def test_a_long_trace_is_thinned(tmp_path: Path) -> None:
    trace = tuple((1e-3 * 1.001**k, np.array([float(k)])) for k in range(10_000))
    (id,) = add_outcomes(tmp_path / "a.db", outcome(trace=trace))
    with Store(tmp_path / "a.db") as store:
        kept = store.trace(id)
    assert (kept[0], kept[-1]) == (trace[0], trace[-1])
    assert len(kept) == 100
    assert all(trace[int(point[0])][0] == seconds for seconds, point in kept)
    ratios = [after[0] / before[0] for before, after in pairwise(kept)]
    assert max(ratios) / min(ratios) < 1.02


def test_sqlite_reads_details_as_json(tmp_path: Path) -> None:
    """Check that infinity and NaN in details do not break the JSON functions of SQLite."""
    add_outcomes(tmp_path / "a.db", outcome(details={"a": math.inf, "b": math.nan, "c": 1.5}))
    with Store(tmp_path / "a.db") as store:
        number, text = store._connection.execute("SELECT json_extract(details, '$.c'), details FROM run").fetchone()
    assert number == 1.5
    assert json.loads(text) == {"a": "inf", "b": "nan", "c": 1.5}


# --- which rows count ---


def test_a_repeat_adds_a_row_and_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add_outcomes(path, outcome(margin=1.0), outcome(replace(SPEC, start=1), margin=5.0))
    add_outcomes(path, outcome(margin=2.0, begun=BEGUN + 1))
    assert [(row.start, row.margin) for row in read_rows(path)] == [(1, 5.0), (0, 2.0)]
    assert [row.margin for row in read_rows(path, all_rows=True)] == [1.0, 5.0, 2.0]
    with Store(path) as store:
        assert store.finished() == {SPEC.key, replace(SPEC, start=1).key}


def test_jobs_with_different_keys_have_a_row_each(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"problem_id": "d"}, {"solver": "x"}, {"version": "2"}, {"formulation": "f"}, {"start": 1}, {"start_seed": 1},
        {"time_limit": 11.0}, {"memory_limit_bytes": 1}, {"threads": 2}, {"tolerance": 1e-5},
    ]  # fmt: skip
    others = [replace(SPEC, **change) for change in changes]
    add_outcomes(tmp_path / "a.db", *map(outcome, [SPEC, *others, replace(SPEC, problem="another name")]))
    assert len(read_rows(tmp_path / "a.db")) == 1 + len(others)


def test_skipped_runs_are_run_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    skipped = outcome(termination=Termination.SKIPPED, message="missing")
    assert len({*add_outcomes(path, skipped, skipped), *add_outcomes(path, skipped)}) == 1
    with Store(path) as store:
        assert store.finished() == set()
    assert [row.termination for row in read_rows(path)] == [Termination.SKIPPED]
    add_outcomes(path, outcome(begun=BEGUN + 1))
    assert [row.termination for row in read_rows(path)] == [Termination.FINISHED]
    # The package is missing again: the finished row still counts.
    add_outcomes(path, replace(skipped, begun=BEGUN + 2))
    assert [row.termination for row in read_rows(path)] == [Termination.FINISHED]
    with Store(path) as store:
        assert store.finished() == {SPEC.key}


def test_a_skipped_row_of_another_machine_does_not_hide_a_finished_one(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome())
    add_outcomes(tmp_path / "b.db", outcome(termination=Termination.SKIPPED, begun=BEGUN + 1))
    with Store(tmp_path / "a.db", write=True) as store:
        assert store.merge(tmp_path / "b.db") == 1
        assert [row.termination for row in store.rows()] == [Termination.FINISHED]


def test_a_row_of_another_version_replaces_a_skipped_row(tmp_path: Path) -> None:
    """Check solvers that are not installed: they have no version, so their keys differ from the later ones."""
    path, missing = tmp_path / "a.db", replace(SPEC, version="scipy ?")
    add_outcomes(
        path,
        outcome(missing, termination=Termination.SKIPPED),
        outcome(replace(missing, start=1), termination=Termination.SKIPPED),
    )
    add_outcomes(path, outcome(begun=BEGUN + 1), outcome(replace(SPEC, version="scipy 2"), begun=BEGUN + 2))
    assert [(row.start, row.version, row.termination) for row in read_rows(path)] == [
        (1, "scipy ?", Termination.SKIPPED),
        (0, "scipy 1", Termination.FINISHED),
        (0, "scipy 2", Termination.FINISHED),
    ]


@pytest.mark.parametrize("termination", FINAL)
def test_jobs_with_any_other_termination_are_finished(tmp_path: Path, termination: Termination) -> None:
    add_outcomes(tmp_path / "a.db", outcome(termination=termination))
    with Store(tmp_path / "a.db") as store:
        assert store.finished() == {SPEC.key}


def test_invocations_are_stored(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", write=True) as store:
        with pytest.raises(QcqpbenchError, match=r"Store\.begin must be called before Store\.add"):
            store.add(outcome())
        machine = Machine(cpu="a", packages={"numpy": None})
        first, second = store.begin("run smoke", machine), store.begin("run é", Machine())
        store.add(outcome())
        calls = store.invocations()
        assert [calls[first].command, calls[second].command] == ["run smoke", "run é"]
        assert (calls[first].machine, calls[second].machine) == (machine, Machine())
        assert next(store.rows()).invocation == second


# --- merging ---


def test_merge_adds_each_missing_row_once(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    add_outcomes(a, *(outcome(replace(SPEC, start=k), margin=float(k), point=np.full(2, k)) for k in range(3)))
    add_outcomes(b, outcome(margin=9.0, begun=BEGUN + 1, point=np.full(2, 9.0)), outcome(replace(SPEC, start=7)))
    shutil.copy(a, c)
    add_outcomes(c, outcome(replace(SPEC, start=4)))
    with Store(a, write=True) as store:
        assert [store.merge(path) for path in (b, b, c, a)] == [2, 0, 1, 0]
        merged = list(store.rows(all_rows=True))
        assert [row.start for row in merged] == [0, 1, 2, 0, 7, 4]
        assert [row.margin for row in merged] == [0.0, 1.0, 2.0, 9.0, None, None]
        for row in merged[:4]:
            np.testing.assert_array_equal(store.point(row.id), np.full(2, row.margin))
        assert len(store.invocations()) == 3
        assert {row.start: row.margin for row in store.rows()}[0] == 9.0
    assert len(read_rows(b)) == 2 and names_beside(a) == ["a.db", "b.db", "c.db"] and is_intact(a)


def test_merge_adds_the_rows_that_an_earlier_copy_lacks(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with Store(path, write=True) as store:
        store.begin("run", Machine())
        store.add(outcome())
        store._connection.execute("VACUUM INTO ?", (str(copy),))
        store.add(outcome(replace(SPEC, start=1)))
    with Store(copy, write=True) as store:
        assert store.merge(path) == 1
        assert [row.start for row in store.rows()] == [0, 1]
