"""Torch files of both formats: what the installed torch writes, what it reads, and what nobody should."""

import io
import os
import pickle as op
import struct
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections import OrderedDict

import numpy as np
import pytest

from paddle_nezha.checkpoint import CheckpointError, torch_files

torch = pytest.importorskip("torch")

ZIP, LEGACY = {}, {"_use_new_zipfile_serialization": False}
BOTH = pytest.mark.parametrize("options", [ZIP, LEGACY], ids=["zip", "legacy"])
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
DTYPES += ("uint64", "uint32", "uint16")
RNG = np.random.default_rng(3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


@pytest.fixture
def tensors(rng):
    base = torch.from_numpy(rng.standard_normal((6, 7), dtype=np.float32))
    return OrderedDict(
        base=base,
        tied=base,
        turned=base.T,
        strided=base[1:, ::2],
        row=base[3],
        scalar=torch.tensor(2.5),
        half_scalar=torch.tensor(1.5, dtype=torch.bfloat16),
        empty=torch.zeros(0, 3),
        behind=torch.arange(5)[5:],
        expanded=torch.arange(3).expand(4, 3),
        axes=torch.arange(24).reshape(2, 3, 1, 4).permute(3, 1, 0, 2),
        parameter=torch.nn.Parameter(torch.from_numpy(rng.standard_normal(9, dtype=np.float32))),
        **{name: torch.from_numpy(rng.integers(0, 2, (2, 3))).to(getattr(torch, name)) for name in DTYPES},
    )


def as_numpy(tensor):
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype.newbyteorder("="), name
        assert got[name].shape == array.shape, name  # assert_array_equal would broadcast a scalar
        np.testing.assert_array_equal(got[name], array, err_msg=name)
        assert got[name].flags.c_contiguous and got[name].flags.writeable and got[name].dtype.isnative, name


# Reading what torch.save writes


@BOTH
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_dtype_and_layout(options, protocol, tensors, path):
    torch.save(tensors, path, pickle_protocol=protocol, **options)
    wanted = {name: as_numpy(tensor) for name, tensor in tensors.items()}
    assert_same(torch_files.read(path), wanted)


@BOTH
def test_open_gives_shapes_and_dtypes_before_any_number(options, tensors, path):
    torch.save(tensors, path, **options)
    with torch_files.open_file(path) as stored:
        for name, tensor in tensors.items():
            assert stored[name].shape == tuple(tensor.shape)
            assert stored[name].dtype == as_numpy(tensor).dtype
        assert stored.inside is None
        np.testing.assert_array_equal(stored["turned"].read(), as_numpy(tensors["turned"]))


@BOTH
def test_the_state_dict_of_a_module_with_its_metadata(options, path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), path, **options)
    assert_same(torch_files.read(path), {name: as_numpy(tensor) for name, tensor in module.state_dict().items()})


@BOTH
def test_a_parameter_with_attributes(options, path):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.shard = 1
    torch.save({"weight": parameter}, path, **options)
    assert b"_rebuild_parameter_with_state" in path.read_bytes()
    assert_same(torch_files.read(path), {"weight": np.ones(3, np.float32)})


@BOTH
def test_q58_bfloat16_keeps_its_values(options, path, rng):
    tensor = torch.from_numpy(rng.standard_normal((5, 7))).to(torch.bfloat16)
    special = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 3e38, 1e-40], dtype=torch.bfloat16)
    torch.save({"weight": tensor, "turned": tensor.T, "special": special}, path, **options)
    wanted = {name: as_numpy(part) for name, part in [("weight", tensor), ("turned", tensor.T), ("special", special)]}
    got = torch_files.read(path)
    assert_same(got, wanted)
    assert got["special"].tobytes() == wanted["special"].tobytes()


@BOTH
def test_a_tied_weight_is_read_once(options, path):
    shared = torch.ones(3, 2)
    torch.save({"embedding": shared, "decoder": shared, "copy": shared.clone()}, path, **options)
    got = torch_files.read(path)
    assert got["embedding"] is got["decoder"]
    assert got["copy"] is not got["embedding"]


@BOTH
def test_beyond_the_result_reading_takes_one_tensor(options, path):
    """64 tensors of 64 KiB, half of them turned views: a turned one is read and then laid out anew."""
    state = {str(i): torch.full((128, 128), float(i)) for i in range(32)}
    state.update({f"{i} turned": state[str(i)].T for i in range(32)})
    torch.save(state, path, **options)
    tracemalloc.start()
    try:
        torch_files.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (64 + 1) * 65536 + (1 << 19)  # the pickle, its objects and the zip directory: measured 0.2 MB


@BOTH
def test_a_view_reads_its_span_alone(options, path):
    table = torch.zeros(1 << 20)
    torch.save({"part": table[5:9]}, path, **options)
    tracemalloc.start()
    try:
        torch_files.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 19  # the storage takes 4 MiB


def test_q32_chinese_paths_and_spaces(tmp_path, tensors):
    path = tmp_path / "权 重.bin"  # the name becomes the top folder inside
    torch.save(tensors, path)
    assert_same(torch_files.read(path), {name: as_numpy(tensor) for name, tensor in tensors.items()})


