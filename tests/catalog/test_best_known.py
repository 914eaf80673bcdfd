import contextlib
import csv
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read as read_results
from qcqpbench.catalog.best_known import Proof, Record, read_records, shipped_path, write_list
from qcqpbench.catalog.family import TaskFamily
from qcqpbench.catalog.registry import family, solver
from qcqpbench.cli.main import main
from qcqpbench.problem.metadata import BestKnown, Bound
from qcqpbench.run.attempt import solve
from qcqpbench.run.suite_file import load_suite
from qcqpbench.run.verify import verify
from tests.support.best_known_lists import (
    PROOFS,
    RECORDS,
    SMALL,
    run_command,
    task_of,
    write_results,
    write_small_list,
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the path of a list of the small instances."""
    return write_small_list(tmp_path / "best_known.csv")


# --- the shipped list ---


def test_shipped_list_is_well_formed() -> None:
    """Check that the instances are those of the two suites in their order, and that every origin can be repeated."""
    problems = [record.problem for record in RECORDS.values()]
    assert problems == [*load_suite("best_known").problems, *load_suite("proved").problems]
    for id, record in RECORDS.items():
        assert re.fullmatch("[0-9a-f]{64}", id)
        if record.problem.startswith("recorded["):
            assert record.kappa_bar == record.margin <= record.bound
            continue
        parameters: dict[str, Any] = family(record.problem).parameters
        p = parameters.get("p") or round(parameters["load"] * record.n * record.m)
        assert (parameters["n"], parameters["m"], p) == (record.n, record.m, record.p)
        scale = np.sqrt(parameters["f"]) * parameters["c"]
        assert record.kappa_bar == pytest.approx(record.margin / scale, rel=1e-12)
        assert record.margin <= record.bound
        assert record.bound_solver == "equal multipliers" or solver(record.bound_solver).spec == record.bound_solver
        if "e_1 ± e_2" in record.solver:
            assert record.command.endswith(" && qcqpbench best-known update unit_vectors.npz")
        elif record.command.startswith("qcqpbench certify"):
            assert record.command == f"qcqpbench certify --global '{record.problem}'"
            assert record.solver.startswith("branch_and_bound[")
        else:
            assert solver(record.solver).spec == record.solver
            assert f"-p '{record.problem}' -s " in record.command and record.solver in record.command
            assert re.fullmatch("([0-9a-f]{12})?", record.commit)
    assert shipped_path().stat().st_size < 2e6


def test_every_shipped_tree_is_named_by_a_record() -> None:
    files = list((shipped_path().parent / "trees").iterdir())
    assert sorted(file.name for file in files) == sorted(record.tree for record in RECORDS.values() if record.tree)
    assert sum(file.stat().st_size for file in files) < 30e6


def test_lists_without_trees_of_earlier_versions_are_read(small: Path) -> None:
    with small.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    place = rows[0].index("tree")
    with small.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*row[:place], *row[place + 1 :]] for row in rows)
    assert read_records(small) == {record.problem_id: record for record in SMALL}


def test_command_of_a_point_makes_the_point(tmp_path: Path) -> None:
    """Run the commands of points that no solver found."""
    by_hand = [record for record in RECORDS.values() if not record.version]
    assert {record.solver for record in by_hand} == {"unit vectors e_1 ± e_2"}
    for record in (by_hand[0], by_hand[-1]):
        _, option, code, then, *_ = shlex.split(record.command)
        assert (option, then) == ("-c", "&&")
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
        with np.load(tmp_path / "unit_vectors.npz") as points:
            assert np.array_equal(points[record.problem], PROOFS[record.problem_id].point)


def test_instances_cover_all_ensembles_sizes_and_loads() -> None:
    """Check that n = 3 and 5 have the same shares of the predicted capacity, 8m/(n − 1) patterns, as n = 2."""
    shares: dict[Any, set[float]] = {}
    for spec in load_suite("best_known").problems:
        instance = family(spec)
        assert isinstance(instance, TaskFamily) and instance.seed == 0
        share = instance.pattern_count() * (instance.n - 1) / (8 * instance.m)
        shares.setdefault((instance.parameters["ensemble"], instance.n, instance.m), set()).add(share)
    for (_, n, m), shares_of_size in shares.items():
        loads = [0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5] if n == 2 else [0.5, 1, 2, 3, 3.5]
        # Shares are rounded to whole patterns.
        assert sorted(shares_of_size) == pytest.approx([load / 4 for load in loads], abs=0.51 * (n - 1) / (8 * m))
    sizes = [(n, m) for n in (2, 3, 5) for m in (10, 20, 50, 100, 200)]
    assert set(shares) == {(kind, n, m) for kind in ("paper", "psd", "gaussian") for n, m in sizes}


@pytest.mark.parametrize("record", SMALL, ids=lambda record: str(record.problem))
def test_margin_and_bound_follow_from_point_and_multipliers(record: Record) -> None:
    """Compute both without code of qcqpbench but the family: sums over patterns, and a general eigenvalue."""
    task, proof = task_of(record), PROOFS[record.problem_id]
    assert task.id == record.problem_id
    W = proof.point / np.sqrt((proof.point**2).sum(axis=1))[:, None]
    pairs = [(i, j) for i in range(task.n) for j in range(i + 1, task.n)]
    Q = np.einsum("ik,rkl,jl->rij", W, task.patterns, W)
    margin = min(task.labels[r, k] * Q[r, i, j] for r in range(task.p) for k, (i, j) in enumerate(pairs))
    assert record.margin == pytest.approx(margin, abs=1e-13)
    assert proof.multipliers is not None and proof.offsets is not None
    weights = proof.multipliers.astype(float) / proof.multipliers.astype(float).sum()
    assert weights.min() >= 0
    S = np.zeros((task.n * task.m, task.n * task.m))
    for k, (i, j) in enumerate(pairs):
        M = sum(w * label * P for w, label, P in zip(weights[:, k], task.labels[:, k], task.patterns, strict=True))
        S[i * task.m : (i + 1) * task.m, j * task.m : (j + 1) * task.m] = M
    S += S.T - np.diag(np.repeat(proof.offsets, task.m))
    bound = 0.5 * proof.offsets.sum() + 0.5 * task.n * np.linalg.eigvals(S).real.max()
    assert record.bound == pytest.approx(bound, abs=1e-11)
    if task.n == 2:
        assert record.bound >= np.linalg.norm(M, 2) * (1 - 1e-12)


# --- check ---


def test_check_accepts_a_correct_list(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = run_command(capsys, "check", small)
    assert (code, len(lines)) == (0, 1)
    assert lines[0] == f"best_known.csv: {len(SMALL)} instances recomputed: all margins and bounds agree"


def _set(**values: Any) -> Callable[[Record, Proof], tuple[Record, Proof]]:
    def change(record: Record, proof: Proof) -> tuple[Record, Proof]:
        of_record = {name: value(getattr(record, name)) for name, value in values.items() if hasattr(record, name)}
        of_proof = {name: value(getattr(proof, name)) for name, value in values.items() if hasattr(proof, name)}
        return replace(record, **of_record), replace(proof, **of_proof)

    return change


def _bump(array: Any) -> Any:
    changed = array.copy()
    changed.flat[0] += 1e-3
    return changed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set(margin=lambda old: old + 1e-9), r"margin must be 0\.\d+ according to the point, got 0\.\d+"),
        (_set(margin=lambda old: old + 9, kappa_bar=lambda old: old + 9), "margin must be at most the bound .*, got 9"),
        (_set(kappa_bar=lambda old: old + 1e-9), "kappa_bar must be .* according to the point, got"),
        (_set(bound=lambda old: old * (1 - 1e-8)), "bound must be .* according to the multipliers, got"),
        (_set(point=_bump), "margin must be .* according to the point, got"),
        (_set(point=lambda old: 0 * old), "point must be a finite matrix without rows of zeros"),
        (_set(multipliers=_bump), "bound must be .* according to the multipliers, got"),
        (_set(multipliers=lambda old: -old), "bound must be inf according to the multipliers, got"),
        (_set(offsets=_bump), "bound must be .* according to the multipliers, got"),
        (_set(problem=lambda old: old.replace("seed=0", "seed=1")), "problem_id must be .*, that of .*seed=1.*, got "),
        (_set(problem=lambda old: old.replace("f=0.2,", "")), "problem_id must be .*, that of .*f=0.2.*, got "),
        (_set(problem=lambda _: "covariance_perceptron[q=1]"), "can be generated: unknown parameter"),
        (_set(problem_id=lambda _: "0" * 64), "problem_id must be .*, got 0000"),
    ],
)
def test_check_reports_a_changed_record(
    change: Any, expected: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = SMALL[0]
    record, proof = change(first, PROOFS[first.problem_id])
    rest = {record.problem_id: record for record in SMALL[1:]}
    write_list(small, {record.problem_id: record, **rest}, PROOFS | {record.problem_id: proof})
    code, lines = run_command(capsys, "check", small)
    assert (code, len(lines)) == (1, 2)
    assert lines[1] == f"best_known.csv: {len(SMALL)} instances recomputed: 1 differ"
    assert re.match(rf"{re.escape(record.problem)}: .*{expected}", lines[0])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda text: text[:-20], r"csv:\d+: the line must end with a newline|must be base64|must have \d+ bytes"),
        (lambda text: text[:-21] + "\n", r"must be base64|must have \d+ bytes"),
        (lambda text: text[: text.rindex(",")] + "\n", r"csv:\d+: the line must have 17 columns, got 16"),
        (lambda text: text[:-8] + "*" + text[-7:], "multipliers must be base64"),
        (lambda text: text.replace("margin", "size", 1), "a list of best known margins must begin with"),
        (lambda text: "", "a list of best known margins must begin with .*, got ''"),
        (lambda text: text + text.splitlines()[-1] + "\n", "must be in the list once, got it twice"),
        (lambda text: text.replace(repr(SMALL[0].margin), "nan"), "csv:2: margin must be a finite float, got 'nan'"),
        (lambda text: text.replace(",2,10,", ",2,x,", 1), "csv:2: m must be a finite int, got 'x'"),
        (
            lambda text: text.replace(",2,10,", ",2,11,", 1),
            r"csv:2: point must have 176 bytes for the shape \(2, 11\), got 160",
        ),
        (lambda text: text + '"', "must be a list of best known margins|must end with a newline"),
    ],
)
def test_damaged_list_is_refused_in_a_line(
    damage: Any, expected: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(damage(small.read_text()))
    for words in (("check", small), ("update", small.with_name("none.db"), "-o", small)):
        code, lines = run_command(capsys, *words)
        assert (code, len(lines)) == (2, 1)
        assert re.search(expected, lines[0])


def test_other_files_are_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\0")
    (tmp_path / "text.db").write_text("no database")
    np.savez(tmp_path / "strange.npz", **{"covariance_perceptron[m=11]": np.eye(2, 11)})  # type: ignore[arg-type]
    np.savez(tmp_path / "nonsense.npz", nonsense=np.eye(2))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "strange.npz").read_bytes()[:50])
    listed = tmp_path / "new.csv"
    for words, expected in {
        ("check", tmp_path / "none.csv"): "No such file",
        ("list", tmp_path / "binary.csv"): "must be a list of best known margins in UTF-8",
        ("update", tmp_path / "none.db", "-o", listed): "no such file",
        ("update", tmp_path / "none.npz", "-o", listed): "No such file",
        ("update", tmp_path / "text.db", "-o", listed): "must be a qcqpbench results file",
        ("update", tmp_path / "cut.npz", "-o", listed): "must be an .npz file of points, got a damaged",
        (
            "update",
            tmp_path / "strange.npz",
            "-o",
            listed,
        ): "points must be of instances of the suites best_known and proved",
        ("update", tmp_path / "nonsense.npz", "-o", listed): "unknown problem 'nonsense'",
        ("update",): "the following arguments are required",
        ("improve",): "invalid choice",
    }.items():
        code, lines = run_command(capsys, *words)
        assert (code, len(lines)) == (2, 1)
        assert expected in lines[0]
    assert not listed.exists()


# --- use ---


def test_list_is_shown_as_a_table_and_as_json(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = run_command(capsys, "list", small)
    assert code == 0 and len(lines) == 1 + len(SMALL) + 1
    values = ["margin", "kappa_bar", "kappa_bar_theory", "gap_to_theory", "bound", "gap"]
    assert lines[0].split() == ["problem", *values, "solver"]
    assert f"{SMALL[0].kappa_bar:.5g}" in lines[1].split() and "4.3577" in lines[1].split()
    assert main(["best-known", "list", str(small), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["problem_id"] for row in rows] == [record.problem_id for record in SMALL]
    assert rows[0]["gap"] == pytest.approx((SMALL[0].bound - SMALL[0].margin) / SMALL[0].bound)
    assert run_command(capsys)[0] == 0


def test_task_of_the_list_has_its_best_known_margin() -> None:
    """Check several spellings of its spec, and tasks of other content."""
    first = SMALL[0]
    for spec in (first.problem, f"covariance_perceptron[m=10,p={first.p}]"):
        metadata = qcqpbench.problem(spec).metadata
        assert metadata.best_known == BestKnown(first.margin, first.solver)
        assert metadata.bounds == (Bound(first.bound, "shor"),)
    attempt = solve(qcqpbench.problem(first.problem), "slsqp")
    assert attempt.best_known == first.margin and attempt.spec.problem_id == first.problem_id
    for other in ("m=10,p=2,seed=1", "m=11,p=2", f"m=10,p={first.p},f=0.3"):
        metadata = qcqpbench.problem(f"covariance_perceptron[{other}]").metadata
        assert metadata.best_known is None and metadata.bounds == ()


def test_list_is_read_only_when_a_problem_is_made(tmp_path: Path) -> None:
    code = """
import sys, qcqpbench
assert "qcqpbench.catalog.best_known" not in sys.modules
from qcqpbench.catalog import best_known
from qcqpbench.cli.main import main
main(["theory"])
assert best_known.shipped_records.cache_info().currsize == 0
qcqpbench.problem("covariance_perceptron[m=4,p=3]")
assert best_known.shipped_records.cache_info().currsize == 1
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def test_points_of_the_list_have_its_margins() -> None:
    for record in SMALL:
        verified = verify(qcqpbench.problem(record.problem), PROOFS[record.problem_id].point)
        assert verified.margin == pytest.approx(record.margin, rel=1e-12)


def test_report_uses_margin_and_bound_of_the_list(tmp_path: Path) -> None:
    """Compare a single poor run with the best known margin, and with a bound that none of its solvers proved."""
    first = SMALL[0]
    path = write_results(tmp_path / "poor.db", first.problem, ["soft_margin[max_iter=3]"])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE run SET best_known = NULL")
        connection.commit()
    read_back = read_results([path])
    (row,) = read_back.rows
    assert row.margin is not None
    (solver_line,) = contents(read_back).summary
    assert solver_line.gap_median == pytest.approx(1 - row.margin / first.margin)
    assert solver_line.gap_bound == pytest.approx(1 - row.margin / first.bound)
