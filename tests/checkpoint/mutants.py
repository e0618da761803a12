"""Damaged checkpoints: seeded mutations, guided by what the readers say of them.

A mutant that draws a sentence which no mutant of its kind has drawn before (numbers and names apart), or the first that
is read, is kept and mutated further. So the search goes deeper where the reader does, without instrumenting it. Where
a format checks its own bytes (the checksums of TensorFlow and of zip, the lengths of safetensors), the mutation happens
inside and the check is put right, or else nearly every mutant would fail at the door.
"""

import io
import json
import pickle
import re
import struct
import tracemalloc
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
from matrix import save_bundle
from test_tensorflow import SAMPLE, varints
from test_tensorflow import mutated as mutated_bundle

from paddle_nezha.checkpoint import CheckpointError, pdparams, safetensors, tensorflow, torch_files

_KEPT = 300
_LARGEST = 1 << 16  # bytes of a mutant: insertions would grow it for ever
_BUFFERS = 3 << 19  # bytes that a reader takes whatever the file: to check a sum, to read a text
# Numbers at which lengths, offsets and counts go wrong.
_EDGES = [
    struct.pack(f"<{code}", number)
    for code, bits in (("B", 8), ("H", 16), ("I", 32), ("Q", 64))
    for number in (0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1)
]

Mutator = Callable[[bytes, np.random.Generator], bytes]


def arrays() -> "dict[str, np.ndarray]":
    rng = np.random.default_rng(1)
    return {
        "pooler.dense.weight": rng.standard_normal((5, 7)).astype(np.float32),
        "pooler.dense.bias": rng.standard_normal(1100),  # 8,800 bytes: beyond what readers keep inline
        "half": rng.standard_normal((2, 3)).astype(np.float16),
        "index": np.arange(4),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }


# Mutations


def edited(content: bytes, rng: np.random.Generator, changes: int = 4) -> bytes:
    """One to `changes` changes, most of them near the start, where the instructions are."""
    for _ in range(rng.integers(1, changes + 1)):
        if not content:
            break
        near = int(min(rng.exponential(max(len(content) / 20, 16)), len(content) - 1))
        start = near if rng.random() < 0.7 else int(rng.integers(len(content)))
        content = _EDITS[rng.integers(len(_EDITS))](content, start, rng)[:_LARGEST]
    return content


def _stretch(content: bytes, start: int, rng: np.random.Generator) -> int:
    return min(start + 1 + int(rng.exponential(8)), len(content))


def _flip(content, start, rng):
    return content[:start] + bytes([content[start] ^ (1 << int(rng.integers(8)))]) + content[start + 1 :]


def _noise(content, start, rng):
    return content[:start] + rng.bytes(int(rng.integers(1, 9))) + content[_stretch(content, start, rng) :]


def _opcode(content, start, rng):
    return content[:start] + bytes([_OPCODES[rng.integers(len(_OPCODES))]]) + content[start + int(rng.integers(2)) :]


def _cut(content, start, rng):
    return content[:start] + content[_stretch(content, start, rng) :]


def _end(content, start, rng):
    return content[:start]


def _again(content, start, rng):
    return content[: _stretch(content, start, rng)] + content[start:]


def _moved(content, start, rng):
    stop, target = _stretch(content, start, rng), int(rng.integers(len(content)))
    rest = content[:start] + content[stop:]
    return rest[:target] + content[start:stop] + rest[target:]


def _edge(content, start, rng):
    number = _EDGES[rng.integers(len(_EDGES))]
    return content[:start] + number + content[start + len(number) :]


def _digit(content, start, rng):
    """Another decimal number, in text."""
    found = re.compile(rb"\d+").search(content, start)
    if not found:
        return content
    number = [b"0", b"-1", b"9" * 20, b"%d" % rng.integers(10_000), b"1e9"][rng.integers(5)]
    return content[: found.start()] + number + content[found.end() :]


_EDITS = (_flip, _noise, _opcode, _cut, _end, _again, _moved, _edge, _digit)
_NAMED = (getattr(pickle, name) for name in dir(pickle) if name.isupper())
_OPCODES = b"".join(code for code in _NAMED if isinstance(code, bytes) and len(code) == 1)


