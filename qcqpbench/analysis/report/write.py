"""Writing of reports to files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qcqpbench.atomic_files import check_target, writing_text
from qcqpbench.errors import require

from .numbers.contents import contents
from .numbers.sources import read
from .render import html, markdown
from .verdict import verdict

FORMS = ("html", "md")
_RENDERERS = {"html": html.html, "md": markdown.markdown}
_KINDS = {"html": html.KIND, "md": markdown.KIND}


@dataclass(frozen=True)
class WrittenReport:
    """Summary of a report that was written: its file and size in bytes, the number of runs, and its verdict.

    `rows_left_out` says how many rows the report leaves out, and why; it is empty if there are none.
    """

    path: Path
    bytes: int
    runs: int
    verdict: tuple[str, ...]
    rows_left_out: str


def write_report(paths: Sequence[str | Path], target: str | Path, form: str | None = None) -> WrittenReport:
    """Write a report of results files. If writing fails, `target` is unchanged.

    Parameters
    ----------
    paths
        Results files, and JSON files of pytest-benchmark.
    target
        The file to write; only an earlier report is overwritten.
    form
        "html" or "md"; by default that of the suffix of `target`.

    Raises
    ------
    QcqpbenchError
        If a file cannot be read or written, or the suffix of `target` is neither .html nor .md.
    """
    target = Path(target)
    if form is None:
        form = target.suffix.removeprefix(".")
        require(form in FORMS, f"target must be an .html or .md file, got {str(target)!r}")
    require(form in FORMS, f"form must be one of {', '.join(FORMS)}, got {form!r}")
    # Checked before the files are read, which may take minutes.
    check_target(target, _KINDS[form])
    report_input = read(paths)
    numbers = contents(report_input)
    text = _RENDERERS[form](report_input, numbers)
    with writing_text(target, _KINDS[form]) as file:
        file.write(text)
    size = len(text.encode(errors="replace"))
    return WrittenReport(target, size, len(report_input.rows), tuple(verdict(numbers)), numbers.left_out)


def report_text(paths: Sequence[str | Path], form: str) -> str:
    """Return a report of results files as HTML or Markdown text: `form` is "html" or "md"."""
    require(form in FORMS, f"form must be one of {', '.join(FORMS)}, got {form!r}")
    return _RENDERERS[form](read(paths), None)
