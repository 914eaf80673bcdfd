"""The one exception of the package."""


class QcqpbenchError(Exception):
    """Wrong input or an unreadable file; the message is one line: what is wrong, and what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def require(condition: bool, message: str) -> None:
    """Raise QcqpbenchError(message) unless the condition holds."""
    if not condition:
        raise QcqpbenchError(message)
