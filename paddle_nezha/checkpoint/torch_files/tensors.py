"""What the names in torch's pickles build: tensors known by shape and dtype, their numbers still in the file.

A pickle of torch.save holds no numbers. It names storages by persistent id, ("storage", class, key, location,
length), and tensors as windows into them: an offset, sizes and strides, all counted in elements. Where a
storage lies is the business of the two file formats, `archive` and `legacy`.
"""

import math
from typing import Any, Literal, NamedTuple, Optional, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import pickles
from ..arrays import widened
from ..errors import CheckpointError
from ..files import Form, Source, Span
from ..pickles import Global, Refused, Stateful

_MAX_AXES = 32
_MAX_SIZE = 2**48  # elements; more than any file holds, and small enough for every product below

_BFLOAT16 = "bfloat16"  # NumPy has none: its bits are read as u2 and widened
_DTYPES = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "bfloat16": _BFLOAT16,
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint64": "u8",
    "uint32": "u4",
    "uint16": "u2",
    "uint8": "u1",
    "bool": "b1",
}
_STORAGES = {
    "torch.DoubleStorage": "f8",
    "torch.FloatStorage": "f4",
    "torch.HalfStorage": "f2",
    "torch.BFloat16Storage": _BFLOAT16,
    "torch.LongStorage": "i8",
    "torch.IntStorage": "i4",
    "torch.ShortStorage": "i2",
    "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1",
    "torch.BoolStorage": "b1",
    "torch.storage.UntypedStorage": "u1",
}


class Place(Protocol):
    """Where the bytes of one storage lie."""

    @property
    def nbytes(self) -> int: ...

    def cost(self, length: int) -> int:
        """How many bytes have to be gone through to get `length` of them."""
        ...

    def copy_to(self, target: np.ndarray, start: int) -> None:
        """Fills a flat uint8 array with the bytes from `start` on, which are all there."""
        ...


class Region(NamedTuple):
    """Bytes that lie in the file as they are."""

    source: Source
    offset: int
    nbytes: int

    def cost(self, length: int) -> int:
        return length

    def copy_to(self, target: np.ndarray, start: int) -> None:
        Span(self.source, self.offset + start, target.size, Form.BYTES).copy_to(target)


class Storage:
    """Numbers of one kind in a row. The pickle announces them; the file's format finds their place."""

    def __init__(self, code: str, length: int) -> None:
        self.code = code
        self.length = length
        self.nbytes = length * _numpy(code).itemsize
        self.order: Literal["<", ">"] = "<"
        self.place: Optional[Place] = None


class Window(NamedTuple):
    """A storage, or a part of one (files of the first torch releases name such parts)."""

    storage: Storage
    start: int
    length: int


class StoredTensor:
    """A tensor left in its file: `shape` and `dtype` are known, `read` copies what it needs of its storage.

    `dtype` is what `read` gives; bfloat16 is given as float32, its exact value. The file has to stay open
    until then. Names that share one tensor share one object.
    """

    def __init__(self, window: Window, code: str, offset: int, shape: tuple, strides: tuple) -> None:
        stored = _numpy(code)
        self.shape: tuple[int, ...] = shape
        self.dtype = np.dtype(np.float32) if code == _BFLOAT16 else stored
        self.storage = window.storage
        self._stored = stored
        self._bfloat16 = code == _BFLOAT16
        self._strides = tuple(stride * stored.itemsize for stride in strides)
        reach = sum((size - 1) * stride for size, stride in zip(shape, strides)) + 1
        self._span = 0 if 0 in shape else reach * stored.itemsize  # bytes from its first number to its last
        begin = window.start * _numpy(window.storage.code).itemsize
        self._start = begin + offset * stored.itemsize
        end = begin + window.length * _numpy(window.storage.code).itemsize
        if self._span and self._start + self._span > end:
            raise Refused(
                f"a tensor of shape {list(shape)} needs {self._start + self._span - begin} bytes of a storage of "
                f"{end - begin}"
            )

    def cost(self) -> int:
        """Bytes that reading it takes: those of the result in its stored dtype, or more where it is a view."""
        assert self.storage.place is not None  # set before any tensor leaves this package
        return max(math.prod(self.shape) * self._stored.itemsize, self.storage.place.cost(self._span))

    def read(self) -> np.ndarray:
        """The array itself: C order, native byte order, writable, its memory its own."""
        assert self.storage.place is not None
        flat = np.empty(self._span, np.uint8)
        if self._span:
            self.storage.place.copy_to(flat, self._start)
        view = as_strided(flat.view(self._stored.newbyteorder(self.storage.order)), self.shape, self._strides)
        array = np.asarray(view, dtype=self._stored, order="C")
        return widened(array.reshape(-1)).reshape(self.shape) if self._bfloat16 else array


class StateDict(dict, Stateful):
    """An OrderedDict. Its attributes (torch keeps the versions of modules there) are not kept."""

    def set_state(self, state: Any) -> None:
        pass


