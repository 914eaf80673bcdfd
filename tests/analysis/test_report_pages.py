"""HTML and Markdown reports, and the command that writes them, from synthetic rows and from real results."""

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
    """A parser that collects start tags and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.tags


def test_html_in_names_is_escaped() -> None:
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


def test_page_makes_no_requests(rows: list[Row]) -> None:
    text = html(results(rows))
    for tag, attributes in tags(text):
        assert "src" not in attributes, tag
        assert str(attributes.get("href", "#")).startswith(("#", "data:")), attributes
    assert "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text


def test_data_of_the_page_match_the_rows(rows: list[Row]) -> None:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(results(rows)), re.DOTALL)
    assert match is not None
    data = json.loads(match[1])["rows"]
    names = [data["label"]["words"][k] for k in data["label"]["index"]]
    assert names == [each["solver"] for each in rows]
    assert [v for v in data["kappa_bar"] if v is not None] == pytest.approx(
        [each["kappa_bar"] for each in feasible(rows)], rel=1e-5
    )


@pytest.mark.slow
def test_page_of_ten_thousand_rows_stays_small() -> None:
    rows = many(5, 10, 5, 10, 4)
    assert len(rows) == 10_000
    # In the worst case all messages are different.
    rows = [each | {"message": f"{k} {'word ' * 100}"} for k, each in enumerate(rows)]
    assert len(html(results(rows)).encode()) < 8e6


def test_markdown_has_one_line_per_table_row(rows: list[Row]) -> None:
    numbers = contents(results(rows))
    lines = markdown(results(rows)).splitlines()
    assert sum(line.startswith("| ") for line in lines) == sum(len(each.rows) + 2 for each in tables(numbers))
    assert markdown(results(rows)) == markdown(results(rows))


# --- the command ---


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file of a task, with a task solver and two formulations, and of a convex QCQP."""
    path = tmp_path_factory.mktemp("report") / "made.db"
    with Store(path, write=True) as store:
        store.begin("a, command", {"cpu": "a CPU", "commit": "c0ffee"})
        task, convex = "covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"
        for problem, solvers in ((task, ["gip", "slsqp", "slsqp[formulation=min_norm]"]), (convex, ["slsqp"])):
            for job in Suite.of([problem], solvers, 2).jobs():
                loaded = load_problem(job.problem)
                store.add(Outcome(job, solve(loaded, job.solver, random_start(loaded, job.start, job.seed))))
    return path


def run_command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Run a command of the CLI; return its exit code and its output."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out + err


