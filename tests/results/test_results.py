"""The object `Results`: rows, arrays, DataFrames, and its views in prompts and notebooks."""

import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QcqpbenchError, Termination
from qcqpbench.results.results import Results
from qcqpbench.results.row import COLUMNS, Row, name_and_parameters
from qcqpbench.results.store import Store
from tests.support.results_files import BEGUN, CONVEX, SPEC, add_outcomes, add_runs, change, outcome, read_rows

pandas = pytest.importorskip("pandas")

_TEXT, _WHOLE, _NUMBER = "string", "int64", "float64"
_MANY = 100_000

# --- rows and arrays ---


def test_results_are_the_newest_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add_outcomes(path, outcome(margin=1.0), outcome(replace(SPEC, start=1), margin=5.0))
    add_outcomes(path, outcome(margin=2.0, begun=BEGUN + 1))
    # Superseded by the row of another version.
    missing = replace(SPEC, version="?")
    add_outcomes(path, outcome(missing, termination=Termination.SKIPPED, margin=9.0, begun=BEGUN - 1))
    for results in (Results(path), Results.open(path), Results.open(str(path))):
        assert [row.margin for row in results] == [row.margin for row in read_rows(path)] == [5.0, 2.0]
        assert len(results) == 2
        assert [row.margin for row in results.rows(all_rows=True)] == [1.0, 5.0, 2.0, 9.0]
        assert list(results.to_dataframe()["margin"]) == [5.0, 2.0]
        assert list(results.to_dataframe(all_rows=True)["margin"]) == [1.0, 5.0, 2.0, 9.0]


def test_rows_added_later_are_seen(tmp_path: Path) -> None:
    """Check also that a writer may have the file open."""
    path = tmp_path / "a.db"
    add_outcomes(path, outcome())
    results = Results.open(path)
    with Store(path, write=True) as store:
        store.begin("run", next(iter(results)).machine)
        store.add(outcome(replace(SPEC, start=1)))
        assert len(results) == 2
    assert len(results) == 2 and [file.name for file in tmp_path.iterdir()] == ["a.db"]


def test_points_traces_multipliers_and_output_are_those_of_the_row(tmp_path: Path) -> None:
    point, multipliers = np.arange(6.0).reshape(2, 3), np.array([[0.5], [0.25]])
    trace = ((0.125, point - 1), (0.5, point))
    arrays: dict[str, Any] = {"point": point, "multipliers": multipliers, "trace": trace}
    add_outcomes(tmp_path / "a.db", outcome(replace(SPEC, start=1)), outcome(output="printed\n", **arrays))
    results = Results.open(tmp_path / "a.db")
    without, row = results
    np.testing.assert_array_equal(results.point(row), point)
    np.testing.assert_array_equal(results.multipliers(row), multipliers)
    assert [seconds for seconds, _ in results.trace(row)] == [0.125, 0.5]
    np.testing.assert_array_equal(results.trace(row)[0][1], point - 1)
    assert results.output(row) == "printed\n"
    assert (results.point(without), results.multipliers(without), results.trace(without)) == (None, None, ())
    assert results.output(without) == ""


@pytest.mark.parametrize("value", [1, None, "row", SPEC])
@pytest.mark.parametrize("name", ["point", "trace", "multipliers", "output"])
def test_arrays_are_of_rows_only(results: Path, name: str, value: Any) -> None:
    read: Callable[[Any], object] = getattr(Results(results), name)
    with pytest.raises(QcqpbenchError, match="row must be a Row of these results, got"):
        read(value)


def test_a_row_of_another_file_has_no_arrays_here(tmp_path: Path, results: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome())
    with pytest.raises(QcqpbenchError, match=r"row must be a Row of .*a\.db, got one of another file: <Row 1: gip"):
        Results(tmp_path / "a.db").point(read_rows(results)[0])


# --- wrong files ---


