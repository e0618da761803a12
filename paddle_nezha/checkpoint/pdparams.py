"""`.pdparams`, the files of `paddle.save`: a pickle of one flat dict of arrays.

Every Paddle since 2.0 writes NumPy arrays under their names, or (parameter name, array) pairs when the dict
held bare Tensors, and beside them a table `StructuredToParameterName@@` that says nothing about values.
bfloat16 has no NumPy dtype, so Paddle stores its bits as uint16 and leaves no mark: only the parameter's
meaning tells. `read` gives uint16 as it stands, and `reconcile`, which knows that no parameter of this model
is an integer, widens it to float32.
"""

import pickle as op  # only for the names of the opcodes; nothing here pickles or unpickles
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from .._files import replaced
from . import pickles
from .arrays import NUMPY, StoredArray, check_writable
from .errors import CheckpointError, PathLike, foreign, truncated
from .files import Source
from .opcodes import named, size, text

_NAME_TABLE = "StructuredToParameterName@@"
_SHOWN = 20  # offenders named in a message about a file that is no state dict


def _pair(arguments: tuple) -> tuple:
    """`tuple((name, array))`: how a Tensor outside a state dict is saved."""
    if len(arguments) != 1 or type(arguments[0]) is not tuple:
        raise pickles.Refused("builtins.tuple of something other than a (name, array) pair")
    return arguments[0]


def _empty_dict(arguments: tuple) -> dict:
    if arguments:
        raise pickles.Refused("collections.OrderedDict with arguments")
    return {}


_ALLOWED: pickles.AllowList = {
    **NUMPY,
    ("collections", "OrderedDict"): _empty_dict,
    ("builtins", "tuple"): _pair,
    ("__builtin__", "tuple"): _pair,  # its name in protocol 2
}


def read(path: PathLike) -> dict[str, np.ndarray]:
    """All of `open_file`, read: each array is copied once, and one stored under two names is one array.

    Raises:
        As `open_file`.
    """
    with open_file(path) as stored:
        once = {id(part): part for part in stored.values()}
        read_once = {key: part.read() for key, part in once.items()}
        return {name: read_once[id(part)] for name, part in stored.items()}


@contextmanager
def open_file(path: PathLike) -> Iterator[dict[str, StoredArray]]:
    """A state dict, understood without running anything in it, its arrays still in the file.

    Args:
        path: a file that `paddle.save` wrote (protocol 2, 3 or 4) from a state dict, a dict of Tensors or of
            arrays, or one Tensor.

    Yields:
        Arrays by name, in the file's order, each of its stored dtype (bfloat16 as uint16, see above), to be read inside
        the block.

    Raises:
        CheckpointError: truncated, damaged, another format, a name that only code would need, or not a flat
            dict of arrays.
        OSError: there is no such file, or it cannot be opened.
    """
    with open(path, "rb") as file:
        source = Source(file, path)
        _check_start(source)
        stored = _state_dict(pickles.load(source, _ALLOWED), source)
        _check_size(stored, source)
        yield stored


def _check_start(source: Source) -> None:
    start = source.file.read(32)
    source.file.seek(0)
    if not start:
        raise truncated(source.path, 0, "a pickle")
    if start[:1] != op.PROTO:
        raise CheckpointError(
            f"{source.path} is no .pdparams file: expected a pickle of protocol 2 to 4, but it is "
            f"{foreign(start) or 'of another kind'} (first bytes {start[:8]!r})."
        )


def _state_dict(value: Any, source: Source) -> dict[str, StoredArray]:
    if source.position != source.size:
        raise CheckpointError(
            f"{source.path} is corrupt: the pickle ends at byte {source.position}, but the file holds "
            f"{source.size} bytes. Download or copy it again."
        )
    if _is_pair(value):
        value = dict([value])
    if type(value) is not dict:
        raise CheckpointError(
            f"{source.path} holds a {type(value).__name__}, but expected a dict of arrays by name. Save it "
            "again with paddle.save(model.state_dict(), path)."
        )
    value.pop(_NAME_TABLE, None)
    stored = {name: part[1] if _is_pair(part) else part for name, part in value.items()}
    others = [name for name, part in stored.items() if type(name) is not str or not _is_array(part)]
    if others:
        listed = ", ".join(f"{name!a} (a {type(stored[name]).__name__})" for name in others[:_SHOWN])
        raise CheckpointError(
            f"{source.path} should hold arrays by name and nothing else, but also holds {listed}. If the "
            "state dict is inside, save that part alone: paddle.save(model.state_dict(), path)."
        )
    return stored


def _is_array(value: Any) -> bool:
    return type(value) is StoredArray and value.complete


def _is_pair(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and type(value[0]) is str and _is_array(value[1])


def _check_size(stored: dict[str, StoredArray], source: Source) -> None:
    claimed = sum({id(part): part.nbytes for part in stored.values()}.values())
    if claimed > source.size:  # many arrays over the same bytes
        raise CheckpointError(
            f"{source.path} was refused: its arrays claim {claimed} bytes, but the file holds {source.size}. "
            "No honest writer stores arrays that share their bytes."
        )


def write(path: PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a `.pdparams` file that `paddle.load` and PaddleNLP open on every Paddle since 2.0.

    The bytes depend on the names, their order and the arrays alone, not on the versions of Python or NumPy:
    NumPy 2 would name its own new module, which NumPy before 1.26 does not have. One array given under
    several names (a tied weight) is stored once.

    Args:
        path: replaced as a whole, once everything is on the disk.
        arrays: numbers or booleans of fixed size, any layout.

    Raises:
        CheckpointError: an array of another dtype, or a name that is no string; nothing is written.
    """
    arrays = dict(arrays)  # a mapping may build its arrays anew at each look, and identity counts below
    check_writable(arrays)
    with replaced(path) as temporary, open(temporary, "wb") as file:
        file.write(op.PROTO + b"\x04" + op.EMPTY_DICT)
        places: dict[int, int] = {}
        for name, array in arrays.items():
            file.write(text(name))
            if id(array) in places:
                file.write(op.LONG_BINGET + struct.pack("<I", places[id(array)]))
            else:
                places[id(array)] = len(places)
                _write_array(file, array, places[id(array)])
            file.write(op.SETITEM)
        file.write(op.STOP)


def _write_array(file: BinaryIO, array: np.ndarray, place: int) -> None:
    flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
    file.write(named("numpy.core.multiarray", "_reconstruct") + named("numpy", "ndarray"))
    file.write(size(0) + op.TUPLE1 + op.SHORT_BINBYTES + b"\x01b" + op.TUPLE3 + op.REDUCE)
    file.write(op.LONG_BINPUT + struct.pack("<I", place))
    file.write(op.MARK + size(1) + op.MARK + b"".join(map(size, array.shape)) + op.TUPLE)
    file.write(_dtype(flat.dtype) + op.NEWFALSE)
    file.write(op.BINBYTES8 + struct.pack("<Q", flat.nbytes))
    file.write(flat.view(np.uint8).data)
    file.write(op.TUPLE + op.BUILD)


def _dtype(dtype: np.dtype) -> bytes:
    order, code = dtype.str[0], dtype.str[1:]
    described = size(3) + text(order) + op.NONE * 3 + size(-1) * 2 + size(0)
    announced = named("numpy", "dtype") + text(code) + op.NEWFALSE + op.NEWTRUE + op.TUPLE3 + op.REDUCE
    return announced + op.MARK + described + op.TUPLE + op.BUILD