class Reader:
    """Builds what one pickle of torch.save describes; `storages` then holds what it named."""

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}
        self._tensors: dict[str, StoredTensor] = {}
        self._allowed: pickles.AllowList = {
            ("collections", "OrderedDict"): _ordered_dict,
            ("torch", "Size"): _size,
            ("torch._utils", "_rebuild_tensor"): self._tensor_v1,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor_v2,
            ("torch._utils", "_rebuild_tensor_v3"): self._tensor_v3,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
            **{("torch", name): None for name in _DTYPES},
            **{(module, name): None for module, _, name in (path.rpartition(".") for path in _STORAGES)},
        }

    def load(self, source: Source) -> Any:
        """Runs the pickle at the source's position."""
        return pickles.load(source, self._allowed, self._storage)

    def _storage(self, identity: tuple) -> Window:
        if identity[:1] == ("module",):
            raise Refused("it holds a whole model, whose class is code")
        if len(identity) not in (5, 6) or identity[0] != "storage":
            raise Refused("a persistent id that is no storage")
        kind, key, _, length = identity[1:5]
        if type(kind) is not Global or kind.name not in _STORAGES:
            raise Refused(f"a storage that is {kind.name if type(kind) is Global else f'a {type(kind).__name__}'}")
        if type(key) is not str or not _is_size(length):
            raise Refused("a storage whose key or length is none")
        code = _STORAGES[kind.name]
        storage = self.storages.setdefault(key, Storage(code, length))
        if (storage.code, storage.length) != (code, length):
            raise Refused(f"a storage {key!a} that is described in two ways")
        return self._part(storage, identity[5] if len(identity) == 6 else None)

    def _part(self, storage: Storage, view: Any) -> Window:
        if view is None:
            return Window(storage, 0, storage.length)
        if type(view) is not tuple or len(view) != 3 or not (_is_size(view[1]) and _is_size(view[2])):
            raise Refused("a part of a storage that is not (key, offset, length)")
        if view[1] + view[2] > storage.length:
            raise Refused(f"a part of a storage of {storage.length} that ends at {view[1] + view[2]}")
        return Window(storage, view[1], view[2])

    def _tensor_v1(self, arguments: tuple) -> StoredTensor:
        if len(arguments) != 4:
            raise Refused("a tensor that is not (storage, offset, size, stride)")
        return self._tensor(arguments)

    def _tensor_v2(self, arguments: tuple) -> StoredTensor:
        if len(arguments) not in (6, 7):
            raise Refused("a tensor that is not (storage, offset, size, stride, requires_grad, hooks)")
        _check_plain(arguments[6:])
        return self._tensor(arguments[:4])

    def _tensor_v3(self, arguments: tuple) -> StoredTensor:
        if len(arguments) not in (7, 8):
            raise Refused("a tensor that is not (storage, offset, size, stride, requires_grad, hooks, dtype)")
        _check_plain(arguments[7:])
        name = arguments[6].name.rpartition(".")[2] if type(arguments[6]) is Global else None
        if name not in _DTYPES:
            raise Refused("a tensor without a dtype")
        return self._tensor(arguments[:4], _DTYPES[name])

    def _tensor(self, described: tuple, code: Optional[str] = None) -> StoredTensor:
        window, offset, shape, strides = described
        if type(window) is not Window:
            raise Refused(f"a tensor whose storage is a {type(window).__name__}")
        if not (_is_size(offset) and _are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides)):
            raise Refused(f"a tensor whose offset, shape and strides are not at most {_MAX_AXES} sizes each")
        # An axis of size 0 hides the others from the count of bytes.
        if math.prod(max(size, 1) for size in shape) >= _MAX_SIZE:
            raise Refused("a tensor whose shape is too large for any file")
        code = code or window.storage.code
        tensor = StoredTensor(window, code, offset, shape, strides)
        # The key is text, because the hashes of numbers can be chosen.
        return self._tensors.setdefault(f"{id(window.storage)} {window[1:]} {code} {offset} {shape} {strides}", tensor)


def corrupt(source: Source, why: str) -> CheckpointError:
    return CheckpointError(f"{source.path} is corrupt or truncated: {why}. Download or copy the file again.")


def _numpy(code: str) -> np.dtype:
    return np.dtype("u2" if code == _BFLOAT16 else code)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_SIZE


def _are_sizes(values: Any) -> bool:
    return type(values) is tuple and len(values) <= _MAX_AXES and all(map(_is_size, values))


def _check_plain(metadata: tuple) -> None:
    """The optional last argument of a tensor says that its numbers are to be negated or conjugated."""
    if any(metadata):
        raise Refused("a tensor that is a negated or conjugated view; save its .resolve_neg()")


def _parameter(arguments: tuple) -> StoredTensor:
    if len(arguments) not in (3, 4) or type(arguments[0]) is not StoredTensor:
        raise Refused("a Parameter that is not (tensor, requires_grad, hooks)")
    return arguments[0]


def _size(arguments: tuple) -> tuple:
    if len(arguments) != 1 or type(arguments[0]) is not tuple:
        raise Refused("torch.Size of something other than a tuple")
    return arguments[0]


def _ordered_dict(arguments: tuple) -> StateDict:
    """`OrderedDict()`, or `OrderedDict([[key, value], ...])`, which is how Python 2 spelt it."""
    if not arguments:
        return StateDict()
    pairs = arguments[0]
    if len(arguments) != 1 or type(pairs) is not list or not all(map(_is_pair, pairs)):
        raise Refused("collections.OrderedDict of something other than [name, value] pairs")
    made = StateDict(pairs)
    if len(made) != len(pairs):
        raise Refused("an OrderedDict that names a key twice")
    return made


def _is_pair(value: Any) -> bool:
    return type(value) in (list, tuple) and len(value) == 2 and type(value[0]) is str