def test_report_of_real_results(results_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    code, text = run_command(capsys, "report", results_file, "-o", target)
    assert code == 0 and text.splitlines()[-1].startswith(f"{target}: 8 runs, ")
    assert " find the largest margins: the best known on 1 of 1 problem." in text
    assert "reached on general QCQPs, to within 0.0001·max(1, |value|): slsqp" in text
    page = target.read_text()
    assert "slsqp[formulation=min_norm]" in page and "8 runs on 2 problems" in page
    before = page
    assert run_command(capsys, "report", results_file, results_file, "-o", target)[0] == 0
    left_out = "<li>Rows left out: 8 present in several files.</li>"
    assert target.read_text().replace("made.db, made.db", "made.db").replace(left_out, "") == before


def test_markdown_by_file_name_by_option_and_to_stdout(
    results_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(capsys, "report", results_file, "-o", tmp_path / "a.md")[0] == 0
    code, text = run_command(capsys, "report", results_file, "--format", "md", "-o", "-")
    assert code == 0 and text == (tmp_path / "a.md").read_text()
    assert text.startswith("# qcqpbench report\n")


def test_traces_give_earlier_times_to_target(results_file: Path) -> None:
    """Check that without traces the time to target is the time of the whole run."""
    with_traces = read([results_file])
    without = replace(with_traces, rows=[{**each, "trace": []} for each in with_traces.rows])
    times, ends = ([line["median s"] for line in table(contents(each), "targets")] for each in (with_traces, without))
    assert all(time <= end for time, end in zip(times, ends, strict=True)) and times != ends


def test_points_of_a_trace_are_evaluated_with_unit_rows(tmp_path: Path) -> None:
    """Check that long rows do not increase the margin, and that points without directions are left out."""
    spec = "covariance_perceptron[m=4,load=1]"
    (job,) = Suite.of([spec], ["gip"], 1).jobs()
    attempt = solve(load_problem(spec), "gip")
    W = attempt.point
    assert W is not None
    trace = ((0.1, 100 * W), (0.2, 0 * W), (0.3, np.full_like(W, np.nan)), (0.4, W[:1]), (0.5, W))
    with Store(tmp_path / "one.db", write=True) as store:
        store.begin("a command", {})
        store.add(Outcome(job, replace(attempt, trace=trace)))
    (row_read,) = read([tmp_path / "one.db"]).rows
    assert row_read["trace"] == [(0.1, pytest.approx(attempt.kappa_bar)), (0.5, pytest.approx(attempt.kappa_bar))]


def test_pytest_benchmark_file_beside_results(
    results_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = {"min": 0.25, "median": 0.5, "stddev": 0.125, "rounds": 7}
    source = tmp_path / "bench.json"
    source.write_text(
        json.dumps({"benchmarks": [{"name": "test_x", "group": "g", "stats": stats, "extra_info": {"margin": 0.75}}]})
    )
    code, text = run_command(capsys, "report", results_file, source, "--format", "md", "-o", "-")
    assert code == 0 and "| g | test\\_x | 0.25 | 0.5 | 0.125 | 7 | margin 0.75 |" in text


def test_pytest_benchmark_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "bench.json"
    stats = {"min": 0.25, "median": 0.5, "stddev": 0.125, "rounds": 7}
    machine = {"cpu": {"brand_raw": "a CPU"}, "python_version": "3.11"}
    source.write_text(json.dumps({"machine_info": machine, "benchmarks": [{"name": "x", "stats": stats}]}))
    code, text = run_command(capsys, "report", source, "-o", tmp_path / "report.md")
    assert code == 0 and text.splitlines()[0] == "pytest-benchmark: 1 benchmark, in the last table."
    assert "- cpu a CPU\n" in (tmp_path / "report.md").read_text()


def test_order_of_rows_does_not_change_the_report(results_file: Path, tmp_path: Path) -> None:
    with Store(results_file) as store:
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
        read_back = replace(read([tmp_path / name]), files=("a file",))
        texts.append(markdown(read_back) + html(read_back))
    assert texts[0] == texts[1]


def test_versions_of_a_solver_have_different_labels(results_file: Path, tmp_path: Path) -> None:
    with Store(results_file) as store:
        (first, *_) = store.rows()
    job = Job(**{field.name: first[field.name] for field in fields(Job)})
    attempt = solve(load_problem(job.problem), job.solver)
    with Store(tmp_path / "two.db", write=True) as store:
        store.begin("a command", {})
        for version in ("1.0", "1.1"):
            store.add(Outcome(replace(job, version=version), replace(attempt, version=version)))
    assert {each["label"] for each in read([tmp_path / "two.db"]).rows} == {"gip 1.0", "gip 1.1"}


def test_scope_of_solvers_comes_from_the_registry(tmp_path: Path) -> None:
    task = load_problem("covariance_perceptron[m=4,load=1]")
    with Store(tmp_path / "proofs.db", write=True) as store:
        store.begin("a command", {})
        for job in Suite.of(["covariance_perceptron[m=4,load=1]"], ["gip", "certificate"], 1).jobs():
            store.add(Outcome(job, solve(task, job.solver)))
    numbers = contents(read([tmp_path / "proofs.db"]))
    assert [line["solver"] for line in numbers["summary"]] == ["gip"]
    assert [(line["solver"], line["bounded"]) for line in numbers["bounds"]] == [("certificate", 1)]
    assert len(numbers["capacity"][0]["band"]) == 1


@pytest.mark.parametrize("content", ["[]", "{", '{"benchmarks": [{"name": "x"}]}', '{"benchmarks": 3}'])
def test_json_that_is_not_of_pytest_benchmark_is_an_error(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "bench.json"
    source.write_text(content)
    code, text = run_command(capsys, "report", source)
    assert code == 2 and f"{source}: must be JSON of pytest-benchmark" in text


def test_unreadable_file_or_unwritable_target_is_an_error(
    results_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(capsys, "report", tmp_path / "none.db")[0] == 2
    code, text = run_command(capsys, "report", results_file, "-o", tmp_path / "no" / "report.html")
    assert code == 2 and "cannot be written" in text
