"""The page in a browser: opened from a file, without further requests, and used with pointer and keyboard."""

import csv
import importlib.util
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from qcqpbench.analysis.report import plots
from qcqpbench.analysis.report.numbers.contents import ReportContents
from qcqpbench.analysis.report.plot import Axis, Band, Menu, Plot, Series
from qcqpbench.analysis.report.render.html import html
from qcqpbench.results.export import escape
from tests.support.report_rows import general, lost, many, results, row

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    # One process starts Chromium.
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium"),
]
PLOTS = ("capacity", "positive", "gap-best", "gap-bound", "build", "solve", "anytime", "performance", "data")
HARMFUL = "</script><script>document.title='harmed'</script><img src=x onerror=\"document.title='harmed'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = many(3, 5, 2, 5, 2)
    rows += [lost(problem=each.problem, solver=HARMFUL, message=HARMFUL) for each in rows[::10]]
    rows.append(row(rows[0].problem, "liar", point_status="infeasible", termination="optimal"))
    rows.append(row(rows[0].problem, "prover", bound=3.0, scope="bound"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(results(rows)), encoding="utf-8")
    return path


class Visit:
    """An open page, with its console messages, errors and requests."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    visit = Visit(browser, report)
    yield visit.page
    assert visit.messages == []
    assert visit.requests == [report.as_uri()]
    visit.context.close()


def count(page: Any, selector: str) -> int:
    return int(page.locator(selector).count())


def test_every_plot_is_drawn(page: Any) -> None:
    for name in PLOTS:
        assert count(page, f"#plot-{name} svg path") >= 5, name
        assert "NaN" not in page.inner_html(f"#plot-{name}")
        assert "Limits: 10 s a run" in page.inner_text(f"#plot-{name}")
    curves = {
        curve.get_attribute("data-name"): curve.locator("path").get_attribute("stroke-dasharray")
        for curve in page.locator("#plot-capacity .curve").all()
    }
    assert curves.keys() == {"theory (full RSB)", "replica symmetry (paper)"}
    assert len(set(curves.values())) == 2 and all(curves.values())
    assert count(page, "#plot-capacity .band") == 1
    assert "proved bound" in page.inner_html("#plot-capacity")
    assert "prover" not in page.inner_text("#solvers") and "prover" in page.inner_text("#gaps")


@pytest.mark.parametrize("tasks", [False, True], ids=["alone", "beside tasks"])
def test_section_on_general_problems(browser: Any, tmp_path: Path, tasks: bool) -> None:
    """Check their plots and tables, and that plots of margins and κ̄ are missing without tasks."""
    rows = [
        general(f"{k}.qplib", name, 1.0 + k * step, best_known=1.0, solve_seconds=1.0 + k)
        for k in range(5)
        for name, step in (("a", 0.0), ("b", 1e-4), ("c", 1.0))
    ]
    path = tmp_path / "general.html"
    path.write_text(html(results(rows + (many(2, 3, 1, 2, 1) if tasks else []))), encoding="utf-8")
    visit = Visit(browser, path)
    drawn_plots = visit.page.eval_on_selector_all("figure", "all => all.map((each) => each.id)")
    others = ["general-data", "general-performance"]
    assert drawn_plots == [f"plot-{name}" for name in [*(PLOTS if tasks else ()), *others]]
    for name in others:
        assert count(visit.page, f"#plot-{name} .series") == 3, name
        assert "NaN" not in visit.page.inner_html(f"#plot-{name}")
    assert count(visit.page, '.table[data-name="general-problems"] tbody tr') == 5
    assert ("κ̄" in visit.page.inner_text("#rows thead")) == tasks
    visit.page.locator("#view-others").select_option("hidden")
    visit.page.locator("#solvers .chip").filter(has=visit.page.get_by_text("a", exact=True)).click()
    assert count(visit.page, "#plot-general-data .series") == 2
    assert visit.messages == []
    visit.context.close()


def extra_plots(numbers: ReportContents) -> list[Plot]:
    """Return an extra figure with a menu: of lines, of steps and of a band, also of names that are not solvers."""
    menu = Menu("kind", "kind of line")
    solver = numbers.solvers[0].name
    x, y = Axis("apples", "log", ticks=(1.0, 10.0, 100.0)), Axis("pears", min=0)
    lines = (
        Series("mine", (1, 10, 100), (1, 2, 3), low=(0, 1, 2), high=(2, 3, 4), notes=("a", "b", "c"), solver=solver),
        Series("other", (1, 10, 100), (3, None, 1), hollow=(True, False, False)),
        Series("reference", (1, 100), (2, 2), kind="curve"),
    )
    bands = (Band("first", (1, 100), (0, 1), (1, 2)), Band("second", (1, 100), (3, 3), (4, 4)))
    stairs = (Series("stairs", (1, 10, 100), (0, 1, 2), kind="steps", solver=solver),)
    return [
        Plot("extra", "time", "Extra lines", x, y, lines, bands, "Of fruit.", ((menu, "lines"),)),
        Plot("extra", "time", "Extra steps", x, y, stairs, note="Of fruit.", choices=((menu, "steps"),)),
    ]


def test_registered_plot_is_drawn(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a plot needs no more than a function in PLOTS, and how each of its parts is drawn."""
    monkeypatch.setattr(plots, "PLOTS", (*plots.PLOTS, plots.Figure(extra_plots, "extra", "")))
    path = tmp_path / "extra.html"
    path.write_text(html(results(many(2, 3, 1, 2, 1))), encoding="utf-8")
    visit = Visit(browser, path)
    assert visit.page.inner_text("#time #plot-extra h3") == "Extra lines"
    figure = visit.page.inner_text("#plot-extra")
    assert all(text in figure for text in ("apples", "pears", "mine", "other", "reference", "first", "Of fruit."))
    # Three marks and three bars, and two marks of which the first is hollow.
    assert count(visit.page, '#plot-extra [data-name="mine"] line') == 3
    marks = visit.page.locator('#plot-extra [data-name="other"]').locator("circle, polygon")
    assert [mark.get_attribute("fill") == "var(--bg)" for mark in marks.all()] == [True, False]
    assert count(visit.page, "#plot-extra .series") == 2 and count(visit.page, "#plot-extra .curve") == 1
    assert count(visit.page, "#plot-extra .band") == 2
    visit.page.locator("#plot-extra svg").first.focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.keyboard.press("ArrowRight")
    assert visit.page.inner_text("#plot-extra output") == "mine: apples 10, pears 2 (1 to 3); b"
    visit.page.locator("#switch-kind").select_option("steps")
    assert visit.page.inner_text("#plot-extra h3") == "Extra steps"
    assert count(visit.page, "#plot-extra .series") == 1
    visit.page.locator("#view-others").select_option("hidden")
    visit.page.locator("#solvers .chip").first.click()
    assert visit.page.inner_text("#plot-extra .empty") == "The solvers of this plot are hidden."
    assert visit.messages == []
    visit.context.close()


def test_options_of_a_menu_follow_the_menus_before_it(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Menu("fruit", "fruit"), Menu("number", "number", first=-1)
    options = [("apple", "1"), ("apple", "2"), ("pear", "2"), ("pear", "3")]
    line = (Series("line", (1, 2), (1, 2)),)

    def choose(_: ReportContents) -> list[Plot]:
        return [
            Plot("extra", "time", f"{a} {b}", Axis("x"), Axis("y"), line, choices=((first, a), (second, b)))
            for a, b in options
        ]

    monkeypatch.setattr(plots, "PLOTS", (plots.Figure(choose, "extra", ""),))
    path = tmp_path / "menus.html"
    path.write_text(html(results(many(1, 1, 1, 1, 1))), encoding="utf-8")
    visit = Visit(browser, path)

    def shown() -> tuple[str, list[str]]:
        return visit.page.inner_text("#plot-extra h3"), visit.page.locator("#switch-number option").all_inner_texts()

    assert shown() == ("apple 2", ["1", "2"])
    visit.page.locator("#switch-number").select_option("1")
    assert shown()[0] == "apple 1"
    visit.page.locator("#switch-fruit").focus()
    visit.page.locator("#switch-fruit").select_option("pear")
    # pear has no 1: the menu returns to its first choice, the last option. The focus stays.
    assert shown() == ("pear 3", ["2", "3"])
    assert visit.page.evaluate("document.activeElement.id") == "switch-fruit"
    visit.page.locator("#switch-number").select_option("2")
    visit.page.locator("#switch-fruit").select_option("apple")
    assert shown() == ("apple 2", ["1", "2"])
    assert visit.messages == []
    visit.context.close()


def test_html_in_names_is_not_executed(page: Any) -> None:
    assert page.title() == "qcqpbench report"
    assert count(page, "img") == 0
    assert HARMFUL in page.inner_text("#solvers")


def drawn(page: Any, name: str) -> str:
    return str(page.inner_html(f"#plot-{name} svg"))


@pytest.mark.parametrize(
    ("switch", "plots"),
    [
        ("m", ["capacity", "positive", "gap-best"]),
        ("formulation", ["capacity", "positive", "gap-best", "gap-bound"]),
        ("choice", ["capacity", "positive"]),
        ("size", ["solve"]),
        ("anytime", ["anytime"]),
        ("quality", ["performance", "data"]),
        ("pair", ["performance", "data"]),
    ],
)
def test_menus_redraw_their_plots(page: Any, switch: str, plots: list[str]) -> None:
    before = {name: drawn(page, name) for name in plots}
    select = page.locator(f"#switch-{switch}")
    now = select.evaluate("each => each.selectedIndex")
    select.select_option(index=0 if now else 1)
    for name in plots:
        assert drawn(page, name) != before[name], name
    page.locator(f"#switch-{switch}").select_option(index=now)
    assert {name: drawn(page, name) for name in plots} == before


def test_solver_is_grey_or_hidden_with_the_keyboard(page: Any) -> None:
    shown = count(page, "#plot-capacity .series")
    chip = page.locator("#solvers .chip", has_text="solver4")
    chip.focus()
    page.keyboard.press("Space")
    assert chip.get_attribute("aria-pressed") == "false"
    assert (count(page, "#plot-capacity .series"), count(page, "#plot-capacity .context")) == (shown, 1)
    page.locator("#view-others").select_option("hidden")
    assert count(page, "#plot-capacity .series") == shown - 1
    chip.focus()
    page.keyboard.press("Enter")
    assert (count(page, "#plot-capacity .series"), count(page, "#plot-capacity .context")) == (shown, 0)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crowd") / "crowd.html"
    path.write_text(html(results(many(1, 4, 2, 15, 1))), encoding="utf-8")
    return path


def test_of_fifteen_solvers_the_best_are_highlighted(browser: Any, crowd: Path) -> None:
    """Check that the six best have colors and names, and that a button, the pointer and panels show the others."""
    visit = Visit(browser, crowd, viewport={"width": 1280, "height": 900})
    chips = visit.page.locator("#solvers .chip")
    order = visit.page.locator('.table[data-name="ranking"] tbody td:first-child').all_inner_texts()
    assert chips.all_inner_texts() == order and len(order) == 15
    assert [chip.get_attribute("aria-pressed") for chip in chips.all()] == ["true"] * 6 + ["false"] * 9
    labels = [title.text_content() for title in visit.page.locator("#plot-capacity .label title").all()]
    assert [label for label in labels if label in order] and {*labels} & {*order} == {*order[:6]}
    assert count(visit.page, "#plot-capacity .context") == 9
    chips.nth(10).hover()
    chosen = visit.page.locator("#plot-capacity .chosen-line")
    assert [line.get_attribute("data-solver") for line in chosen.all()] == [order[10]]
    visit.page.get_by_role("button", name="All", exact=True).click()
    assert count(visit.page, "#plot-capacity .context") == 0
    visit.page.locator("#view-layout").select_option("in panels")
    assert visit.page.locator("#plot-capacity h4").all_inner_texts() == order
    assert [
        count(panel, ".series:not(.context)") for panel in visit.page.locator("#plot-gap-best .panels > div").all()
    ] == [1] * 15
    assert visit.messages == []
    visit.context.close()


def test_every_control_is_reached_with_tab(page: Any) -> None:
    """Check all visible controls, of the table of runs those in the first rows."""
    page.evaluate(
        """() => [...document.querySelectorAll("a, button, select, input, summary, [tabindex]")]
            .filter((each) => !each.disabled && each.checkVisibility() && !each.closest("#rows tr:nth-child(n+4)"))
            .forEach((each, k) => { each.dataset.order = k; })"""
    )
    controls = count(page, "[data-order]")
    assert controls > 80
    reached = set()
    for _ in range(controls + 60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.order"))
    assert reached >= {str(k) for k in range(controls)}


def test_points_are_described_at_pointer_and_with_arrow_keys(page: Any) -> None:
    plot, description = page.locator("#plot-capacity svg").first, page.locator("#plot-capacity output")
    plot.scroll_into_view_if_needed()
    mark = page.locator('#plot-capacity [data-name="solver4"]').locator("circle, polygon").last.bounding_box()
    page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    assert description.inner_text().startswith("solver4: load p/(nm) 4, κ̄ ")
    assert "4 runs, 2 of 2 pattern sets with a point" in description.inner_text()
    page.mouse.move(0, 0)
    plot.focus()
    page.keyboard.press("ArrowRight")
    first = description.inner_text()
    page.keyboard.press("ArrowRight")
    assert first.split(":")[0] == description.inner_text().split(":")[0] and first != description.inner_text()
    page.keyboard.press("ArrowDown")
    assert first.split(":")[0] != description.inner_text().split(":")[0]
    page.locator("h1").click()
    assert description.inner_text() == ""


def test_tables_sort_and_filter(page: Any) -> None:
    page.get_by_text("All counts and gaps").click()
    column = page.locator('.table[data-name="summary"] tbody tr td:nth-child(5)')
    head = page.locator('.table[data-name="summary"] th:nth-child(5)')
    head.locator("button").click()
    rising = [int(text) for text in column.all_inner_texts()]
    head.locator("button").click()
    falling = [int(text) for text in column.all_inner_texts()]
    assert rising == sorted(rising) and falling == sorted(rising, reverse=True) and rising != falling
    assert head.get_attribute("aria-sort") == "descending"
    page.get_by_label("Filter Claimed termination and verified point").fill("liar")
    assert count(page, '.table[data-name="statuses"] tbody tr:visible') == 1


def test_runs_sort_filter_and_turn_pages(page: Any) -> None:
    rows = page.locator("#rows tbody tr")
    assert rows.count() == 50
    first = rows.first.inner_text()
    page.get_by_label("Next runs").click()
    assert rows.first.inner_text() != first
    page.get_by_label("Filter the runs").fill("liar optimal")
    assert rows.count() == 1 and rows.first.get_attribute("class") == "wrong"
    page.get_by_label("Filter the runs").fill("")
    page.get_by_label("all claims").select_option("time_limit")
    assert {text.split("\t")[4] for text in rows.all_inner_texts()} == {"time_limit"}
    page.get_by_label("all claims").select_option("")
    page.locator("#rows th", has_text="κ̄").locator("button").click()
    values = [float(text) for text in page.locator("#rows tbody td:nth-child(7)").all_inner_texts()]
    assert values == sorted(values)


def test_command_of_a_run_is_copied(page: Any) -> None:
    page.get_by_label("Filter the runs").fill("liar")
    button = page.locator("#rows tbody button").first
    button.click()
    assert button.inner_text() == "Copied"
    page.get_by_label("Filter the runs").fill("")
    page.get_by_label("Filter the runs").focus()
    page.keyboard.press("Control+V")
    text = page.get_by_label("Filter the runs").input_value()
    assert (
        text.startswith("qcqpbench run smoke -p 'covariance_perceptron[")
        and " -s liar -r 1 --seed 0 --timeout 10 " in text
    )


def test_plots_and_tables_download(browser: Any, report: Path) -> None:
    def saved(page: Any, label: str) -> str:
        with page.expect_download() as waiting:
            page.get_by_label(label, exact=True).click()
        return Path(waiting.value.path()).read_text(encoding="utf-8")

    for number, name in enumerate(PLOTS):
        if number % 4 == 0:
            # Chromium asks for permission before the eleventh download of a page: two per plot, and two at the end.
            visit = Visit(browser, report).page
        title = visit.inner_text(f"#plot-{name} h3")
        text = saved(visit, f"Download {title} as SVG")
        drawing = ElementTree.fromstring(text)
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg" and len(list(drawing.iter())) > 30
        assert "var(" not in text and "NaN" not in text and "Limits: " in text
        data = list(csv.DictReader(io.StringIO(saved(visit, f"Download the data of {title} as CSV"))))
        assert "solver0" in {each["series"].split(" ")[0] for each in data} and len(data) > 10, name
        if name == "capacity":
            names = {"theory (full RSB)", "replica symmetry (paper)", "proved bound"}
            assert names <= {each["series"] for each in data}
            assert any(each["note"].startswith("best known to bound, ") for each in data)
    runs = list(csv.DictReader(io.StringIO(saved(visit, "Download the runs as CSV"))))
    assert len(runs) == 332 and all(each["command"].startswith("qcqpbench run") for each in runs)
    table = list(csv.DictReader(io.StringIO(saved(visit, "Download Solvers, best first as CSV"))))
    assert {each["solver"] for each in table} == {HARMFUL, "liar", *(f"solver{k}" for k in range(5))}
    assert [int(each["rank"]) for each in table] == sorted(int(each["rank"]) for each in table)
    assert all(0 <= float(each["mean gap"]) <= 1 for each in table)


def test_downloads_hold_no_formulas(page: Any) -> None:
    """Check that text is escaped as in `qcqpbench export`, and that numbers are unchanged."""
    texts = ["=1+1", "+1", "-1", "-x", "@a", "\tx", "\rx", "'=1", "a=1", "plain"]
    lines = page.evaluate("texts => csv(texts, [[-1, -0.5, null, 2, 1, 1, 1, 1, 1, 1]])", texts)
    head, numbers = csv.reader(io.StringIO(lines, newline=""))
    assert head == [escape(text) for text in texts]
    assert numbers == ["-1", "-0.5", "", "2", *["1"] * 6]


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 390, "light")]
)
def test_color_schemes_and_narrow_screen(
    browser: Any, report: Path, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    visit = Visit(browser, report, viewport={"width": width, "height": 900}, color_scheme=scheme)
    visit.page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert visit.messages == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    (red,) = visit.page.evaluate("[getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]]")
    assert (int(red) < 60) == (scheme == "dark")
    assert count(visit.page, "#plot-capacity .legend") == (name == "narrow")
    visit.context.close()


def test_page_prints(browser: Any, report: Path) -> None:
    visit = Visit(browser, report)
    before = drawn(visit.page, "capacity")
    assert visit.page.pdf().startswith(b"%PDF")
    assert drawn(visit.page, "capacity") == before
    visit.context.close()


def test_page_of_ten_thousand_rows_opens(browser: Any, tmp_path: Path) -> None:
    """Check that the page is drawn within Playwright's limit of 30 s; it takes about one."""
    path = tmp_path / "many.html"
    path.write_text(html(results(many(5, 10, 5, 10, 4))), encoding="utf-8")
    visit = Visit(browser, path)
    assert visit.messages == []
    assert "1–50 of 10000" in visit.page.inner_text("#rows")
    visit.context.close()
