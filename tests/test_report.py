"""A report's numbers, computed again from the rows by other means, and what it makes of solvers that cheat or fail."""

import json
import math
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import random_start, solve
from qcqpbench.cli import main
from qcqpbench.job import Outcome, load_problem
from qcqpbench.report import html, markdown, verdict
from qcqpbench.report.contents import contents
from qcqpbench.report.tables import tables
from qcqpbench.store import Store
from qcqpbench.suite import Suite
from tests.report_rows import Row, lost, many, results, row

HARMFUL = "</script><script>document.title='harmed'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """600 random results of 5 solvers, some runs missing."""
    made = many(3, 4, 2, 5, 5)
    return [each for k, each in enumerate(made) if k % 37]


def table(found: dict[str, Any], id: str) -> list[dict[str, Any]]:
    (wanted,) = (each for each in tables(found) if each.id == id)
    return [dict(zip(wanted.columns, line, strict=True)) for line in wanted.rows]


def feasible(rows: list[Row]) -> list[Row]:
    return [each for each in rows if each["point_status"] == "feasible"]


def ids(rows: list[Row]) -> set[str]:
    return {each["problem_id"] for each in rows}


# --- the numbers again ---


def test_summary(rows: list[Row]) -> None:
    best = {id: max(each["kappa_bar"] for each in feasible(rows) if each["problem_id"] == id) for id in ids(rows)}
    for line in table(contents(results(rows)), "summary"):
        own = [each for each in rows if each["solver"] == line["solver"]]
        assert (line["runs"], line["problems"]) == (len(own), len(ids(own)))
        assert line["not run"] == len(best) - len(ids(own))
        assert line["solved"] == sum(each["kappa_bar"] > 0 for each in feasible(own))
        gaps = []
        for id in ids(own):
            values = [each["kappa_bar"] for each in feasible(own) if each["problem_id"] == id]
            gaps.append((best[id] - max(values)) / max(abs(best[id]), 0.01) if values else math.inf)
        assert line["best known"] == sum(gap <= 1e-4 for gap in gaps)
        assert line["median gap"] == pytest.approx(sorted(gaps)[(len(gaps) - 1) // 2])
        assert line["largest gap"] == pytest.approx(max(gap for gap in gaps if gap < math.inf))


def test_capacity(rows: list[Row]) -> None:
    found = table(contents(results(rows)), "capacity-data")
    assert len(found) == 3 * 4 * 5
    for line in found:
        here = [
            each
            for each in rows
            if each["solver"] == line["solver"] and f"m={line['m']}," in each["problem"]
            and f"load={line['load']}," in each["problem"]
        ]  # fmt: skip
        per_set = [[each["kappa_bar"] for each in feasible(here) if each["problem_id"] == id] for id in ids(here)]
        per_set = [values for values in per_set if values]
        assert line["κ̄ best"] == pytest.approx(np.mean([max(values) for values in per_set]))
        assert line["least"] == min(max(values) for values in per_set)
        assert line["κ̄ median"] == pytest.approx(np.mean([np.median(values) for values in per_set]))
        assert line["positive runs"] == sum(each["kappa_bar"] > 0 for each in feasible(here))
        assert line["runs"] == len(here)


def test_targets(rows: list[Row]) -> None:
    """Shifted geometric means of penalized times, with the rows' traces read backwards."""
    found = contents(results(rows))
    best = {id: max(each["kappa_bar"] for each in feasible(rows) if each["problem_id"] == id) for id in ids(rows)}
    for line in table(found, "targets"):
        means: dict[int, list[float]] = {1: [], 3: []}
        hits, restarts = 0, []
        for id, most in best.items():
            goal = most - (1 - line["share"]) * max(abs(most), 0.01)
            own = [each for each in rows if each["solver"] == line["solver"] and each["problem_id"] == id]
            times = []
            for each in own:
                time = None
                if each["point_status"] == "feasible" and each["kappa_bar"] >= goal:
                    time = each["build_seconds"] + each["solve_seconds"]
                    for at, value in reversed(each["trace"]):
                        time = each["build_seconds"] + at if value >= goal else time
                times.append(time)
            spent = [each["build_seconds"] + (each["solve_seconds"] or 10.0) for each in own]
            spent = [much if time is None else time for much, time in zip(spent, times, strict=True)]
            wins = sum(time is not None for time in times)
            restarts.append(min(30.0, sum(spent) / wins) if wins else 30.0)
            hits += sum(time is not None for time in times)
            for penalty, values in means.items():
                values.append(statistics.fmean([penalty * 10.0 if time is None else time for time in times or [None]]))
        assert line["runs there"] == hits
        mean = np.exp(np.log(np.array(restarts) + found["shift"]).mean()) - found["shift"]
        assert line["restarts s, all"] == pytest.approx(mean)
        for penalty, values in means.items():
            mean = np.exp(np.log(np.array(values) + found["shift"]).mean()) - found["shift"]
            assert line[f"{penalty}×, all"] == pytest.approx(mean)


