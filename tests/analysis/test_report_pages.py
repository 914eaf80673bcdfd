"""HTML and Markdown reports, and the command that writes them, from synthetic rows and from real results."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import jinja2
import numpy as np
import pytest

import qcqpbench
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import ReportMachine, read
from qcqpbench.analysis.report.plot import Axis, Band, Plot, Series
from qcqpbench.analysis.report.plots import plots
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark
from qcqpbench.analysis.report.render import html as html_module
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.analysis.report.tables.index import tables
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.machine import Machine
from qcqpbench.cli.main import main
from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.suite import Suite
from tests.support.report_rows import feasible, general, many, results, row, table
from tests.support.results_files import CONVEX, TASK, add_outcomes, add_runs, reply

HARMFUL = "</script><script>document.title='harmed'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def rows() -> list[ReportRow]:
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


def page_data(text: str) -> dict[str, Any]:
    """Return the JSON data of a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def test_html_in_names_is_escaped() -> None:
    one = row(solver=HARMFUL, problem=f"{HARMFUL}.npz", message=HARMFUL, version=HARMFUL, termination="failed")
    plain = [row(solver="x", problem="y.npz", message="z", version="v", termination="failed")]
    micro = [MicroBenchmark(HARMFUL, "", 1.0, 1.0, 0.0, 1, HARMFUL)]
    machines = (ReportMachine(Machine(cpu=HARMFUL), (HARMFUL,)),)
    text = html(replace(results([one], micro), machines=machines))
    assert not any(tag == "img" for tag, _ in tags(text))
    scripts = sum(tag == "script" for tag, _ in tags(text))
    assert scripts == sum(tag == "script" for tag, _ in tags(html(results(plain)))) == 2
    written = re.sub(r"\\.", "", markdown(replace(results([one], micro), machines=machines)))
    assert "<" not in written


def test_page_makes_no_requests(rows: list[ReportRow]) -> None:
    text = html(results(rows))
    for tag, attributes in tags(text):
        assert "src" not in attributes, tag
        assert str(attributes.get("href", "#")).startswith(("#", "data:")), attributes
    assert "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text


def test_data_of_the_page_match_the_rows(rows: list[ReportRow]) -> None:
    data = page_data(html(results(rows)))["rows"]
    names = [data["label"]["words"][k] for k in data["label"]["index"]]
    assert names == [each.solver for each in rows]
    assert [v for v in data["kappa_bar"] if v is not None] == pytest.approx(
        [each.kappa_bar for each in feasible(rows)], rel=1e-5
    )


@pytest.mark.slow
def test_page_of_ten_thousand_rows_stays_small() -> None:
    rows = many(5, 10, 5, 10, 4)
    assert len(rows) == 10_000
    # In the worst case all messages are different.
    rows = [replace(each, message=f"{k} {'word ' * 100}") for k, each in enumerate(rows)]
    assert len(html(results(rows)).encode()) < 8e6


def test_markdown_has_one_line_per_table_row(rows: list[ReportRow]) -> None:
    numbers = contents(results(rows))
    lines = markdown(results(rows)).splitlines()
    assert sum(line.startswith("| ") for line in lines) == sum(len(each.rows) + 2 for each in tables(numbers))
    assert markdown(results(rows)) == markdown(results(rows))


