"""Submissions: genuine rows are accepted, and forged, lost and unknown ones are refused with the reason."""

import base64
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.public.check_submission import check, check_folder
from qcqpbench.results.public.solver_versions import (
    LIST,
    SolverVersion,
    check_origins,
    read_versions,
    version_of,
    write_versions,
)
from qcqpbench.results.public.submission import Submission, read
from qcqpbench.results.store import Store
from tests.support.results_files import CONVEX, ROOT, call, change
from tests.support.submissions import (
    COMMIT,
    Line,
    array_of,
    changing,
    encoded,
    line_of,
    make_results,
    read_lines,
    write_lines,
)

SUBMISSIONS = ROOT / "docs" / "results" / "submissions"
Change = Callable[[list[Line]], None]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file of genuine runs."""
    path = tmp_path_factory.mktemp("genuine") / "genuine.db"
    make_results(path)
    return path


@pytest.fixture
def results(genuine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(genuine, tmp_path / "results.db"))


@pytest.fixture
def submitted(genuine: Path, tmp_path: Path) -> Path:
    """Return the submission of the genuine runs."""
    with Store(genuine) as store:
        submission = Submission.of(store)
    path = tmp_path / submission.default_name()
    submission.write(path)
    return path


def test_a_submission_is_exact_to_the_bit(genuine: Path, submitted: Path, tmp_path: Path) -> None:
    submission = read(submitted)
    assert submission.text() == submitted.read_text(encoding="utf-8")
    with Store(tmp_path / "again.db", write=True) as again, Store(genuine) as store:
        submission.add_to(again)
        originals = {row.key: row for row in store.rows()}
        for row in again.rows():
            original = originals.pop(row.key)
            different = {name for name, value in vars(row).items() if value != getattr(original, name)}
            assert different <= {"id", "invocation", "number", "worker"}
            for name in ("point", "formulation_point", "multipliers", "offsets", "tree"):
                array, original_array = getattr(again, name)(row.id), getattr(store, name)(original.id)
                assert (array is None) == (original_array is None)
                assert array is None or array.tobytes() == original_array.tobytes()
        assert not originals


def test_genuine_rows_are_accepted_and_written(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "submissions"
    folder.mkdir()
    for _ in range(2):
        # The second time, the same file is replaced.
        code, lines = call(capsys, "submit", results, "-o", folder)
        assert (code, lines[0]) == (0, f"{results}: 4 rows, 4 points re-evaluated, 2 proofs checked: accepted")
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2 and names[1] == LIST
    assert {(line.solver, line.origin) for line in read_versions(folder)} == {
        (solver, COMMIT) for solver in ("branch_and_bound", "certificate", "gip", "slsqp")
    }
    assert call(capsys, "submit", folder)[0] == 0
    (folder / LIST).unlink()
    code, lines = call(capsys, "submit", folder)
    assert code == 1 and sum(f"{LIST} must list the source" in line for line in lines) == 4


def test_rows_are_chosen_by_solver_and_problem(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = call(capsys, "submit", results, "-o", tmp_path, "-s", "gip", "-s", "slsqp", "-p", CONVEX)
    assert code == 0 and ": 1 row, 1 points" in lines[0]
    code, lines = call(capsys, "submit", results, "-o", tmp_path, "-s", "scip")
    assert code == 2 and "must hold at least one row to submit" in lines[0]


def lower(value: float) -> float:
    return value - 0.01


def higher(value: float) -> float:
    return value + 0.01


def without_machine(lines: list[Line]) -> None:
    lines[0]["machines"][0].update(cpu=None, memory_bytes=None)


def repeated(lines: list[Line]) -> None:
    lines.append(dict(lines[1]))


def with_other_weights(lines: list[Line]) -> None:
    line = line_of(lines, "gip")
    line["point"] = encoded(array_of(line, "point")[::-1] + 0.3)


def with_tree(edit: Callable[[Any], Any]) -> Change:
    def edit_tree(lines: list[Line]) -> None:
        line = line_of(lines, "branch_and_bound")
        line["tree"] = encoded(edit(array_of(line, "tree")))

    return edit_tree


def with_lower_leaves(lines: list[Line]) -> None:
    """Lower the bound of the row, and the stated bounds of all leaves."""
    line = line_of(lines, "branch_and_bound")
    tree = array_of(line, "tree")
    near = np.flatnonzero(np.isclose(tree, line["bound"], rtol=1e-3))
    assert len(near)
    tree[near] -= 0.5
    line.update(bound=line["bound"] - 0.5, tree=encoded(tree), gap=None)


def with_equal_multipliers(lines: list[Line]) -> None:
    line = line_of(lines, "certificate")
    line["multipliers"] = encoded(np.ones_like(array_of(line, "multipliers")))


def with_an_infeasible_point(lines: list[Line]) -> None:
    line = line_of(lines, "slsqp")
    line["point"] = encoded(0.5 * array_of(line, "point"))


FORGERIES: dict[str, tuple[Change, str]] = {
    "a margin that the point does not have": (changing("gip", margin=higher, kappa_bar=higher), "margin must be"),
    "another point": (with_other_weights, "margin must be"),
    "a lost point": (changing("gip", point=None), "margin must be None"),
    "an infeasible point": (with_an_infeasible_point, "violation must be"),
    "an objective that the point does not have": (changing("slsqp", objective=lower), "objective must be"),
    "a proof of a weaker bound": (
        changing("branch_and_bound", bound=lower, gap=None),
        "bound must be at least",
    ),
    "leaves that do not prove their bounds": (with_lower_leaves, "tree must prove the bound: the bound of leaf"),
    "a tree without its last leaf": (
        with_tree(lambda tree: tree[:-1]),
        "tree must prove the bound: a tree of these sizes",
    ),
    "a tree of zeros": (with_tree(np.zeros_like), "tree must prove the bound"),
    "multipliers that prove less": (with_equal_multipliers, "bound must be at least"),
    "a proof without multipliers": (changing("certificate", multipliers=None), "offsets must have multipliers"),
    "a proof without a bound": (changing("certificate", bound=None, gap=None), "must state the bound"),
    "a claim that a point refutes": (changing("slsqp", bound=lambda _: 1e9), "bound must not be refuted by"),
    "an unknown source": (
        changing("gip", version=lambda text: text[:-12] + "0" * 12),
        "version must be known: the source must be that of the installed gip",
    ),
    "an unknown solver": (changing("gip", solver=lambda _: "magic"), "magic is neither installed nor listed"),
    "a version without a source": (changing("gip", version=lambda _: "gip 7"), "end with the hash of the source"),
    "a version of another package": (
        changing("gip", version=lambda text: text.replace("scipy 1", "scipy 9")),
        "as the machine of the row does",
    ),
    "a time without a machine": (without_machine, "the machine of the row must state"),
    "a point without a time": (changing("gip", solve_seconds=None), "solve_seconds must be stated"),
    "a run twice": (repeated, "a run must be submitted once, got 2 rows"),
    "another content of the problem": (changing("gip", problem_id=lambda _: "0" * 64), "problem_id must be"),
    "another prediction of theory": (changing("gip", kappa_bar_theory=lower), "kappa_bar_theory must be"),
    "another gap": (changing("certificate", gap=lambda gap: gap + 0.5), "gap must be"),
    "a better best known value": (changing("gip", best_known=higher), "best_known must be"),
    "a time in the future": (changing("gip", begun=lambda _: 9e9), "begun must be in the past"),
    "a file of this machine": (changing("gip", problem=lambda _: "/etc/passwd"), "got the file /etc/passwd"),
    "a file as a parameter": (
        changing("gip", problem=lambda _: "recorded[path=/etc/passwd]"),
        "got one that is read from the file /etc/passwd",
    ),
    "an unknown family": (changing("gip", problem=lambda _: "riddle[m=4]"), "unknown"),
    "a shortened spec": (
        changing("gip", problem=lambda _: "covariance_perceptron[m=4]"),
        "problem must be the full spec",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_submission_is_refused_with_the_reason(forgery: str, submitted: Path) -> None:
    forge, reason = FORGERIES[forgery]
    lines = read_lines(submitted)
    forge(lines)
    write_lines(submitted, lines)
    faults = check(read(submitted), []).faults
    assert any(reason in fault for fault in faults), faults


def test_a_plugin_family_is_refused(submitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_lines(submitted)
    changing("gip", problem=lambda _: "theirs[m=4]")(lines)
    write_lines(submitted, lines)
    module = "qcqpbench.results.public.check_submission"
    monkeypatch.setattr(f"{module}.family_plugin", lambda name: object() if name == "theirs" else None)
    assert any("got one of the plug-in theirs" in fault for fault in check(read(submitted), []).faults)


def replaced(name: str, value: Any) -> Change:
    def replace(lines: list[Line]) -> None:
        lines[1][name] = value

    return replace


BOMB = base64.b64encode(zlib.compress(bytes(200_000_000), 1)).decode()
MALFORMED: dict[str, tuple[Change, str]] = {
    "a key": (replaced("key", "0" * 64), "the columns must be those of rows, got key"),
    "a number that is no number": (replaced("solve_seconds", float("nan")), "NaN is no number of JSON"),
    "text for a number": (replaced("margin", "0.5"), "margin must be a number"),
    "a negative time": (replaced("solve_seconds", -1.0), "solve_seconds must be a finite number"),
    "another status": (replaced("point_status", "superb"), "point_status must be one of"),
    "an option that is not allowed": (replaced("threads", 0), "threads must be"),
    "another machine": (replaced("machine", 5), "machine must be one of the 1 in the header"),
    "a pickle": (replaced("point", base64.b64encode(b"\x80\x04N.").decode()), "point must be an encoded array"),
    "an array that unpacks to gigabytes": (replaced("point", BOMB), "must end within"),
    "another format": (lambda lines: lines[0].update(format="x"), "the format must be"),
    "no header": (lambda lines: lines.__delitem__(0), "the format must be"),
    "no rows": (lambda lines: lines.__delitem__(slice(1, None)), "at least one row"),
    "a call without a command": (lambda lines: lines[0]["calls"][0].pop("command"), "a call must have"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_an_error_with_its_line(name: str, submitted: Path) -> None:
    edit, reason = MALFORMED[name]
    lines = read_lines(submitted)
    edit(lines)
    write_lines(submitted, lines)
    with pytest.raises(QcqpbenchError, match=reason):
        read(submitted)


def test_a_file_that_is_cut_off_is_an_error(submitted: Path) -> None:
    submitted.write_bytes(submitted.read_bytes()[:-20])
    with pytest.raises(QcqpbenchError, match="cut off"):
        read(submitted)


def test_a_run_of_another_submission_is_refused(submitted: Path) -> None:
    other = read(submitted)
    faults = check(read(submitted), [], {"other.jsonl": other}).faults
    assert len(faults) == 4 and all("got it in other.jsonl too" in fault for fault in faults)


@pytest.mark.parametrize(
    "statement", ["UPDATE run SET key = 'x' WHERE id = 1", "UPDATE run SET start = 7 WHERE id = 1"]
)
def test_an_altered_results_file_is_not_submitted(
    statement: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, statement)
    code, lines = call(capsys, "submit", results, "-o", tmp_path)
    assert code == 2 and "run 1: key must be" in lines[0]


def test_a_refused_file_is_not_written(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "submissions"
    folder.mkdir()
    change(results, "UPDATE run SET margin = margin + 1 WHERE id = 1")
    code, lines = call(capsys, "submit", results, "-o", folder)
    assert code == 1 and "margin must be" in lines[0] and lines[-1].endswith("refused")
    assert list(folder.iterdir()) == []


def test_rounding_errors_of_other_machines_are_accepted(submitted: Path) -> None:
    lines = read_lines(submitted)
    changing("gip", margin=lambda value: value * (1 + 1e-14), kappa_bar=lambda value: value * (1 - 1e-14))(lines)
    write_lines(submitted, lines)
    assert check(read(submitted), []).faults == []


# --- versions of solvers ---


def test_a_listed_source_is_known_after_the_solver_changed(submitted: Path) -> None:
    lines = read_lines(submitted)
    changing("gip", version=lambda text: text[:-12] + "0" * 12)(lines)
    write_lines(submitted, lines)
    assert check(read(submitted), [SolverVersion("gip", "0" * 12, COMMIT)]).faults == []


def test_the_package_of_a_listed_plugin_must_agree(submitted: Path) -> None:
    lines = read_lines(submitted)
    changing("gip", solver=lambda _: "magic", version=lambda _: "magic-solver 1.2, scipy 1.17.1, source " + "a" * 12)(
        lines
    )
    lines[0]["machines"][0]["packages"]["scipy"] = "1.17.1"
    write_lines(submitted, lines)
    (row,) = (row for row in read(submitted).rows if row.solver_name == "magic")
    listed = SolverVersion("magic", "a" * 12, "magic-solver==1.2")
    assert version_of(row, [listed]) == listed
    with pytest.raises(QcqpbenchError, match=r"version must state magic-solver 1\.3"):
        version_of(row, [SolverVersion("magic", "a" * 12, "magic-solver==1.3")])


def test_an_unlisted_source_needs_a_commit(submitted: Path) -> None:
    lines = read_lines(submitted)
    lines[0]["machines"][0]["commit"] = None
    write_lines(submitted, lines)
    faults = check(read(submitted), []).faults
    assert len(faults) == 4 and all("must state the commit of its checkout" in fault for fault in faults)


def test_the_list_of_versions_is_read_as_written(tmp_path: Path) -> None:
    versions = {SolverVersion("gip", "a" * 12, COMMIT), SolverVersion("magic", "b" * 12, "magic-solver==1.2")}
    assert read_versions(tmp_path) == set()
    write_versions(tmp_path, versions)
    assert read_versions(tmp_path) == versions
    with (tmp_path / LIST).open("a") as file:
        file.write("gip,abc,somewhere\n")
    with pytest.raises(QcqpbenchError, match="a line must hold a solver"):
        read_versions(tmp_path)


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout.strip()


def test_the_origin_of_a_source_is_checked_with_git() -> None:
    """Compare with the installed source, if no file of a solver was changed since the last commit."""
    commit = git("rev-parse", "HEAD")
    if not commit:
        pytest.skip("this is not a git checkout")
    forged = SolverVersion("gip", "0" * 12, commit)
    (fault,) = check_origins(ROOT, [forged])
    assert f"that in commit {commit}" in fault
    real = fault.split("must be ")[1][:12]
    assert check_origins(ROOT, [SolverVersion("gip", real, commit)]) == []
    with pytest.raises(QcqpbenchError, match="must be in the git checkout"):
        check_origins(ROOT, [SolverVersion("gip", real, COMMIT)])


# --- the submissions of this repository ---


def test_every_submission_of_the_repository_is_accepted() -> None:
    checked = dict(check_folder(SUBMISSIONS))
    assert checked and all(findings.points > 0 for findings in checked.values())
    assert {name: findings.faults for name, findings in checked.items() if findings.faults} == {}


def test_the_listed_sources_are_those_of_their_commits() -> None:
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history of the repository is missing")
    assert check_origins(ROOT, read_versions(SUBMISSIONS)) == []
