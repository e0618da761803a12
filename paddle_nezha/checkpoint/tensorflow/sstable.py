"""LevelDB's tables of sorted keys and values, as TensorFlow writes them: read whole, every byte of them checked.

    blocks | metaindex block | index block | footer of 48 bytes
    block    entries, restart positions (uint32 each), their number; then its type and a masked CRC-32C
    entry    bytes shared with the key before, bytes that follow, bytes of the value; those bytes
    handle   offset and size of a block
    footer   handle of the metaindex, handle of the index, padding to 40 bytes, the magic number

https://github.com/google/leveldb/blob/main/doc/table_format.md. The sizes are varints.
"""

import struct
from typing import NamedTuple

import numpy as np

from .crc32c import crc32c, unmasked
from .protobuf import Malformed, Unsupported, varint

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48
_TRAILER = 5  # the block's type and its checksum

# The index of NeZha large with its optimizer has 1,200 entries and takes 90 kB.
_MAX_ENTRIES = 20_000
_MAX_KEY = 512
_MAX_VALUE = 1 << 16

Pairs = list[tuple[bytes, bytes]]


class _Handle(NamedTuple):
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size + _TRAILER


def pairs(data: bytes) -> Pairs:
    """All keys, ascending, with their values.

    Raises:
        Malformed: anything a writer of such tables would not have written, or too much of it.
    """
    if len(data) < FOOTER or not data.endswith(MAGIC):
        last = data[-len(MAGIC) :].hex() or "nothing"
        raise Malformed(f"its {len(data)} bytes should end in {MAGIC.hex()}, but end in {last}")
    body, footer = len(data) - FOOTER, data[-FOOTER : -len(MAGIC)]
    metaindex, position = _handle(footer, 0)
    index, position = _handle(footer, position)
    if footer[position:].strip(b"\0"):
        raise Malformed("the padding of its footer is not zero")
    _block(data, metaindex, body)
    found: Pairs = []
    reached = 0
    for _, value in _entries(_block(data, index, body)):
        handle, end = _handle(value, 0)
        # In order and apart, as they were written: a block that is named twice would be read twice.
        if end != len(value) or handle.offset < reached:
            raise Malformed("its blocks overlap or are out of order")
        reached = handle.end
        found += _entries(_block(data, handle, body))
        if len(found) > _MAX_ENTRIES:
            raise Malformed(f"more than {_MAX_ENTRIES} entries")
    if any(one[0] >= other[0] for one, other in zip(found, found[1:])):
        raise Malformed("its keys are not in ascending order")
    return found


def _handle(data: bytes, position: int) -> tuple[_Handle, int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return _Handle(offset, size), position


def _block(data: bytes, handle: _Handle, body: int) -> bytes:
    if handle.end > body:
        raise Malformed(f"a block at byte {handle.offset} of {handle.size} bytes runs beyond byte {body}")
    stored = np.frombuffer(data, np.uint8, handle.size + 1, handle.offset)  # the type is summed too
    (checksum,) = struct.unpack_from("<I", data, handle.end - 4)
    if crc32c(stored) != unmasked(checksum):
        raise Malformed(f"the checksum of the block at byte {handle.offset} is wrong")
    if stored[-1] != 0:
        raise Unsupported(f"the block at byte {handle.offset} is compressed, as TensorFlow no longer does since 1.2")
    return data[handle.offset : handle.offset + handle.size]


def _entries(block: bytes) -> Pairs:
    limit = _restarts(block)
    found: Pairs = []
    key, position = b"", 0
    while position < limit:
        shared, position = varint(block, position)
        more, position = varint(block, position)
        size, position = varint(block, position)
        middle, end = position + more, position + more + size
        if shared > len(key) or end > limit:
            raise Malformed("an entry runs beyond its block")
        if shared + more > _MAX_KEY or size > _MAX_VALUE or len(found) == _MAX_ENTRIES:
            raise Malformed(
                f"keys beyond {_MAX_KEY} bytes, values beyond {_MAX_VALUE}, or entries beyond {_MAX_ENTRIES}"
            )
        key = key[:shared] + block[position:middle]
        found.append((key, block[middle:end]))
        position = end
    return found


def _restarts(block: bytes) -> int:
    """Where the entries end and the restart positions, which only searching needs, begin."""
    if len(block) < 4:
        raise Malformed("a block without its restart positions")
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    if 4 * (count + 1) > len(block):
        raise Malformed(f"a block of {len(block)} bytes with {count} restart positions")
    return len(block) - 4 * (count + 1)
