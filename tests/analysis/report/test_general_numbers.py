"""The report's section on general QCQPs, against an independent computation from the rows."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, write
from qcqpbench.analysis import metrics
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.analysis.report.tables.index import tables
from qcqpbench.analysis.report.verdict import verdict
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.status import PointStatus
from qcqpbench.cli.main import main
from qcqpbench.problem.metadata import BestKnown, Metadata
from qcqpbench.problem.qcqp import Sense
from tests.support.old_files import make_older
from tests.support.report_rows import general, many, number, results, row, table
from tests.support.results_files import SPEC, add_outcomes, add_runs, outcome

TASKS = ("summary", "bounds", "unsolved", "capacity", "sizes", "anytime", "targets", "profiles", "shift", "common")


def lines(rows: list[ReportRow], id: str, first: str) -> dict[str, dict[str, Any]]:
    return {line[first]: line for line in table(contents(results(rows)), id)}


@pytest.fixture(scope="module")
def rows() -> list[ReportRow]:
    """Return runs of three solvers with four starts on ten problems of both senses.

    Some problems have no published value, one has no feasible point.
    """
    rng = np.random.default_rng(1)
    runs = []
    for k in range(10):
        sense, best = ("minimize", "maximize")[k % 2], float(rng.normal() * 10.0 ** rng.integers(-3, 4))
        for name in "abc":
            for start in range(4):
                worse = abs(rng.standard_normal()) * 10.0 ** rng.integers(-7, 1) - 1e-3 * (k == 3)
                value = float(best + worse * max(1, abs(best)) * (1 if sense == "minimize" else -1))
                excess = 0.0 if rng.random() < 0.7 and k != 4 else float(rng.uniform(0.1, 9))
                runs.append(
                    general(
                        f"{k}.qplib",
                        name,
                        value,
                        start=start,
                        sense=sense,
                        best_known=best if k % 3 else None,
                        violation=2 * excess,
                        relative_violation=excess,
                        point_status="infeasible" if excess else "feasible",
                        solve_seconds=float(rng.lognormal()),
                    )
                )
    return runs


def best_known_values(rows: list[ReportRow]) -> dict[str, tuple[float, float]]:
    """Return by problem 1 or −1 for minimize or maximize, and the reference value of gaps."""
    values: dict[str, tuple[float, float]] = {}
    for each in rows:
        sign = 1 if each.sense == "minimize" else -1
        objectives = [
            number(e.objective) for e in rows if e.problem == each.problem and e.point_status is PointStatus.FEASIBLE
        ]
        reference = each.best_known if each.best_known is not None else sign * min(sign * v for v in objectives)
        values[each.problem] = sign, reference
    return values


def test_table_of_problems_matches_the_rows(rows: list[ReportRow]) -> None:
    best_known = best_known_values([each for each in rows if each.problem != "4.qplib"])
    lines_by_problem = lines(rows, "general-problems", "problem")
    assert len(lines_by_problem) == 10
    for problem, (sign, best) in best_known.items():
        line = lines_by_problem[problem]
        problem_rows = [each for each in rows if each.problem == problem]
        feasible = [each for each in problem_rows if each.point_status is PointStatus.FEASIBLE]
        first = min(feasible, key=lambda each: sign * number(each.objective))
        worse = sign * (number(first.objective) - best)
        assert line["best known"] == problem_rows[0].best_known and line["best found"] == number(first.objective)
        assert (line["gap"], line["relative gap"]) == (
            pytest.approx(worse),
            pytest.approx(worse / max(0.01, abs(best))),
        )
        at_best_known = [sign * (number(each.objective) - best) <= 1e-4 * max(0.01, abs(best)) for each in feasible]
        assert (line["runs at best known"], line["feasible runs"], line["runs"]) == (
            sum(at_best_known),
            len(feasible),
            12,
        )
        assert first.solver in line["found by"].split(", ") and line["violation"] == 0
        assert (line["variables"], line["constraints"], line["sense"]) == (3, 2, problem_rows[0].sense)
        assert line["median s"] == pytest.approx(np.median([0.5 + number(each.solve_seconds) for each in problem_rows]))
    lost = [each for each in rows if each.problem == "4.qplib"]
    nearest = min(lost, key=lambda each: number(each.relative_violation))
    line = lines_by_problem["4.qplib"]
    assert line["best found"] is line["gap"] is line["found by"] is None
    assert (line["violation"], line["relative violation"]) == (nearest.violation, nearest.relative_violation)


def test_table_of_solvers_matches_the_rows(rows: list[ReportRow]) -> None:
    best_known = best_known_values([each for each in rows if each.problem != "4.qplib"])
    for name, line in lines(rows, "general-summary", "solver").items():
        solver_rows = [each for each in rows if each.solver == name]
        best_gaps, runs_at_best_known = [], 0
        for problem, (sign, best) in best_known.items():
            values = [
                number(e.objective)
                for e in solver_rows
                if e.problem == problem and e.point_status is PointStatus.FEASIBLE
            ]
            start_gaps = [sign * (value - best) / max(0.01, abs(best)) for value in values]
            best_gaps.append(min(start_gaps, default=math.inf))
            runs_at_best_known += sum(gap <= 1e-4 for gap in start_gaps)
        assert (line["runs"], line["starts"], line["not run"]) == (40, 4, 0)
        assert line["feasible runs"] == sum(each.point_status is PointStatus.FEASIBLE for each in solver_rows)
        assert line["runs at best known"] == runs_at_best_known
        assert line["problems at best known"] == sum(gap <= 1e-4 for gap in best_gaps)
        assert line["no point"] == 1 + sum(gap == math.inf for gap in best_gaps)
        assert line["median gap"] == pytest.approx(np.median([*best_gaps, math.inf]))
        assert line["largest gap"] == pytest.approx(max(gap for gap in best_gaps if gap < math.inf))
        assert line["median s"] == pytest.approx(np.median([0.5 + number(each.solve_seconds) for each in solver_rows]))


@pytest.mark.parametrize(
    ("sense", "best", "value", "gap", "relative"),
    [
        ("minimize", 3.0, 2.0, -1.0, -1 / 3),
        ("minimize", 3.0, 4.5, 1.5, 0.5),
        ("maximize", 3.0, 4.5, -1.5, -0.5),
        ("maximize", -3.0, -4.5, 1.5, 0.5),
        ("minimize", 0.1, 0.2, 0.1, 1.0),
        ("minimize", 0.0, 0.0, 0.0, 0.0),
        ("maximize", 0.001, 0.0005, 0.0005, 0.05),
    ],
)
def test_gap_is_positive_if_the_value_is_worse(
    sense: str, best: float, value: float, gap: float, relative: float
) -> None:
    one = [general(objective=value, sense=sense, best_known=best)]
    (line,) = table(contents(results(one)), "general-problems")
    assert (line["gap"], line["relative gap"]) == (pytest.approx(gap), pytest.approx(relative))
    (line,) = table(contents(results(one)), "general-summary")
    assert (line["problems at best known"], line["new best"]) == (relative <= 0, relative < 0)
    assert ("New best known values: " in " ".join(verdict(contents(results(one))))) == (relative < 0)


def test_best_known_is_reached_to_within_a_relative_1e_4() -> None:
    for best in (0.5, 200.0):
        unit = 1e-4 * max(0.01, best)
        cases = [(0.9, 1, 0), (1.1, 0, 0), (-0.9, 1, 0), (-1.1, 1, 1)]
        for step, reached, new in cases:
            runs = [general(objective=best + step * unit, best_known=best)]
            (line,) = table(contents(results(runs)), "general-summary")
            assert (line["problems at best known"], line["new best"]) == (reached, new), (best, step)


def test_only_feasible_points_reach_the_published_value() -> None:
    runs = [
        general(solver="liar", objective=-9.0, best_known=1.0, point_status="infeasible", termination="optimal",
                violation=0.5, relative_violation=0.25),
        general(solver="late", objective=None, best_known=1.0),
        general(solver="fair", objective=1.0, best_known=1.0, solve_seconds=2.0),
    ]  # fmt: skip
    lines_by_solver = {line["solver"]: line for line in table(contents(results(runs)), "general-summary")}
    assert [lines_by_solver[name]["problems at best known"] for name in ("liar", "late", "fair")] == [0, 0, 1]
    assert [lines_by_solver[name]["no point"] for name in ("liar", "late", "fair")] == [1, 1, 0]
    assert lines_by_solver["liar"]["false claims"] == 1
    assert [lines_by_solver[name]["mean s, restarts"] for name in ("late", "fair")] == pytest.approx([30, 2.5])
    text = " ".join(verdict(contents(results(runs))))
    assert text.startswith(
        "fair comes closest to the best known values: the best known on the only problem. Next is late, "
    )
    assert "Runs without a feasible point: late 1 of 1 and liar 1 of 1." in text


def test_bounds_are_on_the_objective() -> None:
    runs = [general(solver="prover", objective=1.5, bound=1.0), general(solver="b", objective=1.25, best_known=1.25)]
    (line,) = table(contents(results(runs)), "general-problems")
    assert line["proved bound"] == 1.0
    (line,) = table(contents(results(runs)), "general-bounds")
    assert (line["solver"], line["median gap"]) == ("prover", pytest.approx(0.25))
    refuted = [general(solver="prover", objective=1.5, bound=1.3), runs[1]]
    assert len(contents(results(refuted)).refuted) == 1


def test_tasks_and_general_problems_do_not_affect_each_other(rows: list[ReportRow]) -> None:
    tasks = many(2, 3, 2, 3, 2)
    alone, mixed, without = (contents(results(each)) for each in (tasks, [*tasks, *rows], rows))
    for name in TASKS:
        assert getattr(mixed, name) == getattr(alone, name), name
    assert mixed.general == without.general
    assert (mixed.problems, mixed.tasks, without.tasks) == (22, 12, 0)
    assert sum(line.runs for line in mixed.statuses) == len(tasks) + len(rows)


def test_limits_in_a_note_are_those_of_its_section() -> None:
    numbers = contents(results([row(time_limit=3.0), general(time_limit=7.0)]))
    notes = {each.id: each.note for each in tables(numbers)}
    assert notes["summary"].endswith("Limits: 3 s a run, no memory limit, 1 thread.")
    assert notes["general-summary"].endswith("Limits: 7 s a run, no memory limit, 1 thread.")
    assert notes["statuses"].endswith("Limits: 3 s or 7 s a run, no memory limit, 1 thread.")


def sections(rows: list[ReportRow]) -> list[str]:
    page = html(results(rows))
    section_ids = re.findall(r'<section id="(\w+)">', page)
    links = re.findall(r'href="#(\w+)"', page.split("</nav>")[0].split("<nav")[1])
    assert links == section_ids
    assert "{{" not in page.split("<script")[0] and "<!--" not in page
    return section_ids


def test_page_has_only_sections_with_results(rows: list[ReportRow]) -> None:
    # Times against the size need two sizes.
    margins = ["capacity", "gaps", "anytime", "profiles"]
    rest = ["status", "runs", "machines"]
    assert sections(rows) == ["verdict", "general", *rest]
    assert sections([row()]) == ["verdict", *margins, *rest]
    assert sections([row(), *rows]) == ["verdict", *margins, "general", *rest]
    assert sections(many(2, 2, 1, 1, 1)) == ["verdict", *margins[:2], "time", *margins[2:], *rest]
    assert sections([]) == ["verdict", "machines"]


def test_markdown_has_the_same_sections_and_sentences(rows: list[ReportRow]) -> None:
    text = markdown(results([row(), *rows]))
    assert "## General QCQPs\n" in text and "## Margins by load\n" in text
    assert "## Margins by load\n" not in markdown(results(rows))
    assert "- a finds the largest margins: " in text
    assert " closest to the best known values on general QCQPs: " in text


def test_sense_and_size_are_those_of_the_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the sense comes from the rows if the problem file is missing, and is unknown in rows of schema 4."""
    square = QCQP(-np.eye(2), constant=7.0, sense="maximize", x_lower=[1.0, 2.0], x_upper=[3.0, 4.0])
    write(square, tmp_path / "square.qplib")
    target = tmp_path / "rows.db"
    arguments = ["-s", "slsqp", "-r", "2", "--timeout", "20", "-j", "1", "-o", str(target)]
    assert main(["run", "-p", str(tmp_path / "square.qplib"), *arguments]) == 0
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["constraints"], line["sense"]) == (2, 0, "maximize")
    assert line["best found"] == pytest.approx(2.0) and line["runs at best known"] == 2
    (tmp_path / "square.qplib").unlink()
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["constraints"], line["sense"]) == (None, None, "maximize")
    assert line["best found"] == pytest.approx(2.0) and line["runs at best known"] == 2
    make_older(target, 4)
    numbers = contents(read([target]))
    assert (numbers.general.problems, numbers.general.summary, numbers.false_rows) == ((), (), ())
    name = tmp_path / "square.qplib"
    why = "it cannot be loaded, and its rows do not store the sense"
    assert verdict(numbers)[0] == f"1 problem is not ranked because {why}: {name}."
    write(square, name)
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["sense"], line["runs at best known"]) == (2, "maximize", 2)


