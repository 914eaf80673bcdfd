"""Code blocks of the documentation: found, checked, and executed with their outputs compared.

A block of a page is one of these:

- ``python``: executed, all blocks of a page in one session in an empty folder.
- ``console``: lines that begin with "$ " are commands, executed in the same folder; the other lines are their output.
- ``text`` right after a ``python`` block: what the block prints.
- any block after ``<!-- file: NAME -->``: the content of a file in that folder.
- any block after ``<!-- not run: REASON -->``; commands of qcqpbench in it are parsed nevertheless.

Outputs are compared word by word, numbers to 0.1 % or 1e-6; "…" stands for any text, and as a line for any lines.
Times, counts of iterations and leaves, and the like may differ. An indented block holds formulas, no commands.
"""

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
NOT_RUN, FILE, RUN = "not run", "file", "run"

_MARK = re.compile(r"<!-- (not run|file): (.+?) -->\s*$")
_COMMAND_WORDS = re.compile(r"(\$ |qcqpbench |python |pip |make )")
_NUMBER = re.compile(r"((?<![\w.])[-−+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?%?(?![\w]))")
_VARYING_COLUMNS = ("build_seconds", "solve_seconds", "median_s", "seconds", "iterations", "violation", "overlap")
_VARYING_LINE = re.compile(r"^(seconds|iterations|leaves)\s+\S+$")
_VARYING_AMOUNT = re.compile(r"\b[\d.,]+ (s|ms|min|MB|kB|leaves)\b")
_RELATIVE_TOLERANCE, _ABSOLUTE_TOLERANCE = 1e-3, 1e-6
_END = "end of block 7c1d"
_SESSION = f"""
import json, sys
for line in sys.stdin:
    exec(compile(json.loads(line), "block", "exec"))
    print({_END!r}, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes
    ----------
    where
        Page and line.
    language
        The word after the fence.
    text
        The content.
    mark, reason
        The mark before the block, "run" if there is none, and its text.
    is_indented
        Whether the block is indented in place of fenced.
    """

    where: str
    language: str
    text: str
    mark: str = RUN
    reason: str = ""
    is_indented: bool = False

    @property
    def commands(self) -> list[str]:
        """The commands of a console block."""
        return [line[2:] for line in _joined(self.text) if line.startswith("$ ")]


def _joined(text: str) -> list[str]:
    """Return the lines of a console block; a command that ends in a backslash goes on in the next line."""
    return text.replace("\\\n", "").splitlines()


