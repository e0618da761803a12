"""What a command prints to, where nobody may be reading: closed from the start, or left half-way."""

import os
import sys


def open_closed_streams() -> None:
    """Whoever started us may have closed stdout or stderr; what is printed there then goes nowhere, and the exit code
    still says how it ended."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def discard_output() -> None:
    """From here on stdout goes nowhere: its reader has left, or its disk is full. Python would flush it once more at
    the very end, and exit by a code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
