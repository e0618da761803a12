import hashlib
import os
import pickle
import zlib  # noqa: F401  before paddle: Paddle 2.6.2 breaks it otherwise
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import pytest

from paddle_nezha.checkpoint import CheckpointError, pdparams, reconcile
from paddle_nezha.checkpoint.dialects import DIALECTS

paddle = pytest.importorskip("paddle")


class Small(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.dense = paddle.nn.Linear(3, 5)
        self.table = paddle.nn.Embedding(700, 3)  # 8,400 bytes: beyond what the reader keeps inline
        self.register_buffer("index", paddle.arange(4, dtype="int64"))
        self.register_buffer("scale", paddle.to_tensor(2.5))


@pytest.fixture
def layer(rng):
    layer = Small()
    for parameter in layer.parameters():
        parameter.set_value(rng.standard_normal(parameter.shape).astype(np.float32))
    return layer


@pytest.fixture
def arrays(rng):
    return {
        "matrix": rng.standard_normal((40, 50)).astype(np.float32),
        "turned": rng.standard_normal((4, 3)).astype(np.float64).T,
        "half": rng.standard_normal((2, 3)).astype(np.float16),
        "strided": np.arange(12, dtype=np.int64)[::3],
        "big endian": np.arange(3, dtype=">i4"),
        "scalar": np.array(3, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False]),
        "bits": np.arange(5, dtype=np.uint16),
    }


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype.newbyteorder("="), name
        assert got[name].shape == array.shape, name  # assert_array_equal would broadcast a scalar
        np.testing.assert_array_equal(got[name], array, err_msg=name)


# Reading what paddle.save writes


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_state_dict_of_paddle_save(layer, protocol, tmp_path):
    path = tmp_path / "model_state.pdparams"
    paddle.save(layer.state_dict(), str(path), protocol=protocol)
    assert b"StructuredToParameterName@@" in path.read_bytes()
    assert_same(pdparams.read(path), {name: value.numpy() for name, value in layer.state_dict().items()})


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_dict_of_bare_tensors(layer, protocol, tmp_path):
    """A dict that paddle.save does not take for a state dict holds (parameter name, array) pairs."""
    path = tmp_path / "pairs.pdparams"
    tensors = {"weight": layer.dense.weight, "table": layer.table.weight, "plain": np.arange(3)}
    paddle.save(tensors, str(path), protocol=protocol)
    wanted = {name: np.asarray(value) for name, value in tensors.items()}
    assert_same(pdparams.read(path), wanted)


def test_one_tensor(layer, tmp_path):
    path = tmp_path / "one.pdparams"
    paddle.save(layer.dense.weight, str(path))
    assert_same(pdparams.read(path), {layer.dense.weight.name: layer.dense.weight.numpy()})


def test_bfloat16_of_paddle_becomes_float32(layer, tmp_path):
    """Q58: the file says uint16; the account, which knows a parameter, gives the values."""
    path = tmp_path / "half.pdparams"
    weight = layer.dense.weight.astype("bfloat16")
    paddle.save({"pooler.dense.weight": weight}, str(path))
    found = pdparams.read(path)
    assert found["pooler.dense.weight"].dtype == np.uint16
    account = reconcile({"pooler.dense.weight": (3, 5)}, found, dialect=DIALECTS["paddlenlp"])
    got = account.arrays["pooler.dense.weight"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, weight.astype("float32").numpy())
    assert account.widened == ["pooler.dense.weight"]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_layouts_and_dtypes(arrays, protocol, tmp_path):
    path = tmp_path / "arrays.pdparams"
    del arrays["empty"]  # protocol 2 spells empty bytes as a call of `bytes`, which no parameter needs
    path.write_bytes(pickle.dumps(arrays, protocol))
    got = pdparams.read(path)
    assert_same(got, arrays)
    for array in got.values():
        assert array.flags.c_contiguous and array.flags.writeable


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_ordered_dict(arrays, protocol, tmp_path):
    path = tmp_path / "ordered.pdparams"
    del arrays["empty"]
    path.write_bytes(pickle.dumps(OrderedDict(reversed(arrays.items())), protocol))
    assert_same(pdparams.read(path), dict(reversed(arrays.items())))


def test_python_2_strings(tmp_path):
    """Paddle 2.0 ran on Python 2, whose pickles hold names and bytes as SHORT_BINSTRING and BINSTRING."""
    array = np.frombuffer(bytes(range(256)) * 40, "<f4").copy()
    content = pickle.dumps({"weight": array}, 3)
    length = len(array.tobytes()).to_bytes(4, "little")
    old = content.replace(b"B" + length, b"T" + length).replace(b"X\x06\x00\x00\x00weight", b"U\x06weight")
    assert old.count(b"T" + length) == 1 and old.count(b"U\x06weight") == 1
    path = tmp_path / "python2.pdparams"
    path.write_bytes(old)
    assert pdparams.read(path)["weight"].tobytes() == array.tobytes()


def test_one_array_under_two_names(tmp_path):
    path = tmp_path / "tied.pdparams"
    shared = np.arange(2000.0)
    path.write_bytes(pickle.dumps({"a": shared, "b": shared}, 4))
    got = pdparams.read(path)
    assert got["a"] is got["b"]
    np.testing.assert_array_equal(got["a"], shared)


def test_latin1_text_that_says_too_little_or_is_not_latin1(tmp_path):
    path = tmp_path / "model.pdparams"
    content = pickle.dumps({"weight": np.frombuffer(b"\xc8" * 8000, "<f4")}, 2)
    assert content.count("È".encode() * 8000) == 1
    for wrong in ("哪e" * 4000, "È" * 7999 + "ab"):
        assert len(wrong.encode()) == 16_000
        path.write_bytes(content.replace("È".encode() * 8000, wrong.encode()))
        with pytest.raises(CheckpointError, match="is corrupt"):
            pdparams.read(path)


