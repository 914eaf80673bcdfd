"""The report's section on problems that are not max-margin: gaps to best known values, computed again from the rows."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QCQP, write
from qcqpbench.analysis import metrics
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.numbers.tables import tables
from qcqpbench.analysis.report.numbers.verdict import verdict
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.cli.main import main
from tests.support.old_files import make_older
from tests.support.report_rows import Row, general, many, results, row, table

TASKS = ("summary", "bounds", "unsolved", "capacity", "sizes", "anytime", "targets", "profiles", "shift", "common")


def lines(rows: list[Row], id: str, first: str) -> dict[str, dict[str, Any]]:
    return {line[first]: line for line in table(contents(results(rows)), id)}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Three solvers, four starts, ten problems of both senses, some without a published value or a feasible point."""
    rng = np.random.default_rng(1)
    made = []
    for k in range(10):
        sense, best = ("minimize", "maximize")[k % 2], float(rng.normal() * 10.0 ** rng.integers(-3, 4))
        for name in "abc":
            for start in range(4):
                worse = abs(rng.standard_normal()) * 10.0 ** rng.integers(-7, 1) - 1e-3 * (k == 3)
                value = best + worse * max(1, abs(best)) * (1 if sense == "minimize" else -1)
                miss = 0.0 if rng.random() < 0.7 and k != 4 else float(rng.uniform(0.1, 9))
                made.append(
                    general(
                        f"{k}.qplib",
                        name,
                        value,
                        start=start,
                        sense=sense,
                        best_known=best if k % 3 else None,
                        violation=2 * miss,
                        relative_violation=miss,
                        point_status="infeasible" if miss else "feasible",
                        solve_seconds=float(rng.lognormal()),
                    )
                )
    return made