def inside_zip(content: bytes, rng: np.random.Generator) -> bytes:
    """Half of the time the pickle in the archive, packed again under a right checksum; else the archive itself."""
    if rng.random() < 0.5:
        return edited(content, rng)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            honest = all(record.file_size <= _LARGEST for record in archive.infolist())
            records = {name: archive.read(name) for name in archive.namelist() if honest}
    except Exception:  # a mutant of a mutant, which zipfile cannot open
        return edited(content, rng)
    name = next((name for name in records if name.endswith("data.pkl")), None)
    name = name if name and rng.random() < 0.9 else list(records)[rng.integers(len(records))] if records else None
    if name:
        records[name] = edited(records[name], rng)
    packed, method = io.BytesIO(), [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED][int(rng.random() < 0.2)]
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, part in records.items():
            archive.writestr(name, part)
    return packed.getvalue()


def inside_header(content: bytes, rng: np.random.Generator) -> bytes:
    """Mostly the JSON of a safetensors file, under a length that fits."""
    (length,) = struct.unpack("<Q", content[:8].ljust(8, b"\0"))
    if length > len(content) or rng.random() < 0.3:
        return edited(content, rng)
    text = content[8 : 8 + length]
    if rng.random() < 0.5:
        text = _respelled(text, rng)
    else:
        text = edited(text, rng, changes=2)
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def _respelled(text: bytes, rng: np.random.Generator) -> bytes:
    """The header as JSON, with one value of one tensor another."""
    try:
        header = json.loads(text)
        entry = header[list(header)[rng.integers(len(header))]]
        key = list(entry)[rng.integers(len(entry))]
    except Exception:
        return edited(text, rng)
    odd = (
        None,
        -1,
        2**63,
        2**70,
        1.5,
        "F32",
        "BF16",
        "F8_E4M3",
        [],
        {},
        [0, 0],
        [2**40, 2**40],
        [-1, -1],
        [1, [2]],
        True,
    )
    entry[key] = odd[rng.integers(len(odd))]
    return json.dumps(header).encode()


# Kinds of files


def _pickled(protocol: int) -> bytes:
    parts = arrays()
    if protocol == 2:
        del parts["empty"]  # spelled as a call of `bytes`, which no state dict that holds weights needs
    return pickle.dumps({**parts, "StructuredToParameterName@@": dict.fromkeys(parts, "linear_0.w_0")}, protocol)


def _written(write) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        write(folder / "seed", arrays())
        return (folder / "seed").read_bytes()

    return make


def _torch(**options) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        import torch

        tensors = OrderedDict((name, torch.from_numpy(array.copy())) for name, array in arrays().items())
        tensors.update(turned=tensors["pooler.dense.weight"].T, tied=tensors["index"], brain=torch.ones(3).bfloat16())
        file = io.BytesIO()
        torch.save(tensors, file, **options)
        return file.getvalue()

    return make


def _index_of(name: str) -> Callable[[Path], bytes]:
    """Of a real TensorFlow's checkpoint; its data stay as they are, beside the mutant."""

    def make(folder: Path) -> bytes:
        (index,) = (SAMPLE / name).glob("*.index")
        for file in index.parent.glob("*.data-*"):
            (folder / ("file" + file.name[len(index.stem) :])).write_bytes(file.read_bytes())
        return index.read_bytes()

    return make


def _state_of(folder: Path) -> bytes:
    """The text beside a checkpoint that names the latest one."""
    save_bundle(folder, {"a": np.zeros(2, np.float32)}, "a")
    save_bundle(folder, {"b": np.zeros(2, np.float32)}, "b")
    return b'model_checkpoint_path: "a"\nall_model_checkpoint_paths: "b"\n'


def _shard_index(folder: Path) -> bytes:
    safetensors.write(folder / "one.safetensors", {"a": np.zeros(2, np.float32)})
    safetensors.write(folder / "two.safetensors", {"b": np.zeros(2, np.float32)})
    return json.dumps({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}).encode()


