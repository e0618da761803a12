"""`.safetensors`, single files and sharded folders, over the `safetensors` library.

The library checks the header; what it lacks is NumPy's missing bfloat16 (its bits are moved into float32
here, which is exact), the sharded layout, and messages that say what to do.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .arrays import check_writable, widened
from .errors import CheckpointError, PathLike, foreign, truncated
from .files import Form, Source, replaced

_INDEX_SUFFIX = ".safetensors.index.json"
_MAX_INDEX = 64 << 20
_MAX_HEADER = 100_000_000  # the format's own limit
_READABLE = frozenset(("BOOL", "I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "BF16", "F32", "F64"))


def read(path: PathLike) -> dict[str, np.ndarray]:
    """Reads all tensors of a file, an index (`*.safetensors.index.json`) or a folder that holds either.

    Returns:
        Arrays by name, in their stored dtype; bfloat16 as float32, its exact value.

    Raises:
        CheckpointError: truncated, damaged, another format, an index and shards that disagree, a shard
            outside the index's folder, a dtype that NumPy cannot hold.
        OSError: there is no such file, or it cannot be opened.
    """
    place = _locate(Path(path))
    return _read_sharded(place) if place.name.endswith(_INDEX_SUFFIX) else _read_one(place)


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
    """
    arrays = dict(arrays)  # a mapping may build its arrays anew at each look
    check_writable(arrays)
    plain = {name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    with replaced(path) as temporary:
        save_file(plain, temporary, metadata={"format": "np"} if metadata is None else dict(metadata))


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


def _read_one(path: Path) -> dict[str, np.ndarray]:
    with _opened(path) as file:
        dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}
        others = [f"{name} ({dtype})" for name, dtype in dtypes.items() if dtype not in _READABLE]
        if others:
            raise CheckpointError(
                f"{path} holds tensors of a dtype that NumPy has not: {', '.join(others)}. Expected whole "
                "numbers, float16, bfloat16, float32 or float64; convert it with the library that wrote it."
            )
        arrays = {name: file.get_tensor(name) for name, dtype in dtypes.items() if dtype != "BF16"}
    half = [name for name, dtype in dtypes.items() if dtype == "BF16"]
    if half:
        arrays.update(_read_bfloat16(path, half))
    return {name: arrays[name] for name in dtypes}


def _read_bfloat16(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        source = Source(file, path)
        entries, begin = _header(source)
        return {name: _bfloat16(source, begin, entries[name]) for name in names}


def _bfloat16(source: Source, begin: int, entry: dict[str, Any]) -> np.ndarray:
    start, end = entry["data_offsets"]
    source.position = source.file.seek(begin + start)
    bits = np.empty(end - start, np.uint8)
    source.skip(end - start, Form.BYTES).copy_to(bits)
    return widened(bits.view("<u2")).reshape(entry["shape"])


# Several files and their index


def _read_sharded(index: Path) -> dict[str, np.ndarray]:
    places = _weight_map(index)
    arrays: dict[str, np.ndarray] = {}
    for shard in sorted(set(places.values())):
        for name, array in _read_one(index.parent / shard).items():
            if places.get(name) != shard:
                raise CheckpointError(
                    f"{index} does not place {name!r} in {shard}, but that file holds it. "
                    "The index and the shards are not of one checkpoint: download the folder again."
                )
            arrays[name] = array
    absent = [f"{name} ({shard})" for name, shard in places.items() if name not in arrays]
    if absent:
        raise CheckpointError(
            f"{index} names tensors that its shards do not hold: {', '.join(absent)}. Download the folder again."
        )
    return {name: arrays[name] for name in places}


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
