import errno
import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from paddle_nezha.checkpoint import CheckpointError, safetensors


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def arrays(rng):
    return {
        "turned": rng.standard_normal((4, 3)).astype(np.float32).T,
        "half": rng.standard_normal((2, 3)).astype(np.float16),
        "double": rng.standard_normal(5),
        "strided": np.arange(12, dtype=np.int64)[::3],
        "big endian": np.arange(3, dtype=">i4"),
        "scalar": np.array(3, np.float32),
        "flags": np.array([True, False]),
    }


def assert_same(got, wanted):
    assert set(got) == set(wanted)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype.newbyteorder("="), name
        assert got[name].shape == array.shape, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_round_trip(arrays, tmp_path):
    path = tmp_path / "哪吒 模型.safetensors"
    safetensors.write(path, arrays)
    assert_same(safetensors.read(path), arrays)
    assert safetensors.read_metadata(path) == {"format": "np"}
    again = tmp_path / "again.safetensors"
    safetensors.write(again, {name: array.copy() for name, array in arrays.items()})
    assert path.read_bytes() == again.read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, again.name])


def test_metadata_of_ones_own(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.write(path, {"a": np.ones(1)}, {"format": "pt", "step": "7"})
    assert safetensors.read_metadata(path) == {"format": "pt", "step": "7"}
    save_file({"a": np.ones(1)}, path)
    assert safetensors.read_metadata(path) == {}


def test_bfloat16_is_read_exactly(torch, rng, tmp_path):
    """Q58: torch's bfloat16, its NaN, infinities and subnormals included, beside other dtypes."""
    from safetensors.torch import save_file as save_torch

    bits = torch.tensor(rng.integers(-(2**15), 2**15, (50, 7)), dtype=torch.int16)
    tensors = {
        "bits": bits.view(torch.bfloat16),
        "float": torch.ones(3),
        "empty": torch.ones(0, 2, dtype=torch.bfloat16),
    }
    path = tmp_path / "model.safetensors"
    save_torch(tensors, path)
    got = safetensors.read(path)
    assert {name: array.dtype for name, array in got.items()} == dict.fromkeys(tensors, np.dtype(np.float32))
    for name, tensor in tensors.items():
        assert got[name].shape == tuple(tensor.shape)
        np.testing.assert_array_equal(got[name], tensor.float().numpy())


def test_a_dtype_that_numpy_has_not(torch, tmp_path):
    from safetensors.torch import save_file as save_torch

    path = tmp_path / "model.safetensors"
    save_torch({"tiny": torch.ones(2).to(torch.float8_e5m2), "good": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match=r"tiny \(F8_E5M2\)") as error:
        safetensors.read(path)
    assert "good" not in str(error.value)


def test_every_cut_is_named(arrays, tmp_path):
    """Q24: expected and found size; inside the header only a lower bound is known."""
    path = tmp_path / "model.safetensors"
    safetensors.write(path, arrays)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for size in [*range(0, len(whole), 5), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="corrupt or truncated") as error:
            safetensors.read(path)
        assert f"holds {size} bytes" in str(error.value) and str(path) in str(error.value)
        assert size < header or f"expected {len(whole)} bytes" in str(error.value)


@pytest.mark.parametrize("length", [ord("<"), ord("{")])
def test_a_header_length_that_reads_as_a_letter(length, tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(length)
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + header + bytes(3))
    with pytest.raises(CheckpointError, match=f"expected {8 + length + 4} bytes"):
        safetensors.read(path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"<html>404 Not Found: there is nothing of this name</html>", "a web page"),
        (b"\x80\x04}." + bytes(9), "announce"),
        ((2).to_bytes(8, "little") + b"[]", "corrupt"),
        ((3).to_bytes(8, "little") + b"{}}", "corrupt"),
    ],
)
def test_other_content_is_named(content, named, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=named):
        safetensors.read(path)


def test_nothing_is_written_when_an_array_is_wrong(tmp_path):
    with pytest.raises(CheckpointError, match="'text'"):
        safetensors.write(tmp_path / "model.safetensors", {"text": np.array(["a"])})
    assert os.listdir(tmp_path) == []


# Sharded


@pytest.fixture
def sharded(rng, tmp_path):
    """A folder of two shards: (folder, arrays)."""
    arrays = {name: rng.standard_normal(3) for name in ("b", "a", "c")}
    places = {
        "b": "model-1-of-2.safetensors",
        "a": "model-2-of-2.safetensors",
        "c": "model-1-of-2.safetensors",
    }
    for shard in set(places.values()):
        save_file({name: arrays[name] for name in places if places[name] == shard}, tmp_path / shard)
    write_index(tmp_path, places)
    return tmp_path, arrays


def write_index(folder, places):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_sharded_folder_and_index(sharded):
    folder, arrays = sharded
    for path in (folder, folder / "model.safetensors.index.json"):
        got = safetensors.read(path)
        assert list(got) == list(arrays)  # in the index's order
        assert_same(got, arrays)


def test_folder_with_one_file(tmp_path):
    save_file({"a": np.ones(1)}, tmp_path / "model.safetensors")
    assert_same(safetensors.read(tmp_path), {"a": np.ones(1)})


def test_folder_without_weights_lists_what_it_holds(tmp_path):
    with pytest.raises(CheckpointError, match="but it holds nothing"):
        safetensors.read(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="holds config.json"):
        safetensors.read(tmp_path)


@pytest.mark.parametrize("shard", ["../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", "C:a", "a\\b", "", 3])
def test_a_shard_outside_its_folder_is_refused(sharded, shard):
    folder, arrays = sharded
    write_index(folder, dict.fromkeys(arrays, shard))
    with pytest.raises(CheckpointError, match="points outside its folder") as error:
        safetensors.read(folder)
    assert ascii(shard) in str(error.value)


def test_index_and_shards_that_disagree(sharded):
    folder, arrays = sharded
    one, two = "model-1-of-2.safetensors", "model-2-of-2.safetensors"
    write_index(folder, {"b": one, "a": two})
    with pytest.raises(CheckpointError, match="does not place 'c'"):
        safetensors.read(folder)
    write_index(folder, {"b": one, "a": one, "c": one})
    with pytest.raises(CheckpointError, match=r"do not hold: a \(model-1-of-2"):
        safetensors.read(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": {}}}', "[" * 100_000])
def test_an_index_that_is_none(content, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="is no index of shards"):
        safetensors.read(tmp_path)


def test_a_file_that_cannot_grow_is_an_os_error_that_names_it(tmp_path):
    """As a full disk is; the library's own error hides the system's number in its text."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match=r"large\.safetensors") as caught:
            safetensors.write(tmp_path / "large.safetensors", {"a": np.zeros(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())