def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, without directives of Sphinx, whose language is in braces."""
    found, mark, reason = [], RUN, ""
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text(encoding="utf-8")):
        if token.type == "html_block":
            match = _MARK.search(token.content)
            mark, reason = (match[1], match[2]) if match else (RUN, "")
            continue
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            line = (token.map or [0])[0] + 1
            found.append(
                Block(f"{page}:{line}", token.info.strip(), token.content, mark, reason, token.type == "code_block")
            )
        if token.nesting <= 0:
            mark, reason = RUN, ""
    return found


def faults(page: str) -> Iterator[str]:
    """Yield a message for each block that is neither executed nor marked, and each command that cannot be right."""
    previous = None
    for block in blocks(page):
        is_output = block.language == "text" and previous is not None and previous.language == "python"
        if block.is_indented:
            if any(_COMMAND_WORDS.match(line) for line in block.text.splitlines()):
                yield f"{block.where}: must be a fenced block to hold commands, got an indented one"
        elif block.mark == RUN and block.language not in ("python", "console") and not is_output:
            yield f"{block.where}: must be python, console, or marked as file or not run, got {block.language!r}"
        if block.language == "console":
            if not block.commands:
                yield f"{block.where}: must have commands, which begin with '$ ', got none"
            yield from (f"{block.where}: {fault}" for line in block.commands if (fault := command_fault(line)))
        if block.language == "python":
            compile(block.text, block.where, "exec")
        previous = block


def command_fault(line: str) -> str | None:
    """Return why a command cannot be right, such as wrong arguments or a missing script; None if it can."""
    # The text of the parser's messages is that of QcqpbenchError.
    from qcqpbench.cli.main import parse_words  # noqa: PLC0415
    from qcqpbench.errors import QcqpbenchError  # noqa: PLC0415

    program, *words = itertools.takewhile(lambda word: word != "||", shlex.split(line, comments=True))
    if program == "qcqpbench":
        try:
            parse_words(words)
        except QcqpbenchError as error:
            return str(error)
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return next((f"make has no target {word}" for word in words if "=" not in word and word not in targets), None)
    if program == "python" and words[0].startswith("docs/") and not (ROOT / words[0]).is_file():
        return f"{words[0]} is missing"
    return None


def run_page(page: str, folder: Path, environment: dict[str, str]) -> None:
    """Execute the blocks of a page in a folder, and compare what they print."""
    every = blocks(page)
    with _Session(folder, environment) as session:
        printed = None
        for block in every:
            if block.mark == FILE:
                (folder / block.reason).write_text(block.text, encoding="utf-8")
            elif block.mark == NOT_RUN:
                pass
            elif block.language == "python":
                printed = session.execute(block)
            elif block.language == "text" and printed is not None:
                compare(block.where, block.text.splitlines(), printed)
            elif block.language == "console":
                _run_console(block, folder, environment)


class _Session:
    """An interactive Python process in a folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        command = [sys.executable, "-c", _SESSION]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            text=True,
        )

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def execute(self, block: Block) -> list[str]:
        """Return the lines that a block prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(block.text), file=self._process.stdin, flush=True)
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == _END:
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"{block.where}:\n" + "\n".join(lines))


def _run_console(block: Block, folder: Path, environment: dict[str, str]) -> None:
    expected: list[str] = []
    command = ""
    for line in [*_joined(block.text), "$ "]:
        if not line.startswith("$ "):
            expected.append(line)
            continue
        if command:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{block.where}: {command}\n{done.stdout}"
            if expected:
                compare(f"{block.where}: {command}", expected, done.stdout.splitlines())
        expected, command = [], line[2:]


def compare(where: str, expected: Sequence[str], printed: Sequence[str]) -> None:
    """Fail if what was printed differs from what the page shows."""
    # pandas pads the line below its header; Markdown pages have no trailing blanks.
    shown, got = _without_varying(expected), _without_varying(printed)
    assert _matches(shown, got), f"{where}\nthe page shows:\n{_text(expected)}\nprinted was:\n{_text(printed)}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _without_varying(lines: Sequence[str]) -> list[str]:
    """Return the lines without what differs between runs and machines."""
    result, spans = [], []
    for line in lines:
        columns = [(match.start(), match.end(), match[0]) for match in re.finditer(r"\S+", line)]
        varying = [end for _, end, name in columns if name in _VARYING_COLUMNS]
        if varying and len(columns) > 2:
            ends = [0, *(end for _, end, _ in columns)]
            spans = [(ends[k], ends[k + 1]) for k in range(len(columns)) if columns[k][2] in _VARYING_COLUMNS]
        else:
            for begin, end in spans:
                line = line[:begin] + " " * (min(end, len(line)) - begin) + line[end:]  # noqa: PLW2901
        line = _VARYING_LINE.sub(r"\1 #", line.rstrip())  # noqa: PLW2901
        result.append(_VARYING_AMOUNT.sub(r"# \1", line))
    return result


def _matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    if not expected:
        return not [line for line in printed if line]
    if expected[0] == "…":
        return any(_matches(expected[1:], printed[k:]) for k in range(len(printed) + 1))
    return bool(printed) and _same_line(expected[0], printed[0]) and _matches(expected[1:], printed[1:])


def _same_line(expected: str, printed: str) -> bool:
    words, others = expected.split(), printed.split()
    if "…" in expected and not any(word == other == "…" for word, other in zip(words, others, strict=False)):
        pattern = ".*".join(re.escape(part.strip()) for part in expected.split("…"))
        return re.fullmatch(pattern, printed.strip()) is not None
    return len(words) == len(others) and all(map(_same_word, words, others))


def _same_word(expected: str, printed: str) -> bool:
    parts, others = _NUMBER.split(expected), _NUMBER.split(printed)
    if parts[::2] != others[::2]:
        return False
    numbers = zip(map(_number, parts[1::2]), map(_number, others[1::2]), strict=True)
    return all(math.isclose(a, b, rel_tol=_RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE) for a, b in numbers)


def _number(text: str) -> float:
    return float(text.rstrip("%").replace("−", "-"))


def environment(**changes: str) -> dict[str, str]:
    """Return the environment variables of the processes of a page: the commands of this environment come first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PATH": path, "COLUMNS": "400", "MPLBACKEND": "agg", **changes}
