"""CRC-32C (Castagnoli), the checksum of TensorFlow's files, with NumPy alone, at more than 1 GB/s in long arrays.

A message is a polynomial over GF(2) and its checksum the remainder by P. Any multiple of P with few terms, such as
x^a + x^b + x^c + 1, lets a bit be moved: x^a may be replaced by x^b + x^c + 1 wherever it stands. Squaring a
polynomial doubles its exponents, so the 64th power of that multiple moves whole 64-bit words, by XOR and nothing
else. The front of a message is so folded into its end until few enough words are left for a table.

The bits of a byte are read from the lowest up and the first byte has the highest exponents (RFC 3720, section 12.1).
"""

import numpy as np

_REFLECTED = 0x82F63B78  # P without x^32, its bits in the order described above
_P = (32, 28, 27, 26, 25, 23, 22, 20, 19, 18, 14, 13, 11, 10, 9, 8, 6, 0)
# A multiple of P with four terms, found by search: the one below degree 12,000 with the widest gap behind its first.
_SPARSE = (10912, 1933, 414, 0)
_PIECE = 1 << 17  # words copied at a time: 1 MiB
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8


def crc32c(data: np.ndarray) -> int:
    """The checksum of a flat, contiguous uint8 array, which is left as it is. Takes 1.1 MiB beside it."""
    whole = data.size // 8 * 8
    words, tail = data[:whole].view("<u8"), data[whole:].tobytes()
    if not words.size:
        return _bytewise(_ONES, tail) ^ _ONES
    rest = _folded(words)
    for doublings in range(8, 3, -1):  # down to 512 words, where the table is as fast
        rest = _fold(rest, tuple(exponent << doublings for exponent in _P))
    return _bytewise(0, rest.tobytes() + tail) ^ _ONES


def unmasked(stored: int) -> int:
    """The checksum that a file gives rotated and shifted, as LevelDB masks it."""
    turned = (stored - _MASK_DELTA) & _ONES
    return (turned >> 17) | (turned << 15) & _ONES


def _folded(words: np.ndarray) -> np.ndarray:
    """At most as many words as `_SPARSE` has degrees, with the remainder of `words`, whose first bits are flipped."""
    scratch = np.empty(min(words.size, _SPARSE[0] + _PIECE), "<u8")
    held = 0
    for start in range(0, words.size, _PIECE):
        piece = words[start : start + _PIECE]
        scratch[held : held + piece.size] = piece
        if start == 0:
            scratch[0] ^= np.uint64(_ONES)
        kept = _fold(scratch[: held + piece.size], _SPARSE)
        held = kept.size
        scratch[:held] = kept
    return scratch[:held]


def _fold(words: np.ndarray, exponents: tuple[int, ...]) -> np.ndarray:
    """The last words, as many as the highest exponent says, after all before them were moved there."""
    degree, gap = exponents[0], exponents[0] - exponents[1]
    surplus = words.size - degree
    for start in range(0, surplus, gap):
        block = words[start : min(start + gap, surplus)]
        for exponent in exponents[1:]:
            target = start + degree - exponent
            words[target : target + block.size] ^= block
    return words[max(surplus, 0) :]


def _bytewise(state: int, data: bytes) -> int:
    for byte in data:
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_REFLECTED if byte & 1 else 0)
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))