def test_the_table_of_families_is_that_of_their_problems_alone(rows: list[ReportRow]) -> None:
    """Compare each family with a report on its problems alone; a report on one family has no such table."""
    mixed = [
        replace(each, problem=f"packing[k={each.problem[0]}2]" if int(each.problem[0]) < 4 else each.problem)
        for each in rows
    ]
    lines_by_key = {
        (line["problems of"], line["solver"]): line for line in table(contents(results(mixed)), "general-families")
    }
    assert len(lines_by_key) == 6
    for family, is_member in (
        ("packing", lambda each: "packing" in each.problem),
        ("files", lambda each: "qplib" in each.problem),
    ):
        alone = contents(results(list(filter(is_member, mixed))))
        for line in table(alone, "general-summary"):
            shared = lines_by_key[family, line["solver"]]
            assert {key: value for key, value in line.items() if key in shared} == {
                key: value for key, value in shared.items() if key != "problems of"
            }
        assert alone.general.families == {}


def test_theory_and_proved_bound_are_those_of_the_problem(tmp_path: Path) -> None:
    """Check a spin glass with a proved energy, one without, and a packing, which no theory predicts."""
    specs = ["spin_glass[n=6]", "spin_glass[n=25]", "packing[k=2]"]
    add_runs(tmp_path / "rows.db", specs, ["slsqp"])
    lines_by_problem = {
        line["problem"].split("[")[-1]: line
        for line in table(contents(read([tmp_path / "rows.db"])), "general-problems")
    }
    proved = qcqpbench.problem(specs[0]).metadata.best_known
    assert proved is not None
    small, large, packing = (lines_by_problem[end] for end in ("n=6]", "n=25]", "k=2]"))
    assert small["theory"] == large["theory"] == pytest.approx(-0.763167) and packing["theory"] is None
    assert small["proved bound"] == small["best known"] == proved.value
    assert large["proved bound"] is large["best known"] is None
    assert packing["best known"] == pytest.approx(2) and packing["best found"] == pytest.approx(2)


