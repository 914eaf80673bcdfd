"""Ranks, gaps and leads on hand-made tables, series of versions and files, accuracies, and what reports leave out."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.plots import missing_plots, plots
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.analysis.report.verdict import left_out, verdict
from qcqpbench.analysis.rows import ReportRow, labels_of_versions
from tests.support.report_rows import general, lost, many, results, row, table
from tests.support.results_files import SPEC, TASK, add_outcomes, add_runs, outcome

# κ̄ of each solver on six problems with the best known κ̄ 1: None is no point, and "d" was not run on the last three.
MARGINS: dict[str, list[float | None]] = {
    "a": [1.0, 1.0, 1.0, 0.9, 1.0, 1.0],
    "b": [0.9, 1.0, 0.5, 1.0, 1.0, 0.9],
    "c": [0.1, -5.0, None, 0.1, 0.1, 0.1],
    "d": [1.0, 1.0, 1.0],
}
GAPS = {"a": 0.1 / 6, "b": 0.7 / 6, "c": (4 * 0.9 + 1 + 1) / 6, "d": 3 / 6}


def problem(number: int, m: int = 10) -> str:
    return f"covariance_perceptron[m={m},n=2,load=1.0,seed={number}]"


def made(size: int = 10) -> list[ReportRow]:
    return [
        lost(problem=problem(k, size), solver=name) if value is None else row(problem(k, size), name, kappa_bar=value)
        for name, values in MARGINS.items()
        for k, value in enumerate(values)
    ]


def test_ranks_and_gaps_of_a_hand_made_table() -> None:
    lines = table(contents(results(made())), "ranking")
    assert [line["solver"] for line in lines] == ["a", "b", "d", "c"]
    assert [line["rank"] for line in lines] == [1, 2, 3, 4]
    assert {line["solver"]: float(line["mean gap"]) for line in lines} == pytest.approx(GAPS)
    assert {line["solver"]: line["best known"] for line in lines} == {"a": 5, "b": 3, "c": 0, "d": 3}
    # "c" is last unless draws favor it: on each problem that "d" was run on, "d" is better.
    intervals = {line["solver"]: line["rank, 95\u00a0%"] for line in lines}
    assert intervals["c"].endswith("4") and intervals["a"].startswith("1")


def test_equal_solvers_share_a_rank_and_the_order_is_that_of_all_tables() -> None:
    rows = [
        row(problem(k), name, kappa_bar=value) for k in range(6) for name, value in (("z", 1.0), ("y", 1.0), ("a", 0.5))
    ]
    numbers = contents(results(rows))
    lines = table(numbers, "ranking")
    assert [(line["solver"], line["rank"], line["rank, 95\u00a0%"]) for line in lines] == [
        ("y", 1, "1"),
        ("z", 1, "1"),
        ("a", 3, "3"),
    ]
    for id in ("summary", "means", "profiles"):
        assert list(dict.fromkeys(line["solver"] for line in table(numbers, id))) == ["y", "z", "a"], id
    assert [solver.name for solver in numbers.solvers] == ["y", "z", "a"]
    assert verdict(numbers)[0] == "y and z find the largest margins: the best known on all 6 problems."


def test_gaps_by_size() -> None:
    """Check two sizes, of which the larger one was run by one solver only."""
    rows = [*made(10), *(row(problem(k, 20), "a", kappa_bar=1.0) for k in range(2))]
    lines = {line["solver"]: line for line in table(contents(results(rows)), "ranking")}
    assert lines["a"]["gap, m\u00a0=\u00a010"] == pytest.approx(GAPS["a"]) and lines["a"]["gap, m\u00a0=\u00a020"] == 0
    assert lines["b"]["gap, m\u00a0=\u00a020"] is None
    assert lines["b"]["mean gap"] == pytest.approx((0.7 + 2) / 8)
    assert "gap, m\u00a0=\u00a010" not in table(contents(results(made())), "ranking")[0]


@pytest.mark.parametrize(("second", "says"), [(0.5, "is unlikely to be chance"), (None, "may be chance")])
def test_verdict_says_how_sure_the_order_is(second: float | None, says: str) -> None:
    """Check a solver that is worse on every problem, and one that is better on some and worse on others."""
    rows = []
    for k in range(12):
        rows.append(row(problem(k), "a", kappa_bar=1.0 if second or k % 2 else 0.55))
        rows.append(row(problem(k), "b", kappa_bar=second or (0.5 if k % 2 else 1.0)))
    assert says in verdict(contents(results(rows)))[1]
    assert "over 12 problems" in verdict(contents(results(rows)))[1]


def test_a_difference_on_one_problem_may_be_chance() -> None:
    """Check that rounding errors on the other problems are no evidence."""
    rows = []
    for k in range(12):
        rows.append(row(problem(k), "a", kappa_bar=1.0))
        rows.append(row(problem(k), "b", kappa_bar=1.0 - (1e-7 if k else 0.5)))
    assert "this may be chance (95 % interval 0 to" in verdict(contents(results(rows)))[1]


def test_few_problems_have_no_intervals_and_the_report_says_so() -> None:
    rows = [row(problem(k), name, kappa_bar=value) for k in range(3) for name, value in (("a", 1.0), ("b", 0.5))]
    numbers = contents(results(rows))
    assert "rank, 95\u00a0%" not in table(numbers, "ranking")[0]
    assert verdict(numbers)[1].endswith("; 3 problems are too few to tell whether that is chance.")
    assert "Intervals of ranks: they need 5 problems, the results have 3." in left_out(numbers)


def test_general_problems_are_ranked() -> None:
    rows = [
        general(f"{k}.qplib", name, 1.0 + step, best_known=1.0)
        for k in range(6)
        for name, step in (("a", 0.1), ("b", 0.0))
    ]
    lines = table(contents(results(rows)), "general-ranking")
    assert [(line["solver"], line["rank"], line["best known"]) for line in lines] == [("b", 1, 6), ("a", 2, 0)]
    assert lines[1]["mean gap"] == pytest.approx(0.1)
    text = html(results(rows)).split("<details")[0]
    assert 'data-name="general-ranking"' in text


# --- accuracy ---


def test_accuracy_is_that_of_the_largest_margin() -> None:
    runs = [(0.5, 0.9), (1.0, 0.7), (0.8, 0.8)]
    rows = [
        row("recorded", "a", start=k, kappa_bar=margin, test_accuracy=share) for k, (margin, share) in enumerate(runs)
    ]
    rows.append(row("recorded", "b", kappa_bar=0.5, test_accuracy=0.95))
    numbers = contents(results(rows))
    first, second = table(numbers, "accuracy")
    assert (first["accuracy"], first["gap"], first["runs"]) == (0.7, 0, 3)
    assert (first["mean accuracy"], first["lowest"], first["highest"]) == (pytest.approx(0.8), 0.7, 0.9)
    assert (second["accuracy"], second["gap"]) == (0.95, 0.5)
    assert [line["accuracy"] for line in table(numbers, "ranking")] == [0.7, 0.95]
    (plot,) = (plot for plot in plots(numbers) if plot.id == "accuracy")
    assert [(list(series.x), list(series.y)) for series in plot.series] == [
        ([0.5, 1e-4, pytest.approx(0.2)], [0.9, 0.7, 0.8]),
        ([0.5], [0.95]),
    ]
    assert (
        '<section id="accuracy">' in html(results(rows))
        and "accuracy" not in table(contents(results(made())), "ranking")[0]
    )


# --- versions and files ---


def test_labels_of_versions_are_the_parts_that_differ() -> None:
    versions = ["own 0.1, scipy 1.17, source aa", "own 0.1, scipy 1.17, source bb", "own 0.2, scipy 1.17, source aa"]
    labels = labels_of_versions([*(("gip", version) for version in versions), ("ipopt", "3.14")])
    assert [labels["gip", version] for version in versions] == [
        "own 0.1, source aa",
        "own 0.1, source bb",
        "own 0.2, source aa",
    ]
    assert ("ipopt", "3.14") not in labels
    hashes = ["own 0.1, source 0123456789ab", "own 0.1, source 012345ffffff", "own 0.1, source ba9876543210"]
    assert [*labels_of_versions(("gip", version) for version in hashes[1:]).values()] == [
        "source 012345",
        "source ba9876",
    ]
    assert labels_of_versions(("gip", version) for version in hashes)["gip", hashes[0]] == "source 0123456789ab"


def test_files_with_the_same_runs_are_series(tmp_path: Path) -> None:
    """Check a rerun of the same solver, a solver in one file only, and that a copy of a file is no second series."""
    for name in ("old.db", "new.db"):
        add_runs(tmp_path / name, [TASK], ["slsqp"], starts=2)
    add_runs(tmp_path / "new.db", [TASK], ["gip"])
    given = read([tmp_path / "old.db", tmp_path / "new.db"])
    assert sorted(each.label for each in given.rows) == ["gip", *["slsqp, new.db"] * 2, *["slsqp, old.db"] * 2]
    assert {line.solver for line in contents(given).ranking.solvers} == {"gip", "slsqp, new.db", "slsqp, old.db"}
    (tmp_path / "copy.db").write_bytes((tmp_path / "old.db").read_bytes())
    copied = read([tmp_path / "old.db", tmp_path / "copy.db"])
    assert {each.label for each in copied.rows} == {"slsqp"} and copied.repeated == 2


def test_files_with_the_same_name_are_numbered(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        add_runs(tmp_path / folder / "results.db", [TASK], ["slsqp"])
    given = read([tmp_path / "one" / "results.db", tmp_path / "two" / "results.db"])
    assert given.files == ("results.db (1)", "results.db (2)")
    assert {each.label for each in given.rows} == {"slsqp, results.db (1)", "slsqp, results.db (2)"}


def test_parts_of_one_experiment_are_one_series(tmp_path: Path) -> None:
    """Check two files with different starts of the same solver."""
    for start in (0, 1):
        add_outcomes(tmp_path / f"{start}.db", outcome(replace(SPEC, start=start)))
    given = read([tmp_path / "0.db", tmp_path / "1.db"])
    assert len({each.label for each in given.rows}) == 1 and len(given.rows) == 2


# --- odd results files ---

ODD: dict[str, list[ReportRow]] = {
    "one run": [row()],
    "only failures": [lost(problem=problem(k), solver=name) for k in range(2) for name in "ab"],
    "only skipped": [lost(termination="skipped", message="not installed")],
    "only bounds": [row(solver="prover", bound=0.75, scope="bound")],
    "no load": [row("recorded", "a", test_accuracy=0.9), row("recorded", "b", kappa_bar=0.5, test_accuracy=1.0)],
    "negative margins": [row(problem(k), name, kappa_bar=-1.0) for k in range(2) for name in "ab"],
    "one general run": [general()],
    "only general failures": [general(objective=None), general("b.qplib", objective=None)],
    "both": [row(), general()],
    "fifteen solvers": many(2, 3, 1, 15, 1),
    "nothing": [],
}


@pytest.mark.parametrize("name", ODD)
def test_nothing_is_empty(name: str) -> None:
    """Check that every section, table, plot and verdict of an odd results file shows something."""
    given = results(ODD[name])
    numbers, text = contents(given), html(given)
    assert 1 <= len(verdict(numbers)) <= 6 and all(verdict(numbers))
    for id, content in re.findall(r'<section id="([\w-]+)">(.*?)</section>', text, re.DOTALL):
        assert re.search(r'<figure|<table|<li>|id="rows"', content), id
        assert not re.search(r"<tbody>\s*</tbody>|<ul[^>]*></ul>", content), id
    drawn = plots(numbers)
    assert all(any(y is not None for line in plot.series for y in line.y) or plot.bands for plot in drawn)
    assert re.findall(r'<figure id="plot-([\w-]+)"', text) == list(dict.fromkeys(plot.id for plot in drawn))
    tables = [block for block in markdown(given).split("\n\n") if block.startswith("|")]
    assert all(len(block.splitlines()) > 2 for block in tables)
    for columns, *cells in (
        [line.split(" | ") for line in block.splitlines() if "---" not in line] for block in tables
    ):
        assert all(len(line) == len(columns) for line in cells)


def test_missing_plots_are_explained() -> None:
    missing = missing_plots(contents(results(ODD["one run"])))
    assert (
        "Plot of optimality gaps: it needs tasks with a number of inputs m and a load, and a feasible point, and "
        "proved upper bounds." in missing
    )
    assert "Plot of solve times: it needs tasks of two sizes." in missing
    assert not any("general" in sentence or "against load" in sentence for sentence in missing)
    assert missing_plots(contents(results(many(2, 3, 1, 3, 1)))) == []
    page = html(results(ODD["one run"]))
    assert all(sentence in page for sentence in missing)


def test_verdict_of_failures_alone() -> None:
    numbers = contents(results(ODD["only failures"]))
    assert numbers.ranking.solvers == ()
    assert verdict(numbers)[0] == "No run has a positive margin on 2 problems, load 1."
    assert "Ranks on 2 problems: no run has a feasible point there, and no value is known." in left_out(numbers)
