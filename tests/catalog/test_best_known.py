import contextlib
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
from qcqpbench import MaxMargin
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read as read_results
from qcqpbench.catalog.best_known import Proof, Record, read_list, read_records, shipped, write_list
from qcqpbench.catalog.family import TaskFamily
from qcqpbench.catalog.registry import family, solver
from qcqpbench.cli.main import main
from qcqpbench.problem.metadata import BestKnown, Bound
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import random_start, solve
from qcqpbench.run.job import Outcome, load_problem
from qcqpbench.run.suite import Suite, load_suite
from qcqpbench.run.verify import verify

RECORDS, PROOFS = read_list(shipped())
FEW = {n: [each for each in RECORDS.values() if (each.n, each.m) == (n, 10)] for n in (2, 3, 5)}
# Of each number of outputs the first and the last.
SMALL = [same[k] for same in FEW.values() for k in (0, -1)]


def task_of(record: Record) -> MaxMargin:
    task = family(record.problem).generate()
    assert isinstance(task, MaxMargin)
    return task


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str]]:
    code = main(["best-known", *map(str, words)])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A list of the small instances."""
    path = tmp_path / "best_known.csv"
    write_list(path, {each.problem_id: each for each in SMALL}, PROOFS)
    return path


def worse(path: Path) -> Record:
    """Put another point, and multipliers that are all equal, in place of those of the first record; the rest stays."""
    records, proofs = read_list(path)
    record = next(iter(records.values()))
    task = task_of(record)
    W = random_start(task, 7)
    equal = np.ones(task.labels.shape, np.float32)
    bound = np.linalg.norm(task.mixture(equal / equal.size)[0], 2) * (1 + 1e-13)
    margin = float(task.margin(W))
    found = replace(record, margin=margin, kappa_bar=margin / task.scale, bound=float(bound))
    proof = Proof(W, np.zeros(task.n), equal)
    write_list(path, records | {record.problem_id: found}, proofs | {record.problem_id: proof})
    return found


def results(path: Path, problem: str, solvers: list[str]) -> Path:
    with Store(path, write=True) as store:
        store.begin("a command", {"commit": "c0ffee" * 7, "dirty": True})
        for job in Suite.of([problem], solvers).jobs():
            made = load_problem(job.problem)
            store.add(Outcome(job, solve(made, job.solver, random_start(made, job.start))))
    return path


# --- the list that ships ---


def test_the_list_is_well_formed() -> None:
    """The instances of the suite in its order, each once; who found what can be read, and repeated."""
    problems = [record.problem for record in RECORDS.values()]
    assert problems == list(load_suite("best_known").problems)
    for id, record in RECORDS.items():
        assert re.fullmatch("[0-9a-f]{64}", id)
        parameters: dict[str, Any] = family(record.problem).parameters
        p = parameters.get("p") or round(parameters["load"] * record.n * record.m)
        assert (parameters["n"], parameters["m"], p) == (record.n, record.m, record.p)
        scale = np.sqrt(parameters["f"]) * parameters["c"]
        assert record.kappa_bar == pytest.approx(record.margin / scale, rel=1e-12)
        assert record.margin <= record.bound
        assert record.bound_solver == "equal multipliers" or solver(record.bound_solver).spec == record.bound_solver
        if "e_1 ± e_2" in record.solver:
            assert record.command.endswith(" && qcqpbench best-known update unit_vectors.npz")
        else:
            assert solver(record.solver).spec == record.solver
            assert f"-p '{record.problem}' -s " in record.command and record.solver in record.command
            assert re.fullmatch("([0-9a-f]{12})?", record.commit)
    assert shipped().stat().st_size < 2e6


def test_the_command_of_a_point_makes_it(tmp_path: Path) -> None:
    """Of the one that no solver found: what the command runs before it offers the point."""
    by_hand = [record for record in RECORDS.values() if not record.version]
    assert {record.solver for record in by_hand} == {"unit vectors e_1 ± e_2"}
    for record in (by_hand[0], by_hand[-1]):
        _, option, code, then, *_ = shlex.split(record.command)
        assert (option, then) == ("-c", "&&")
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
        with np.load(tmp_path / "unit_vectors.npz") as made:
            assert np.array_equal(made[record.problem], PROOFS[record.problem_id].point)


def test_the_instances() -> None:
    """All ensembles, sizes and loads; n = 3 and 5 at the same shares of theory's capacity, 8m/(n − 1) patterns."""
    found = [family(spec) for spec in load_suite("best_known").problems]
    shares: dict[Any, set[float]] = {}
    for each in found:
        assert isinstance(each, TaskFamily) and each.seed == 0
        share = each.pattern_count() * (each.n - 1) / (8 * each.m)
        shares.setdefault((each.parameters["ensemble"], each.n, each.m), set()).add(share)
    for (_, n, m), held in shares.items():
        loads = [0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5] if n == 2 else [0.5, 1, 2, 3, 3.5]
        # To half a pattern.
        assert sorted(held) == pytest.approx([load / 4 for load in loads], abs=0.51 * (n - 1) / (8 * m))
    sizes = [(n, m) for n in (2, 3, 5) for m in (10, 20, 50, 100, 200)]
    assert set(shares) == {(kind, n, m) for kind in ("paper", "psd", "gaussian") for n, m in sizes}


