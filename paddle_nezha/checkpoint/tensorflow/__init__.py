"""TensorFlow checkpoints of the second format ("bundles"), with NumPy alone.

`<prefix>.index` is a table (`sstable`) of `BundleEntryProto`s by tensor name, under the empty key a
`BundleHeaderProto`; `<prefix>.data-SSSSS-of-NNNNN` hold the bytes of the tensors one after another. A partitioned
variable has an entry without bytes, which lists its slices, and for every slice an entry under a coded key.
Every block and every tensor carries a CRC-32C, and all are checked.
(tensorflow/core/protobuf/tensor_bundle.proto and tensorflow/core/util/tensor_bundle.)

What is no weight stays unread: strings, such as the object graph of `tf.train.Checkpoint`, and what the optimizer
keeps, which makes the published NeZha files three times as large as the model.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Optional

import numpy as np

from ..arrays import widened
from ..errors import CheckpointError, PathLike, foreign, truncated
from ..files import Form, Source
from ..stored import Stored
from . import sstable
from .crc32c import crc32c, unmasked
from .paths import locate
from .protobuf import Malformed, Message, Unsupported

_MAX_INDEX = 4 << 20
_MAX_SHARDS = 100_000  # five digits in a file name
_MAX_AXES = 32
_VERSION = 1  # of the format, the only one since 2016
_SHOWN = 20
_SLICE = b"\0"  # what the key of a slice begins with

# tensorflow/core/framework/types.proto
_BFLOAT16 = 14
_DTYPES = {
    1: "f4",
    2: "f8",
    3: "i4",
    4: "u1",
    5: "i2",
    6: "i1",
    9: "i8",
    10: "b1",
    _BFLOAT16: "u2",
    17: "u2",
    19: "f2",
    22: "u4",
    23: "u8",
}
_NO_NUMBERS = {
    7: "text, such as the object graph of tf.train.Checkpoint",
    20: "a handle of TensorFlow",
    21: "an object of TensorFlow",
}

# What training adds to a model, by the last part of its name.
_TRAINING = tuple(
    (re.compile(pattern + r"(/\.ATTRIBUTES/VARIABLE_VALUE)?$"), why)
    for pattern, why in (
        (r"(^|/)(adam|adamw|lamb|lars)_[mv](_\d+)?", "a moment of the optimizer"),
        (
            r"/(Adam|AdamW|AdaMax|AdamWeightDecay(Optimizer)?|LAMB|Lamb|LAMBOptimizer|LARS|Momentum|RMSProp|Adagrad"
            r"|Adadelta|Ftrl)(_\d+)?",
            "a slot of the optimizer",
        ),
        (r"/\.OPTIMIZER_SLOT/.+", "a slot of the optimizer"),
        (r"^(.+/)?_?optimizer/.+", "a variable of the optimizer"),
        (r"/shadow", "the optimizer's float32 copy of a float16 variable"),
        (r"(^|/)(global_step|beta[12]_power|learning_rate|save_counter)(_\d+)?", "a counter of the training"),
        (r"(^|/)((current_)?loss_scale|(num_)?(good|bad)_steps)(_\d+)?", "the state of the loss scale"),
    )
)


def is_slot(name: str) -> Optional[str]:
    """Why a variable belongs to the training and not to the model (optimizer, step, loss scale), or None."""
    return next((why for pattern, why in _TRAINING if pattern.search(name)), None)


class Tensors(dict[str, Stored]):
    """The tensors of a checkpoint by name. `skipped` says of every other one why it is no weight."""

    def __init__(self, tensors: Mapping[str, Stored], skipped: Mapping[str, str]) -> None:
        super().__init__(tensors)
        self.skipped = dict(skipped)


@contextmanager
def open_file(path: PathLike) -> Iterator[Tensors]:
    """Opens a checkpoint; nothing but its index is read until a tensor is.

    Args:
        path: the prefix of its files, any of the files (`.index`, `.data-…`, `.meta`), or their folder. Of
            several checkpoints in a folder, the one that its `checkpoint` file calls the latest.

    Returns:
        Tensors by TensorFlow's names in ascending order; bfloat16 gives float32, its exact value. A read may
        raise CheckpointError (checksum) and OSError.

    Raises:
        CheckpointError: damaged, incomplete, of the first format, compressed, no checkpoint at all, or a folder
            with several.
        OSError: there is no such file, or it cannot be opened.
    """
    prefix = locate(path)
    index = prefix + ".index"
    try:
        header, entries = _index(index)
        tensors = _tensors(prefix, header, entries)
    except Unsupported as error:
        raise CheckpointError(f"{index} is not read: {error}. Open it with TensorFlow and save it again.") from None
    except Malformed as error:
        raise CheckpointError(f"{index} is corrupt or truncated: {error}. Download or copy it again.") from None
    yield tensors


def read(path: PathLike) -> dict[str, np.ndarray]:
    """Reads all tensors that are weights; path, names and errors as in `open_file`."""
    with open_file(path) as tensors:
        return {name: tensor.read() for name, tensor in tensors.items()}


# The index


class _Header(NamedTuple):
    shards: int
    order: Literal["<", ">"]  # of bytes, as NumPy writes it


class _Extent(NamedTuple):
    """A part of one axis; all of it where `length` is -1."""

    start: int
    length: int


class _Entry(NamedTuple):
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    slices: tuple[tuple[_Extent, ...], ...]


_Entries = dict[bytes, _Entry]
_ALL = (_Extent(0, -1),)


def _index(path: str) -> tuple[_Header, _Entries]:
    with open(path, "rb") as file:
        source = Source(file, path)
        if source.size > _MAX_INDEX:
            raise CheckpointError(
                f"{path} is no TensorFlow index: expected at most {_MAX_INDEX} bytes, but it holds {source.size}."
            )
        data = source.take(source.size)
    what = foreign(data[:32]) if not data.endswith(sstable.MAGIC) else None
    if what:
        raise CheckpointError(f"{path} is no TensorFlow index: it is {what}.")
    pairs = dict(sstable.pairs(data))
    if b"" not in pairs:
        raise Malformed("it has no header")
    return _header(Message(pairs.pop(b""))), {key: _entry(key, value) for key, value in pairs.items()}


def _header(header: Message) -> _Header:
    shards, oldest_reader = header.signed(1), header.message(3).signed(2)
    if not 0 < shards <= _MAX_SHARDS:
        raise Malformed(f"its header counts {shards} data files")
    if oldest_reader > _VERSION:
        raise Unsupported(f"it needs version {oldest_reader} of the format, and this reader knows {_VERSION}")
    return _Header(shards, ">" if header.unsigned(2) else "<")


def _entry(key: bytes, value: bytes) -> _Entry:
    try:
        entry = Message(value)
        shape = tuple(Message(axis).signed(1) for axis in entry.message(2).parts(2))
        slices = tuple(tuple(map(_extent, Message(part).parts(1))) for part in entry.parts(7))
    except Malformed as error:
        raise Malformed(f"the entry of {_shown(key)} holds {error}") from None
    # An axis of size 0 hides the others from the count of bytes.
    if len(shape) > _MAX_AXES or min(shape, default=0) < 0 or math.prod(max(size, 1) for size in shape) >= 2**48:
        raise Malformed(f"{_shown(key)} has the shape {list(shape[: _MAX_AXES + 1])}")
    if any(len(extents) != len(shape) for extents in slices):
        raise Malformed(f"{_shown(key)} of shape {list(shape)} has slices with another number of axes")
    checksum = unmasked(entry.unsigned(6) & 0xFFFFFFFF)
    return _Entry(entry.unsigned(1), shape, entry.signed(3), entry.signed(4), entry.signed(5), checksum, slices)


def _extent(data: bytes) -> _Extent:
    extent = Message(data)
    return _Extent(extent.signed(1), extent.signed(2) if 2 in extent else -1)


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else ascii(text)


# The tensors


@dataclass(frozen=True)
class _Tensor:
    """A tensor that lies in one piece in one data file."""

    name: str
    path: str
    offset: int
    checksum: int
    shape: tuple[int, ...]
    code: int
    order: Literal["<", ">"]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.code == _BFLOAT16 else _DTYPES[self.code])

    def read(self) -> np.ndarray:
        stored = np.dtype(self.order + _DTYPES[self.code])
        flat = np.empty(math.prod(self.shape) * stored.itemsize, np.uint8)
        with open(self.path, "rb") as file:
            source = Source(file, self.path)
            source.position = file.seek(self.offset)
            source.skip(flat.size, Form.BYTES).copy_to(flat)
        if crc32c(flat) != self.checksum:
            raise CheckpointError(
                f"{self.path} is corrupt: the checksum of {self.name}, {flat.size} bytes at byte {self.offset}, "
                "is wrong. Download or copy it again."
            )
        array = flat.view(stored).astype(_DTYPES[self.code], copy=False).reshape(self.shape)
        return widened(array) if self.code == _BFLOAT16 else array


@dataclass(frozen=True)
class _Partitioned:
    """A tensor that lies in slices along one axis, in their order."""

    axis: int
    shape: tuple[int, ...]
    slices: tuple[_Tensor, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.slices[0].dtype

    def read(self) -> np.ndarray:
        whole = np.empty(self.shape, self.dtype)
        start = 0
        for part in self.slices:
            end = start + part.shape[self.axis]
            whole[(slice(None),) * self.axis + (slice(start, end),)] = part.read()
            start = end
        return whole


def _tensors(prefix: str, header: _Header, entries: _Entries) -> Tensors:
    _check_places(prefix, header, entries)
    found: dict[str, Stored] = {}
    skipped: dict[str, str] = {}
    refused: list[str] = []
    used = {key for key, entry in entries.items() if not key.startswith(_SLICE)}
    for key in sorted(used):
        name, entry = _name(key), entries[key]
        parts = [_slice_key(key, extents) for extents in entry.slices]
        used.update(parts)
        why = is_slot(name) or _NO_NUMBERS.get(entry.dtype)
        if why:
            skipped[name] = why
        elif entry.dtype not in _DTYPES:
            refused.append(f"{_shown(key)} (type {entry.dtype})")
        elif entry.slices:
            found[name] = _assembled(key, entry, [_piece(part, entries, prefix, header) for part in parts])
        else:
            found[name] = _piece(key, entries, prefix, header)
    if refused:
        raise CheckpointError(
            f"{prefix}.index holds tensors that are neither integers nor floats: {', '.join(refused[:_SHOWN])}. "
            "Such variables are in no NeZha or BERT: give the checkpoint of the model."
        )
    strays = [key for key in entries if key not in used]
    if strays:
        raise Malformed(f"slices that belong to no variable, such as {_shown(strays[0])}")
    return Tensors(found, skipped)


def _check_places(prefix: str, header: _Header, entries: _Entries) -> None:
    """Every tensor inside its file and apart from the others, so that all together are no more than the files."""
    lying: dict[int, list[tuple[int, int, bytes]]] = {}
    for key, entry in entries.items():
        if entry.slices:
            continue
        if not 0 <= entry.shard < header.shards or entry.offset < 0 or entry.size < 0:
            where = f"data file {entry.shard} of {header.shards}, {entry.size} bytes at byte {entry.offset}"
            raise Malformed(f"{_shown(key)} should lie in {where}")
        lying.setdefault(entry.shard, []).append((entry.offset, entry.size, key))
    _check_files(prefix, header, lying)
    for shard, places in lying.items():
        size, reached = os.path.getsize(_data_file(prefix, header, shard)), 0
        for offset, length, key in sorted(places):
            if offset < reached:
                raise Malformed(f"{_shown(key)} shares its bytes with another tensor")
            reached = offset + length
        if reached > size:
            raise truncated(_data_file(prefix, header, shard), size, f"at least {reached} bytes")


def _check_files(prefix: str, header: _Header, shards: Iterable[int]) -> None:
    files = [_data_file(prefix, header, shard) for shard in sorted(shards)]
    absent = [os.path.basename(file) for file in files if not os.path.isfile(file)]
    if absent:
        more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        raise CheckpointError(
            f"{prefix}.index is there, but of its {header.shards} data files these are not: "
            f"{', '.join(absent[:_SHOWN])}{more}. Copy them beside it, under exactly these names."
        )


def _data_file(prefix: str, header: _Header, shard: int) -> str:
    return f"{prefix}.data-{shard:05d}-of-{header.shards:05d}"


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise Malformed(f"the name {_shown(key)} is not UTF-8") from None


def _piece(key: bytes, entries: _Entries, prefix: str, header: _Header) -> _Tensor:
    entry = entries.get(key)
    if entry is None or entry.slices or entry.dtype not in _DTYPES:
        raise Malformed(f"there is no slice {_shown(key)}")
    needed = math.prod(entry.shape) * np.dtype(_DTYPES[entry.dtype]).itemsize
    if needed != entry.size:
        raise Malformed(f"{_shown(key)} of shape {list(entry.shape)} needs {needed} bytes but has {entry.size}")
    path = _data_file(prefix, header, entry.shard)
    return _Tensor(_shown(key), path, entry.offset, entry.checksum, entry.shape, entry.dtype, header.order)


# Partitioned variables


def _assembled(key: bytes, whole: _Entry, pieces: list[_Tensor]) -> _Partitioned:
    """Joins slices that tile one axis and take all of the others, as TensorFlow's own partitioners cut."""
    ranges = [_ranges(extents, whole.shape) for extents in whole.slices]
    full = _ranges(_ALL * len(whole.shape), whole.shape)
    cut = sorted({axis for part in ranges for axis, ends in enumerate(part) if ends != full[axis]})
    axis = cut[0] if cut else 0
    ordered = sorted(zip(ranges, pieces), key=lambda part: part[0][axis : axis + 1])
    reached = 0
    for part, piece in ordered:
        shape = tuple(end - start for start, end in part)
        alike = (piece.shape, piece.code) == (shape, whole.dtype)
        if len(cut) > 1 or not shape or part[axis][0] != reached or not alike:
            raise Malformed(f"the slices of {_shown(key)} do not make up its shape {list(whole.shape)} along one axis")
        reached = part[axis][1]
    if reached != whole.shape[axis]:
        raise Malformed(f"the slices of {_shown(key)} leave a part of its shape {list(whole.shape)} out")
    return _Partitioned(axis, whole.shape, tuple(piece for _, piece in ordered))