def test_chinese_characters_and_spaces_in_the_path(arrays, tmp_path):
    """Q32"""
    folder = tmp_path / "哪吒 模型"
    folder.mkdir()
    path = folder / "模型 状态.pdparams"
    pdparams.write(path, arrays)
    assert_same(pdparams.read(path), arrays)


# Refusing


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_every_cut_is_named(layer, protocol, tmp_path):
    """Q24: path, size, and what to do, wherever a download stopped."""
    path = tmp_path / "model_state.pdparams"
    paddle.save(layer.state_dict(), str(path), protocol=protocol)
    whole = path.read_bytes()
    for size in [*range(0, 150), *range(150, len(whole), 199), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as error:
            pdparams.read(path)
        message = str(error.value)
        assert "corrupt or truncated" in message and f"holds {size} bytes" in message
        assert str(path) in message and "Download or copy it again" in message


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"<!DOCTYPE html><html>404</html>", "a web page"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1f\x8brest", "gzip-compressed"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b'{"error": "not found"}', "JSON text"),
        (b"\x93NUMPY", "of another kind"),
    ],
)
def test_other_formats_are_named(content, named, tmp_path):
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is no .pdparams file") as error:
        pdparams.read(path)
    assert named in str(error.value)


def test_a_dict_of_more_than_arrays(layer, tmp_path):
    path = tmp_path / "training.pdparams"
    paddle.save({"model": layer.state_dict(), "epoch": 3, "weight": layer.dense.weight}, str(path))
    with pytest.raises(CheckpointError) as error:
        pdparams.read(path)
    assert "'model' (a dict), 'epoch' (a int)" in str(error.value)
    assert "paddle.save(model.state_dict(), path)" in str(error.value)
    assert "'weight'" not in str(error.value)


def test_a_hostile_file_that_paddle_would_run(tmp_path, monkeypatch):
    """Q13: refused before the command runs, the global named."""
    monkeypatch.chdir(tmp_path)

    class Runs:
        def __reduce__(self):
            return os.mkdir, ("MARKER",)

    path = tmp_path / "hostile.pdparams"
    path.write_bytes(pickle.dumps({"weight": Runs()}, 4))
    with pytest.raises(CheckpointError, match="mkdir"):
        pdparams.read(path)
    assert not (tmp_path / "MARKER").exists()


# Writing


def test_round_trip(arrays, tmp_path):
    path = tmp_path / "arrays.pdparams"
    pdparams.write(path, arrays)
    assert_same(pdparams.read(path), arrays)
    assert_same(pickle.loads(path.read_bytes()), arrays)


def test_paddle_load_reads_it(layer, tmp_path):
    path = tmp_path / "model_state.pdparams"
    wanted = {name: value.numpy() for name, value in layer.state_dict().items()}
    pdparams.write(path, wanted)
    assert_same(paddle.load(str(path), return_numpy=True), wanted)
    fresh = Small()
    missing, unexpected = fresh.set_state_dict(paddle.load(str(path)))
    assert not missing and not unexpected
    assert_same({name: value.numpy() for name, value in fresh.state_dict().items()}, wanted)


def test_same_arrays_same_bytes(arrays, tmp_path):
    """Whatever objects carry the values; the digest also holds across Python, NumPy and machines."""
    first, second = tmp_path / "first", tmp_path / "second"
    pdparams.write(first, arrays)
    copies = {str(name.encode(), "utf-8"): array.copy() for name, array in arrays.items()}
    pdparams.write(second, copies)
    assert first.read_bytes() == second.read_bytes()
    pdparams.write(first, {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert hashlib.sha256(first.read_bytes()).hexdigest() == (
        "9ae1e35fc12a8011bb88f049cb59892920780413cfb5346db8fb8721af0c875c"
    )


def test_a_tied_array_is_stored_once(tmp_path):
    path = tmp_path / "tied.pdparams"
    shared = np.arange(2000.0)
    pdparams.write(path, {"words": shared, "decoder": shared})
    assert path.stat().st_size < 1.1 * shared.nbytes
    for got in (pdparams.read(path), pickle.loads(path.read_bytes())):
        np.testing.assert_array_equal(got["words"], shared)
        assert got["decoder"] is got["words"]
    loaded = paddle.load(str(path))
    np.testing.assert_array_equal(loaded["decoder"].numpy(), shared)


def test_a_mapping_that_builds_its_arrays_on_demand(tmp_path):
    """Such arrays may take each other's place in memory; none may be taken for another."""

    class Fresh(Mapping):
        def __getitem__(self, name):
            return np.full(3, int(name))

        def __iter__(self):
            return iter("0123456789")

        def __len__(self):
            return 10

    path = tmp_path / "model_state.pdparams"
    pdparams.write(path, Fresh())
    assert_same(pdparams.read(path), dict(Fresh()))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model_state.pdparams"
    pdparams.write(path, {"a": np.arange(3)})
    before = path.read_bytes()

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pdparams.write(path, {"a": np.arange(4)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_what_no_weight_file_holds_is_refused(tmp_path):
    path = tmp_path / "model_state.pdparams"
    wrong = {
        "good": np.ones(2),
        "text": np.array(["a"]),
        "object": np.array([None]),
        "list": [1.0],
        3: np.ones(1),
    }
    with pytest.raises(CheckpointError) as error:
        pdparams.write(path, wrong)
    for named in ("'text' (<U1)", "'object' (object)", "'list' (list)", "3 (float64)"):
        assert named in str(error.value)
    assert "'good'" not in str(error.value)
    assert not path.exists()
