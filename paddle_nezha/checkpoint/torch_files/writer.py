"""Writes what torch.save would: a zip archive of a pickle and one record for each storage."""

import pickle as op  # only for the names of the opcodes; nothing here pickles or unpickles
import struct
import zipfile
from collections.abc import Mapping

import numpy as np

from ..._files import replaced
from ..arrays import check_writable
from ..errors import PathLike
from ..opcodes import named, size, text

_TOP = "archive"  # torch's own name where it has none from the file
_ALIGNMENT = 64
_VERSION = b"3\n"  # of the archive; since torch 1.6
_HUGE = 0xFFFFFFFF

_STORAGES = {
    "f8": "DoubleStorage",
    "f4": "FloatStorage",
    "f2": "HalfStorage",
    "i8": "LongStorage",
    "i4": "IntStorage",
    "i2": "ShortStorage",
    "i1": "CharStorage",
    "u1": "ByteStorage",
    "b1": "BoolStorage",
}
_WITHOUT_STORAGE = {"u8": "uint64", "u4": "uint32", "u2": "uint16"}  # torch 2.3 and later


def write(path: PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a torch file that `torch.load(path, weights_only=True)` opens, as an OrderedDict of tensors.

    The bytes depend on the names, their order and the arrays alone. One array given under several names (a
    tied weight) is stored once, and torch makes tensors of it that share their memory.

    Args:
        path: replaced as a whole, once everything is on the disk.
        arrays: numbers or booleans of fixed size, any layout. uint16, uint32 and uint64 need torch 2.3.

    Raises:
        CheckpointError: an array of another dtype, or a name that is no string; nothing is written.
    """
    arrays = dict(arrays)  # a mapping may build its arrays anew at each look, and identity counts below
    check_writable(arrays)
    once = {id(array): array for array in arrays.values()}
    keys = {identity: str(number) for number, identity in enumerate(once)}
    with replaced(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        _record(archive, "data.pkl", np.frombuffer(_pickle(arrays, keys), np.uint8))
        _record(archive, "byteorder", np.frombuffer(b"little", np.uint8))
        for identity, array in once.items():
            flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
            _record(archive, f"data/{keys[identity]}", flat.view(np.uint8))
        _record(archive, "version", np.frombuffer(_VERSION, np.uint8))


def _record(archive: zipfile.ZipFile, name: str, content: np.ndarray) -> None:
    entry = zipfile.ZipInfo(f"{_TOP}/{name}")
    entry.create_system = 3  # whatever the machine
    huge = content.nbytes >= _HUGE // 2
    # An extra field of zeros moves the data to the next multiple, where they can be mapped into memory.
    begin = archive.start_dir + 30 + len(entry.filename) + (20 if huge else 0) + 4
    padding = -begin % _ALIGNMENT
    entry.extra = b"FB" + struct.pack("<H", padding) + bytes(padding)
    with archive.open(entry, "w", force_zip64=huge) as record:
        record.write(content.data)


def _pickle(arrays: Mapping[str, np.ndarray], keys: Mapping[int, str]) -> bytes:
    items = [text(name) + _tensor(array, keys[id(array)]) + op.SETITEM for name, array in arrays.items()]
    return op.PROTO + b"\x02" + _ordered_dict() + b"".join(items) + op.STOP


def _tensor(array: np.ndarray, key: str) -> bytes:
    code = array.dtype.str[1:]
    if code in _STORAGES:
        rebuild, storage, length, dtype = "_rebuild_tensor_v2", named("torch", _STORAGES[code]), array.size, b""
    else:
        rebuild, storage = "_rebuild_tensor_v3", named("torch.storage", "UntypedStorage")
        length, dtype = array.nbytes, named("torch", _WITHOUT_STORAGE[code])
    identity = op.MARK + text("storage") + storage + text(key) + text("cpu") + size(length) + op.TUPLE
    strides = [1] * array.ndim
    for axis in range(array.ndim - 1, 0, -1):
        strides[axis - 1] = strides[axis] * max(array.shape[axis], 1)
    window = size(0) + _sizes(array.shape) + _sizes(strides)
    arguments = identity + op.BINPERSID + window + op.NEWFALSE + _ordered_dict() + dtype
    return named("torch._utils", rebuild) + op.MARK + arguments + op.TUPLE + op.REDUCE


def _ordered_dict() -> bytes:
    return named("collections", "OrderedDict") + op.EMPTY_TUPLE + op.REDUCE


def _sizes(numbers: "tuple[int, ...] | list[int]") -> bytes:
    return op.MARK + b"".join(map(size, numbers)) + op.TUPLE