@pytest.mark.parametrize("folder", ["", "other name/", "a/b/"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_that_somebody_packed_again(folder, method, tensors, path):
    torch.save(tensors, path)
    with zipfile.ZipFile(path) as old:
        records = {name.partition("/")[2]: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", method) as new:
        if folder:
            new.writestr(folder, b"")
        for name, content in records.items():
            new.writestr(folder + name, content)
    assert_same(torch_files.read(path), {name: as_numpy(tensor) for name, tensor in tensors.items()})


def test_zip64_records(path, tensors):
    """Files beyond 4 GiB say so in wider fields; a small one may too."""
    torch.save(tensors, path)
    with zipfile.ZipFile(path) as old:
        records = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, content in records.items():
            with new.open(name, "w", force_zip64=True) as record:
                record.write(content)
    content = bytearray(path.read_bytes())
    # What `zipfile` writes narrow where it fits, in the first entry of the directory, is made wide.
    at = content.index(b"PK\x01\x02")
    packed, plain, name_length, extra_length = struct.unpack_from("<2L2H", content, at + 20)
    header = struct.unpack_from("<L", content, at + 42)[0]
    extra = struct.pack("<2H3Q", 1, 24, plain, packed, header)
    struct.pack_into("<2L2H", content, at + 20, 0xFFFFFFFF, 0xFFFFFFFF, name_length, extra_length + len(extra))
    struct.pack_into("<L", content, at + 42, 0xFFFFFFFF)
    content[at + 46 + name_length : at + 46 + name_length] = extra
    end = content.index(b"PK\x05\x06")
    struct.pack_into("<L", content, end + 12, struct.unpack_from("<L", content, end + 12)[0] + len(extra))
    path.write_bytes(content)
    assert_same(torch_files.read(path), {name: as_numpy(tensor) for name, tensor in tensors.items()})


# Files of other times and machines, by hand


def text(value):
    encoded = value.encode()
    return op.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def old_text(value):
    return op.SHORT_BINSTRING + bytes([len(value)]) + value.encode()


def name(module, attribute):
    return op.GLOBAL + f"{module}\n{attribute}\n".encode()


def integer(value):
    return op.BININT + struct.pack("<i", value)


def long(value):
    content = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return op.LONG1 + bytes([len(content)]) + content


def row(*parts):
    return op.MARK + b"".join(parts) + op.TUPLE


def call(callee, *arguments):
    return callee + row(*arguments) + op.REDUCE


HOOKS = call(name("collections", "OrderedDict"))
FLOAT = name("torch", "FloatStorage")
ZERO, ONE, TWO = integer(0), row(integer(1)), row(integer(2))
NUMBERS = np.array([1, 2], "<f4").tobytes()


def storage(kind=FLOAT, key=None, length=None, first=None, rest=b""):
    return row(first or text("storage"), kind, key or text("0"), text("cpu"), length or integer(2), rest)


def tensor(window=None, offset=ZERO, shape=TWO, strides=ONE, rest=op.NEWFALSE + HOOKS):
    window = window or storage() + op.BINPERSID
    return call(name("torch._utils", "_rebuild_tensor_v2"), window, offset, shape, strides, rest)


def saved(*values):
    items = [text(f"w{number}") + value + op.SETITEM for number, value in enumerate(values)]
    return op.PROTO + b"\x02" + op.EMPTY_DICT + b"".join(items) + op.STOP


def zipped(content, records=None, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that comes twice
        archive.writestr("m/data.pkl", content)
        archive.writestr("m/version", b"3\n")  # torch asks for it; we do not
        for record, part in [("data/0", NUMBERS)] if records is None else records:
            archive.writestr(f"m/{record}", part)
    return file.getvalue()


PICKLE = {"magic": long(0x1950A86A20F9469CFC6C), "version": integer(1001), "facts": op.EMPTY_DICT}


def legacy(content, storages=(("0", 2, NUMBERS),), keys=None, **changes):
    keys = keys or op.EMPTY_LIST + op.MARK + b"".join(text(key) for key, _, _ in storages) + op.APPENDS
    head = b"".join(b"\x80\x02" + part + op.STOP for part in {**PICKLE, **changes}.values())
    data = b"".join(struct.pack("<q", length) + part for _, length, part in storages)
    return head + content + b"\x80\x02" + keys + op.STOP + data


WRITERS = {"zip": zipped, "legacy": legacy}
WRITTEN = pytest.mark.parametrize("written", WRITERS)


@WRITTEN
def test_the_building_blocks_are_readable(written, path):
    """The hostile files below differ from this one in the named thing alone, and torch opens it."""
    window = storage(rest=op.NONE if written == "legacy" else b"") + op.BINPERSID
    path.write_bytes(WRITERS[written](saved(tensor(window))))
    assert_same(torch_files.read(path), {"w0": np.array([1, 2], np.float32)})
    assert torch.load(path, weights_only=True)["w0"].tolist() == [1, 2]


@WRITTEN
def test_what_python_2_and_the_first_releases_wrote(written, path):
    """Bare `_rebuild_tensor`, byte strings, `OrderedDict([[name, value]])`, torch.Size."""
    window = row(old_text("storage"), FLOAT, old_text("0"), old_text("cuda:0"), integer(2)) + op.BINPERSID
    shape = call(name("torch", "Size"), row(integer(2)))
    made = call(name("torch._utils", "_rebuild_tensor"), window, integer(0), shape, row(integer(1)))
    pair = op.EMPTY_LIST + op.MARK + old_text("w0") + made + op.APPENDS
    pairs = op.EMPTY_LIST + pair + op.APPEND
    path.write_bytes(WRITERS[written](b"\x80\x02" + call(name("collections", "OrderedDict"), pairs) + op.STOP))
    assert_same(torch_files.read(path), {"w0": np.array([1, 2], np.float32)})


def test_parts_of_storages_in_the_old_format(path):
    window = storage(length=integer(4), rest=row(text("5"), integer(1), integer(2))) + op.BINPERSID
    numbers = np.arange(4, dtype="<f4").tobytes()
    path.write_bytes(legacy(saved(tensor(window)), [("0", 4, numbers)]))
    assert_same(torch_files.read(path), {"w0": np.array([1, 2], np.float32)})
    assert torch.load(path, weights_only=True)["w0"].tolist() == [1, 2]


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind, code", [("FloatStorage", "f4"), ("LongStorage", "i8"), ("BFloat16Storage", "u2")])
def test_byte_order(order, kind, code, path):
    numbers = np.array([0x3F80, 0x4000]).astype((">" if order == "big" else "<") + code)
    window = storage(name("torch", kind)) + op.BINPERSID
    path.write_bytes(zipped(saved(tensor(window)), [("byteorder", order), ("data/0", numbers.tobytes())]))
    wanted = as_numpy(torch.load(path, weights_only=True)["w0"])
    assert_same(torch_files.read(path), {"w0": wanted})


# Training checkpoints


@BOTH
@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "net"])
def test_a_training_checkpoint_is_opened_at_its_state_dict(options, key, path, caplog):
    module = torch.nn.Linear(2, 3)
    slots = {"step": torch.tensor(1.0), "exp_avg": torch.ones(2, 3)}
    optimizer = {"state": {0: slots, 1: slots}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}]}
    torch.save({"epoch": 3, key: module.state_dict(), "optimizer": optimizer, "lr": 0.1}, path, **options)
    with caplog.at_level("INFO"), torch_files.open_file(path) as stored:
        assert stored.inside == key
        assert stored.left == ("epoch", "optimizer", "lr")
        np.testing.assert_array_equal(stored["weight"].read(), as_numpy(module.weight))
    assert f"its '{key}' is read, its 'epoch', 'optimizer', 'lr' are left" in caplog.text