@pytest.mark.parametrize("misspelt", ["{{ abuot }}", '{{ table("sumary") }}', '{{ plots("capactiy") }}'])
def test_misspelt_placeholder_is_an_error(
    misspelt: str, rows: list[ReportRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    page_file = html_module.page_file
    page = page_file("page.html").replace('{{ table("ranking") }}', misspelt)
    monkeypatch.setattr(html_module, "page_file", lambda name: page if name == "page.html" else page_file(name))
    with pytest.raises(jinja2.UndefinedError):
        html(results(rows))


def test_page_holds_every_table_and_every_plot(rows: list[ReportRow]) -> None:
    everything = [*rows, *(general(solver=name, message="text", termination="failed") for name in ("a", "b"))]
    everything.append(general(solver="prover", bound=0.5, scope="bound"))
    everything.append(row(rows[0].problem, "prover", bound=-9.0, scope="bound"))
    given = results(everything, [MicroBenchmark("x", "", 1.0, 1.0, 0.0, 1, "")])
    numbers, text = contents(given), html(given)
    found = [attributes for _, attributes in tags(text)]
    expected = [each.id for each in tables(numbers)]
    assert len(expected) == 20
    assert sorted(str(each["data-name"]) for each in found if "data-name" in each) == sorted(expected)
    figures = [each["id"] for each in found if str(each.get("id")).startswith("plot-")]
    assert figures == [f"plot-{id}" for id in dict.fromkeys(plot.id for plot in plots(numbers))]
    assert len(figures) == 11


@pytest.mark.parametrize("given", ["tasks", "general", "nothing"])
def test_page_has_no_empty_sections(given: str, rows: list[ReportRow]) -> None:
    text = html(results({"tasks": rows, "general": [general()], "nothing": []}[given]))
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', text, re.DOTALL)
    links = re.findall(r'<a href="#(\w+)">', text.partition("<nav")[2].partition("</nav>")[0])
    assert links == [id for id, _ in sections]
    for id, content in sections:
        assert re.search(r'<figure|<table|<li>|id="rows"', content), id
    of_tasks = {"capacity", "gaps", "time", "anytime", "profiles"}
    of_runs = {"status", "runs"} if given != "nothing" else set()
    assert (
        set(links) - {"verdict", "machines"}
        == of_runs | {"tasks": of_tasks, "general": {"general"}, "nothing": set()}[given]
    )


def test_columns_of_plots_are_stored_once_and_equal_the_plots(rows: list[ReportRow]) -> None:
    given = results(rows)
    data = page_data(html(given))
    arrays = data["arrays"]
    assert len({json.dumps(array) for array in arrays}) == len(arrays)
    declared = plots(contents(given))
    assert [plot["title"] for plot in data["plots"]] == [plot.title for plot in declared]
    for drawn, plot in zip(data["plots"], declared, strict=True):
        assert drawn["choices"] == [[menu.id, option] for menu, option in plot.choices]
        assert drawn["y"].get("min") == plot.y.min
        for line, series in zip(drawn["series"], plot.series, strict=True):
            assert (line["name"], line["solver"], line["kind"]) == (series.name, series.solver, series.kind)
            for name in ("x", "y", "low", "high", "hollow"):
                values = arrays[line[name]] if name in line else []
                expected = [value if value is None else float(value) for value in getattr(series, name)]
                assert values == pytest.approx(expected, rel=1e-5), name


def test_truth_values_do_not_take_the_place_of_equal_numbers() -> None:
    series = (Series("a", (5, 6), (7, 8), hollow=(True, False)), Series("b", (5, 6), (1, 0)))
    data = html_module._plot_data([Plot("extra", "time", "Extra", Axis("x"), Axis("y"), series)])
    assert json.dumps(data["arrays"][data["plots"][0]["series"][1]["y"]]) == "[1, 0]"


def test_wrong_plots_are_errors() -> None:
    with pytest.raises(QcqpbenchError, match=r"section must be one of capacity, gaps, .*, got 'capactiy'"):
        Plot("extra", cast(Any, "capactiy"), "Extra", Axis("x"), Axis("y"), ())
    with pytest.raises(QcqpbenchError, match="columns of 's' must have the length of x, 2"):
        Series("s", (1.0, 2.0), (1.0, 2.0), notes=("a",))
    with pytest.raises(QcqpbenchError, match="columns of 'b' must have the length of x, 2"):
        Band("b", (1.0, 2.0), (0.0, 0.0), (1.0,))


def test_package_and_workers_do_not_import_jinja2() -> None:
    code = (
        "import sys, qcqpbench, qcqpbench.run.isolation.roles.solver_process, qcqpbench.cli.main, "
        "qcqpbench.analysis.report.render.html; assert 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the command ---


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a results file of a task, with a task solver and two formulations, and of a convex QCQP."""
    path = tmp_path_factory.mktemp("report") / "made.db"
    add_runs(path, [TASK], ["gip", "slsqp", "slsqp[formulation=min_norm]"], starts=2)
    add_runs(path, [CONVEX], ["slsqp"], starts=2)
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
    assert " find the largest margins: the best known on the only problem." in text
    assert " closest to the best known values on general QCQPs: the best known on the only problem." in text
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
    without = replace(with_traces, rows=tuple(replace(each, trace=()) for each in with_traces.rows))
    times, ends = ([line["median s"] for line in table(contents(each), "targets")] for each in (with_traces, without))
    assert all(time <= end for time, end in zip(times, ends, strict=True)) and times != ends


def test_points_of_a_trace_are_evaluated_with_unit_rows(tmp_path: Path) -> None:
    """Check that long rows do not increase the margin, and that points without directions are left out."""
    (spec,) = Suite.of([TASK], ["gip"]).runs()
    attempt = replace(solve(qcqpbench.problem(TASK), "gip"), spec=spec)
    W = attempt.point
    assert W is not None
    trace = ((0.1, 100 * W), (0.2, 0 * W), (0.3, np.full_like(W, np.nan)), (0.4, W[:1]), (0.5, W))
    add_outcomes(tmp_path / "one.db", Outcome(replace(attempt, trace=trace), reply()))
    (row_read,) = read([tmp_path / "one.db"]).rows
    seconds, margins = zip(*row_read.trace, strict=True)
    assert seconds == (0.1, 0.5) and margins == pytest.approx([attempt.kappa_bar] * 2)


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
    outcomes = [
        Outcome(replace(solve(qcqpbench.problem(each.problem), each.solver), spec=each.spec), reply(), begun=each.begun)
        for each in stored
    ]
    texts = []
    for name, order in (("one.db", outcomes), ("two.db", outcomes[::-1])):
        add_outcomes(tmp_path / name, *order)
        read_back = replace(read([tmp_path / name]), files=("a file",))
        texts.append(markdown(read_back) + html(read_back))
    assert texts[0] == texts[1]


def test_versions_of_a_solver_have_different_labels(results_file: Path, tmp_path: Path) -> None:
    with Store(results_file) as store:
        (first, *_) = store.rows()
    attempt = solve(qcqpbench.problem(first.problem), first.solver)
    specs = [replace(first.spec, version=version) for version in ("1.0", "1.1")]
    add_outcomes(tmp_path / "two.db", *(Outcome(replace(attempt, spec=spec), reply()) for spec in specs))
    assert {each.label for each in read([tmp_path / "two.db"]).rows} == {"gip 1.0", "gip 1.1"}


def test_scope_of_solvers_comes_from_the_registry(tmp_path: Path) -> None:
    add_runs(tmp_path / "proofs.db", [TASK], ["gip", "certificate"])
    numbers = contents(read([tmp_path / "proofs.db"]))
    assert [line.solver for line in numbers.summary] == ["gip"]
    assert [(line.solver, line.bounded) for line in numbers.bounds] == [("certificate", 1)]
    assert len(numbers.capacity[0].band) == 1


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
