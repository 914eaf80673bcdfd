import contextlib
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import MaxMargin
from qcqpbench.catalog.best_known import read_records, write_list
from qcqpbench.catalog.certificate.global_certificate import GlobalCertificate
from qcqpbench.cli.main import main
from qcqpbench.run.attempt import certify_globally
from qcqpbench.run.suite_file import load_suite
from tests.support.best_known_lists import (
    PROOFS,
    SMALL,
    run_command,
    worsen_first,
    write_results,
    write_small_list,
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the path of a list of the small instances."""
    return write_small_list(tmp_path / "best_known.csv")


def test_update_accepts_only_improvements(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a better point and bound change a line, and that the same or worse ones change nothing."""
    original = small.read_text().splitlines()
    before = worsen_first(small)
    results = write_results(tmp_path / "results.db", before.problem, ["certificate", "soft_margin[max_iter=3]"])
    assert run_command(capsys, "check", small)[0] == 0

    code, lines = run_command(capsys, "update", results, "-o", small)
    assert (code, len(lines)) == (0, 2)
    assert re.match(rf"{re.escape(before.problem)}: margin .* → .* \(certificate.*\), bound .* → .*\)", lines[0])
    assert lines[1] == f"best_known.csv: 1 of {len(SMALL)} instances changed"
    after = read_records(small)[before.problem_id]
    assert after.margin == pytest.approx(SMALL[0].margin, abs=1e-7)
    assert after.bound == pytest.approx(SMALL[0].bound, rel=1e-2) and after.bound < before.bound
    assert (after.commit, after.solver) == ("c0ffeec0ffee+", "certificate[tol=0.003]")
    assert run_command(capsys, "check", small)[0] == 0
    assert sum(a != b for a, b in zip(small.read_text().splitlines(), original, strict=True)) <= 1

    time = small.stat().st_mtime_ns
    worse = write_results(tmp_path / "worse.db", before.problem, ["soft_margin[max_iter=3]"])
    assert run_command(capsys, "update", results, worse, "-o", small) == (
        0,
        [f"best_known.csv: 0 of {len(SMALL)} instances changed"],
    )
    assert time == small.stat().st_mtime_ns


def test_update_does_not_use_claimed_values(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = SMALL[0]
    results = write_results(tmp_path / "results.db", record.problem, ["certificate"])
    with contextlib.closing(sqlite3.connect(results)) as connection:
        connection.execute("UPDATE run SET margin = 9, bound = 0.001")
        connection.commit()
    assert run_command(capsys, "update", results, "-o", small)[1] == [
        f"best_known.csv: 0 of {len(SMALL)} instances changed"
    ]


def test_update_uses_multipliers_without_a_claimed_bound(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Use gip, which returns multipliers without a bound."""
    before = worsen_first(small)
    results = write_results(tmp_path / "results.db", before.problem, ["gip"])
    assert run_command(capsys, "update", results, "-o", small)[0] == 0
    after = read_records(small)[before.problem_id]
    assert after.bound < before.bound and after.bound_solver.startswith("gip")
    assert run_command(capsys, "check", small)[0] == 0


def test_update_refuses_a_list_of_other_problems(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Change the id, as if a family made another problem of the same spec."""
    first, other = SMALL[0], "0" * 64
    write_list(small, {other: replace(first, margin=0.0, problem_id=other)}, {other: PROOFS[first.problem_id]})
    results = write_results(tmp_path / "results.db", first.problem, ["gip"])
    before = small.read_bytes()
    code, lines = run_command(capsys, "update", results, "-o", small)
    assert (code, len(lines)) == (2, 1) and "problem_id of covariance_perceptron" in lines[0]
    assert small.read_bytes() == before


def test_update_accepts_points_of_a_file(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Give a point of any length by a spec that is spelled otherwise than in the suite."""
    point = {"covariance_perceptron[m=10,load=0.1]": 3 * PROOFS[SMALL[0].problem_id].point}
    origin = {"solver": "my hands, carefully", "command": "python mine.py"}
    default = {"solver": "mine.npz", "command": "qcqpbench best-known update mine.npz"}
    for texts, expected in ((origin, origin), ({}, default)):
        before = worsen_first(small)
        np.savez(tmp_path / "mine.npz", **point, **texts)  # type: ignore[arg-type]
        code, lines = run_command(capsys, "update", tmp_path / "mine.npz", "-o", small)
        assert (code, len(lines)) == (0, 2)
        after = read_records(small)[before.problem_id]
        assert after.margin == pytest.approx(SMALL[0].margin, abs=1e-12)
        assert (after.solver, after.command) == (expected["solver"], expected["command"])
        assert (after.version, after.commit, after.bound) == ("", "", before.bound)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (np.ones((3, 10)), "the point of covariance_perceptron[m=10,n=2,*] must have the shape (2, 10), got (3, 10)"),
        (np.ones(20), "the point of * must have the shape (2, 10), got (20,)"),
        (np.where(np.eye(2, 10), np.nan, 1), "the point of * must hold finite numbers, got [nan, nan]"),
        (
            np.ones((2, 10)) * [[1], [0]],
            "the point of * must have a nonzero value in each row, got zeros in the rows [1]",
        ),
        (np.ones((2, 10)) * 1j, "the point of * must hold real numbers, got complex128"),
        (np.full((2, 10), "1"), "the point of * must hold real numbers, got <U1"),
        (np.full((2, 10), None), "* must hold numbers or text, got Python objects"),
        # The file takes less than 100 kB.
        (np.zeros(1 << 24, np.uint8), "the arrays must unpack to at most 16777216 bytes, got 16777344"),
    ],
)
def test_unusable_point_is_refused_in_a_line(
    offered: Any, expected: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small.read_bytes()
    path = tmp_path / "p3.npz"
    np.savez_compressed(path, **{SMALL[1].problem: offered})
    code, lines = run_command(capsys, "update", path, "-o", small)
    assert (code, len(lines)) == (2, 1)
    assert re.search(f"{re.escape(f'{path}: {expected}')}$".replace(r"\*", ".*"), lines[0])
    assert small.read_bytes() == before


@pytest.mark.parametrize("text", [3, "two\nlines", ["a", "b"]])
def test_origin_must_be_a_line_of_text(
    text: Any, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "mine.npz", solver=text)
    code, lines = run_command(capsys, "update", tmp_path / "mine.npz", "-o", small)
    assert (code, len(lines)) == (2, 1)
    assert "mine.npz: solver must be one line of printable text, got array(" in lines[0]


def test_update_creates_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that it holds instances of the suite alone, in its order, also from solvers that prove no bound."""
    problems = load_suite("best_known").problems
    results = write_results(tmp_path / "a.db", problems[3], ["slsqp"])
    write_results(results, problems[0], ["slsqp"])
    write_results(results, "covariance_perceptron[m=4,p=2]", ["slsqp"])
    listed = tmp_path / "new.csv"
    assert run_command(capsys, "update", results, "-o", listed)[1][-1] == "new.csv: 2 of 2 instances changed"
    assert [record.problem for record in read_records(listed).values()] == [problems[0], problems[3]]
    assert run_command(capsys, "check", listed)[0] == 0


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_list_is_written_whole_or_not_at_all(
    renames: int, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill an update before or after a file is renamed, check the list, and repeat the update."""
    worsen_first(small)
    results = write_results(tmp_path / "results.db", SMALL[0].problem, ["gip"])
    before, rename = small.read_bytes(), Path.replace
    done: list[Path] = []

    def killed(part: Path, target: Path) -> Path:
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        return rename(part, target)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        main(["best-known", "update", str(results), "-o", str(small)])
    assert (small.read_bytes() == before) == (renames == 0)
    assert run_command(capsys, "check", small)[0] == 0
    assert run_command(capsys, "update", results, "-o", small)[0] == 0
    assert run_command(capsys, "check", small)[0] == 0
    assert read_records(small)[SMALL[0].problem_id].solver.startswith("gip")
    assert {path.name for path in tmp_path.iterdir()} == {"best_known.csv", "results.db"}


def test_update_writes_no_other_file(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Write lists of several names beside another file, and one that cannot be written."""
    (tmp_path / "best_known_proofs.csv").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    results = write_results(tmp_path / "results.db", SMALL[0].problem, ["slsqp"])
    for name in ("best_known.txt", "best_known"):
        assert run_command(capsys, "update", results, "-o", tmp_path / name)[0] == 0
        assert run_command(capsys, "check", tmp_path / name)[0] == 0
    code, lines = run_command(capsys, "update", results, "-o", tmp_path / "none" / "list.csv")
    assert (code, len(lines)) == (2, 1) and "cannot be written: No such file or directory" in lines[0]
    assert before == {path: path.read_bytes() for path in before}


# --- trees ---

PROVED = "covariance_perceptron[m=10,load=0.5]"


@pytest.fixture(scope="module")
def certificate() -> GlobalCertificate:
    task = qcqpbench.problem(PROVED)
    assert isinstance(task, MaxMargin)
    return certify_globally(task)


@pytest.fixture
def with_relaxation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the path of a list of one instance, whose bound is that of the relaxation."""
    path = tmp_path / "one.csv"
    run_command(capsys, "update", write_results(tmp_path / "first.db", PROVED, ["certificate"]), "-o", path)
    (record,) = read_records(path).values()
    assert record.gap > 1e-3 and not record.tree
    return path


@pytest.mark.parametrize("source", ["certificate", "results"])
def test_update_adds_the_tree_of_a_better_bound(
    source: str,
    certificate: GlobalCertificate,
    with_relaxation: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if source == "certificate":
        path = tmp_path / "proof.npz"
        certificate.write(path)
    else:
        path = write_results(tmp_path / "second.db", PROVED, ["branch_and_bound[certificate=true]"])
    code, lines = run_command(capsys, "update", path, "-o", with_relaxation)
    assert code == 0 and re.search(r"bound .* → .* \(branch_and_bound\[", lines[0])
    (record,) = read_records(with_relaxation).values()
    assert record.gap <= 1.01e-4 and record.bound == pytest.approx(certificate.bound, rel=1e-9)
    assert (tmp_path / "trees" / record.tree).is_file()
    assert run_command(capsys, "check", with_relaxation) == (
        0,
        ["one.csv: 1 instances recomputed: all margins and bounds agree"],
    )
    # The bound of the relaxation is worse, so the tree stays.
    assert run_command(capsys, "update", tmp_path / "first.db", "-o", with_relaxation)[1] == [
        "one.csv: 0 of 1 instances changed"
    ]


def test_check_reports_a_changed_or_missing_tree(
    certificate: GlobalCertificate, with_relaxation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate.write(tmp_path / "proof.npz")
    run_command(capsys, "update", tmp_path / "proof.npz", "-o", with_relaxation)
    (record,) = read_records(with_relaxation).values()
    file = tmp_path / "trees" / record.tree
    tree = certificate.tree
    for changed, message in (
        (replace(tree, bounds=0.99 * tree.bounds), "tree must prove the bound: the bound of leaf 0 must be"),
        (replace(tree, multipliers=0 * tree.multipliers), "the bound of leaf 0 must be inf"),
    ):
        replace(certificate, tree=changed).write(file)
        code, lines = run_command(capsys, "check", with_relaxation)
        assert code == 1 and message in lines[0]
    replace(certificate, problem_id="0" * 64).write(file)
    assert "tree must prove the bound: problem_id must be" in run_command(capsys, "check", with_relaxation)[1][0]
    file.unlink()
    assert "tree must prove the bound: " in run_command(capsys, "check", with_relaxation)[1][0]


def test_check_of_a_certificate_file(
    certificate: GlobalCertificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate.write(tmp_path / "proof.npz")
    code, lines = run_command(capsys, "check", tmp_path / "proof.npz")
    assert code == 0 and lines[-1].startswith("proof.npz: margin and bound agree; ")
    replace(certificate, margin=certificate.margin + 0.1).write(tmp_path / "proof.npz")
    code, lines = run_command(capsys, "check", tmp_path / "proof.npz")
    assert (code, len(lines)) == (1, 1) and "margin must be" in lines[0]


def test_certificates_of_other_tasks_are_refused(
    certificate: GlobalCertificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(certificate, problem="covariance_perceptron[m=10,load=0.5,seed=77]").write(tmp_path / "proof.npz")
    code, lines = run_command(capsys, "update", tmp_path / "proof.npz", "-o", tmp_path / "list.csv")
    assert (code, len(lines)) == (2, 1) and "must be of an instance of the suites best_known and proved" in lines[0]
