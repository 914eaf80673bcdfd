"""Entry point of the command line."""

import argparse
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn

from qcqpbench import __version__
from qcqpbench.errors import QcqpbenchError, system_reason

from .common import DONE, FAILED, INTERRUPTED, USAGE

# The commands of each module. Only the module of the requested command is imported, which keeps the start fast.
COMMANDS = {
    "explore": ("list", "theory", "convert"),
    "solving": ("solve", "certify", "check"),
    "running": ("run",),
    "drawing": ("figures", "study"),
    "results": ("report", "compare", "verify", "merge", "export", "submit", "sysinfo"),
    "best_known": ("best-known",),
}


class _Parser(argparse.ArgumentParser):
    """Argument parser that raises QcqpbenchError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise QcqpbenchError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 1 a run or a check failed, 2 wrong usage, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # File names that are not UTF-8 and terminals without Greek letters get escapes instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, *_, **__: f"qcqpbench: {message}\n"
    try:
        parser = _parser(words)
        options = parser.parse_args(words)
        if options.command is None:
            # As git does: the help, and an exit code that a script notices.
            parser.print_help()
            return USAGE
        code: int = options.command(options)
        sys.stdout.flush()
    except QcqpbenchError as error:
        if "--debug" in words:
            raise
        print(f"qcqpbench: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("qcqpbench: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as head, has closed the pipe. The interpreter flushes stdout again at exit, which would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"qcqpbench: {system_reason(error)}", file=sys.stderr)
        return FAILED
    return code


def parse_words(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a command, which is not run; raise QcqpbenchError if they are wrong."""
    return _parser(words).parse_args(words)


def every_command() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser and the one-line summary of each command and sub-command, by name, for the documentation."""
    return dict(_commands_of(_parser([]), ""))


def _commands_of(parser: argparse.ArgumentParser, prefix: str) -> Iterator[tuple[str, tuple[_Parser, str]]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield prefix + name, (command, summaries.get(name, ""))
                yield from _commands_of(command, f"{prefix}{name} ")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser for the command in `words`, or for all commands if `words` contains none."""
    parser = _Parser(
        prog="qcqpbench", description="Benchmarks of QCQP solvers on problems whose answer theory predicts."
    )
    parser.add_argument("--version", action="version", version=f"qcqpbench {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    command = next((word for word in words if not word.startswith("-")), "")
    for module in [name for name, defined in COMMANDS.items() if command in defined] or COMMANDS:
        importlib.import_module(f".{module}", __package__).add_commands(commands)
    return parser