@BOTH
def test_two_state_dicts_are_not_chosen_between(options, path):
    torch.save({"model": {"w": torch.ones(2)}, "ema": {"w": torch.ones(2)}, "step": 1}, path, **options)
    with pytest.raises(CheckpointError, match=r"'model' \(a state dict\), 'ema' \(a state dict\), 'step' \(a int\)"):
        torch_files.read(path)


@BOTH
def test_tensors_beside_a_state_dict(options, path):
    """Under a known key the tensors outside are some generator's state; under another the inner ones may be extras."""
    torch.save({"model": {"w": torch.ones(2)}, "rng": torch.get_rng_state()}, path, **options)
    assert list(torch_files.read(path)) == ["w"]
    torch.save({"weight": torch.ones(2), "extra": {"w": torch.ones(2)}}, path, **options)
    with pytest.raises(CheckpointError, match=r"'extra' \(a state dict\)"):
        torch_files.read(path)


@BOTH
@pytest.mark.parametrize(
    "value, named",
    [
        ([1, 2], "holds a list, but expected a dict of tensors by name"),
        (torch.ones(2), "holds a StoredTensor, but expected a dict"),
        ({"w": torch.ones(2), "step": 3}, r"holds 'step' \(a int\)"),
        ({0: torch.ones(2)}, r"holds 0 \(a StoredTensor\)"),
        ({"w": torch.ones(2, dtype=torch.complex64)}, "torch.ComplexFloatStorage, which no state dict needs"),
        ({"w": torch.ones(2).to_sparse()}, "_rebuild_sparse_tensor"),
        ({"w": torch.ones(2).to(torch.float8_e4m3fn)}, "torch.float8_e4m3fn"),
        ({"w": torch._neg_view(torch.ones(2))}, "negated or conjugated"),
        (torch.nn.Linear(1, 1), r"torch.nn.modules.linear.Linear, which no state dict needs.*state_dict\(\) again"),
    ],
)
def test_what_is_no_state_dict(options, value, named, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, path, **options)
    with pytest.raises(CheckpointError, match=named):
        torch_files.read(path)


