"""Build the documentation site with warnings as errors, and open it from the file system."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qcqpbench
from qcqpbench.results.export import ADDED_COLUMNS, table
from qcqpbench.results.row import COLUMNS
from qcqpbench.results.store import Store
from qcqpbench.run.run_spec import RunOptions
from qcqpbench.run.suite import SETTINGS

ROOT = Path(__file__).parents[1]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# One process builds the site.
pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """Import docs/generated_pages.py."""
    pytest.importorskip("numpydoc")
    description = importlib.util.spec_from_file_location("generated_pages", ROOT / "docs" / "generated_pages.py")
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def first_cells(text: str) -> list[str]:
    """Return the names in the first column of Markdown tables."""
    return re.findall(r"^\| `([\w-]+)", text, re.MULTILINE)


def test_every_column_is_described_once(generated: ModuleType) -> None:
    assert first_cells(generated.result_columns()) == list(COLUMNS)


def test_a_column_without_a_description_or_a_unit_is_an_error(
    generated: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated, "COLUMNS", (*COLUMNS, "new_column"))
    with pytest.raises(KeyError, match="new_column must have an entry"):
        generated.result_columns()
    monkeypatch.setattr(generated, "COLUMNS", COLUMNS)
    without_unit = (RunOptions.__doc__ or "").replace("time_limit : seconds", "time_limit")
    monkeypatch.setattr(RunOptions, "__doc__", without_unit)
    with pytest.raises(KeyError, match="time_limit must have a unit"):
        generated.result_columns()


def test_the_columns_of_exports_are_described(generated: ModuleType, tmp_path: Path) -> None:
    # Opening an old file migrates it.
    shutil.copyfile(ROOT / "tests" / "data" / "schema-7.db", tmp_path / "old.db")
    with Store(tmp_path / "old.db") as store:
        names = {column.name for column in table(store)}
    described = {*COLUMNS, *ADDED_COLUMNS} - {"number", "machine"}
    assert described <= names and first_cells(generated.export_columns()) == list(ADDED_COLUMNS)


def test_every_key_of_suite_files_is_described(generated: ModuleType) -> None:
    page = (ROOT / "docs" / "reference" / "suite-files.md").read_text(encoding="utf-8")
    assert set(first_cells(generated.suite_settings())) == set(SETTINGS)
    assert {"name", "file", "where"} <= set(first_cells(page))
    assert all(f"`{key}`" in page or f"[[{key}]]" in page for key in ("about", "problem", "solver"))


def test_every_command_is_described(generated: ModuleType) -> None:
    titles = set(re.findall(r"^## (.+)$", generated.command_line(), re.MULTILINE))
    done = subprocess.run(
        [sys.executable, "-m", "qcqpbench.cli.main", "--help"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert titles >= {"run", "solve", "report", "best-known update"}
    assert set(re.findall(r"^    ([a-z-]+) ", done.stdout, re.MULTILINE)) <= titles


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site from a copy of the pages; return its folder."""
    pytest.importorskip("sphinx")
    # `docs` reads CONTRIBUTING.md, CHANGELOG.md and the examples beside it.
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "examples"):
        ignored = shutil.ignore_patterns("_build", "api", "__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, copy / name)
    target = copy / "site"
    command = [sys.executable, "-m", "sphinx", "-M", "html", "docs", str(target), "-W", "--keep-going", "-n", "-q"]
    # Nothing is read from the network: a proxy that does not exist would fail.
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(command, cwd=copy, env={**os.environ, **proxies}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


@pytest.mark.slow
def test_the_site_has_a_page_for_every_page_and_every_public_name(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    names = {f"reference/api/qcqpbench.{name}.html" for name in qcqpbench.__all__} - {
        # Aliases of types, which the page of the reference describes, and the version.
        *(f"reference/api/qcqpbench.{name}.html" for name in ("Array", "RunFunction", "__version__"))
    }
    assert [str(page) for page in pages if not (site / page).is_file()] == []
    assert [name for name in names if not (site / name).is_file()] == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["'](?:https?:)?//|<link[^>]+href=["'](?:https?:)?//""")
    assert [str(page) for page in site.rglob("*.html") if loaded.search(page.read_text(encoding="utf-8"))] == []
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    assert [str(sheet) for sheet in site.rglob("*.css") if imported.search(sheet.read_text(encoding="utf-8"))] == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as session:
        chromium = session.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_and_its_search_work_from_files(site: Path, browser: Any) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: messages.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click("a:text-is('Reference') >> nth=0")
    page.wait_for_selector("h1:has-text('Reference')")
    page.goto((site / "search.html").as_uri() + "?q=replica")
    page.wait_for_selector("ul.search li a:has-text('Theory')")
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["index", "reference/columns", "reference/api/qcqpbench.QCQP", "results/best-known"])
def test_pages_fit_a_telephone(site: Path, browser: Any, name: str) -> None:
    """Check that no page is wider than the screen: wide tables scroll inside it."""
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
