"""A small machine for pickles that nobody vouches for.

Python's unpickler imports what the file names and calls it; a subclass that forbids names still allocates
what the file asks for. This machine does neither. It knows the opcodes that state dicts are made of
(protocols 2 to 5 without their rarer instructions), turns an allowed global into a builder of ours, and
refuses everything else by name. Long strings are skipped, not read: an array's bytes stay in the file until
the whole pickle has been found acceptable.

What a global builds is the caller's table, so one machine serves every format that is made of pickles.
"""

import pickle as op  # only for the names of the opcodes; nothing here unpickles
import pickletools
import struct
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from .errors import CheckpointError
from .files import Form, Source

# A state dict of 400 tensors takes about 20,000 instructions, 6,000 memo entries, 2,000 places on the stack,
# 4 marks.
MAX_INSTRUCTIONS = 200_000
MAX_MEMO = 50_000
MAX_STACK = 10_000
MAX_MARKS = 100
MAX_NAME = 256
MAX_INLINE = 4096  # longer strings are left in the file

Builder = Callable[[tuple], Any]


class Refused(Exception):
    """Raised by a builder (or a `Stateful`) that does not accept what the file gives it."""


class Stateful:
    """What the BUILD opcode may work on: an object of ours that checks its state itself."""

    def set_state(self, state: Any) -> None:
        raise NotImplementedError


class Global(NamedTuple):
    """An allowed name on the stack. It can be handed to a builder; it is called only if it has one itself."""

    name: str
    build: Optional[Builder]


# (module, name) -> builder, or None for a name that is only handed on
AllowList = Mapping[tuple[str, str], Optional[Builder]]


def load(source: Source, allowed: AllowList, persistent: Optional[Builder] = None) -> Any:
    """Runs one pickle from the source's position and gives the object it describes.

    Args:
        source: an open file, at the first byte of the pickle; afterwards at the byte behind it.
        allowed: what each global builds; everything else is refused.
        persistent: what a persistent id (a tuple) builds; None refuses them.

    Returns:
        Dicts, lists, tuples, strings, numbers, `files.Span` for strings beyond 4096 bytes, and what builders
        made.

    Raises:
        CheckpointError: the pickle is truncated, damaged, or asks for something that is not allowed.
    """
    machine = _Machine(source, allowed, persistent)
    try:
        return machine.run()
    except Refused as refusal:
        raise CheckpointError(
            f"{source.path} was refused at byte {machine.start}: {refusal}. Nothing in it was run. Expected "
            "a plain state dict of arrays; if you trust where it comes from, load it there and save its "
            "state_dict() again."
        ) from None