def test_statuses_count_every_row(rows: list[Row]) -> None:
    found = contents(results(rows))
    assert sum(line["runs"] for line in found["statuses"]) == len(rows)
    assert sum(line["runs"] for line in found["messages"]) == len(rows) - len(feasible(rows))


def test_growth(rows: list[Row]) -> None:
    panels = contents(results(rows))["sizes"]
    assert len(panels) == 4
    for panel in panels:
        here = [each for each in rows if f"load={panel['load']}," in each["problem"]]
        for fit in panel["fits"]:
            medians = []
            for m in (10, 20, 30):
                own = [e for e in here if e["solver"] == fit["solver"] and f"m={m}," in e["problem"]]
                # A run that was killed took its limit.
                times = [e["build_seconds"] if fit["what"] == "build" else e["solve_seconds"] or 10.0 for e in own]
                medians.append(np.median(times))
            assert fit["exponent"] == pytest.approx(np.polyfit(np.log([10, 20, 30]), np.log(medians), 1)[0])


def test_the_band_goes_from_best_known_to_the_bound(rows: list[Row]) -> None:
    panel = contents(results(rows))["capacity"][0]
    for load, low, high, with_bound, sets in panel["band"]:
        here = feasible([each for each in rows if "m=10," in each["problem"] and f"load={load}," in each["problem"]])
        best = [max(each["kappa_bar"] for each in here if each["problem_id"] == id) for id in ids(here)]
        bounds = [min(2 * e["bound"] for e in here if e["problem_id"] == id and e["bound"]) for id in ids(here)]
        assert (with_bound, sets) == (2, 2)
        assert (low, high) == (pytest.approx(np.mean(best)), pytest.approx(np.mean(bounds)))


# --- solvers that cheat, fail, are absent ---


def problems(count: int) -> list[str]:
    return [f"covariance_perceptron[m=10,n=2,load=1.0,seed={seed}]" for seed in range(count)]


@pytest.fixture(scope="module")
def dishonest() -> list[Row]:
    """An honest solver; one whose much better points are not feasible; one always late; one fast, on one of four."""
    made = []
    for k, problem in enumerate(problems(4)):
        made.append(row(problem, "honest", kappa_bar=1.0))
        made.append(row(problem, "liar", kappa_bar=5.0, point_status="infeasible", termination="optimal", bound=0.1))
        made.append(lost(problem=problem, solver="late", message="killed"))
        made += [row(problem, "choosy", kappa_bar=1.0, build_seconds=0.0, solve_seconds=0.01)] * (k == 0)
    return made


def test_who_cheats_or_fails_gains_nothing(dishonest: list[Row]) -> None:
    found = contents(results(dishonest))
    lines = {line["solver"]: line for line in table(found, "summary")}
    assert [lines[name]["solved"] for name in ("honest", "liar", "late", "choosy")] == [4, 0, 0, 1]
    assert [lines[name]["best known"] for name in ("honest", "liar", "late", "choosy")] == [4, 0, 0, 1]
    assert lines["liar"]["false claims"] == 4 and lines["late"]["no point"] == 4 and lines["choosy"]["not run"] == 3
    assert len(found["refuted"]) == 4
    assert found["capacity"][0]["band"] == []
    means = {line["solver"]: line for line in table(found, "targets") if line["share"] == 0.95}
    assert means["late"]["3×, all"] == pytest.approx(30) and means["liar"]["1×, all"] == pytest.approx(10)
    assert means["choosy"]["1×, common"] < means["honest"]["1×, common"]
    assert means["late"]["restarts s, all"] == pytest.approx(30)
    assert means["choosy"]["3×, all"] > means["honest"]["3×, all"] == pytest.approx(1.5)
    last = {name: curve[-1] for name, curve in found["profiles"][0]["all"].items()}
    assert last == {"honest": 1.0, "liar": 0.0, "late": 0.0, "choosy": 0.25}
    assert {name: curve[-1] for name, curve in found["anytime"][0]["curves"].items()} == last


def test_the_verdict_says_so(dishonest: list[Row]) -> None:
    text = " ".join(verdict(contents(results(dishonest))))
    assert "honest finds the best answers: the best known on 4 of 4" in text
    assert "liar 4 of 4 (4 optimal)" in text and "late 4 of 4 (4 time_limit)" in text
    assert "Claimed solved, but the point is not feasible: liar 4" in text
    assert "Bounds that a feasible point refutes: 4, by liar" in text
    assert "Not run: choosy on 3 of 4 problems" in text


@pytest.mark.parametrize("rows", [[], [lost(termination="skipped", message="not installed")], [lost()]])
def test_nothing_to_report_is_reported(rows: list[Row]) -> None:
    assert "<h2>Verdict</h2>" in html(results(rows))
    assert "## Verdict" in markdown(results(rows))


def test_solvers_that_cannot_run_here_are_named() -> None:
    rows = [row(), lost(solver="absent", termination="skipped", message="pip install it")]
    assert "Could not run here: absent." in verdict(contents(results(rows)))


