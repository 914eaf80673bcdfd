"""Execute every command and Python block of the pages and docstrings, and compare the output with what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.support.example_packages import install_examples
from tests.support.pages import PAGES, ROOT, Block, blocks, command_fault, compare, environment, faults, run_page

EXECUTED = [page for page in PAGES if any(block.mark != "not run" and block.language for block in blocks(page))]

WITH_DOCTESTS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "qcqpbench").rglob("*.py"))
    if "    >>> " in path.read_text(encoding="utf-8")
]
# They show commands that need the packages of examples/.
WITH_EXAMPLES = ("docs/howto/own-family.md", "docs/howto/own-solver.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_executed_or_marked(page: str) -> None:
    assert list(faults(page)) == []


@pytest.mark.slow
@pytest.mark.solver
@pytest.mark.parametrize("page", EXECUTED)
def test_the_blocks_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    changes = {}
    if page in WITH_EXAMPLES:
        changes["PYTHONPATH"] = str(install_examples(tmp_path / "site"))
    folder = tmp_path / "page"
    folder.mkdir()
    run_page(page, folder, environment(**changes))


@pytest.mark.parametrize("module", WITH_DOCTESTS)
def test_the_examples_in_docstrings_do_what_they_say(module: str) -> None:
    """Run the examples of a module, which the reference shows; those marked with +SKIP are not run."""
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_wrong_commands_are_noticed() -> None:
    assert command_fault("qcqpbench run default -j 1") is None
    assert "unrecognized arguments: --job" in (command_fault("qcqpbench list solvers --job") or "")
    assert command_fault("make nothing") == "make has no target nothing"
    assert command_fault("python docs/nothing.py table") == "docs/nothing.py is missing"


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        (["margin 0.21144"], ["margin  0.21145"], True),
        (["margin 0.21144"], ["margin  0.2117"], False),
        (["best", "1"], ["best", "1", ""], True),
        (["best", "1"], ["best", "1", "2"], False),
        (["…", "mine.db: 66 runs"], ["[1/66] gip", "mine.db: 66 runs"], True),
        (["…", "mine.db: 66 runs"], ["[1/66] gip", "mine.db: 65 runs"], False),
        (["solver runs median_s", "gip       6    0.298"], ["solver runs median_s", "gip       6     1.29"], True),
        (["solver runs median_s", "gip       6    0.298"], ["solver runs median_s", "gip       7    0.298"], False),
        (["report.html: 66 runs, 0.1 MB"], ["report.html: 66 runs, 0.3 MB"], True),
        (["ok …", "end"], ["ok     2 cases", "end"], True),
    ],
)
def test_outputs_are_compared(shown: list[str], printed: list[str], is_same: bool) -> None:
    if is_same:
        compare("page", shown, printed)
    else:
        with pytest.raises(AssertionError, match="the page shows"):
            compare("page", shown, printed)


def test_blocks_have_their_marks() -> None:
    (first,) = [block for block in blocks("docs/reference/suite-files.md") if block.mark == "file"]
    assert isinstance(first, Block) and first.reason == "mine.toml" and first.language == "toml"