@pytest.mark.parametrize("record", SMALL, ids=lambda record: str(record.problem))
def test_margin_and_bound_are_what_point_and_multipliers_say(record: Record) -> None:
    """Without any of our code but the family: sums over patterns, and an eigenvalue of scipy's kind."""
    task, proof = task_of(record), PROOFS[record.problem_id]
    assert task.id == record.problem_id
    W = proof.point / np.sqrt((proof.point**2).sum(axis=1))[:, None]
    pairs = [(i, j) for i in range(task.n) for j in range(i + 1, task.n)]
    Q = np.einsum("ik,rkl,jl->rij", W, task.patterns, W)
    margin = min(task.labels[r, k] * Q[r, i, j] for r in range(task.p) for k, (i, j) in enumerate(pairs))
    assert record.margin == pytest.approx(margin, abs=1e-13)
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


def test_check_finds_nothing_wrong(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "check", small)
    assert (code, len(lines)) == (0, 1)
    assert lines[0] == f"best_known.csv: {len(SMALL)} instances made anew: all margins and bounds as stated"


def _set(**values: Any) -> Callable[[Record, Proof], tuple[Record, Proof]]:
    def change(record: Record, proof: Proof) -> tuple[Record, Proof]:
        mine = {name: value(getattr(record, name)) for name, value in values.items() if hasattr(record, name)}
        its = {name: value(getattr(proof, name)) for name, value in values.items() if hasattr(proof, name)}
        return replace(record, **mine), replace(proof, **its)

    return change


