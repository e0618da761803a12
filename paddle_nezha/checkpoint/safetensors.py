"""`.safetensors`, single files and sharded folders, over the `safetensors` library.

The library checks the header; what it lacks is NumPy's missing bfloat16 (its bits are moved into float32
here, which is exact), the sharded layout, and messages that say what to do.
"""

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .._files import replaced
from .arrays import check_writable, widened
from .errors import CheckpointError, PathLike, foreign, shown, truncated
from .files import Form, Source, Span, beside

_INDEX_SUFFIX = ".safetensors.index.json"
_MAX_INDEX = 64 << 20
_MOST_AXES = 32
_MAX_HEADER = 100_000_000  # the format's own limit
_OS_ERROR = re.compile(r"os error (\d+)")
# The format's dtypes that NumPy has, and bfloat16 as the float32 it is read as.
_DTYPES = {
    "BOOL": np.dtype("?"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "I16": np.dtype("i2"),
    "U16": np.dtype("u2"),
    "I32": np.dtype("i4"),
    "U32": np.dtype("u4"),
    "I64": np.dtype("i8"),
    "U64": np.dtype("u8"),
    "F16": np.dtype("f2"),
    "BF16": np.dtype("f4"),
    "F32": np.dtype("f4"),
    "F64": np.dtype("f8"),
}


def read(path: PathLike) -> dict[str, np.ndarray]:
    """All of `open_file`, read.

    Raises:
        As `open_file`.
    """
    with open_file(path) as stored:
        return {name: tensor.read() for name, tensor in stored.items()}


@contextmanager
def open_file(path: PathLike) -> Iterator[dict[str, "StoredTensor"]]:
    """The tensors of a file, an index (`*.safetensors.index.json`) or a folder that holds either.

    Yields:
        Tensors by name, to be read inside the block, of their stored dtype; bfloat16 as float32, its exact value.

    Raises:
        CheckpointError: truncated, damaged, another format, an index and shards that disagree, a shard
            outside the index's folder, a dtype that NumPy cannot hold.
        OSError: there is no such file, or it cannot be opened.
    """
    place = _locate(Path(path))
    with ExitStack() as stack:
        sharded = place.name.endswith(_INDEX_SUFFIX)
        yield _open_sharded(place, stack) if sharded else _open_one(place, stack)


def read_metadata(path: PathLike) -> dict[str, str]:
    """The texts in the header of one file (`format` above all); empty where it has none."""
    with _opened(Path(path)) as file:
        return dict(file.metadata() or {})


def write(path: PathLike, arrays: Mapping[str, np.ndarray], metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes one file.

    Args:
        path: replaced as a whole, once everything is on the disk.
        arrays: numbers or booleans of fixed size, any layout.
        metadata: texts for the header; {"format": "np"} when None, which PaddleNLP insists on. With one entry
            the bytes depend on the names and arrays alone; of several, the library chooses the order anew in
            every process.

    Raises:
        CheckpointError: an array of another dtype, or a name that is no string; nothing is written.
        OSError: what the system says, a full disk among it.
    """
    arrays = dict(arrays)  # a mapping may build its arrays anew at each look
    check_writable(arrays)
    plain = {name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    with replaced(path) as temporary:
        try:
            save_file(plain, temporary, metadata={"format": "np"} if metadata is None else dict(metadata))
        except SafetensorError as error:  # a full disk, say: the library has the system's number in its text alone
            number = _OS_ERROR.search(str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _locate(path: Path) -> Path:
    if not path.is_dir():
        return path
    single = path / "model.safetensors"
    indices = sorted(path.glob("*" + _INDEX_SUFFIX))
    if single.exists() and not indices:
        return single
    if len(indices) == 1 and not single.exists():
        return indices[0]
    names = ", ".join(sorted(entry.name for entry in path.iterdir())) or "nothing"
    raise CheckpointError(
        f"{path} should hold either model.safetensors or one *{_INDEX_SUFFIX}, but it holds {names}. "
        "Name the file to read."
    )


# One file


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        file = safe_open(os.fspath(path), framework="np")
    except SafetensorError as error:
        raise _unreadable(path, error) from None
    with file:
        yield file


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    """Why the library refused the file, told by its length and first bytes."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(32)
        file.seek(0)
        # The file begins with a small 64-bit number, whose first byte may be any letter.
        what = None if start[4:8] == bytes(4) else foreign(start)
        if what:
            return CheckpointError(f"{path} is no .safetensors file: it is {what}.")
        try:
            entries, begin = _header(Source(file, path))
            end = begin + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        except CheckpointError as early:
            return early
        except Exception:  # whatever else is wrong with the header, the library has said it
            end = size
    if end > size:
        return truncated(path, size, f"{end} bytes")
    return CheckpointError(f"{path} is corrupt: {error}. Download or copy it again.")


def _header(source: Source) -> tuple[dict[str, Any], int]:
    """The entries of the header by tensor name, and the byte at which the tensors begin."""
    (length,) = struct.unpack("<Q", source.take(8))
    if length > _MAX_HEADER:
        raise CheckpointError(
            f"{source.path} is no .safetensors file: expected a header of at most {_MAX_HEADER} bytes, but "
            f"its first 8 bytes announce {length}."
        )
    entries = json.loads(source.take(length))
    entries.pop("__metadata__", None)
    return entries, source.position


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of an open file, read from its place: the library maps whole files into memory."""

    shape: tuple[int, ...]
    dtype: np.dtype
    stored: str  # the format's name of the dtype
    _source: Source
    _offset: int
    _length: int

    @property
    def in_rows(self) -> bool:
        """Whether `read_rows` can be asked."""
        return len(self.shape) > 1

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows from `start` to before `stop`, as `read` gives them."""
        row = self._length // self.shape[0]
        return self._read(start * row, (stop - start) * row).reshape(stop - start, *self.shape[1:])

    def read(self) -> np.ndarray:
        """The numbers: an array of its own."""
        return self._read(0, self._length).reshape(self.shape)

    def _read(self, start: int, length: int) -> np.ndarray:
        content = np.empty(length, np.uint8)
        Span(self._source, self._offset + start, length, Form.BYTES).copy_to(content)
        if self.stored == "BF16":
            return widened(content.view("<u2"))
        return content.view(self.dtype.newbyteorder("<")).astype(self.dtype, copy=False)


def _open_one(path: Path, stack: ExitStack) -> dict[str, StoredTensor]:
    with _opened(path) as file:  # checks the header
        deep = [name for name in file.keys() if len(file.get_slice(name).get_shape()) > _MOST_AXES]
        if deep:
            raise CheckpointError(
                f"{path} was refused: {shown(deep[0])} has more than {_MOST_AXES} axes, and no parameter has."
            )
        dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}
    others = [f"{name} ({dtype})" for name, dtype in dtypes.items() if dtype not in _DTYPES]
    if others:
        raise CheckpointError(
            f"{path} holds tensors of a dtype that NumPy has not: {', '.join(others)}. Expected whole "
            "numbers, float16, bfloat16, float32 or float64; convert it with the library that wrote it."
        )
    source = Source(stack.enter_context(open(path, "rb")), path)
    entries, begin = _header(source)
    tensors = {}
    for name, dtype in dtypes.items():
        start, end = entries[name]["data_offsets"]
        shape = tuple(entries[name]["shape"])
        tensors[name] = StoredTensor(shape, _DTYPES[dtype], dtype, source, begin + start, end - start)
    return tensors


# Several files and their index


def _open_sharded(index: Path, stack: ExitStack) -> dict[str, StoredTensor]:
    places = _weight_map(index)
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(places.values())):
        for name, tensor in _open_one(beside(index, shard), stack).items():
            if places.get(name) != shard:
                raise CheckpointError(
                    f"{index} does not place {name!r} in {shard}, but that file holds it. "
                    "The index and the shards are not of one checkpoint: download the folder again."
                )
            tensors[name] = tensor
    absent = [f"{name} ({shard})" for name, shard in places.items() if name not in tensors]
    if absent:
        raise CheckpointError(
            f"{index} names tensors that its shards do not hold: {', '.join(absent)}. Download the folder again."
        )
    return {name: tensors[name] for name in places}


def _weight_map(index: Path) -> dict[str, str]:
    size = index.stat().st_size
    if size > _MAX_INDEX:
        raise CheckpointError(f"{index} holds {size} bytes, but an index takes at most {_MAX_INDEX}.")
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = set(places.values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(
            f'{index} is no index of shards: expected JSON of the form {{"weight_map": {{tensor: file}}}}. '
            "Download it again."
        ) from None
    outside = [shard for shard in shards if not _is_plain_name(shard)]
    if outside:
        raise CheckpointError(
            f"{index} was refused: it points outside its folder, to "
            f"{', '.join(sorted(map(ascii, outside)))}. Shards lie beside their index and are named without "
            "a path."
        )
    return places


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\:\0")
