"""TensorFlow checkpoints: those in `tensorflow_sample`, which a real TensorFlow wrote, and hostile ones made here."""

import itertools
import re
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tensorflow_sample.make_sample import OPTIMIZER, bert, others, partitioned, slots

from paddle_nezha.checkpoint import CheckpointError, tensorflow
from paddle_nezha.checkpoint.tensorflow import sstable
from paddle_nezha.checkpoint.tensorflow.crc32c import crc32c, unmasked

SAMPLE = Path(__file__).with_name("tensorflow_sample")
SINGLE, SHARDED = "model.ckpt-90.data-00000-of-00001", "model.ckpt-90.data-00001-of-00002"
INDEX = "model.ckpt-90.index"
MUTANTS = 500


@pytest.fixture
def copied(tmp_path):
    """Copies one folder of the sample, so that it can be damaged: name -> path."""

    def copy(name):
        return Path(shutil.copytree(SAMPLE / name, tmp_path / name))

    return copy


@pytest.fixture
def traced():
    """The most bytes that were in use at once."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def assert_same(got, wanted):
    assert list(got) == sorted(wanted)
    for name, array in wanted.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(got[name], array, err_msg=name)


# What a real TensorFlow wrote


def test_the_model_without_its_optimizer():
    """Q21: the file is three times the model; the rest is named, counted and never read."""
    assert_same(tensorflow.read(SAMPLE / "single"), bert())
    with tensorflow.open_file(SAMPLE / "single") as tensors:
        assert set(tensors.skipped) == {*slots(), *OPTIMIZER}
        reasons = list(tensors.skipped.values())
    assert reasons.count("a moment of the optimizer") == 2 * len(bert())
    assert reasons.count("the state of the loss scale") == 2 and reasons.count("a counter of the training") == 1


def test_two_data_files_and_partitioned_variables():
    whole = {name: array for name, (_, array) in partitioned().items()}
    assert_same(tensorflow.read(SAMPLE / "sharded"), {**bert(), **whole})


def test_every_dtype():
    assert_same(tensorflow.read(SAMPLE / "dtypes"), others())
    with tensorflow.open_file(SAMPLE / "dtypes") as tensors:
        assert list(tensors.skipped) == ["text"] and tensors.skipped["text"].startswith("text")
        assert {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()} == {
            name: (array.dtype, array.shape) for name, array in others().items()
        }


def test_object_based_checkpoint():
    kernel = bert()["bert/pooler/dense/kernel"]
    assert_same(tensorflow.read(SAMPLE / "object"), {"model/kernel/.ATTRIBUTES/VARIABLE_VALUE": kernel})
    with tensorflow.open_file(SAMPLE / "object") as tensors:
        assert set(tensors.skipped) == {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE"}


def test_what_is_read_is_ones_own():
    with tensorflow.open_file(SAMPLE / "sharded") as tensors:
        for tensor in tensors.values():
            one, other = tensor.read(), tensor.read()
            assert one.flags.c_contiguous and one.flags.writeable and one.dtype.isnative
            assert not np.shares_memory(one, other)


@pytest.mark.parametrize("name", ["v1", "v1/model.ckpt-90", "v1/model.ckpt-90.meta"])
def test_the_first_format_is_refused_by_name(name):
    with pytest.raises(CheckpointError, match=r"of the first format .* save it again"):
        tensorflow.read(SAMPLE / name)


@pytest.mark.parametrize(
    "name",
    [
        *("bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/kernel/lamb_v", "bert/pooler/dense/bias/Adam"),
        *(
            "bert/pooler/dense/bias/Adam_1",
            "a/kernel/AdamWeightDecayOptimizer_1",
            "a/LayerNorm/beta/LAMB",
            "a/b/shadow",
        ),
        *("global_step", "beta1_power", "beta2_power_1", "loss_scale", "current_loss_scale", "opt/good_steps"),
        *(
            "bad_steps",
            "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE",
            "optimizer/_variables/3/.ATTRIBUTES/VARIABLE_VALUE",
        ),
        "model/a/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE",
    ],
)
def test_what_belongs_to_the_training(name):
    assert tensorflow.is_slot(name)


def test_no_variable_of_the_model_belongs_to_the_training():
    names = [*bert(), "output_weights", "output_bias", "adam_m/kernel", "loss_scaled", "Adam/dense/kernel"]
    assert [name for name in names if tensorflow.is_slot(name)] == []


# Where it is


@pytest.mark.parametrize("ending", ["", ".index", ".data-00000-of-00001", ".meta"])
def test_prefix_or_any_of_its_files(copied, ending):
    """Q23. The graph may be missing: nothing in it is needed."""
    folder = copied("single")
    assert_same(tensorflow.read(folder / f"model.ckpt-90{ending}"), bert())


def test_folder_with_and_without_its_state(copied):
    folder = copied("single")
    assert_same(tensorflow.read(str(folder) + "/"), bert())
    assert_same(tensorflow.read(folder / "checkpoint"), bert())
    (folder / "checkpoint").unlink()
    assert_same(tensorflow.read(folder), bert())


def test_relative_path_and_chinese_names(copied, monkeypatch):
    folder = copied("single")
    for file in folder.glob("model*"):
        file.rename(folder / file.name.replace("model.ckpt-90", "哪吒 模型.ckpt"))
    monkeypatch.chdir(folder)
    for path in ("哪吒 模型.ckpt", ".", "checkpoint"):
        assert_same(tensorflow.read(path), bert())


def several(folder):
    for file in folder.glob("model*"):
        shutil.copy(file, folder / file.name.replace("model.ckpt-90", "older"))
        shutil.copy(file, folder / file.name.replace("model.ckpt-90", "哪吒"))
        file.unlink()


@pytest.mark.parametrize(
    "state",
    [
        'model_checkpoint_path: "older"',
        'all_model_checkpoint_paths: "x"\nmodel_checkpoint_path: "/home/trainer/out/older"\n',
        'model_checkpoint_path: "C:\\\\runs\\\\older"',
        r'model_checkpoint_path: "\345\223\252\345\220\222"',
    ],
)
def test_of_several_the_latest(copied, state):
    """The path in the state is that of the machine that trained; only its name is used."""
    folder = copied("single")
    several(folder)
    (folder / "older.index").write_bytes((folder / "older.index").read_bytes())
    (folder / "checkpoint").write_text(state)
    assert_same(tensorflow.read(folder), bert())
    chosen = "哪吒" if "\\345" in state else "older"
    (folder / f"{chosen}.index").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"{chosen}.index is corrupt"):
        tensorflow.read(folder)


@pytest.mark.parametrize(
    "state", [None, "", 'model_checkpoint_path: "../single/gone"', "\0" * 100, 'model_checkpoint_path: "']
)
def test_several_and_no_latest_are_refused(copied, state):
    folder = copied("single")
    several(folder)
    (folder / "checkpoint").unlink()
    if state is not None:
        (folder / "checkpoint").write_text(state)
    with pytest.raises(CheckpointError, match="holds 2 TensorFlow checkpoints, older, 哪吒, .* Give the prefix of one"):
        tensorflow.read(folder)


def test_a_state_cannot_lead_out_of_its_folder(copied, tmp_path):
    folder = copied("single")
    several(folder)
    for file in SAMPLE.glob("single/model*"):
        shutil.copy(file, tmp_path)
    (folder / "checkpoint").write_text('model_checkpoint_path: "../model.ckpt-90"')
    with pytest.raises(CheckpointError, match="holds 2 TensorFlow checkpoints"):
        tensorflow.read(folder)


def test_missing_files_are_named(copied, tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.index does not exist .no file begins so"):
        tensorflow.read(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="holds no TensorFlow checkpoint: .* but found nothing"):
        tensorflow.read(tmp_path / "empty")
    folder = copied("sharded")
    (folder / SHARDED).unlink()
    with pytest.raises(CheckpointError, match=f"of its 2 data files these are not: {SHARDED}. Copy them beside it"):
        tensorflow.read(folder)
    (folder / INDEX).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{INDEX} does not exist .beside it are only .*data-00000-of-00002"):
        tensorflow.read(folder / "model.ckpt-90")


def test_other_files_are_named(tmp_path):
    (tmp_path / "page").write_text("<html>404</html>")
    with pytest.raises(CheckpointError, match="page is no part of a TensorFlow checkpoint: it is a web page"):
        tensorflow.read(tmp_path / "page")
    (tmp_path / "a.index").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n")
    with pytest.raises(CheckpointError, match="a.index is no TensorFlow index: it is a Git LFS pointer"):
        tensorflow.read(tmp_path / "a")
    (tmp_path / "a.index").write_bytes(bytes(5 << 20))
    with pytest.raises(CheckpointError, match="expected at most 4194304 bytes, but it holds 5242880"):
        tensorflow.read(tmp_path / "a")


# Damage


def test_every_bit_of_the_index_counts(copied, rng):
    index = copied("dtypes") / INDEX
    whole = index.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        index.write_bytes(changed)
        with pytest.raises(CheckpointError, match=re.escape(f"{index} is corrupt or truncated")):
            tensorflow.read(index)


def test_every_bit_of_the_data_counts(copied, rng):
    data = copied("dtypes") / SINGLE
    whole = data.read_bytes()
    text = len(b"\x06\x00") + 4 + len("哪吒".encode())  # skipped, and so unchecked
    unnoticed = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        data.write_bytes(changed)
        with tensorflow.open_file(data) as tensors:  # the index is right: only the tensor that was hit is refused
            wrong = [name for name, tensor in tensors.items() if not readable(tensor)]
        assert len(wrong) <= 1
        unnoticed += not wrong
    assert unnoticed == text


def readable(tensor):
    try:
        tensor.read()
    except CheckpointError as error:
        assert "is corrupt: the checksum of" in str(error)
        return False
    return True


def test_every_cut_is_named(copied):
    """Q24: the size that came, and for the data the least that was expected."""
    folder = copied("dtypes")
    index, data = folder / INDEX, folder / SINGLE
    whole, bytes_ = index.read_bytes(), data.read_bytes()
    for size in range(len(whole)):
        index.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=f"corrupt or truncated: its {size} bytes should end in 57fb"):
            tensorflow.read(folder)
    index.write_bytes(whole)
    for size in range(len(bytes_)):
        data.write_bytes(bytes_[:size])
        with pytest.raises(
            CheckpointError, match=f"expected at least {len(bytes_)} bytes, but the file holds {size} b"
        ):
            tensorflow.read(folder)


# Hostile files, whose checksums are right


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(*parts):
    """(field, int), (field, bytes) or (field, checksum as a float, for fixed32)."""
    out = b""
    for field, value in parts:
        if isinstance(value, bytes):
            out += varint(field << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            out += varint(field << 3 | 5) + struct.pack("<I", int(value))
        else:
            out += varint(field << 3) + varint(value)
    return out


def masked(data):
    checksum = crc32c(np.frombuffer(data, np.uint8))
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def block(entries, kind=0):
    """A block, sealed: its entries as (shared, more of the key, value)."""
    body = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value for shared, key, value in entries
    )
    return seal(body + struct.pack("<II", 0, 1), kind)


def seal(body, kind=0):
    return body + bytes([kind]) + struct.pack("<I", masked(body + bytes([kind])))


def table(*blocks, handles=None):
    """Blocks, an empty metaindex, the index of `handles` (offset, size), the footer."""
    ends = list(itertools.accumulate(len(one) for one in blocks))
    handles = handles or [(end - len(one), len(one) - 5) for one, end in zip(blocks, ends)]
    named = [(0, struct.pack(">I", number), varint(at) + varint(size)) for number, (at, size) in enumerate(handles)]
    meta, index = block([]), block(named)
    at = ends[-1] if ends else 0
    footer = varint(at) + varint(len(meta) - 5) + varint(at + len(meta)) + varint(len(index) - 5)
    return b"".join((*blocks, meta, index)) + footer.ljust(40, b"\0") + sstable.MAGIC


def header(shards=1, *more):
    return message((1, shards), *more)


def shape(*sizes):
    return message(*((2, message((1, size))) for size in sizes))


def entry(dtype=1, sizes=(2,), shard=0, offset=0, size=8, *more, checksum=0):
    return message((1, dtype), (2, shape(*sizes)), (3, shard), (4, offset), (5, size), (6, float(checksum)), *more)


def extents(*parts):
    return message(*((1, message((1, start), (2, length))) for start, length in parts))


def slice_key(start, length):
    """Of a variable "v" of one axis; numbers below 64."""
    return b"\0v\0\1\1\1" + bytes([0x80 ^ start, 0x80 ^ length])


def sliced(*parts, whole=(6,), dtype=1):
    """ "v" in slices (start, length), whose entries lie one after another."""
    pieces = {
        slice_key(start, length): entry(1, (length,), 0, 4 * start, 4 * length, checksum=masked(bytes(4 * length)))
        for start, length in parts
    }
    slices = ((7, extents(part)) for part in parts)
    return {**pieces, b"v": message((1, dtype), (2, shape(*whole)), *slices)}


@pytest.fixture
def bundle(tmp_path):
    """Writes an index of these entries beside 64 bytes of data: its prefix."""

    def write(entries, head=None):
        entries = {b"": header() if head is None else head, **entries}
        return raw(table(block([(0, key, value) for key, value in sorted(entries.items())])))

    def raw(index):
        (tmp_path / "hostile.index").write_bytes(index)
        (tmp_path / "hostile.data-00000-of-00001").write_bytes(bytes(64))
        return tmp_path / "hostile"

    write.raw = raw
    return write


def test_the_writer_of_these_tests(bundle):
    """What is hostile below differs from something that is read."""
    got = tensorflow.read(bundle({b"a": entry(offset=24, checksum=masked(bytes(8))), **sliced((2, 4), (0, 2))}))
    assert_same(got, {"a": np.zeros(2, np.float32), "v": np.zeros(6, np.float32)})


def test_big_endian_data(bundle):
    prefix = bundle({b"a": entry(3, (2,), checksum=masked(struct.pack(">2i", 1, -2)))}, header(1, (2, 1)))
    prefix.with_name("hostile.data-00000-of-00001").write_bytes(struct.pack(">2i", 1, -2))
    assert_same(tensorflow.read(prefix), {"a": np.array([1, -2], np.int32)})


@pytest.mark.parametrize(
    ("entries", "head", "named"),
    [
        ({}, header(0), "counts 0 data files"),
        ({}, header(-1), "counts -1 data files"),
        ({}, header(10**9), "counts 1000000000 data files"),
        ({}, b"", "counts 0 data files"),
        ({}, header(1, (3, message((2, 7)))), "is not read: it needs version 7 .* save it again"),
        ({}, b"\xff" * 12, "more than 64 bits"),
        ({b"a": entry(shard=1)}, None, "a should lie in data file 1 of 1"),
        ({b"a": entry(shard=-1)}, None, "data file -1 of 1"),
        ({b"a": entry(shard=99_999)}, header(100_000), "hostile.data-99999-of-100000"),
        ({b"a": entry(offset=-8)}, None, "at byte -8"),
        ({b"a": entry(size=-8)}, None, "-8 bytes"),
        ({b"a": entry(offset=60)}, None, "expected at least 68 bytes, but the file holds 64"),
        ({b"a": entry(offset=2**62)}, None, "expected at least"),
        ({b"a": entry(), b"b": entry()}, None, "b shares its bytes with another tensor"),
        ({b"a": entry(), b"b": entry(offset=4)}, None, "b shares its bytes"),
        ({b"a": entry(sizes=(3,))}, None, r"a of shape \[3\] needs 12 bytes but has 8"),
        ({b"a": entry(sizes=(-1, -2))}, None, r"a has the shape \[-1, -2\]"),
        ({b"a": entry(sizes=(2**62, 0), size=0)}, None, "a has the shape"),
        ({b"a": entry(sizes=(1,) * 33)}, None, "a has the shape"),
        ({b"a": entry(sizes=(2**31, 2**31), size=2**62)}, None, "a has the shape"),
        ({b"a": entry(8, (1,))}, None, r"neither integers nor floats: a \(type 8\)"),
        ({b"a": entry(0, (1,))}, None, r"a \(type 0\)"),
        ({b"a": b"\x0a\xff"}, None, "the entry of a holds a number runs beyond its end"),
        ({b"a": b"\x0a\x09"}, None, "a field runs beyond its end"),
        ({b"a": b"\x0b"}, None, "a field of wire type 3"),
        ({b"\xff\xfe": entry()}, None, "is not UTF-8"),
        ({b"a": entry(checksum=1)}, None, "the checksum of a, 8 bytes at byte 0, is wrong"),
        # Slices
        (sliced((0, 2), (3, 3)), None, "do not make up its shape"),
        (sliced((0, 4), (2, 2)), None, "shares its bytes"),
        (sliced((0, 2), (2, 2)), None, "leave a part of its shape"),
        (sliced((0, 6), whole=(2**40,)), None, "leave a part of its shape"),
        (sliced((0, 6), whole=(6, 1)), None, "another number of axes"),
        (sliced((0, 6), dtype=3), None, "do not make up its shape"),
        (sliced((0, 6), dtype=7) | {b"\0w": entry(offset=32)}, None, "belong to no variable"),
        ({b"v": message((1, 1), (2, shape(6)), (7, extents((0, 6))))}, None, "there is no slice"),
        ({b"v": message((1, 1), (2, shape(6)), *[(7, b"\x0a\x00" * 300)] * 2)}, None, "another number of axes"),
        ({b"v": message((1, 1), (2, shape()), (7, b""))}, None, "there is no slice"),
    ],
)
def test_entries_that_lie(bundle, entries, head, named):
    with pytest.raises(CheckpointError, match=named) as error:
        tensorflow.read(bundle(entries, head))
    assert "hostile" in str(error.value)


def test_tables_that_lie(bundle):
    one = block([(0, b"", header())])
    two = block([(0, b"a", entry())])
    restarts = seal(struct.pack("<I", 2**32 - 1))
    cases = {
        "it has no header": table(two),
        "its keys are not in ascending order": table(two, one),
        "its blocks overlap or are out of order": table(one, handles=[(0, len(one) - 5)] * 2),
        "runs beyond byte": table(one, handles=[(0, 2**63)]),
        "checksum of the block at byte 0 is wrong": table(one[:-1] + b"\0"),
        "is compressed, .* Open it with TensorFlow and save it again": table(block([(0, b"", header())], kind=1)),
        "a block of 4 bytes with 4294967295 restart positions": table(restarts),
        "a block without its restart positions": table(seal(b"")),
        "an entry runs beyond its block": table(block([(1, b"", b"")])),
        "keys beyond 512 bytes": table(block([(0, b"a" * 513, b"")])),
        "values beyond 65536": table(block([(0, b"", bytes(65537))])),
        "entries beyond 20000": table(block([(0, b"", b""), *[(0, b"a", b"")] * 20_000])),
        "more than 20000 entries": table(*[block([(0, b"a", b"")] * 15_000)] * 2),
        "the padding of its footer": table(one)[:-9] + b"\1" + sstable.MAGIC,
    }
    for named, index in cases.items():
        with pytest.raises(CheckpointError, match=named):
            tensorflow.read(bundle.raw(index))


def test_the_longest_index_takes_little(bundle, traced):
    """Keys that share most of their bytes with the one before hold much more than the file does."""
    entries = [(0, b"", header()), (0, b"a" * 508 + b"0000", b"")]
    entries += [(508, b"%04x" % number, b"") for number in range(1, 19_000)]
    with pytest.raises(CheckpointError, match=r"neither integers nor floats: a+0000 \(type 0\)"):
        tensorflow.read(bundle.raw(table(block(entries))))
    assert traced() < 50e6  # 19,000 names of 512 bytes, as bytes and as text, and an entry of each


def test_mutants_are_read_or_refused(copied, rng):
    """The checksums are put right, so that the mutations get past them."""
    folders = [copied("dtypes"), copied("sharded"), copied("object")]
    refused = 0
    for number in range(MUTANTS):
        folder = folders[number % len(folders)]
        index = next(folder.glob("*.index"))
        original = SAMPLE / folder.name / index.name
        index.write_bytes(mutated(original.read_bytes(), rng))
        try:
            got = tensorflow.read(index)
        except CheckpointError as error:
            refused += 1
            assert str(folder) in str(error)
        else:
            assert all(type(name) is str and type(array) is np.ndarray for name, array in got.items())
            # bfloat16 takes twice the bytes it has in the file
            assert sum(array.nbytes for array in got.values()) <= 2 * sum(
                file.stat().st_size for file in folder.iterdir()
            )
    assert 0 < refused < MUTANTS


def mutated(whole, rng):
    """One to three changes inside the blocks (the data block above all), whose checksums then fit again."""
    footer = whole[-48:-8]
    meta, meta_size, index, size = itertools.islice(varints(footer), 4)
    body = bytearray(whole[: meta - 5])
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(body)))
        body[place] = [body[place] ^ (1 << int(rng.integers(8))), 0, 0xFF, int(rng.integers(256))][rng.integers(4)]
    if rng.random() < 0.2:
        start = int(rng.integers(len(body)))
        del body[start : start + int(rng.integers(1, 9))]
    named = bytearray(whole[index : index + size])
    if rng.random() < 0.1:
        named[rng.integers(len(named))] ^= 1 << int(rng.integers(8))
    end = len(body) + 5
    meta_block = whole[meta : meta + meta_size + 5]
    footer = varint(end) + varint(meta_size) + varint(end + len(meta_block)) + varint(size)
    # The index block still gives the data block's first size: what was cut off is made up for.
    body += bytes(meta - 5 - len(body))
    return seal(bytes(body)) + meta_block + seal(bytes(named)) + whole[-48:]


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


# Costs


def test_memory(tmp_path, traced):
    """Opening reads no tensor; reading all takes the result, and 1.1 MiB to check one."""
    size = 4 << 20
    data = np.random.default_rng(3).bytes(3 * size)
    entries = {b"": header()}
    for number, name in enumerate((b"a", b"a/adam_m", b"b")):
        part = data[number * size : (number + 1) * size]
        entries[name] = entry(4, (size,), 0, number * size, size, checksum=masked(part))
    (tmp_path / "big.index").write_bytes(table(block([(0, key, value) for key, value in entries.items()])))
    (tmp_path / "big.data-00000-of-00001").write_bytes(data)
    tracemalloc.reset_peak()
    before = traced()
    with tensorflow.open_file(tmp_path / "big"):
        assert traced() - before < 100_000
    got = tensorflow.read(tmp_path / "big")
    assert traced() - before < 2 * size + 1_300_000
    assert list(got) == ["a", "b"] and got["b"].tobytes() == data[2 * size :]


# The checksum, and how slices are named


@pytest.mark.parametrize(
    ("data", "checksum"),
    [  # RFC 3720, appendix B.4, and the check value of the Rocksoft model
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_known_checksums(data, checksum):
    assert crc32c(np.frombuffer(data, np.uint8)) == checksum
    assert unmasked(masked(data)) == checksum


@pytest.mark.parametrize("size", [1, 7, 8, 9, 511, 513, 4097, 87_295, 87_304, 140_001, (1 << 20) + 87_296 + 11])
def test_checksums_of_every_length(size, rng):
    """Against the definition, a bit at a time for a byte's remainder."""
    remainders = [byte for byte in range(256)]
    for _ in range(8):
        remainders = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in remainders]
    data = rng.integers(0, 256, size, np.uint8)
    state = 0xFFFFFFFF
    for byte in data.tobytes():
        state = remainders[(state ^ byte) & 0xFF] ^ state >> 8
    assert crc32c(data) == state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("number", "code"),
    [(0, "80"), (-1, "7f"), (63, "bf"), (64, "c040"), (-64, "40"), (-0x800, "3800"), (0x424242, "f0424242")]
    + [(2**63 - 1, "ffc07fffffffffffffff"), (-(2**63), "003f8000000000000000")],
)
def test_numbers_in_the_keys_of_slices(number, code):
    """The examples of tensorflow/core/lib/strings/ordered_code.cc, and the limits."""
    assert tensorflow._ordered(number).hex() == code
