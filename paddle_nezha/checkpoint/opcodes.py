"""The few pickle opcodes that the writers of `.pdparams` and torch files spell: names, texts and numbers.

Written out rather than left to `pickle`, so that the bytes depend on the content alone, and not on the releases of
Python and NumPy or on which objects happen to be one.
"""

import pickle as op  # only for the names of the opcodes; nothing here pickles or unpickles
import struct


def named(module: str, name: str) -> bytes:
    """A global by its name."""
    return op.GLOBAL + f"{module}\n{name}\n".encode()


def text(content: str) -> bytes:
    encoded = content.encode()
    return op.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def size(number: int) -> bytes:
    """An integer from -2^31 to 2^63."""
    if number < 2**31:
        return op.BININT + struct.pack("<i", number)
    return op.LONG1 + b"\x09" + number.to_bytes(9, "little")
