"""The leaderboard of submissions: its values, its proofs, its times by machine."""

import re
from pathlib import Path

import pytest

from qcqpbench.analysis.leaderboard import leaderboard
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.results.public.submission import Submission, read
from qcqpbench.results.store import Store
from tests.support.submissions import Line, changing, line_of, make_results, read_lines, write_lines

GIP, PROVER = "gip[starts=1]", "branch_and_bound[certificate=true]"
Table = list[dict[str, str]]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a submission of genuine runs."""
    folder = tmp_path_factory.mktemp("genuine")
    make_results(folder / "genuine.db")
    with Store(folder / "genuine.db") as store:
        Submission.of(store).write(folder / "genuine.jsonl")
    return folder / "genuine.jsonl"


def tables(page: str) -> dict[str, Table]:
    """Return the tables of a page by title, each as a list of cells by column."""
    found: dict[str, Table] = {}
    for part in page.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        cells = [
            [cell.strip() for cell in re.sub(r"\\(.)", r"\1", line)[2:-2].split(" | ")]
            for line in lines
            if line.startswith("|")
        ]
        found[re.sub(r"\\(.)", r"\1", title)] = [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]
    return found


def in_folder(path: Path, lines: list[Line]) -> dict[str, Table]:
    write_lines(path, lines)
    return tables(leaderboard(path.parent))


def the_task(page: dict[str, Table]) -> dict[str, str]:
    (line,) = page["Best values: covariance_perceptron"]
    return line


def test_it_shows_best_values_proofs_and_times(genuine: Path, tmp_path: Path) -> None:
    page = in_folder(tmp_path / "first.jsonl", read_lines(genuine))
    rows = {row.solver_name: row for row in read(genuine).rows}
    record = shipped_records()[rows["gip"].problem_id]
    task = the_task(page)
    best = max(row.kappa_bar for row in rows.values() if row.kappa_bar is not None)
    assert float(task["best κ̄"]) == pytest.approx(best, rel=1e-9)
    assert float(task["best known"]) == pytest.approx(max(best, record.kappa_bar), rel=1e-9)
    assert task["status"] == "proved optimal" and task["submission"] == "first.jsonl"
    assert set(task["reached by"].split(", ")) == {GIP, PROVER, "certificate"}
    (convex,) = page["Best values: classical_perceptron"]
    # No solver of the submission states a bound.
    assert (convex["status"], convex["bound"]) == ("", "")
    (machine,) = {row.machine.cpu for row in rows.values()}
    times = page[f"Times: {machine}, {rows['gip'].machine.logical_cores} cores"]
    assert {line["solver"] for line in times} == {GIP, PROVER, "certificate", "slsqp"}
    (gip,) = (line for line in times if line["solver"] == GIP)
    assert float(gip["median s"]) == pytest.approx(rows["gip"].solve_seconds, rel=1e-3)
    assert gip["family and size"] == "covariance_perceptron[m=4,c=0.5,ensemble=gaussian]"


def test_times_of_different_machines_are_apart(genuine: Path, tmp_path: Path) -> None:
    lines = read_lines(genuine)
    write_lines(tmp_path / "first.jsonl", lines)
    lines[0]["machines"][0]["cpu"] = "Another CPU"
    changing("gip", solve_seconds=lambda _: 123.0)(lines)
    page = in_folder(tmp_path / "second.jsonl", lines)
    titles = [title for title in page if title.startswith("Times: ")]
    seconds = {title: [line["median s"] for line in page[title] if line["solver"] == GIP] for title in titles}
    (other,) = (title for title in titles if title.startswith("Times: Another CPU, "))
    assert seconds.pop(other) == ["123"]
    ((own,),) = seconds.values()
    assert float(own) < 100


def test_only_proved_bounds_count_as_proofs(genuine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the list of best known margins, then the proofs, then the bounds of a submission."""
    monkeypatch.setattr("qcqpbench.analysis.leaderboard.shipped_records", dict)
    lines = [line for line in read_lines(genuine) if line.get("solver", "").split("[")[0] != "certificate"]
    assert the_task(in_folder(tmp_path / "a.jsonl", lines))["status"] == "proved optimal"
    line_of(lines, "branch_and_bound").pop("tree")
    assert the_task(in_folder(tmp_path / "a.jsonl", lines))["status"] == "optimality claimed"
    changing("branch_and_bound", bound=lambda bound: bound + 0.1)(lines)
    task = the_task(in_folder(tmp_path / "a.jsonl", lines))
    assert task["status"] == "bound claimed" and float(task["gap"].removesuffix(" %")) > 1
    changing("branch_and_bound", bound=None)(lines)
    assert the_task(in_folder(tmp_path / "a.jsonl", lines))["status"] == ""


def test_a_worse_run_does_not_reach_the_best_value(genuine: Path, tmp_path: Path) -> None:
    lines = read_lines(genuine)
    changing("gip", margin=lambda value: 0.9 * value, kappa_bar=lambda value: 0.9 * value)(lines)
    page = in_folder(tmp_path / "first.jsonl", lines)
    assert GIP not in the_task(page)["reached by"].split(", ")
    reached = {line["solver"]: line["best values reached"] for line in page["Solvers"]}
    assert reached == {GIP: "0 of 1", PROVER: "1 of 1", "certificate": "1 of 1", "slsqp": "1 of 1"}


def test_versions_of_a_solver_are_told_apart(genuine: Path, tmp_path: Path) -> None:
    lines = read_lines(genuine)
    write_lines(tmp_path / "first.jsonl", lines)
    old = line_of(lines, "gip")["version"][-12:-6]
    changing("gip", version=lambda text: f"{text[:-12]}{'0' * 12}")(lines)
    page = in_folder(tmp_path / "second.jsonl", lines)
    labels = {line["solver"] for line in page["Solvers"]}
    assert {f"{GIP} ({old})", f"{GIP} (000000)"} <= labels and GIP not in labels


def test_texts_of_a_submission_are_escaped(genuine: Path, tmp_path: Path) -> None:
    lines = read_lines(genuine)
    lines[0]["machines"][0]["cpu"] = "<script>|x"
    write_lines(tmp_path / "first.jsonl", lines)
    page = leaderboard(tmp_path)
    assert "<script>" not in page.replace("\\<script\\>", "")