@pytest.mark.parametrize("content", [None, b"", b"x,y\n1,2\n", b"SQLite format 3\0" + bytes(100)])
@pytest.mark.parametrize("open_results", [Results, Results.open])
def test_other_files_are_refused_in_one_line(
    tmp_path: Path, content: bytes | None, open_results: Callable[[Path], Results]
) -> None:
    path = tmp_path / "a.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(QcqpbenchError) as caught:
        open_results(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert path.exists() is (content is not None)


@pytest.mark.parametrize("path", [None, 3, [], b"a.db"])
def test_a_path_must_be_one(path: Any) -> None:
    with pytest.raises(QcqpbenchError, match="path must be the path of a results file, got"):
        Results.open(path)


# --- DataFrames ---


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of tasks and QCQPs, of two solvers, with rows that miss values."""
    path = tmp_path_factory.mktemp("mixed") / "mixed.db"
    tasks = ["covariance_perceptron[m=4,load=1]", "covariance_perceptron[m=4,load=0.5,seed=7]"]
    add_runs(path, tasks, ["gip[starts=1]", "slsqp[formulation=min_norm]"])
    add_runs(path, [CONVEX], ["slsqp"], starts=2)
    lost = replace(SPEC, problem="folder/a.npz", memory_limit_bytes=10**12, start_seed=9, tolerance=0.5)
    add_outcomes(path, outcome(lost, iterations=None, details={"note": "é"}, message="=1"))
    return path


def test_a_dataframe_has_the_values_of_the_rows(mixed: Path) -> None:
    frame, rows = Results(mixed).to_dataframe(), read_rows(mixed)
    assert len(frame) == len(rows) == 7
    # These are replaced by columns that say more, or the same in every file.
    own = set(COLUMNS) - {"number", "machine", "invocation", "details"}
    assert own <= set(frame.columns)
    for name in own:
        for cell, row in zip(frame[name], rows, strict=True):
            value = getattr(row, name)
            if name == "time_limit":
                value = None if value == math.inf else value
            if value is None:
                assert pandas.isna(cell), name
            else:
                assert cell == (str(value) if name in ("termination", "point_status", "scope") else value), name


def test_parameters_of_problems_and_solvers_are_columns_of_a_dataframe(mixed: Path) -> None:
    frame, rows = Results(mixed).to_dataframe(), read_rows(mixed)
    assert list(frame["problem_name"]) == [row.problem_name for row in rows]
    assert list(frame["solver_name"]) == [row.solver_name for row in rows]
    assert set(frame["problem_name"]) == {"covariance_perceptron", "classical_perceptron", "folder/a.npz"}
    assert list(frame["m"])[:6] == [4, 4, 4, 4, 5, 5] and frame["m"].isna().tolist() == [False] * 6 + [True]
    assert list(frame["load"])[:4] == [1.0, 1.0, 0.5, 0.5]
    # The seed of the problem and that of the starts differ.
    assert list(frame["seed"])[:4] == [0, 0, 7, 7] and list(frame["start_seed"]) == [0] * 6 + [9]
    for prefix, parameters in (("", "problem_parameters"), ("solver_", "solver_parameters")):
        for index, row in enumerate(rows):
            for name, value in getattr(row, parameters).items():
                assert frame[f"{prefix}{name}"][index] == value, name
    assert frame["solver_starts"][frame["solver_name"] == "slsqp"].isna().all()
    assert list(frame["cpu"]) == ["a CPU"] * 6 + ["fast"] and list(frame["commit"])[:1] == ["c0ffee"]
    assert list(frame["command"]) == ["a, command"] * 6 + ["run"] and frame["invocation"].nunique() == 3


def test_columns_of_a_dataframe_have_the_types_of_their_values(mixed: Path) -> None:
    frame = Results(mixed).to_dataframe()
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    whole = {"id", "start", "start_seed", "threads"}
    missing_whole = {"memory_limit_bytes", "iterations", "peak_memory_bytes", "m", "n", "seed", "solver_starts"}
    assert {name: kinds[name] for name in whole} == dict.fromkeys(whole, _WHOLE)
    assert {name: kinds[name] for name in missing_whole} == dict.fromkeys(missing_whole, "Int64")
    numbers = {"margin", "kappa_bar", "time_limit", "tolerance", "begun", "load", "solver_ftol", "solve_seconds"}
    assert {name: kinds[name] for name in numbers} == dict.fromkeys(numbers, _NUMBER)
    texts = {"problem", "solver_name", "termination", "sense", "formulation", "ensemble", "details", "message", "cpu"}
    assert {name: kinds[name] for name in texts} == dict.fromkeys(texts, _TEXT)
    for name in (*missing_whole, "sense", "formulation", "ensemble"):
        missing = frame[name][frame[name].isna()]
        assert len(missing) and all(value is pandas.NA for value in missing), name


def test_a_dataframe_of_no_rows_has_the_columns_of_rows(tmp_path: Path) -> None:
    Store(tmp_path / "a.db", write=True).close()
    results = Results(tmp_path / "a.db")
    frame = results.to_dataframe()
    assert len(frame) == len(results) == 0 and {"id", "margin", "problem_name", "solver_name"} <= set(frame.columns)


@pytest.mark.parametrize(
    ("problem", "solver", "column", "value"),
    [
        ("a[start=3]", "b", "problem_start", 3),
        ("a[margin=0.5]", "b", "problem_margin", 0.5),
        ("a", "b[name=x]", "solver_name_", "x"),
        ("a[solver_k=1]", "b[k=2]", "solver_k_", 2),
        (f"a[seed={1 << 70}]", "b", "seed", str(1 << 70)),
        ("a[sparse=true]", "b", "sparse", True),
    ],
)
def test_parameters_named_as_columns_have_columns_of_their_own(
    tmp_path: Path, problem: str, solver: str, column: str, value: object
) -> None:
    add_outcomes(tmp_path / "a.db", outcome(replace(SPEC, problem=problem, solver=solver)))
    frame = Results(tmp_path / "a.db").to_dataframe()
    assert frame[column].tolist() == [value]
    assert (frame["solver_name"].tolist(), frame["start"].tolist()) == (["b"], [0])
    assert frame.columns.is_unique


def test_a_parameter_of_several_types_is_text_and_of_numbers_is_a_number(tmp_path: Path) -> None:
    texts = ["a[x=1,y=1,z=true]", "a[x=0.5,y=one,z=2]"]
    add_outcomes(tmp_path / "a.db", *(outcome(replace(SPEC, problem=text, problem_id=text)) for text in texts))
    frame = Results(tmp_path / "a.db").to_dataframe()
    assert (str(frame["x"].dtype), frame["x"].tolist()) == (_NUMBER, [1.0, 0.5])
    assert (str(frame["y"].dtype), frame["y"].tolist()) == (_TEXT, ["1", "one"])
    assert str(frame["z"].dtype) == _TEXT


def test_many_rows_need_no_more_queries_and_parse_each_spec_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the work of 100,000 rows of 50 problems: it must not have a step for each row but reading the row."""
    path = tmp_path / "a.db"
    add_outcomes(path, outcome(replace(SPEC, problem="a[m=0]"), margin=0.0))
    few, queries = Path(shutil.copy(path, tmp_path / "few.db")), [0]
    names = ", ".join(name for name in COLUMNS if name not in ("id", "number", "key", "problem", "margin"))
    change(
        path,
        f"""WITH RECURSIVE k(k) AS (VALUES (1) UNION ALL SELECT k + 1 FROM k WHERE k < {_MANY - 1})
        INSERT INTO run (number, key, problem, margin, {names})
        SELECT k, 'key' || k, 'a[m=' || (k % 50) || ']', k, {names} FROM k, run WHERE run.id = 1""",
    )
    read = Store._read

    def counted(store: Store, *arguments: Any) -> Any:
        queries[0] += 1
        return read(store, *arguments)

    monkeypatch.setattr(Store, "_read", counted)
    counts = []
    for file in (few, path):
        queries[0] = 0
        name_and_parameters.cache_clear()
        frame = Results(file).to_dataframe()
        counts.append(queries[0])
    assert counts[0] == counts[1]
    assert name_and_parameters.cache_info().misses == 50 + 1
    assert len(frame) == _MANY and frame["margin"].tolist() == list(range(_MANY))
    assert frame["m"].tolist() == [k % 50 for k in range(_MANY)]


def test_a_missing_pandas_is_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(QcqpbenchError, match=r"needs the package pandas: pip install 'qcqpbench\[pandas\]'"):
        Results(results).to_dataframe()


# --- prompts and notebooks ---


def test_the_repr_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add_outcomes(path, outcome(), outcome(replace(SPEC, start=1)))
    assert repr(Results(path)) == f"<Results: 2 rows in {path}>"
    add_outcomes(path, outcome(begun=BEGUN + 1))
    assert repr(Results(path)) == f"<Results: 3 rows in {path}, 1 replaced by newer rows of the same runs>"


def test_a_notebook_shows_ten_rows_without_markup_of_others(tmp_path: Path) -> None:
    path, evil = tmp_path / "a.db", "<script>alert('&')</script>"
    specs = [replace(SPEC, start=k, problem=evil, solver=evil) for k in range(12)]
    add_outcomes(path, *(outcome(spec, kappa_bar=1 / 3) for spec in specs))
    change(path, "UPDATE run SET termination = '<b>bored</b>'")
    page = Results(path)._repr_html_()
    assert "<script" not in page and "<b>" not in page
    assert page.count("&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;") == 20 and "&lt;b&gt;bored" in page
    assert page.count("<tr>") == 1 + 10 and page.endswith("<p>2 more rows</p>") and "0.333333" in page


def test_rows_of_results_are_rows(results: Path) -> None:
    assert all(isinstance(row, Row) for row in Results(results))
