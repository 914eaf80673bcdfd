"""The one exception of the package."""

import difflib
from collections.abc import Iterable

# Of a message that is stored: a solver may raise or return megabytes.
MAX_MESSAGE_CHARACTERS = 2000


class QcqpbenchError(Exception):
    """Wrong input or an unreadable file; the message is one line: what is wrong, and what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Raise QcqpbenchError(message) unless the condition holds."""
    if not condition:
        raise QcqpbenchError(message)


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception in one line of limited length, whatever its own ``__str__`` does.

    A QcqpbenchError is its text alone.
    """
    try:
        if isinstance(error, QcqpbenchError):
            return str(error)[:MAX_MESSAGE_CHARACTERS]
        return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_MESSAGE_CHARACTERS]
    except Exception:
        return type(error).__name__


def nearest(name: str, allowed: Iterable[str], what: str) -> QcqpbenchError:
    """The error for an unknown name: suggests the closest one and lists all."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return QcqpbenchError(f"unknown {what} {name!r}; {hint}allowed: {', '.join(names) or 'none'}")