def _ranges(extents: tuple[_Extent, ...], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, end) on each axis."""
    return [
        (0, size) if length == _ALL[0].length else (start, start + length)
        for (start, length), size in zip(extents, shape)
    ]


def _slice_key(name: bytes, extents: tuple[_Extent, ...]) -> bytes:
    """The key of a slice: a 0, the name, the number of axes, the start and length on each, so coded as to sort.

    (tensorflow/core/util/saved_tensor_slice_util.cc and tensorflow/core/lib/strings/ordered_code.cc)
    """
    escaped = re.sub(rb"[\x00\xff]", lambda byte: byte[0] + bytes([0xFF - byte[0][0]]), name)
    axes = b"".join(_ordered(extent.start) + _ordered(extent.length) for extent in extents)
    return _SLICE + escaped + b"\x00\x01" + bytes([1, len(extents)]) + axes


def _ordered(number: int) -> bytes:
    """Two's complement in 7 bits a byte, behind a sign bit and as many bits equal to it as bytes follow the first."""
    length = 1
    while not -(1 << (7 * length - 1)) <= number < 1 << (7 * length - 1):
        length += 1
    header = ((1 << length) - 1) << (7 * length)
    return ((number & ((1 << (8 * length)) - 1)) ^ header).to_bytes(length, "big")
