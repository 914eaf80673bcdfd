"""The exception class of the package, and helpers for error messages."""

import difflib
from collections.abc import Iterable

# Length limit of stored messages, because a solver may raise or return megabytes of text.
MAX_MESSAGE_CHARACTERS = 2000


class QcqpbenchError(ValueError):
    """Error for invalid input or an unreadable file; its message is one line that states the requirement.

    It is a ValueError, as scikit-learn and callers that know only the standard library expect.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Raise QcqpbenchError(message) unless `condition` holds."""
    if not condition:
        raise QcqpbenchError(message)


def describe_error(error: BaseException) -> str:
    """Return one line with the type and text of `error`, or with the text alone for a QcqpbenchError.

    The line is cut to `MAX_MESSAGE_CHARACTERS`. If ``__str__`` of the exception raises, the line is the type alone.
    """
    try:
        if isinstance(error, QcqpbenchError):
            return str(error)[:MAX_MESSAGE_CHARACTERS]
        return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_MESSAGE_CHARACTERS]
    except Exception:
        return type(error).__name__


def system_reason(error: Exception) -> str:
    """Return the operating system's reason for `error`, without the path that Python adds; else the text of `error`."""
    return str(getattr(error, "strerror", None) or error)


def nearest(name: str, allowed: Iterable[str], kind: str) -> QcqpbenchError:
    """Return an error for the unknown `name` that suggests the closest name in `allowed` and lists all of them."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return QcqpbenchError(f"unknown {kind} {name!r}; {hint}allowed: {', '.join(names) or 'none'}")