def _bump(array: Any) -> Any:
    changed = array.copy()
    changed.flat[0] += 1e-3
    return changed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set(margin=lambda old: old + 1e-9), r"margin is 0\.\d+, its point has 0\.\d+"),
        (_set(margin=lambda old: old + 9, kappa_bar=lambda old: old + 9), "margin 9.* is above bound"),
        (_set(kappa_bar=lambda old: old + 1e-9), "kappa_bar is .*, its point has"),
        (_set(bound=lambda old: old * (1 - 1e-8)), "bound is .*, its multipliers prove"),
        (_set(point=_bump), "margin is .*, its point has"),
        (_set(point=lambda old: 0 * old), "a row of its point has no direction"),
        (_set(multipliers=_bump), "bound is .*, its multipliers prove"),
        (_set(multipliers=lambda old: -old), "bound is .*, its multipliers prove inf"),
        (_set(offsets=_bump), "bound is .*, its multipliers prove"),
        (_set(problem=lambda old: old.replace("seed=0", "seed=1")), "problem_id is .*, the problem is .*seed=1"),
        (_set(problem=lambda old: old.replace("f=0.2,", "")), "problem_id is .*, the problem is .*f=0.2"),
        (_set(problem=lambda _: "covariance_perceptron[q=1]"), "cannot be made: unknown parameter"),
        (_set(problem_id=lambda _: "0" * 64), "problem_id is 0000"),
    ],
)
def test_check_finds_what_was_changed(
    change: Any, expected: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = SMALL[0]
    record, proof = change(first, PROOFS[first.problem_id])
    rest = {each.problem_id: each for each in SMALL[1:]}
    write_list(small, {record.problem_id: record, **rest}, PROOFS | {record.problem_id: proof})
    code, lines = said(capsys, "check", small)
    assert (code, len(lines)) == (1, 2)
    assert lines[1] == f"best_known.csv: {len(SMALL)} instances made anew: 1 are wrong"
    assert re.match(rf"{re.escape(record.problem)}: .*{expected}", lines[0])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda text: text[:-20], r"csv:\d+: is cut off|is not base64|bytes, needed"),
        (lambda text: text[:-21] + "\n", "is not base64|bytes, needed"),
        (lambda text: text[: text.rindex(",")] + "\n", r"csv:\d+: has 15 columns, needed: 16"),
        (lambda text: text[:-8] + "*" + text[-7:], "its multipliers is not base64"),
        (lambda text: text.replace("margin", "size", 1), "is no list of best known margins"),
        (lambda text: "", "is no list of best known margins"),
        (lambda text: text + text.splitlines()[-1] + "\n", "stands in it twice"),
        (lambda text: text.replace(repr(SMALL[0].margin), "nan"), "csv:2: margin is 'nan', needed"),
        (lambda text: text.replace(",2,10,", ",2,x,", 1), "csv:2: m is 'x', needed: a number"),
        (lambda text: text.replace(",2,10,", ",2,11,", 1), "csv:2: its point has 160 bytes, needed: 176"),
        (lambda text: text + '"', "is no list of best known margins|is cut off"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(
    damage: Any, expected: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(damage(small.read_text()))
    for words in (("check", small), ("update", small.with_name("none.db"), "-o", small)):
        code, lines = said(capsys, *words)
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
        ("list", tmp_path / "binary.csv"): "not UTF-8",
        ("update", tmp_path / "none.db", "-o", listed): "no such file",
        ("update", tmp_path / "none.npz", "-o", listed): "No such file",
        ("update", tmp_path / "text.db", "-o", listed): "is no qcqpbench results file",
        ("update", tmp_path / "cut.npz", "-o", listed): "is no .npz file of points",
        ("update", tmp_path / "strange.npz", "-o", listed): "is none of the instances of the suite best_known",
        ("update", tmp_path / "nonsense.npz", "-o", listed): "unknown problem 'nonsense'",
        ("update",): "the following arguments are required",
        ("improve",): "invalid choice",
    }.items():
        code, lines = said(capsys, *words)
        assert (code, len(lines)) == (2, 1)
        assert expected in lines[0]
    assert not listed.exists()


# --- update ---


def test_update_takes_improvements_only(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A better point and a better bound change a line; the same ones again, and worse ones, nothing."""
    original = small.read_text().splitlines()
    before = worse(small)
    found = results(tmp_path / "found.db", before.problem, ["certificate", "soft_margin[max_iter=3]"])
    assert said(capsys, "check", small)[0] == 0

    code, lines = said(capsys, "update", found, "-o", small)
    assert (code, len(lines)) == (0, 2)
    assert re.match(rf"{re.escape(before.problem)}: margin .* → .* \(certificate.*\), bound .* → .*\)", lines[0])
    assert lines[1] == f"best_known.csv: 1 of {len(SMALL)} instances changed"
    after = read_records(small)[before.problem_id]
    assert after.margin == pytest.approx(SMALL[0].margin, abs=1e-7)
    assert after.bound == pytest.approx(SMALL[0].bound, rel=1e-2) and after.bound < before.bound
    assert (after.commit, after.solver) == ("c0ffeec0ffee+", "certificate[tol=0.003]")
    assert said(capsys, "check", small)[0] == 0
    assert sum(a != b for a, b in zip(small.read_text().splitlines(), original, strict=True)) <= 1

    time = small.stat().st_mtime_ns
    worst = results(tmp_path / "worse.db", before.problem, ["soft_margin[max_iter=3]"])
    assert said(capsys, "update", found, worst, "-o", small) == (
        0,
        [f"best_known.csv: 0 of {len(SMALL)} instances changed"],
    )
    assert time == small.stat().st_mtime_ns


def test_update_believes_no_claim(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = SMALL[0]
    found = results(tmp_path / "found.db", record.problem, ["certificate"])
    with contextlib.closing(sqlite3.connect(found)) as connection:
        connection.execute("UPDATE run SET margin = 9, bound = 0.001")
        connection.commit()
    assert said(capsys, "update", found, "-o", small)[1] == [f"best_known.csv: 0 of {len(SMALL)} instances changed"]


def test_multipliers_count_without_a_claim(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """gip has multipliers, and says nothing of what they prove."""
    before = worse(small)
    found = results(tmp_path / "found.db", before.problem, ["gip"])
    assert said(capsys, "update", found, "-o", small)[0] == 0
    after = read_records(small)[before.problem_id]
    assert after.bound < before.bound and after.bound_solver.startswith("gip")
    assert said(capsys, "check", small)[0] == 0


def test_update_leaves_a_list_of_other_problems_alone(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it would be if a family made something else of the same spec."""
    first, other = SMALL[0], "0" * 64
    write_list(small, {other: replace(first, margin=0.0, problem_id=other)}, {other: PROOFS[first.problem_id]})
    found = results(tmp_path / "found.db", first.problem, ["gip"])
    before = small.read_bytes()
    code, lines = said(capsys, "update", found, "-o", small)
    assert (code, len(lines)) == (2, 1) and "problem_id of covariance_perceptron" in lines[0]
    assert small.read_bytes() == before


def test_update_takes_points(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Points from elsewhere, by specs in any spelling of the suite's; of any length, as only directions count."""
    point = {"covariance_perceptron[m=10,load=0.1]": 3 * PROOFS[SMALL[0].problem_id].point}
    origin = {"solver": "my hands, carefully", "command": "python mine.py"}
    default = {"solver": "mine.npz", "command": "qcqpbench best-known update mine.npz"}
    for texts, expected in ((origin, origin), ({}, default)):
        before = worse(small)
        np.savez(tmp_path / "mine.npz", **point, **texts)  # type: ignore[arg-type]
        code, lines = said(capsys, "update", tmp_path / "mine.npz", "-o", small)
        assert (code, len(lines)) == (0, 2)
        after = read_records(small)[before.problem_id]
        assert after.margin == pytest.approx(SMALL[0].margin, abs=1e-12)
        assert (after.solver, after.command) == (expected["solver"], expected["command"])
        assert (after.version, after.commit, after.bound) == ("", "", before.bound)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (np.ones((3, 10)), "the point of covariance_perceptron[m=10,n=2,*] has shape (3, 10), needed: (2, 10)"),
        (np.ones(20), "the point of * has shape (20,), needed: (2, 10)"),
        (np.where(np.eye(2, 10), np.nan, 1), "the point of * holds a value that is not finite"),
        (np.ones((2, 10)) * [[1], [0]], "the point of * has a row of zeros, which has no direction"),
        (np.ones((2, 10)) * 1j, "the point of * holds complex128, needed: real numbers"),
        (np.full((2, 10), "1"), "the point of * holds <U1, needed: real numbers"),
        (np.full((2, 10), None), "is no .npz file of points"),
        # Packed, 100 kB; 1 GB would be as easy.
        (np.zeros(1 << 24, np.uint8), "holds 16777344 bytes when unpacked; read are up to 16777216"),
    ],
)
def test_a_point_of_no_use_is_refused_in_a_line(
    offered: Any, expected: str, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small.read_bytes()
    path = tmp_path / "p3.npz"
    np.savez_compressed(path, **{SMALL[1].problem: offered})
    code, lines = said(capsys, "update", path, "-o", small)
    assert (code, len(lines)) == (2, 1)
    assert re.search(f"{re.escape(f'{path}: {expected}')}$".replace(r"\*", ".*"), lines[0])
    assert small.read_bytes() == before


@pytest.mark.parametrize("text", [3, "two\nlines", ["a", "b"]])
def test_an_origin_is_a_line_of_text(
    text: Any, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "mine.npz", solver=text)
    code, lines = said(capsys, "update", tmp_path / "mine.npz", "-o", small)
    assert (code, len(lines)) == (2, 1) and lines[0].endswith("mine.npz: its solver is no line of text")


def test_update_makes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of instances of the suite alone, in its order; also from solvers that prove nothing."""
    problems = load_suite("best_known").problems
    found = results(tmp_path / "a.db", problems[3], ["slsqp"])
    results(found, problems[0], ["slsqp"])
    results(found, "covariance_perceptron[m=4,p=2]", ["slsqp"])
    listed = tmp_path / "new.csv"
    assert said(capsys, "update", found, "-o", listed)[1][-1] == "new.csv: 2 of 2 instances changed"
    assert [each.problem for each in read_records(listed).values()] == [problems[0], problems[3]]
    assert said(capsys, "check", listed)[0] == 0


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_list_is_written_whole_or_not_at_all(
    renames: int, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update that is killed before or after a file is renamed leaves a sound list; repeated, it does the rest."""
    worse(small)
    found = results(tmp_path / "found.db", SMALL[0].problem, ["gip"])
    before, rename = small.read_bytes(), Path.replace
    done: list[Path] = []

    def killed(part: Path, target: Path) -> Path:
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        return rename(part, target)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        main(["best-known", "update", str(found), "-o", str(small)])
    assert (small.read_bytes() == before) == (renames == 0)
    assert said(capsys, "check", small)[0] == 0
    assert said(capsys, "update", found, "-o", small)[0] == 0
    assert said(capsys, "check", small)[0] == 0
    assert read_records(small)[SMALL[0].problem_id].solver.startswith("gip")
    assert {each.name for each in tmp_path.iterdir()} == {"best_known.csv", "found.db"}


def test_a_list_is_one_file(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it is called, writing it touches no other file; one that cannot be written is said in a line."""
    (tmp_path / "best_known_proofs.csv").write_text("mine")
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    found = results(tmp_path / "found.db", SMALL[0].problem, ["slsqp"])
    for name in ("best_known.txt", "best_known"):
        assert said(capsys, "update", found, "-o", tmp_path / name)[0] == 0
        assert said(capsys, "check", tmp_path / name)[0] == 0
    code, lines = said(capsys, "update", found, "-o", tmp_path / "none" / "list.csv")
    assert (code, len(lines)) == (2, 1) and "cannot be written: No such file or directory" in lines[0]
    assert before == {each: each.read_bytes() for each in before}


# --- what it is for ---


def test_list(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "list", small)
    assert code == 0 and len(lines) == 1 + len(SMALL)
    assert lines[0].split() == ["problem", "margin", "kappa_bar", "kappa_bar_theory", "bound", "gap", "solver"]
    assert f"{SMALL[0].kappa_bar:.5g}" in lines[1].split() and "4.3589" in lines[1].split()
    assert main(["best-known", "list", str(small), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["problem_id"] for row in rows] == [each.problem_id for each in SMALL]
    assert rows[0]["gap"] == pytest.approx((SMALL[0].bound - SMALL[0].margin) / SMALL[0].bound)
    assert said(capsys)[0] == 0


def test_a_task_of_the_list_says_so() -> None:
    """However its spec is spelled; a task with another content does not."""
    first = SMALL[0]
    for spec in (first.problem, f"covariance_perceptron[m=10,p={first.p}]"):
        known = qcqpbench.problem(spec).metadata
        assert known.best_known == BestKnown(first.margin, first.solver)
        assert known.bounds == (Bound(first.bound, "shor"),)
    attempt = solve(qcqpbench.problem(first.problem), "slsqp")
    assert attempt.best_known == first.margin and attempt.problem_id == first.problem_id
    for other in ("m=10,p=2,seed=1", "m=11,p=2", f"m=10,p={first.p},f=0.3"):
        known = qcqpbench.problem(f"covariance_perceptron[{other}]").metadata
        assert known.best_known is None and known.bounds == ()


def test_the_list_is_read_when_a_problem_is_made_and_not_before(tmp_path: Path) -> None:
    code = """
import sys, qcqpbench
assert "qcqpbench.catalog.best_known" not in sys.modules
from qcqpbench.catalog import best_known
from qcqpbench.cli.main import main
main(["theory"])
assert best_known.known.cache_info().currsize == 0
qcqpbench.problem("covariance_perceptron[m=4,p=3]")
assert best_known.known.cache_info().currsize == 1
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def test_a_point_of_the_list_is_a_reference() -> None:
    for record in SMALL:
        found = verify(qcqpbench.problem(record.problem), PROOFS[record.problem_id].point)
        assert found.margin == pytest.approx(record.margin, rel=1e-12)


def test_a_report_uses_margin_and_bound(tmp_path: Path) -> None:
    """A single poor run is told from the best known, and from a bound that none of its solvers proved."""
    first = SMALL[0]
    path = results(tmp_path / "poor.db", first.problem, ["soft_margin[max_iter=3]"])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE run SET best_known = NULL")
        connection.commit()
    read_back = read_results([path])
    (row,) = read_back.rows
    (solver_line,) = contents(read_back)["summary"]
    assert solver_line["gap_median"] == pytest.approx(1 - row["margin"] / first.margin)
    assert solver_line["gap_bound"] == pytest.approx(1 - row["margin"] / first.bound)
