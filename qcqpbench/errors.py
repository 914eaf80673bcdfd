"""The exception of the package, and the texts of error messages."""

import difflib
from collections.abc import Iterable

# Limit of a stored message: a solver may raise or return megabytes.
MAX_MESSAGE_CHARACTERS = 2000


class QcqpbenchError(Exception):
    """Wrong input or an unreadable file. The message is one line that says what is wrong and what is required."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Raise QcqpbenchError(message) unless the condition holds."""
    if not condition:
        raise QcqpbenchError(message)


def describe_error(error: BaseException) -> str:
    """Return the type and text of an exception in one line of limited length; of a QcqpbenchError the text alone.

    An exception whose ``__str__`` fails is described by its type.
    """
    try:
        if isinstance(error, QcqpbenchError):
            return str(error)[:MAX_MESSAGE_CHARACTERS]
        return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_MESSAGE_CHARACTERS]
    except Exception:
        return type(error).__name__


def system_reason(error: Exception) -> str:
    """Return the reason that the operating system gives for an error, without the path that Python adds to it."""
    return str(getattr(error, "strerror", None) or error)


def nearest(name: str, allowed: Iterable[str], kind: str) -> QcqpbenchError:
    """Return the error for an unknown name of some kind, which suggests the closest allowed name and lists all."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return QcqpbenchError(f"unknown {kind} {name!r}; {hint}allowed: {', '.join(names) or 'none'}")
