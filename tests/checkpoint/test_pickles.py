"""Hostile pickles: each is refused by the name of what it asks for, nothing runs, little memory is spent."""

import os
import pickle
import pickle as op
import struct
import tracemalloc
from functools import partial

import numpy as np
import pytest

from paddle_nezha.checkpoint import CheckpointError, pdparams, pickles
from paddle_nezha.checkpoint.files import Source

START = op.PROTO + b"\x04"
# What the machine itself may take (stack, memo, messages, the opened file): measured 0.2 MB for files of a
# few hundred bytes, 10 MB at its own limits of instructions and memo. The lengths in the files ask for up to
# 4 EiB.
SMALL, AT_THE_LIMITS = 1 << 20, 16 << 20


def text(value):
    encoded = value.encode()
    return op.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def name(module, attribute):
    return op.GLOBAL + f"{module}\n{attribute}\n".encode()


def stacked(module, attribute):
    return text(module) + text(attribute) + op.STACK_GLOBAL


def integer(value):
    return op.BININT + struct.pack("<i", value)


def call(callee, *arguments):
    return callee + op.MARK + b"".join(arguments) + op.TUPLE + op.REDUCE


def dtype(code, order="<", fields=op.NONE, names=op.NONE, subarray=op.NONE):
    made = call(name("numpy", "dtype"), text(code), op.NEWFALSE, op.NEWTRUE)
    state = integer(3) + text(order) + subarray + names + fields + integer(-1) * 2 + integer(0)
    return made + op.MARK + state + op.TUPLE + op.BUILD


ONE = integer(1)


def announced(kind=None):
    kind = kind or name("numpy", "ndarray")
    return call(name("numpy.core.multiarray", "_reconstruct"), kind, integer(0) + op.TUPLE1, b"C\x01b")


def array(shape=ONE, kind=None, data=b"C\x04abcd", order=op.NEWFALSE):
    described = integer(1) + op.MARK + shape + op.TUPLE + (kind or dtype("f4")) + order + data
    return announced() + op.MARK + described + op.TUPLE + op.BUILD


def saved(value):
    return START + op.EMPTY_DICT + text("weight") + value + op.SETITEM + op.STOP