class _Machine:
    def __init__(self, source: Source, allowed: AllowList, persistent: Optional[Builder]) -> None:
        self.source = source
        self.allowed = allowed
        self.persistent = persistent
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # one stack for each open mark
        self.height = 0  # of all stacks below the open one
        self.memo: dict[int, Any] = {}
        self.frame_end = 0
        self.start = source.position  # of the instruction being run

    def run(self) -> Any:
        for _ in range(MAX_INSTRUCTIONS):
            self.start = self.source.position
            code = self.source.take(1)
            if code == op.STOP:
                return self.result()
            step = _STEPS.get(code)
            if step is None:
                raise Refused(f"the pickle instruction {_name(code)} is not one that state dicts are made of")
            step(self)
            if self.start < self.frame_end < self.source.position:
                raise Refused("an instruction crosses the end of its frame")
        raise Refused(f"more than {MAX_INSTRUCTIONS} pickle instructions")

    def result(self) -> Any:
        if self.below or len(self.stack) != 1:
            raise Refused("the pickle ends with something other than one object")
        if self.source.position < self.frame_end:
            raise Refused("the pickle ends inside a frame")
        return self.stack[0]

    # Reading

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.source.take(struct.calcsize(form)))[0]

    def long(self) -> int:
        return int.from_bytes(self.source.take(self.number("<B")), "little", signed=True)

    def string(self, length_form: str, encoding: Optional[str] = None) -> None:
        """Pushes bytes, or text when there is an encoding; a long one as a Span."""
        length = self.number(length_form)
        if length < 0:
            raise Refused(f"a string of negative length {length}")
        if length > MAX_INLINE:
            form = Form.TEXT if encoding == "utf-8" else Form.BYTES
            self.push(self.source.skip(length, form))
        else:
            content = self.source.take(length)
            self.push(_decoded(content, encoding) if encoding else content)

    def line(self) -> str:
        text = self.source.line(MAX_NAME)
        if len(text) > MAX_NAME:
            raise Refused(f"a name longer than {MAX_NAME} bytes")
        return _decoded(text, "utf-8")

    # The stack

    def push(self, value: Any) -> None:
        if self.height + len(self.stack) >= MAX_STACK:
            raise Refused(f"more than {MAX_STACK} objects on the stack")
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise Refused("an instruction finds the stack empty")
        return self.stack.pop()

    def top(self, kind: type, doing: str) -> Any:
        value = self.stack[-1] if self.stack else None
        if not isinstance(value, kind):
            raise Refused(f"{doing} works on {_kind(value)}")
        return value

    def mark(self) -> None:
        if len(self.below) >= MAX_MARKS:
            raise Refused(f"more than {MAX_MARKS} nested marks")
        self.height += len(self.stack)
        self.below.append(self.stack)
        self.stack = []

    def items(self) -> list[Any]:
        """Everything above the last mark, which is taken away."""
        if not self.below:
            raise Refused("an instruction finds no mark on the stack")
        items, self.stack = self.stack, self.below.pop()
        self.height -= len(self.stack)
        return items

    def tuple_of(self, length: int) -> None:
        values = [self.pop() for _ in range(length)]
        self.push(tuple(reversed(values)))

    def remember(self, index: int) -> None:
        if len(self.memo) >= MAX_MEMO:
            raise Refused(f"more than {MAX_MEMO} objects in the memo")
        if not self.stack:
            raise Refused("an instruction finds the stack empty")
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise Refused(f"the memo holds no object {index}")
        self.push(self.memo[index])

    # Containers and objects

    def append(self, values: list[Any]) -> None:
        self.top(list, "APPEND").extend(values)

    def set_items(self, flat: list[Any]) -> None:
        if len(flat) % 2:
            raise Refused("a dict with a key that has no value")
        target = self.top(dict, "SETITEM")
        for key, value in zip(flat[::2], flat[1::2]):
            # The hash of a larger integer can be chosen, and a dict of equal hashes takes quadratic time.
            if not (type(key) is str or (type(key) is int and key.bit_length() < 61)):
                raise Refused(f"a dict key that is {_kind(key)}")
            if key in target:
                raise Refused(f"a dict that names {_shown(str(key))} twice")
            target[key] = value

    def find(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise Refused("a global whose name is no short string")
        if (module, name) not in self.allowed:
            raise Refused(f"it asks for {_shown(f'{module}.{name}')}, which no state dict needs")
        self.push(Global(f"{module}.{name}", self.allowed[module, name]))

    def reduce(self) -> None:
        arguments, callee = self.pop(), self.pop()
        if type(callee) is not Global or callee.build is None:
            raise Refused(f"it calls {callee.name if type(callee) is Global else _kind(callee)}")
        if type(arguments) is not tuple:
            raise Refused(f"it calls {callee.name} with {_kind(arguments)} in place of arguments")
        self.push(callee.build(arguments))

    def build(self) -> None:
        state = self.pop()
        self.top(Stateful, "BUILD").set_state(state)

    def persistent_id(self) -> None:
        if self.persistent is None:
            raise Refused("the pickle instruction BINPERSID asks for an object outside the file")
        identity = self.pop()
        if type(identity) is not tuple:
            raise Refused(f"a persistent id that is {_kind(identity)}")
        self.push(self.persistent(identity))

    # Structure

    def protocol(self) -> None:
        version = self.number("<B")
        if version > 5:
            raise Refused(f"pickle protocol {version} is unknown")

    def frame(self) -> None:
        length = self.number("<Q")
        if self.start < self.frame_end:
            raise Refused("a frame inside a frame")
        self.source.require(length)
        self.frame_end = self.source.position + length


def _decoded(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise Refused("text that is no valid UTF-8") from None


def _shown(text: str) -> str:
    """Text of the file that is safe in a terminal and in a log line."""
    return ascii(text[:200])[1:-1]


def _name(code: bytes) -> str:
    names = {known.code: known.name for known in pickletools.opcodes}
    return f"{names.get(code.decode('latin-1'), 'unknown')} (0x{code.hex()})"


def _kind(value: Any) -> str:
    if type(value) is Global:
        return f"the name {value.name}"
    return "nothing" if value is None else f"a {type(value).__name__}"


_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    op.PROTO: _Machine.protocol,
    op.FRAME: _Machine.frame,
    op.MARK: _Machine.mark,
    op.NONE: lambda m: m.push(None),
    op.NEWTRUE: lambda m: m.push(True),
    op.NEWFALSE: lambda m: m.push(False),
    op.BININT: lambda m: m.push(m.number("<i")),
    op.BININT1: lambda m: m.push(m.number("<B")),
    op.BININT2: lambda m: m.push(m.number("<H")),
    op.LONG1: lambda m: m.push(m.long()),
    op.BINFLOAT: lambda m: m.push(m.number(">d")),
    # Python 2 strings: Paddle 2.0 ran there
    op.SHORT_BINSTRING: lambda m: m.string("<B", "latin-1"),
    op.BINSTRING: lambda m: m.string("<i", "latin-1"),
    op.SHORT_BINBYTES: lambda m: m.string("<B"),
    op.BINBYTES: lambda m: m.string("<I"),
    op.BINBYTES8: lambda m: m.string("<Q"),
    op.SHORT_BINUNICODE: lambda m: m.string("<B", "utf-8"),
    op.BINUNICODE: lambda m: m.string("<I", "utf-8"),
    op.BINUNICODE8: lambda m: m.string("<Q", "utf-8"),
    op.EMPTY_TUPLE: lambda m: m.push(()),
    op.TUPLE1: lambda m: m.tuple_of(1),
    op.TUPLE2: lambda m: m.tuple_of(2),
    op.TUPLE3: lambda m: m.tuple_of(3),
    op.TUPLE: lambda m: m.push(tuple(m.items())),
    op.EMPTY_LIST: lambda m: m.push([]),
    op.APPEND: lambda m: m.append([m.pop()]),
    op.APPENDS: lambda m: m.append(m.items()),
    op.EMPTY_DICT: lambda m: m.push({}),
    op.SETITEM: lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    op.SETITEMS: lambda m: m.set_items(m.items()),
    op.BINPUT: lambda m: m.remember(m.number("<B")),
    op.LONG_BINPUT: lambda m: m.remember(m.number("<I")),
    op.MEMOIZE: lambda m: m.remember(len(m.memo)),
    op.BINGET: lambda m: m.recall(m.number("<B")),
    op.LONG_BINGET: lambda m: m.recall(m.number("<I")),
    op.GLOBAL: lambda m: m.find(m.line(), m.line()),
    op.STACK_GLOBAL: lambda m: m.find(*[m.pop(), m.pop()][::-1]),
    op.REDUCE: _Machine.reduce,
    op.BUILD: _Machine.build,
    op.BINPERSID: _Machine.persistent_id,
}
