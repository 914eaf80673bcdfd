"""Exported tables: CSV, Parquet and DataFrames have the same columns and the same values."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qcqpbench.results.export import export, unescape
from qcqpbench.results.results import Results
from qcqpbench.results.store import Store
from tests.support.results_files import BEGUN, CONVEX, SPEC, add_outcomes, add_runs, outcome, read_rows

pandas = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of tasks and QCQPs, with a replaced row, missing and infinite values, and text to be escaped."""
    path = tmp_path_factory.mktemp("mixed") / "mixed.db"
    add_runs(path, ["covariance_perceptron[m=4,load=1,seed=7]"], ["gip[starts=1]", "slsqp[formulation=min_norm]"])
    add_runs(path, [CONVEX], ["slsqp"])
    odd: dict[str, Any] = {"message": "=1+1", "objective": math.inf, "bound": -1e-300}
    odd["details"] = {"a": math.inf, "b": "é\n", "c": 0.1}
    add_outcomes(path, outcome(), outcome(begun=BEGUN + 1, **odd))
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cell_value(cell: str, like: Any) -> Any:
    """Return a cell of a CSV file as a value of the type of `like`; an empty cell is None."""
    if cell == "":
        return None
    if isinstance(like, bool):
        return {"True": True, "False": False}[cell]
    return unescape(cell) if isinstance(like, str) else type(like)(cell)


@pytest.mark.parametrize("all_rows", [False, True])
def test_csv_parquet_and_dataframe_are_one_table(mixed: Path, tmp_path: Path, all_rows: bool) -> None:
    with Store(mixed) as store:
        counts = [export(store, tmp_path / name, all_rows) for name in ("a.csv", "a.parquet")]
    rows = read_rows(mixed, all_rows)
    assert counts == [len(rows)] * 2 == [5 if all_rows else 4] * 2
    table = parquet.read_table(tmp_path / "a.parquet")
    frame = Results(mixed).to_dataframe(all_rows)
    cells = read_csv(tmp_path / "a.csv")
    assert list(cells[0]) == table.column_names == list(frame.columns)
    for name in table.column_names:
        values = table.column(name).to_pylist()
        assert [None if pandas.isna(value) else value for value in frame[name]] == values, name
        read_back = [cell_value(row[name], value) for row, value in zip(cells, values, strict=True)]
        # Empty text and a missing value are the same cell.
        assert read_back == [None if value == "" else value for value in values], name


def test_tables_have_the_predictions_of_both_theories(mixed: Path, tmp_path: Path) -> None:
    """Check load 1, where replica symmetry is exact for the last problem."""
    with Store(mixed) as store:
        export(store, tmp_path / "a.csv")
    cells = read_csv(tmp_path / "a.csv")[:3]
    assert [float(row["kappa_bar_theory"]) for row in cells] == pytest.approx([0.99501, 0.99501, 0.47066], abs=1e-5)
    assert [float(row["kappa_bar_rs"]) for row in cells] == pytest.approx([1.03431, 1.03431, 0.47066], abs=1e-5)


def test_tables_have_a_row_id_and_the_parameters_in_columns_of_their_own(mixed: Path, tmp_path: Path) -> None:
    with Store(mixed) as store:
        export(store, tmp_path / "a.csv")
    cells, rows = read_csv(tmp_path / "a.csv"), read_rows(mixed)
    assert [row["id"] for row in cells] == [str(row.id) for row in rows] and len({row["id"] for row in cells}) == 4
    assert [row["problem_name"] for row in cells] == [row.problem_name for row in rows]
    assert [row["solver_name"] for row in cells] == ["gip", "slsqp", "slsqp", "gip"]
    assert [row["m"] for row in cells] == ["4", "4", "5", "2"]
    assert [row["load"] for row in cells] == ["1.0", "1.0", "1.0", ""]
    assert [row["seed"] for row in cells] == ["7", "7", "0", ""]
    assert [row["start_seed"] for row in cells] == ["0"] * 4
    assert [row["solver_starts"] for row in cells] == ["1", "", "", "8"]
    assert [row["solver_formulation"] for row in cells] == ["", "min_norm", "epigraph", ""]
    assert cells[-1]["message"] == "'=1+1"
    # No limit is an empty cell.
    assert [row["time_limit"] for row in cells] == ["", "", "", "10.0"]


def test_an_exported_row_leads_back_to_its_point(mixed: Path, tmp_path: Path) -> None:
    with Store(mixed) as store:
        export(store, tmp_path / "a.csv")
        for cells in read_csv(tmp_path / "a.csv")[:3]:
            (row,) = (row for row in store.rows() if row.id == int(cells["id"]))
            assert store.point(row.id) is not None and row.key == cells["key"]


def test_numbers_are_written_in_full(tmp_path: Path) -> None:
    values = [1 / 3, 5e-324, -0.1, 1.7976931348623157e308, math.inf, -math.inf]
    outcomes = [outcome(replace(SPEC, start=k), objective=value) for k, value in enumerate(values)]
    add_outcomes(tmp_path / "a.db", *outcomes)
    with Store(tmp_path / "a.db") as store:
        for name in ("a.csv", "a.parquet"):
            export(store, tmp_path / name)
    read_back = [float(row["objective"]) for row in read_csv(tmp_path / "a.csv")]
    assert [value.hex() for value in read_back] == [value.hex() for value in values]
    assert parquet.read_table(tmp_path / "a.parquet")["objective"].to_pylist() == values


def test_a_file_without_rows_is_exported_with_its_header(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", write=True) as store:
        assert export(store, tmp_path / "a.csv") == export(store, tmp_path / "a.parquet") == 0
    header = (tmp_path / "a.csv").read_text().strip().split(",")
    assert header == parquet.read_table(tmp_path / "a.parquet").column_names and "id" in header