class Runs:
    """Pickles into a call that leaves a file behind."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


MARK_IT = "touch MARKER"
SYSTEM = [text(MARK_IT)]
CALLED = call(name("os", "system"), *SYSTEM)

# 61 arrays over the same 9,000 bytes
SHARED = text("0") + array(integer(2250), data=op.BINBYTES + struct.pack("<I", 9000) + bytes(9000) + b"q\x07")
SHARED += op.SETITEM + b"".join(
    text(str(number)) + array(integer(2250), data=b"h\x07") + op.SETITEM for number in range(1, 61)
)

HOSTILE = {
    # Code by name
    "reduce": (saved(CALLED), "os.system"),
    "reduce, stack global": (saved(call(stacked("os", "system"), *SYSTEM)), "os.system"),
    "reduce, pickled by Python, protocol 2": (pickle.dumps({"w": Runs(MARK_IT)}, 2), f"{os.name}.system"),
    "reduce, pickled by Python, protocol 4": (pickle.dumps({"w": Runs(MARK_IT)}, 4), f"{os.name}.system"),
    "as a dict key": (START + op.EMPTY_DICT + CALLED + op.NONE + op.SETITEM + op.STOP, "os.system"),
    "eval": (saved(call(name("builtins", "eval"), text("1"))), "builtins.eval"),
    "eval of Python 2": (saved(call(name("__builtin__", "eval"), text("1"))), "__builtin__.eval"),
    "exec": (saved(call(name("builtins", "exec"), text("1"))), "builtins.exec"),
    "getattr": (saved(call(name("builtins", "getattr"), text("a"), text("b"))), "builtins.getattr"),
    "import": (saved(call(name("importlib", "import_module"), text("os"))), "importlib.import_module"),
    "Popen": (saved(call(name("subprocess", "Popen"), *SYSTEM)), "subprocess.Popen"),
    "partial": (saved(pickle.dumps(partial(os.system, MARK_IT), 2)[2:-1]), "functools.partial"),
    "loads": (saved(call(name("pickle", "loads"), b"C\x01.")), "pickle.loads"),
    "paddle.load": (saved(call(name("paddle", "load"), text("x"))), "paddle.load"),
    "dotted name": (saved(call(stacked("numpy", "ndarray.__class__"), *SYSTEM)), "numpy.ndarray.__class__"),
    "dotted name behind codecs": (saved(stacked("_codecs", "encode.__globals__")), "encode.__globals__"),
    "name with a space": (saved(name("numpy.core.multiarray ", "_reconstruct")), "multiarray ._reconstruct"),
    "name that prints": (saved(stacked("os\x1b[2J", "system")), r"os\x1b[2J.system"),
    "computed name": (saved(op.NONE + text("system") + op.STACK_GLOBAL), "no short string"),
    "long name": (saved(name("a" * 300, "b")), "longer than 256"),
    "scalar": (pickle.dumps({"w": np.float32(1)}, 4), "multiarray.scalar"),
    "frombuffer": (saved(name("numpy.core.numeric", "_frombuffer")), "_frombuffer"),
    "other codecs": (saved(call(name("codecs", "encode"), text("a"), text("rot13"))), "codecs.encode"),
    "other encoding": (saved(call(name("_codecs", "encode"), text("a"), text("rot13"))), "other than latin1"),
    "codec of no text": (saved(call(name("_codecs", "encode"), op.NONE, text("latin1"))), "no latin1 text"),
    "codec of wide text": (
        saved(call(name("_codecs", "encode"), text("哪"), text("latin1"))),
        "no latin1 text",
    ),
    # Code by instruction
    "inst": (saved(op.MARK + text(MARK_IT) + op.INST + b"os\nsystem\n"), "INST"),
    "obj": (saved(op.MARK + name("numpy", "ndarray") + text(MARK_IT) + op.OBJ), "OBJ"),
    "newobj": (saved(name("numpy", "ndarray") + op.EMPTY_TUPLE + op.NEWOBJ), "NEWOBJ"),
    "newobj_ex": (
        saved(name("numpy", "ndarray") + op.EMPTY_TUPLE + op.EMPTY_DICT + op.NEWOBJ_EX),
        "NEWOBJ_EX",
    ),
    "ext1": (saved(op.EXT1 + b"\x01"), "EXT1"),
    "ext2": (saved(op.EXT2 + b"\x01\x00"), "EXT2"),
    "ext4": (saved(op.EXT4 + b"\x01\x00\x00\x00"), "EXT4"),
    "persid": (saved(op.PERSID + b"1\n"), "PERSID"),
    "binpersid": (saved(text("1") + op.BINPERSID), "BINPERSID"),
    "next_buffer": (saved(op.NEXT_BUFFER), "NEXT_BUFFER"),
    "unknown instruction": (saved(b"\xff"), "unknown (0xff)"),
    "protocol 0": (pickle.dumps({"w": 1}, 0), "expected a pickle of protocol 2 to 4"),
    "text integer": (saved(op.INT + b"9" * 10_000 + b"\n"), "INT"),
    # Allowed names, put to other use
    "call of a class": (saved(call(name("numpy", "ndarray"), integer(1 << 30))), "calls numpy.ndarray"),
    "call of a string": (saved(call(text("os.system"), *SYSTEM)), "calls a str"),
    "call without arguments": (saved(name("numpy", "dtype") + op.NONE + op.REDUCE), "in place of arguments"),
    "reconstruct something else": (saved(announced(kind=name("numpy", "dtype"))), "other than numpy.ndarray"),
    "tuple of a string": (saved(call(name("builtins", "tuple"), text("ab"))), "(name, array) pair"),
    "ordered dict with arguments": (saved(call(name("collections", "OrderedDict"), ONE)), "OrderedDict"),
    "a name as a value": (saved(name("numpy", "ndarray")), "'weight' (a Global)"),
    "build on a dict": (saved(op.EMPTY_DICT + op.EMPTY_DICT + op.BUILD), "BUILD works on a dict"),
    "build on a name": (saved(name("numpy", "dtype") + op.EMPTY_DICT + op.BUILD), "BUILD works on the name"),
    "build twice": (saved(array() + op.EMPTY_TUPLE + op.BUILD), "described twice"),
    "announced only": (saved(announced()), "'weight' (a StoredArray)"),
    "append to a dict": (saved(op.EMPTY_DICT + op.NONE + op.APPEND), "APPEND works on a dict"),
    "set item of a list": (
        saved(op.EMPTY_LIST + text("a") + op.NONE + op.SETITEM),
        "SETITEM works on a list",
    ),
    # Arrays of more than numbers
    "object array": (pickle.dumps({"w": np.array([Runs(MARK_IT)], dtype=object)}, 2), "dtype 'O"),
    "object array by hand": (saved(array(kind=dtype("O8", "|"))), "dtype 'O8'"),
    "structured array": (pickle.dumps({"w": np.zeros(1, "i4,f4")}, 4), "dtype 'V8'"),
    "fields on a number": (saved(array(kind=dtype("f4", fields=op.EMPTY_DICT))), "fields or sub-arrays"),
    "sub-array on a number": (
        saved(array(kind=dtype("f4", subarray=op.EMPTY_TUPLE))),
        "fields or sub-arrays",
    ),
    "string array": (saved(array(kind=dtype("S999999999", "|"))), "dtype 'S999999999'"),
    "dates": (saved(array(kind=dtype("M8"))), "dtype 'M8'"),
    "no dtype": (saved(array(kind=op.NONE)), "without a complete dtype"),
    "masked array": (pickle.dumps({"w": np.ma.array([1.0])}, 4), "numpy.ma"),
    # Lies about lengths
    "bytes beyond the file": (saved(op.BINBYTES8 + struct.pack("<Q", 1 << 62)), "truncated"),
    "text beyond the file": (saved(op.BINUNICODE + struct.pack("<I", (1 << 32) - 1)), "truncated"),
    "negative length": (saved(op.BINSTRING + struct.pack("<i", -1)), "negative length -1"),
    "long4": (saved(op.LONG4 + struct.pack("<i", 1 << 30)), "LONG4"),
    "huge shape": (saved(array(shape=integer(1 << 30))), "needs 4294967296 bytes but has 4"),
    "huge empty shape": (saved(array(shape=integer(0) + integer(1 << 30) * 2, data=b"C\x00")), "too large"),
    "negative shape": (saved(array(shape=integer(-1) + integer(-1))), "shape is not a tuple"),
    "boolean shape": (saved(array(shape=op.NEWTRUE)), "shape is not a tuple"),
    "many axes": (saved(array(shape=integer(1) * 33)), "at most 32"),
    "frame beyond the file": (
        START + op.FRAME + struct.pack("<Q", 1 << 40) + saved(array())[2:],
        "truncated",
    ),
    "frame that ends inside": (
        START + op.FRAME + struct.pack("<Q", 8) + saved(array())[2:],
        "crosses the end",
    ),
    "frame in a frame": (
        START + (op.FRAME + struct.pack("<Q", 9)) * 2 + op.EMPTY_DICT + op.STOP,
        "a frame inside",
    ),
    # Shapes of the pickle itself
    "list in itself": (START + op.EMPTY_LIST + op.MEMOIZE + b"h\x00" + op.APPEND + op.STOP, "holds a list"),
    "dict in itself": (
        START + op.EMPTY_DICT + op.MEMOIZE + text("a") + b"h\x00" + op.SETITEM + op.STOP,
        "'a' (a dict)",
    ),
    "array in itself": (saved(announced() + op.MEMOIZE + b"h\x00" + op.BUILD), "not (version, shape"),
    "deep tuples": (saved(op.NONE + op.TUPLE1 * 100_000), "'weight' (a tuple)"),
    "deep marks": (saved(op.MARK * 1000), "nested marks"),
    "deep stack": (saved(op.NONE * 20_000), "on the stack"),
    "long memo": (saved(op.NONE + op.MEMOIZE * 60_000), "in the memo"),
    "many instructions": (saved(op.NONE + (op.PROTO + b"\x04") * 210_000), "pickle instructions"),
    "chosen hashes": (
        saved(op.EMPTY_DICT + op.LONG1 + b"\x09" + (2**61 - 1).to_bytes(9, "little") + op.NONE + op.SETITEM),
        "a dict key that is a int",
    ),
    "array as key": (START + op.EMPTY_DICT + array() + op.NONE + op.SETITEM + op.STOP, "a dict key"),
    "one name twice": (
        START + op.EMPTY_DICT + (text("a") + array() + op.SETITEM) * 2 + op.STOP,
        "names a twice",
    ),
    "key without value": (START + op.EMPTY_DICT + op.MARK + text("a") + op.SETITEMS + op.STOP, "no value"),
    "empty stack": (START + op.EMPTY_DICT + op.TUPLE3 + op.STOP, "finds the stack empty"),
    "nothing to memoize": (START + op.MEMOIZE + op.STOP, "finds the stack empty"),
    "no mark": (START + op.EMPTY_DICT + op.SETITEMS + op.STOP, "finds no mark"),
    "memo that is empty": (START + op.LONG_BINGET + b"\xff\xff\xff\xff" + op.STOP, "no object 4294967295"),
    "memo that is large": (
        START + op.NONE + op.LONG_BINPUT + b"\xff\xff\xff\xff" + op.STOP,
        "holds a NoneType",
    ),
    "two objects": (START + op.NONE + op.NONE + op.STOP, "other than one object"),
    "open mark": (START + op.MARK + op.NONE + op.STOP, "other than one object"),
    "something behind": (saved(array()) + saved(CALLED), "the pickle ends at byte"),
    "no text": (saved(op.SHORT_BINUNICODE + b"\x01\xff"), "no valid UTF-8"),
    "protocol 9": (op.PROTO + b"\x09" + op.NONE + op.STOP, "protocol 9"),
    "bytes shared by many arrays": (START + op.EMPTY_DICT + SHARED + op.STOP, "arrays claim 549000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickle_is_refused(case, tmp_path, monkeypatch):
    content, named = HOSTILE[case]
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as refusal:
            pdparams.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert named in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert os.listdir(tmp_path) == [path.name]  # no marker
    assert peak < (SMALL if len(content) < 40_000 else AT_THE_LIMITS)


def test_the_payload_would_have_run(tmp_path, monkeypatch):
    """The marker is a real one: Python's own unpickler leaves it."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(HOSTILE["reduce"][0])
    assert os.listdir(tmp_path) == ["MARKER"]


def test_persistent_ids_go_to_the_caller_s_builder(tmp_path):
    """Torch's pickles name their storages so; the machine hands them a tuple and nothing else."""
    path = tmp_path / "data.pkl"
    path.write_bytes(START + op.EMPTY_TUPLE + op.BINPERSID + op.STOP)
    with open(path, "rb") as file:
        assert pickles.load(Source(file, path), {}, persistent=lambda identity: [identity]) == [()]
    path.write_bytes(START + text("1") + op.BINPERSID + op.STOP)
    with open(path, "rb") as file, pytest.raises(CheckpointError, match="a persistent id that is a str"):
        pickles.load(Source(file, path), {}, persistent=lambda identity: [identity])


def test_the_building_blocks_are_readable(tmp_path):
    """The hostile files differ from this one in the named thing alone."""
    path = tmp_path / "good.pdparams"
    path.write_bytes(saved(array()))
    np.testing.assert_array_equal(pdparams.read(path)["weight"], np.frombuffer(b"abcd", "<f4"))