def known_by_hand(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """By problem: 1 or −1 for minimize or maximize, and the value that gaps are from."""
    found: dict[str, tuple[float, float]] = {}
    for each in rows:
        sign = 1 if each["sense"] == "minimize" else -1
        here = [e["objective"] for e in rows if e["problem"] == each["problem"] and e["point_status"] == "feasible"]
        reference = each["best_known"] if each["best_known"] is not None else sign * min(sign * v for v in here)
        found[each["problem"]] = sign, reference
    return found


def test_every_problem(rows: list[Row]) -> None:
    known = known_by_hand([each for each in rows if each["problem"] != "4.qplib"])
    found = lines(rows, "general-problems", "problem")
    assert len(found) == 10
    for problem, (sign, best) in known.items():
        line = found[problem]
        own = [each for each in rows if each["problem"] == problem]
        feasible = [each for each in own if each["point_status"] == "feasible"]
        first = min(feasible, key=lambda each: sign * each["objective"])
        worse = sign * (first["objective"] - best)
        assert line["best known"] == own[0]["best_known"] and line["best found"] == first["objective"]
        assert (line["gap"], line["relative gap"]) == (pytest.approx(worse), pytest.approx(worse / max(1, abs(best))))
        there = [sign * (each["objective"] - best) <= 1e-4 * max(1, abs(best)) for each in feasible]
        assert (line["runs there"], line["feasible runs"], line["runs"]) == (sum(there), len(feasible), 12)
        assert first["solver"] in line["by"].split(", ") and line["violation"] == 0
        assert (line["variables"], line["constraints"], line["sense"]) == (3, 2, own[0]["sense"])
        assert line["median s"] == pytest.approx(np.median([0.5 + each["solve_seconds"] for each in own]))
    lost = [each for each in rows if each["problem"] == "4.qplib"]
    nearest = min(lost, key=lambda each: each["relative_violation"])
    line = found["4.qplib"]
    assert line["best found"] is line["gap"] is line["by"] is None
    assert (line["violation"], line["relative violation"]) == (nearest["violation"], nearest["relative_violation"])


def test_every_solver(rows: list[Row]) -> None:
    known = known_by_hand([each for each in rows if each["problem"] != "4.qplib"])
    for name, line in lines(rows, "general-summary", "solver").items():
        own = [each for each in rows if each["solver"] == name]
        gaps, there = [], 0
        for problem, (sign, best) in known.items():
            values = [e["objective"] for e in own if e["problem"] == problem and e["point_status"] == "feasible"]
            each = [sign * (value - best) / max(1, abs(best)) for value in values]
            gaps.append((min(each, default=math.inf), own[0]["best_known"]))
            there += sum(gap <= 1e-4 for gap in each)
        best_gaps = [gap for gap, _ in gaps]
        assert (line["runs"], line["starts"], line["not run"]) == (40, 4, 0)
        assert line["feasible runs"] == sum(each["point_status"] == "feasible" for each in own)
        assert line["runs at best known"] == there
        assert line["problems at best known"] == sum(gap <= 1e-4 for gap in best_gaps)
        assert line["no point"] == 1 + sum(gap == math.inf for gap in best_gaps)
        assert line["median gap"] == pytest.approx(np.median([*best_gaps, math.inf]))
        assert line["largest gap"] == pytest.approx(max(gap for gap in best_gaps if gap < math.inf))
        assert line["median s"] == pytest.approx(np.median([0.5 + each["solve_seconds"] for each in own]))


@pytest.mark.parametrize(
    ("sense", "best", "value", "gap", "relative"),
    [
        ("minimize", 3.0, 2.0, -1.0, -1 / 3),
        ("minimize", 3.0, 4.5, 1.5, 0.5),
        ("maximize", 3.0, 4.5, -1.5, -0.5),
        ("maximize", -3.0, -4.5, 1.5, 0.5),
        ("minimize", 0.1, 0.2, 0.1, 0.1),
        ("minimize", 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_worse_is_positive(sense: str, best: float, value: float, gap: float, relative: float) -> None:
    one = [general(objective=value, sense=sense, best_known=best)]
    (line,) = table(contents(results(one)), "general-problems")
    assert (line["gap"], line["relative gap"]) == (pytest.approx(gap), pytest.approx(relative))
    (line,) = table(contents(results(one)), "general-summary")
    assert (line["problems at best known"], line["new best"]) == (relative <= 0, relative < 0)
    assert ("Better than the best known value: " in " ".join(verdict(contents(results(one))))) == (relative < 0)


def test_at_the_best_known_is_one_ten_thousandth() -> None:
    for best in (0.5, 200.0):
        unit = 1e-4 * max(1, best)
        cases = [(0.9, 1, 0), (1.1, 0, 0), (-0.9, 1, 0), (-1.1, 1, 1)]
        for step, reached, new in cases:
            made = [general(objective=best + step * unit, best_known=best)]
            (line,) = table(contents(results(made)), "general-summary")
            assert (line["problems at best known"], line["new best"]) == (reached, new), (best, step)


def test_what_is_published_must_be_reached_by_a_feasible_point() -> None:
    made = [
        general(solver="liar", objective=-9.0, best_known=1.0, point_status="infeasible", termination="optimal",
                violation=0.5, relative_violation=0.25),
        general(solver="late", objective=None, best_known=1.0),
        general(solver="fair", objective=1.0, best_known=1.0, solve_seconds=2.0),
    ]  # fmt: skip
    found = {line["solver"]: line for line in table(contents(results(made)), "general-summary")}
    assert [found[name]["problems at best known"] for name in ("liar", "late", "fair")] == [0, 0, 1]
    assert [found[name]["no point"] for name in ("liar", "late", "fair")] == [1, 1, 0]
    assert found["liar"]["false claims"] == 1
    assert [found[name]["mean s, restarts"] for name in ("late", "fair")] == pytest.approx([30, 2.5])
    text = " ".join(verdict(contents(results(made))))
    assert "Best known values reached, to 0.0001 of max(1, |value|): fair (1 start) 1 of 1 with a median gap" in text
    assert "Runs without a feasible point: late 1 of 1, liar 1 of 1." in text


def test_bounds_are_of_the_objective() -> None:
    made = [general(solver="prover", objective=1.5, bound=1.0), general(solver="b", objective=1.25, best_known=1.25)]
    (line,) = table(contents(results(made)), "general-problems")
    assert line["proved bound"] == 1.0
    (line,) = table(contents(results(made)), "general-bounds")
    assert (line["solver"], line["median gap"]) == ("prover", pytest.approx(0.25))
    refuted = [general(solver="prover", objective=1.5, bound=1.3), made[1]]
    assert len(contents(results(refuted))["refuted"]) == 1


def test_margins_and_objectives_do_not_mix(rows: list[Row]) -> None:
    tasks = many(2, 3, 2, 3, 2)
    alone, mixed, without = (contents(results(each)) for each in (tasks, [*tasks, *rows], rows))
    for name in TASKS:
        assert mixed[name] == alone[name], name
    assert mixed["general"] == without["general"]
    assert (mixed["problems"], mixed["tasks"], without["tasks"]) == (22, 12, 0)
    assert sum(line["runs"] for line in mixed["statuses"]) == len(tasks) + len(rows)


def test_limits_are_of_the_section() -> None:
    found = contents(results([row(time_limit=3.0), general(time_limit=7.0)]))
    notes = {each.id: each.note for each in tables(found)}
    assert notes["summary"].endswith("Limits: 3 s a run, no memory limit, 1 thread.")
    assert notes["general-summary"].endswith("Limits: 7 s a run, no memory limit, 1 thread.")
    assert notes["statuses"].endswith("Limits: 3 s or 7 s a run, no memory limit, 1 thread.")


def sections(rows: list[Row]) -> list[str]:
    page = html(results(rows))
    found = re.findall(r'<section id="(\w+)">', page)
    links = re.findall(r'href="#(\w+)"', page.split("</nav>")[0].split("<nav")[1])
    assert links == found
    assert "{{" not in page.split("<script")[0] and "<!--" not in page
    return found


def test_the_page_has_only_the_sections_that_it_needs(rows: list[Row]) -> None:
    margins = ["capacity", "gaps", "time", "profiles"]
    rest = ["status", "runs", "machines"]
    assert sections(rows) == ["verdict", "general", *rest]
    assert sections([row()]) == ["verdict", *margins, *rest]
    assert sections([row(), *rows]) == ["verdict", *margins, "general", *rest]
    assert sections([]) == ["verdict", *rest]


def test_markdown_is_its_twin(rows: list[Row]) -> None:
    text = markdown(results([row(), *rows]))
    assert "## Problems that are not max-margin\n" in text and "## Margins by load\n" in text
    assert "## Margins by load\n" not in markdown(results(rows))
    assert "reached on problems that are not max-margin, to" in text
    assert "- Every run on a max-margin task gave a positive margin.\n" in text and "Every run gave" not in text
    assert "- Runs without a feasible point there: " in text


def test_sense_and_size_are_of_the_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report made where the problem is not knows the sense from the rows, but for those of schema 4."""
    square = QCQP.from_matrices((-np.eye(2), None, 7.0), sense="maximize", x_lower=[1.0, 2.0], x_upper=[3.0, 4.0])
    write(square, tmp_path / "square.qplib")
    target = tmp_path / "rows.db"
    arguments = ["-s", "slsqp", "-r", "2", "--timeout", "20", "-j", "1", "-o", str(target)]
    assert main(["run", "-p", str(tmp_path / "square.qplib"), *arguments]) == 0
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["constraints"], line["sense"]) == (2, 0, "maximize")
    assert line["best found"] == pytest.approx(2.0) and line["runs there"] == 2
    (tmp_path / "square.qplib").unlink()
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["constraints"], line["sense"]) == (None, None, "maximize")
    assert line["best found"] == pytest.approx(2.0) and line["runs there"] == 2
    make_older(target, 4)
    found = contents(read([target]))
    assert found["general"]["problems"] == found["general"]["summary"] == found["false_rows"] == []
    name = tmp_path / "square.qplib"
    why = "cannot be read here, and its old rows do not say whether more is better"
    assert verdict(found)[0] == f"No gaps, no ranks on 1 problem that {why}: {name}."
    write(square, name)
    (line,) = table(contents(read([target])), "general-problems")
    assert (line["variables"], line["sense"], line["runs there"]) == (2, "maximize", 2)


def test_json_of_the_page_has_the_profiles(rows: list[Row]) -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(results(rows)), re.DOTALL)
    assert found is not None
    (profile,) = json.loads(found[1])["general"]["profiles"]
    assert set(profile["all"]) == {"a", "b", "c"} and profile["data"]["a"][-1] == pytest.approx(
        lines(rows, "general-summary", "solver")["a"]["problems at best known"] / 10, abs=1e-4
    )


def test_which_problems_are_general() -> None:
    pointless = row(solver="b", margin=None, kappa_bar=None, objective=1.0)
    made = [row(), pointless, general(), general("b.qplib", objective=None)]
    assert metrics.general(made) == {made[2]["problem_id"], made[3]["problem_id"]}


def test_a_record_needs_the_usual_tolerance() -> None:
    """A suite with a loose tolerance finds its points feasible, and none of them improves a published value."""
    for violation, is_record in ((0.04, False), (1e-7, True)):
        facts: dict[str, Any] = {"best_known": 3.0, "tolerance": 0.05, "relative_violation": violation}
        found = contents(results([general(objective=2.0, **facts), general(objective=3.0, start=1, best_known=3.0)]))
        assert any("Better than the best known value" in sentence for sentence in verdict(found)) is is_record
        assert found["general"]["summary"][0]["better"] == is_record
