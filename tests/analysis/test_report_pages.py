"""The pages of a report, and the command that makes them, from rows made up and from real results."""

import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from qcqpbench import random_start, solve
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.numbers.tables import tables
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.job import Job, Outcome, load_problem
from qcqpbench.run.suite import Suite
from tests.support.report_rows import Row, feasible, many, results, row, table

HARMFUL = "</script><script>document.title='harmed'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return many(3, 4, 2, 5, 5)


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
    machines = [{"facts": {"cpu": HARMFUL}, "commands": [HARMFUL]}]
    text = html(replace(results([one], micro), machines=machines))
    assert not any(tag == "img" for tag, _ in tags(text))
    scripts = sum(tag == "script" for tag, _ in tags(text))
    assert scripts == sum(tag == "script" for tag, _ in tags(html(results(plain)))) == 2
    written = re.sub(r"\\.", "", markdown(replace(results([one], micro), machines=machines)))
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


@pytest.mark.slow
def test_ten_thousand_rows_stay_small() -> None:
    made = many(5, 10, 5, 10, 4)
    assert len(made) == 10_000
    # At the worst every message is another one.
    made = [each | {"message": f"{k} {'word ' * 100}"} for k, each in enumerate(made)]
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
    assert " find the largest margins: the best known on 1 of 1 problem." in text
    assert "reached on problems that are not max-margin, to 0.0001 of max(1, |value|): slsqp" in text
    page = target.read_text()
    assert "slsqp[formulation=min_norm]" in page and "8 runs on 2 problems" in page
    before = page
    assert said(capsys, "report", made, made, "-o", target)[0] == 0
    left_out = "<li>Rows left out: 8 that stand in several files.</li>"
    assert target.read_text().replace("made.db, made.db", "made.db").replace(left_out, "") == before


def test_markdown_by_name_by_format_and_to_the_terminal(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "report", made, "-o", tmp_path / "a.md")[0] == 0
    code, text = said(capsys, "report", made, "--format", "md", "-o", "-")
    assert code == 0 and text == (tmp_path / "a.md").read_text()
    assert text.startswith("# qcqpbench report\n")


def test_traces_give_times_on_the_way(made: Path) -> None:
    """Without them, a run is as fast as its end."""
    found = read([made])
    without = replace(found, rows=[{**each, "trace": []} for each in found.rows])
    times, ends = ([line["median s"] for line in table(contents(each), "targets")] for each in (found, without))
    assert all(time <= end for time, end in zip(times, ends, strict=True)) and times != ends


def test_points_on_the_way_are_judged_as_the_last_one_is(tmp_path: Path) -> None:
    """By their directions: long rows do not make a margin larger, and what has no direction has no margin."""
    spec = "covariance_perceptron[m=4,load=1]"
    (job,) = Suite.of([spec], ["gip"], 1).jobs()
    attempt = solve(load_problem(spec), "gip")
    W = attempt.point
    assert W is not None
    trace = ((0.1, 100 * W), (0.2, 0 * W), (0.3, np.full_like(W, np.nan)), (0.4, W[:1]), (0.5, W))
    with Store(tmp_path / "one.db", write=True) as store:
        store.begin("a command", {})
        store.add(Outcome(job, replace(attempt, trace=trace)))
    (found,) = read([tmp_path / "one.db"]).rows
    assert found["trace"] == [(0.1, pytest.approx(attempt.kappa_bar)), (0.5, pytest.approx(attempt.kappa_bar))]


def test_pytest_benchmark_is_one_more_source(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = {"min": 0.25, "median": 0.5, "stddev": 0.125, "rounds": 7}
    source = tmp_path / "bench.json"
    source.write_text(
        json.dumps({"benchmarks": [{"name": "test_x", "group": "g", "stats": stats, "extra_info": {"margin": 0.75}}]})
    )
    code, text = said(capsys, "report", made, source, "--format", "md", "-o", "-")
    assert code == 0 and "| g | test\\_x | 0.25 | 0.5 | 0.125 | 7 | margin 0.75 |" in text


def test_pytest_benchmark_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "bench.json"
    stats = {"min": 0.25, "median": 0.5, "stddev": 0.125, "rounds": 7}
    machine = {"cpu": {"brand_raw": "a CPU"}, "python_version": "3.11"}
    source.write_text(json.dumps({"machine_info": machine, "benchmarks": [{"name": "x", "stats": stats}]}))
    code, text = said(capsys, "report", source, "-o", tmp_path / "report.md")
    assert code == 0 and text.splitlines()[0] == "pytest-benchmark: 1 benchmark, in the last table."
    assert "- cpu a CPU\n" in (tmp_path / "report.md").read_text()


def test_the_order_of_rows_and_files_does_not_matter(made: Path, tmp_path: Path) -> None:
    with Store(made) as store:
        stored = list(store.rows())
    task, convex = (load_problem(spec) for spec in ("covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"))
    outcomes = []
    for each in stored:
        job = Job(**{field.name: each[field.name] for field in fields(Job)})
        outcomes.append(Outcome(job, solve(task if "cov" in job.problem else convex, job.solver), begun=each["begun"]))
    texts = []
    for name, order in (("one.db", outcomes), ("two.db", outcomes[::-1])):
        with Store(tmp_path / name, write=True) as store:
            store.begin("a command", {"cpu": "a CPU"})
            for outcome in order:
                store.add(outcome)
        found = replace(read([tmp_path / name]), files=("a file",))
        texts.append(markdown(found) + html(found))
    assert texts[0] == texts[1]


def test_versions_of_a_solver_are_solvers(made: Path, tmp_path: Path) -> None:
    with Store(made) as store:
        (first, *_) = store.rows()
    job = Job(**{field.name: first[field.name] for field in fields(Job)})
    attempt = solve(load_problem(job.problem), job.solver)
    with Store(tmp_path / "two.db", write=True) as store:
        store.begin("a command", {})
        for version in ("1.0", "1.1"):
            store.add(Outcome(replace(job, version=version), replace(attempt, version=version)))
    assert {each["label"] for each in read([tmp_path / "two.db"]).rows} == {"gip 1.0", "gip 1.1"}


def test_solvers_of_bounds_are_told_by_the_registry(tmp_path: Path) -> None:
    task = load_problem("covariance_perceptron[m=4,load=1]")
    with Store(tmp_path / "proofs.db", write=True) as store:
        store.begin("a command", {})
        for job in Suite.of(["covariance_perceptron[m=4,load=1]"], ["gip", "certificate"], 1).jobs():
            store.add(Outcome(job, solve(task, job.solver)))
    found = contents(read([tmp_path / "proofs.db"]))
    assert [line["solver"] for line in found["summary"]] == ["gip"]
    assert [(line["solver"], line["bounded"]) for line in found["bounds"]] == [("certificate", 1)]
    assert len(found["capacity"][0]["band"]) == 1


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