@BOTH
def test_quantised_tensors_are_refused_by_name(options, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        torch.save({"w": quantised}, path, **options)
    with pytest.raises(CheckpointError, match="_rebuild_qtensor"):
        torch_files.read(path)


# Other files under the name


def tar(*names):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in names:
            archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    return file.getvalue()


OTHERS = {
    "tar": (tar("sys_info", "pickle", "storages", "tensors"), "a tar archive"),
    "empty": (b"", "holds 0 bytes"),
    "web page": (b"<!DOCTYPE html><html>", "a web page"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "pdparams": (op.dumps({"w": np.ones(2)}, 2), "ends in .pdparams"),
    "noise": (b"\x89HDF\r\n\x1a\n", "of another kind"),
    "other zip": (b"", "expected one data.pkl in it"),
    "TorchScript": (b"", "TorchScript program"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_q60_other_files_are_named(case, path):
    content, named = OTHERS[case]
    path.write_bytes(content)
    if case == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("pytorch_model.bin", b"1")
    if case == "TorchScript":
        with zipfile.ZipFile(path, "w") as archive:
            for record in ("data.pkl", "constants.pkl", "code/__torch__.py"):
                archive.writestr(f"m/{record}", b"1")
    with pytest.raises(CheckpointError, match=named) as refusal:
        torch_files.read(path)
    assert str(path) in str(refusal.value)


def test_a_missing_file_is_an_oserror(path):
    with pytest.raises(FileNotFoundError):
        torch_files.read(path)


@BOTH
def test_a_file_cut_anywhere_is_refused(options, path):
    torch.save({"weight": torch.ones(3, 2), "turned": torch.ones(2, 3).T}, path, **options)
    whole = path.read_bytes()
    for length in range(0, len(whole), 13):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError) as refusal:
            torch_files.read(path)
        assert str(path) in str(refusal.value)
    assert "corrupt or truncated" in str(refusal.value)
    assert f"holds {length} bytes" in str(refusal.value) or options is LEGACY


# Hostile files

SYSTEM = call(name("os", "system"), text("touch MARKER"))
MODEL = row(text("module"), name("torch", "Size"), text("model.py"), text("import os")) + op.BINPERSID
HUGE = long(2**60)
SMALL, AT_THE_LIMITS = 1 << 20, 16 << 20  # what the readers themselves may take, as in test_pickles.py

PICKLES = {
    "reduce": (saved(SYSTEM), "asks for os.system"),
    "reduce as a key": (b"\x80\x02}" + SYSTEM + tensor() + b"s.", "os.system"),
    "reduce as a storage": (saved(tensor(SYSTEM)), "os.system"),
    "reduce in hooks": (saved(tensor(rest=op.NEWFALSE + SYSTEM)), "os.system"),
    "reduce in metadata": (saved(HOOKS + op.EMPTY_DICT + text("a") + SYSTEM + op.SETITEM + op.BUILD), "os.system"),
    "inst": (saved(op.MARK + text("touch MARKER") + op.INST + b"os\nsystem\n"), "INST"),
    "obj": (saved(op.MARK + name("torch", "Size") + op.OBJ), "OBJ"),
    "newobj": (saved(name("torch", "Size") + op.EMPTY_TUPLE + op.NEWOBJ), "NEWOBJ"),
    "ext1": (saved(op.EXT1 + b"\x01"), "EXT1"),
    "persid": (saved(op.PERSID + b"storage\n"), "PERSID"),
    "build of a module": (saved(name("torch.nn", "Linear")), "torch.nn.Linear"),
    "eval": (saved(call(name("builtins", "eval"), text("1"))), "builtins.eval"),
    "torch.load": (saved(call(name("torch", "load"), text("x"))), "torch.load"),
    "hub": (saved(call(name("torch.hub", "load"), text("x"))), "torch.hub.load"),
    "dotted name": (saved(text("torch._utils") + text("_rebuild_tensor.__globals__") + b"\x93"), "__globals__"),
    "rebuild of a type": (saved(name("torch._tensor", "_rebuild_from_type_v2")), "_rebuild_from_type_v2"),
    "a whole model": (saved(MODEL), "a whole model"),
    "persistent text": (saved(text("storage") + op.BINPERSID), "a persistent id that is a str"),
    "persistent nothing": (saved(op.EMPTY_TUPLE + op.BINPERSID), "no storage"),
    "persistent other": (saved(storage(first=text("tensor")) + op.BINPERSID), "no storage"),
    "storage of no class": (saved(storage(text("os.system")) + op.BINPERSID), "a storage that is a str"),
    "storage of a dtype": (saved(storage(name("torch", "float32")) + op.BINPERSID), "a storage that is torch.float32"),
    "storage key of a number": (saved(storage(key=integer(0)) + op.BINPERSID), "key or length"),
    "storage of negative length": (saved(storage(length=integer(-1)) + op.BINPERSID), "key or length"),
    "storage of true length": (saved(storage(length=op.NEWTRUE) + op.BINPERSID), "key or length"),
    "storage of huge length": (saved(storage(length=HUGE) + op.BINPERSID), "key or length"),
    "storage of two kinds": (
        saved(tensor(), tensor(storage(name("torch", "LongStorage")) + op.BINPERSID)),
        "described in two ways",
    ),
    "storage as a value": (saved(storage() + op.BINPERSID), r"'w0' (a Window)"),
    "part beyond": (saved(storage(rest=row(text("1"), integer(1), integer(2))) + op.BINPERSID), "ends at 3"),
    "part of text": (saved(storage(rest=text("1")) + op.BINPERSID), "(key, offset, length)"),
    "tensor of no storage": (saved(tensor(text("0"))), "whose storage is a str"),
    "tensor beyond": (saved(tensor(shape=row(integer(3)))), "shape [3] needs 12 bytes of a storage of 8"),
    "tensor far beyond": (saved(tensor(shape=row(integer(1 << 30)), strides=row(integer(1 << 30)))), "of a storage"),
    "tensor behind": (saved(tensor(offset=integer(1))), "needs 12 bytes"),
    "tensor before": (saved(tensor(offset=integer(-1))), "sizes each"),
    "negative stride": (saved(tensor(offset=integer(1), strides=row(integer(-1)))), "sizes each"),
    "negative shape": (saved(tensor(shape=row(integer(-1)))), "sizes each"),
    "unequal strides": (saved(tensor(strides=row(integer(1), integer(1)))), "sizes each"),
    "huge shape": (saved(tensor(shape=row(HUGE), strides=row(integer(0)))), "sizes each"),
    "huge empty shape": (
        saved(tensor(shape=row(integer(0), *[integer(1 << 30)] * 2), strides=row(*[integer(1)] * 3))),
        "too large",
    ),
    "many axes": (saved(tensor(shape=row(integer(1) * 33), strides=row(integer(1) * 33))), "at most 32"),
    "expanded to 4 GiB": (saved(tensor(shape=row(integer(1 << 30)), strides=row(integer(0)))), "4294967296 bytes"),
    "true in a shape": (saved(tensor(shape=row(op.NEWTRUE))), "sizes each"),
    "tensor of few arguments": (saved(call(name("torch._utils", "_rebuild_tensor_v2"))), "is not (storage"),
    "old tensor of few arguments": (saved(call(name("torch._utils", "_rebuild_tensor"))), "is not (storage"),
    "new tensor of few arguments": (saved(call(name("torch._utils", "_rebuild_tensor_v3"))), "is not (storage"),
    "new tensor of no dtype": (
        saved(call(name("torch._utils", "_rebuild_tensor_v3"), *[integer(0)] * 7)),
        "without a dtype",
    ),
    "parameter of a parameter class": (
        saved(call(name("torch._utils", "_rebuild_parameter"), *[op.NONE] * 3)),
        "a Parameter that is not",
    ),
    "size of a number": (saved(call(name("torch", "Size"), integer(1 << 30))), "torch.Size of something"),
    "ordered dict of a dict": (saved(call(name("collections", "OrderedDict"), op.EMPTY_DICT)), "[name, value] pairs"),
    "ordered dict of numbers": (
        saved(call(name("collections", "OrderedDict"), b"]" + integer(1) + b"a")),
        "[name, value] pairs",
    ),
    "ordered dict of one name": (
        saved(call(name("collections", "OrderedDict"), b"](" + row(text("a"), op.NONE) * 2 + b"e")),
        "names a key twice",
    ),
    "dict in itself": (b"\x80\x02}q\x00" + text("a") + b"h\x00s.", "'a' (a dict)"),
    "ordered dict in itself": (b"\x80\x02" + HOOKS + b"q\x00" + text("a") + b"h\x00s.", "'a' (a dict)"),
    "deep tuples": (saved(op.NONE + op.TUPLE1 * 20_000), "'w0' (a tuple)"),
    "many instructions": (saved(op.NONE + (op.PROTO + b"\x02") * 210_000), "pickle instructions"),
    "text beyond the file": (saved(op.BINUNICODE + b"\xff" * 4), "truncated"),
    "protocol 9": (b"\x80\x09}.", "protocol 9"),
}


def refused(content, named, path, monkeypatch):
    path.write_bytes(content)
    monkeypatch.chdir(path.parent)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as refusal:
            torch_files.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert named in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert os.listdir(path.parent) == [path.name]  # no marker
    assert peak < (SMALL if len(content) < 40_000 else AT_THE_LIMITS)


@WRITTEN
@pytest.mark.parametrize("case", PICKLES)
def test_hostile_pickle_is_refused(case, written, path, monkeypatch):
    content, named = PICKLES[case]
    if written == "legacy" and b"storage" not in content:  # a file of the old format holds what is named and no more
        refused(legacy(content, []), named, path, monkeypatch)
    else:
        refused(WRITERS[written](content), named, path, monkeypatch)


def test_the_payload_would_have_run(path, monkeypatch):
    """The marker is a real one: torch leaves it when it is told to trust the file."""
    path.write_bytes(zipped(saved(SYSTEM)))
    monkeypatch.chdir(path.parent)
    torch.load(path, weights_only=False)
    assert sorted(os.listdir(path.parent)) == ["MARKER", path.name]


def altered(content, signature, offset, form, value, last=False):
    """A zip archive with one field of its first (or last) record of a kind changed."""
    content = bytearray(content)
    at = content.rfind(signature) if last else content.find(signature)
    struct.pack_into(form, content, at + offset, value)
    return bytes(content)


GOOD = zipped(saved(tensor()))
LOCAL, ENTRY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
BOMB = [("data/0", bytes(30 << 20))]
BOMBED = tensor(storage(length=integer(30 << 18)) + op.BINPERSID, shape=row(integer(30 << 18)))


def overlapping():
    """Two lines of the directory for the bytes of one record."""
    window = storage(key=text("1")) + op.BINPERSID
    content = zipped(saved(tensor(), tensor(window)), [("data/0", NUMBERS), ("data/1", NUMBERS)])
    line = content.index(b"m/data/1", content.index(ENTRY)) - 46
    first = content.index(b"m/data/0") - 30
    return content[: line + 42] + struct.pack("<L", first) + content[line + 46 :]


def nested():
    """A record whose bytes hold another record, header and all."""
    inner = LOCAL + struct.pack("<5H3L2H", 20, 0, 0, 0, 33, 0, 8, 8, 8, 0) + b"m/data/1" + NUMBERS
    windows = storage(length=integer(12)), storage(key=text("1"))
    content = zipped(
        saved(*(tensor(window + op.BINPERSID) for window in windows)),
        [("data/0", inner + bytes(48 - len(inner))), ("data/1", NUMBERS)],
    )
    line = content.index(b"m/data/1", content.index(ENTRY)) - 46
    return content[: line + 42] + struct.pack("<L", content.index(inner)) + content[line + 46 :]


def many_entries(count):
    """A directory of nothing but names."""
    lines = b"".join(
        ENTRY + struct.pack("<6H3L5H2L", 20, 20, 0, 0, 0, 33, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0) + b"%04x" % (n % 65536)
        for n in range(count)
    )
    wide = b"PK\x06\x06" + struct.pack("<Q2H2L4Q", 44, 45, 45, 0, 0, count, count, len(lines), 4)
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, 4 + len(lines), 1)
    return LOCAL + lines + wide + locator + END + struct.pack("<4H2LH", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)


def far():
    """A local header at byte 2**63, which no seek reaches."""
    content = zipped(saved(tensor()))
    at = content.index(ENTRY)
    name_length = struct.unpack_from("<H", content, at + 28)[0]
    line = content[at : at + 30] + struct.pack("<H", 12) + content[at + 32 : at + 42] + b"\xff" * 4
    line += content[at + 46 : at + 46 + name_length] + struct.pack("<2HQ", 1, 8, 2**63)
    content = content[:at] + line + content[at + 46 + name_length :]
    size = struct.unpack_from("<L", content, content.index(END) + 12)[0]
    return altered(content, END, 12, "<L", size + 12)


ARCHIVES = {
    "no directory": (GOOD[: GOOD.index(ENTRY)], "a zip archive with its directory at the end"),
    "comment beyond the file": (altered(GOOD, END, 20, "<H", 9), "corrupt or truncated"),
    "directory beyond the file": (altered(GOOD, END, 16, "<L", 1 << 30), "its directory should end"),
    "directory elsewhere": (altered(GOOD, END, 16, "<L", 0), "expected an entry of its directory"),
    "more entries than there are": (altered(altered(GOOD, END, 8, "<H", 9), END, 10, "<H", 9), "corrupt or truncated"),
    "several disks": (altered(GOOD, END, 4, "<H", 1), "over several files"),
    "encrypted": (altered(GOOD, ENTRY, 8, "<H", 1), "encrypted"),
    "another method": (altered(GOOD, ENTRY, 10, "<H", 12), "method 12"),
    "methods that differ": (altered(GOOD, ENTRY, 10, "<H", 8), "it is not there"),
    "names that differ": (altered(GOOD, LOCAL, 30, "<B", ord("n")), "it is not there"),
    "header elsewhere": (altered(GOOD, ENTRY, 42, "<L", 8), "it is not there"),
    "header beyond the file": (altered(GOOD, ENTRY, 42, "<L", 1 << 30), "behind its own beginning"),
    "header far away": (far(), "behind its own beginning"),
    "plain sizes that differ": (altered(GOOD, ENTRY, 24, "<L", 1 << 30), "lies there plainly, but takes"),
    "record beyond the directory": (
        altered(altered(GOOD, ENTRY, 20, "<L", 1 << 20, last=True), ENTRY, 24, "<L", 1 << 20, last=True),
        "the directory begins at",
    ),
    "no zip64 size": (altered(GOOD, ENTRY, 24, "<L", 2**32 - 1), "gives no size"),
    "a name too long": (altered(GOOD, ENTRY, 28, "<H", 2000), "too long"),
    "extra field beyond": (altered(GOOD, LOCAL, 28, "<H", 65535), "the directory begins at"),
    "one name twice": (zipped(saved(tensor()), [("data/0", NUMBERS)] * 2), "twice"),
    "two pickles": (zipped(saved(tensor()), [("x/data.pkl", b""), ("data/0", NUMBERS)]), "but came 2"),
    "no record for a storage": (zipped(saved(tensor()), []), "'m/data/0', but the archive holds none"),
    "a short record": (zipped(saved(tensor()), [("data/0", NUMBERS[:-1])]), "expected 8 bytes in its"),
    "a path as a key": (zipped(saved(tensor(storage(key=text("../../x")) + op.BINPERSID))), "holds none"),
    "an absolute key": (zipped(saved(tensor(storage(key=text("/etc/passwd")) + op.BINPERSID))), "holds none"),
    "a key that prints": (zipped(saved(tensor(storage(key=text("\x1b[2J")) + op.BINPERSID))), r"data/\x1b[2J'"),
    "an odd byte order": (zipped(saved(tensor()), [("byteorder", "middle"), ("data/0", NUMBERS)]), "b'middle'"),
    "a long byte order": (zipped(saved(tensor()), [("byteorder", bytes(99)), ("data/0", NUMBERS)]), "at most 16"),
    "a long pickle": (zipped(bytes(5 << 20)), "at most 4194304 bytes, but has 5242880"),
    "a packed long pickle": (zipped(bytes(5 << 20), None, zipfile.ZIP_DEFLATED), "claim 5242880 bytes"),
    "a bomb": (zipped(saved(BOMBED), BOMB, zipfile.ZIP_DEFLATED), "times the file"),
    "overlapping records": (overlapping(), "it is not there"),
    "a record in a record": (nested(), "lie in the same bytes"),
    "many entries": (many_entries(10_001), "claims 10001 entries"),
    "noise for packed data": (
        altered(altered(GOOD, ENTRY, 10, "<H", 8), LOCAL, 8, "<H", 8),
        "does not open",
    ),
    "a zip64 record far away": (altered(many_entries(9), b"PK\x06\x07", 8, "<Q", 2**63), "corrupt or truncated"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_hostile_archive_is_refused(case, path, monkeypatch):
    refused(*ARCHIVES[case], path, monkeypatch)


STORAGES = {
    "another version": (legacy(saved(tensor()), version=integer(1002)), "expected 1001"),
    "a version that is code": (legacy(saved(tensor()), version=SYSTEM), "os.system"),
    "facts that are code": (legacy(saved(tensor()), facts=SYSTEM), "os.system"),
    "keys that are code": (legacy(saved(tensor()), keys=SYSTEM), "os.system"),
    "keys that are numbers": (legacy(saved(tensor()), keys=b"]" + integer(0) + b"a"), "the list of storages"),
    "no storages": (legacy(saved(tensor()), []), "it holds 0 storages"),
    "another storage": (legacy(saved(tensor()), [("1", 2, NUMBERS)]), "others"),
    "one storage twice": (legacy(saved(tensor()), [("0", 2, NUMBERS)] * 2), "it holds 2 storages"),
    "a storage of another length": (legacy(saved(tensor()), [("0", 1, NUMBERS)]), "but one of 1 came"),
    "a negative length": (legacy(saved(tensor()), [("0", -1, NUMBERS)]), "but one of -1 came"),
    "a storage beyond the file": (legacy(saved(tensor()), [("0", 2, NUMBERS[:-1])]), "truncated"),
    "something behind": (legacy(saved(tensor())) + saved(SYSTEM), "its storages end at byte"),
}


@pytest.mark.parametrize("case", STORAGES)
def test_hostile_storages_are_refused(case, path, monkeypatch):
    refused(*STORAGES[case], path, monkeypatch)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_many_views_that_each_take_a_whole_storage(method, path, monkeypatch):
    """200 views of two numbers each, 2 MiB apart (or in one packed record): 400 MiB to go through."""
    window = storage(length=integer(1 << 19)) + op.BINPERSID
    strides = row(integer((1 << 19) - 201))
    views = [tensor(window, integer(number), strides=strides) for number in range(200)]
    numbers = RNG.bytes(1 << 21)  # which do not compress
    content = zipped(saved(*views), [("data/0", numbers)], method)
    refused(content, "save it again without views", path, monkeypatch)


def test_packed_data_that_are_not_what_was_packed(path):
    numbers = bytes(50) + RNG.bytes(14)
    window = storage(length=integer(16)) + op.BINPERSID
    good = zipped(saved(tensor(window, shape=row(integer(16)))), [("data/0", numbers)], zipfile.ZIP_DEFLATED)
    packed = zlib.compress(numbers)[2:-4]
    at = good.index(packed) + len(packed) - 5
    path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
    with pytest.raises(CheckpointError, match="compressed data at byte"):
        torch_files.read(path)


# Writing


@pytest.fixture
def arrays(rng):
    return {
        "matrix": rng.standard_normal((40, 50)).astype(np.float32),
        "turned": rng.standard_normal((4, 3)).T,
        "strided": np.arange(12)[::3],
        "big endian": np.arange(3, dtype=">i4"),
        "scalar": np.array(3, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "权重": np.ones(1, np.float32),
        **{name: rng.integers(0, 2, (2, 3)).astype(name) for name in DTYPES if name != "bfloat16"},
    }


@pytest.mark.parametrize("mapped", [False, True])
def test_torch_opens_what_is_written(mapped, arrays, path):
    torch_files.write(path, arrays)
    got = torch.load(path, weights_only=True, mmap=mapped)
    assert type(got) is OrderedDict
    assert list(got) == list(arrays)
    for key, array in arrays.items():
        assert got[key].dtype is getattr(torch, array.dtype.name)
        assert tuple(got[key].shape) == array.shape
        np.testing.assert_array_equal(got[key].numpy(), array, err_msg=key)
    assert_same(torch_files.read(path), arrays)


def test_a_module_takes_what_is_written(path):
    module, other = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    torch_files.write(path, {name: as_numpy(tensor) for name, tensor in module.state_dict().items()})
    other.load_state_dict(torch.load(path, weights_only=True))
    assert torch.equal(module.weight, other.weight) and torch.equal(module.bias, other.bias)


def test_written_records_are_aligned_and_whole(arrays, path):
    torch_files.write(path, arrays)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for entry in archive.infolist():
            name_length, extra_length = struct.unpack_from("<2H", path.read_bytes(), entry.header_offset + 26)
            assert (entry.header_offset + 30 + name_length + extra_length) % 64 == 0
            assert entry.compress_type == zipfile.ZIP_STORED


def test_the_bytes_depend_on_the_arrays_alone(arrays, tmp_path):
    torch_files.write(tmp_path / "one.bin", arrays)
    torch_files.write(tmp_path / "two.pt", arrays)
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "two.pt").read_bytes()


def test_a_tied_weight_is_written_once(path):
    shared = np.ones((64, 64), np.float32)
    torch_files.write(path, {"embedding": shared, "decoder": shared})
    assert path.stat().st_size < 1.5 * shared.nbytes
    got = torch.load(path, weights_only=True)
    assert got["embedding"].data_ptr() == got["decoder"].data_ptr()
    read = torch_files.read(path)
    assert read["embedding"] is read["decoder"]


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    torch_files.write(path, {"a": np.arange(3)})
    before = path.read_bytes()

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        torch_files.write(path, {"a": np.arange(4)})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_what_no_weight_file_holds_is_refused(path):
    with pytest.raises(CheckpointError, match=r"'text' \(<U1\)"):
        torch_files.write(path, {"good": np.ones(2), "text": np.array(["a"])})
    assert not path.exists()


# Mutants

MUTANTS = 150  # of each kind, four kinds


def mutated(whole, rng):
    """One to three changes, anywhere; half of them near one of the ends, where the structure is."""
    content = whole
    for _ in range(rng.integers(1, 4)):
        near = int(min(rng.exponential(60), len(content) - 1))
        start = [near, len(content) - 1 - near, int(rng.integers(len(content)))][min(int(rng.integers(4)), 2)]
        stop = start + int(rng.integers(1, 9))
        content = [
            content[:start] + bytes([content[start] ^ (1 << int(rng.integers(8)))]) + content[start + 1 :],
            content[:start] + rng.bytes(stop - start) + content[stop:],
            content[:start] + content[stop:],
            content[:stop] + content[start:],
            content[:start] + b"\xff" * 4 + content[start + 4 :],
        ][rng.integers(5)] or whole
    return content


def mutants(kind, path, rng):
    """An endless row of files, mutants of one that torch wrote."""
    base = torch.arange(1200.0).reshape(30, 40)
    state = OrderedDict(
        base=base, turned=base.T, half=base.bfloat16(), index=torch.arange(4), wide=torch.ones(2).double()
    )
    state = {"model": state, "step": 3} if kind == "repacked" else state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(state, path, **(LEGACY if kind == "legacy" else ZIP))
    whole = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole if kind != "legacy" else GOOD)) as archive:
        records = [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]
    content = dict(records)["data.pkl"]
    rest = [record for record in records if record[0] not in ("data.pkl", "version")]
    if kind == "packed":
        whole = zipped(content, rest, zipfile.ZIP_DEFLATED)
    while True:
        yield zipped(mutated(content, rng), rest) if kind == "repacked" else mutated(whole, rng)


@pytest.mark.parametrize("kind", ["zip", "legacy", "packed", "repacked"])
def test_mutants_are_read_or_refused(kind, path, rng):
    outcomes = {True: 0, False: 0}
    for content, _ in zip(mutants(kind, path, rng), range(MUTANTS)):
        path.write_bytes(content)
        try:
            got = torch_files.read(path)
        except CheckpointError as error:
            assert str(path) in str(error)
            outcomes[False] += 1
        else:
            assert all(type(name) is str and type(array) is np.ndarray for name, array in got.items())
            assert sum(array.nbytes for array in got.values()) <= 8 * len(content) + 2 * SMALL
            outcomes[True] += 1
    assert all(outcomes.values())  # the mutations reach the structure, and some only the numbers