@pytest.mark.parametrize(("sense", "better"), [("minimize", 2.0), ("maximize", 3.0)])
def test_better_of_two_published_values_counts(tmp_path: Path, sense: Sense, better: float) -> None:
    """Check two files with the same problem and different best known values."""
    for value, solver in ((3.0, "slsqp"), (2.0, "slsqp[max_iter=500]")):
        metadata = Metadata(best_known=BestKnown(value, "a paper"))
        square = QCQP(np.eye(2), sense=sense, x_lower=[1.0, 2.0], x_upper=[3.0, 4.0], metadata=metadata)
        write(square, tmp_path / f"{value}.npz")
        add_runs(tmp_path / "rows.db", [str(tmp_path / f"{value}.npz")], [solver])
    rows = read([tmp_path / "rows.db"]).rows
    assert [each.best_known for each in rows] == [better, better]
    assert [(each.sense, each.variables) for each in rows] == [(sense, 2), (sense, 2)]


def test_sense_of_an_older_row_counts_if_the_newest_has_none(tmp_path: Path) -> None:
    """Check rows of a problem that cannot be loaded; the best known value is that of the newest row."""
    spec = replace(SPEC, problem=str(tmp_path / "gone.qplib"))
    older = outcome(spec, begun=1.0, sense="maximize", objective=1.0, best_known=5.0)
    newer = outcome(replace(spec, start=1), begun=2.0, objective=2.0, best_known=4.0)
    add_outcomes(tmp_path / "rows.db", newer, older)
    rows = read([tmp_path / "rows.db"]).rows
    assert [(each.start, each.sense, each.best_known) for each in rows] == [(0, "maximize", 4.0), (1, "maximize", 4.0)]


