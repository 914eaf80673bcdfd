"""Commands on a pseudo-terminal."""

import contextlib
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("qcqpbench")


def on_terminal(*words: str, columns: int = 80, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run the command line on a terminal of 24 lines; return the exit code and everything that was written to it."""
    terminal, programs_end = pty.openpty()
    ioctl(programs_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [str(SCRIPT), *words],
        stdin=programs_end,
        stdout=programs_end,
        stderr=programs_end,
        start_new_session=True,
        env=variables | {"TERM": "xterm"} | dict(environment or {}),
    )
    os.close(programs_end)
    parts = []
    # Linux raises an OSError at the end.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    os.close(terminal)
    return process.wait(60), b"".join(parts).decode()


def without_codes(text: str) -> str:
    """Return the text without the codes that move the cursor or change the style."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)