@dataclass(frozen=True)
class Kind:
    """A reader, a right file for it, and what may happen to that.

    Args:
        file: the name that the mutant bears, since some readers go by it.
        growth: what the result may take, in sizes of all files together; beyond it, the reader was lied to.
    """

    read: Callable[[Path], "dict[str, np.ndarray]"]
    seed: Callable[[Path], bytes]
    mutate: Mutator = edited
    file: str = "file"
    growth: float = 1.0


# torch's views may share storages (4 sizes), archives may be packed (16), bfloat16 is given in twice its bytes.
KINDS: "dict[str, Kind]" = {
    "pickle 2": Kind(pdparams.read, lambda folder: _pickled(2)),
    "pickle 3": Kind(pdparams.read, lambda folder: _pickled(3)),
    "pickle 4": Kind(pdparams.read, lambda folder: _pickled(4)),
    "pdparams": Kind(pdparams.read, _written(pdparams.write)),
    "safetensors": Kind(safetensors.read, _written(safetensors.write), inside_header, growth=2),
    "shard index": Kind(safetensors.read, _shard_index, file="model.safetensors.index.json"),
    "torch zip": Kind(torch_files.read, _torch(), inside_zip, growth=8),
    "torch legacy": Kind(torch_files.read, _torch(_use_new_zipfile_serialization=False), growth=8),
    "bundle": Kind(tensorflow.read, _index_of("dtypes"), lambda c, rng: _sealed(c, rng), "file.index", 2),
    "bundle in shards": Kind(tensorflow.read, _index_of("sharded"), lambda c, rng: _sealed(c, rng), "file.index", 2),
    "bundle of objects": Kind(tensorflow.read, _index_of("object"), lambda c, rng: _sealed(c, rng), "file.index", 2),
    "bundle state": Kind(tensorflow.read, _state_of, file="checkpoint"),
}


def _sealed(content: bytes, rng: np.random.Generator) -> bytes:
    """Inside the blocks, whose checksums are put right; of a mutant whose blocks lie elsewhere, anywhere."""
    places = list(varints(content[-48:-8]))[:4]
    if len(places) < 4 or sum(places) > 4 * len(content) or rng.random() < 0.2:
        return edited(content, rng)
    try:
        return mutated_bundle(content, rng)
    except Exception:  # its blocks cannot be found
        return edited(content, rng)


# The search


@dataclass
class Search:
    """Mutants of one kind, one after another."""

    kind: Kind
    folder: Path
    rng: np.random.Generator
    read: int = 0
    refused: int = 0
    said: "set[str]" = field(default_factory=set)
    corpus: "list[bytes]" = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.corpus.append(self.kind.seed(self.folder))
        self.path = self.folder / self.kind.file
        assert self.judge(self.corpus[0]) == "read"

    def run(self, mutants: int) -> None:
        for _ in range(mutants):
            # Half of them from the right file itself.
            parent = self.corpus[0 if self.rng.random() < 0.5 else self.rng.integers(len(self.corpus))]
            content = self.kind.mutate(parent, self.rng)
            assert len(content) <= 2 * _LARGEST
            said = self.judge(content)
            if said not in self.said:
                self.said.add(said)
                self.corpus.append(content)
                if len(self.corpus) > _KEPT:
                    del self.corpus[int(self.rng.integers(1, _KEPT))]

    def judge(self, content: bytes) -> str:
        """What the reader says of a file, in its general form. Fails unless it is a right read or a named error."""
        self.path.write_bytes(content)
        held = sum(file.stat().st_size for file in self.folder.iterdir())
        tracemalloc.start()
        try:
            got = self.kind.read(self.path)
        except (CheckpointError, FileNotFoundError) as error:  # a mutant may name a file that is not there
            assert str(self.folder) in str(error), "an error names its file"
            self.refused += 1
            return re.sub(r"'[^']*'|\d+|0x\w+|\b[0-9a-f]{6,}\b", "#", str(error).replace(str(self.folder), ""))
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= 2 * self.kind.growth * held + _BUFFERS
        assert all(type(name) is str and type(array) is np.ndarray for name, array in got.items())
        assert all(array.flags.c_contiguous and array.dtype.kind in "fiub" for array in got.values())
        once = {id(array): array.nbytes for array in got.values()}
        assert sum(once.values()) <= self.kind.growth * held
        self.read += 1
        return "read"