def test_data_of_the_page_has_the_profiles(rows: list[ReportRow]) -> None:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(results(rows)), re.DOTALL)
    assert match is not None
    data = json.loads(match[1])
    (plot,) = (plot for plot in data["plots"] if plot["title"] == "Data profile, general QCQPs")
    ends = {line["name"]: data["arrays"][line["y"]][-1] for line in plot["series"]}
    reached = lines(rows, "general-summary", "solver")
    assert ends == {name: pytest.approx(reached[name]["problems at best known"] / 10, abs=1e-4) for name in "abc"}


def test_problems_without_a_margin_are_general() -> None:
    pointless = row(solver="b", margin=None, kappa_bar=None, objective=1.0)
    runs = [row(), pointless, general(), general("b.qplib", objective=None)]
    assert metrics.general(runs) == {runs[2].problem_id, runs[3].problem_id}


def test_new_best_needs_the_default_tolerance() -> None:
    """Check that points that are feasible only by a looser tolerance improve no published value."""
    for violation, is_record in ((0.04, False), (1e-7, True)):
        facts: dict[str, Any] = {"best_known": 3.0, "tolerance": 0.05, "relative_violation": violation}
        numbers = contents(results([general(objective=2.0, **facts), general(objective=3.0, start=1, best_known=3.0)]))
        assert any("New best known values" in sentence for sentence in verdict(numbers)) is is_record
        assert numbers.general.summary[0].better == is_record
