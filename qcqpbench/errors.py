"""The one exception of the package."""

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
