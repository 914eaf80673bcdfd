"""A role of a process that never says that it has started."""

import signal


def serve(*_: object) -> None:
    """Wait for a signal, for ever."""
    while True:
        signal.pause()
