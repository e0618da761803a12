"""The files that torch.save wrote before release 1.6: four pickles, then the bare storages.

The pickles are a magic number, a version, facts about the writing machine, and the object itself; a fifth
lists the keys of the storages, each of which follows as its length in elements (8 bytes) and its numbers.
All are little-endian, whatever the machine was.
"""

import struct
from typing import Any

from .. import pickles
from ..errors import CheckpointError
from ..files import Form, Source
from .tensors import Reader, Region, corrupt

# 0x1950A86A20F9469CFC6C as a pickle spells it. It comes after a protocol number and perhaps a frame.
MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_VERSION = 1001


def load(source: Source) -> Any:
    """Runs the pickles from the source's beginning and finds the storages that they name."""
    pickles.load(source, {})  # the magic number, by which the caller knew the format
    version = pickles.load(source, {})
    if type(version) is not int or version != _VERSION:
        raise CheckpointError(
            f"{source.path} is of an unknown version of torch's old format: expected {_VERSION}, but it does not say "
            "so. Open it with the torch that wrote it and save its state_dict() again."
        )
    pickles.load(source, {})  # the sizes of C types, which nobody needs
    reader = Reader()
    value = reader.load(source)
    keys = pickles.load(source, {})
    if type(keys) is not list or not all(type(key) is str for key in keys):
        raise corrupt(source, f"expected the list of storages at byte {source.position}")
    if len(keys) != len(reader.storages) or set(keys) != set(reader.storages):
        raise corrupt(source, f"it holds {len(keys)} storages, but its tensors need {len(reader.storages)} others")
    for key in keys:
        storage = reader.storages[key]
        (length,) = struct.unpack("<q", source.take(8))
        if length != storage.length:
            raise corrupt(source, f"expected a storage of {storage.length} numbers, but one of {length} came")
        place = source.skip(storage.nbytes, Form.BYTES)
        storage.place = Region(source, place.offset, place.length)
    if source.position != source.size:
        raise corrupt(source, f"its storages end at byte {source.position}, but the file holds {source.size} bytes")
    return value