# --- pages ---


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


def test_html_in_names_does_no_harm() -> None:
    one = row(solver=HARMFUL, problem=f"{HARMFUL}.npz", message=HARMFUL, version=HARMFUL, termination="failed")
    plain = [row(solver="x", problem="y.npz", message="z", version="v", termination="failed")]
    micro = [{"name": HARMFUL, "group": "", "min": 1.0, "median": 1.0, "stddev": 0.0, "rounds": 1, "extra": HARMFUL}]
    text = html(results([one], micro))
    assert not any(tag == "img" for tag, _ in tags(text))
    scripts = sum(tag == "script" for tag, _ in tags(text))
    assert scripts == sum(tag == "script" for tag, _ in tags(html(results(plain)))) == 2
    written = re.sub(r"\\.", "", markdown(results([one], micro)))
    assert "<" not in written


def test_the_page_asks_for_nothing(rows: list[Row]) -> None:
    text = html(results(rows))
    for tag, attributes in tags(text):
        assert "src" not in attributes, tag
        assert str(attributes.get("href", "#")).startswith(("#", "data:")), attributes
    assert "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text


def test_the_data_are_those_of_the_rows(rows: list[Row]) -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(results(rows)), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])["rows"]
    names = [data["label"]["words"][k] for k in data["label"]["index"]]
    assert names == [each["solver"] for each in rows]
    assert [v for v in data["kappa_bar"] if v is not None] == pytest.approx(
        [each["kappa_bar"] for each in feasible(rows)], rel=1e-5
    )


def test_ten_thousand_rows_stay_small() -> None:
    made = many(5, 10, 5, 10, 4)
    assert len(made) == 10_000
    assert len(html(results(made)).encode()) < 8e6


def test_markdown_has_a_line_per_row_of_a_table(rows: list[Row]) -> None:
    found = contents(results(rows))
    lines = markdown(results(rows)).splitlines()
    assert sum(line.startswith("| ") for line in lines) == sum(len(each.rows) + 2 for each in tables(found))
    assert markdown(results(rows)) == markdown(results(rows))


# --- the command ---


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real results: a task by its own solver and in two formulations, and a convex QCQP."""
    path = tmp_path_factory.mktemp("report") / "made.db"
    with Store(path, write=True) as store:
        store.begin("a, command", {"cpu": "a CPU", "commit": "c0ffee"})
        task, convex = "covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"
        for problem, solvers in ((task, ["gip", "slsqp", "slsqp[formulation=min_norm]"]), (convex, ["slsqp"])):
            for job in Suite.of([problem], solvers, 2).jobs():
                loaded = load_problem(job.problem)
                store.add(Outcome(job, solve(loaded, job.solver, random_start(loaded, job.start, job.seed))))
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out + err


def test_a_report_of_real_results(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    code, text = said(capsys, "report", made, "-o", target)
    assert code == 0 and text.splitlines()[-1].startswith(f"{target}: 8 runs, ")
    assert "finds the best answers" in text
    page = target.read_text()
    assert "slsqp[formulation=min_norm]" in page and "8 runs on 2 problems" in page
    before = page
    assert said(capsys, "report", made, made, "-o", target)[0] == 0
    assert target.read_text().replace("made.db, made.db", "made.db") == before


def test_markdown_by_name_by_format_and_to_the_terminal(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "report", made, "-o", tmp_path / "a.md")[0] == 0
    code, text = said(capsys, "report", made, "--format", "md", "-o", "-")
    assert code == 0 and text == (tmp_path / "a.md").read_text()
    assert text.startswith("# qcqpbench report\n")


def test_traces_give_times_on_the_way(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without them, a run is as fast as its end."""
    with_, without = (
        said(capsys, "report", made, "--format", "md", "-o", "-", *more)[1] for more in ((), ("--no-traces",))
    )
    assert with_ != without


def test_pytest_benchmark_is_one_more_source(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = {"min": 0.25, "median": 0.5, "stddev": 0.125, "rounds": 7}
    source = tmp_path / "bench.json"
    source.write_text(
        json.dumps({"benchmarks": [{"name": "test_x", "group": "g", "stats": stats, "extra_info": {"margin": 0.75}}]})
    )
    code, text = said(capsys, "report", made, source, "--format", "md", "-o", "-")
    assert code == 0 and "| g | test\\_x | 0.25 | 0.5 | 0.125 | 7 | margin 0.75 |" in text


@pytest.mark.parametrize("content", ["[]", "{", '{"benchmarks": [{"name": "x"}]}', '{"benchmarks": 3}'])
def test_other_json_is_an_error(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "bench.json"
    source.write_text(content)
    code, text = said(capsys, "report", source)
    assert code == 2 and f"{source}: this is no JSON of pytest-benchmark" in text


def test_what_cannot_be_read_or_written_is_an_error(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "report", tmp_path / "none.db")[0] == 2
    code, text = said(capsys, "report", made, "-o", tmp_path / "no" / "report.html")
    assert code == 2 and "cannot be written" in text
