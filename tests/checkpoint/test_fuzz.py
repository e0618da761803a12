"""Mutated files: every outcome is a right read or a CheckpointError."""

import pickle

import numpy as np
import pytest

from paddle_nezha.checkpoint import CheckpointError, pdparams, safetensors

MUTANTS = 200  # of each kind of file, five kinds


@pytest.fixture
def arrays(rng):
    return {
        "pooler.dense.weight": rng.standard_normal((5, 7)).astype(np.float32),
        "pooler.dense.bias": rng.standard_normal(1100),  # 8,800 bytes: beyond what the reader keeps inline
        "half": rng.standard_normal((2, 3)).astype(np.float16).T,
        "index": np.arange(4),
    }


def write_pickle(protocol):
    def write(path, arrays):
        table = {"StructuredToParameterName@@": dict.fromkeys(arrays, "linear_0.w_0")}
        path.write_bytes(pickle.dumps({**arrays, **table}, protocol))

    return write


KINDS = {
    "pickle 2": (pdparams.read, write_pickle(2)),
    "pickle 3": (pdparams.read, write_pickle(3)),
    "pickle 4": (pdparams.read, write_pickle(4)),
    "pdparams": (pdparams.read, pdparams.write),
    "safetensors": (safetensors.read, safetensors.write),
}


def mutated(whole, rng):
    """One to four changes, mostly near the start, where the instructions are."""
    content = whole
    for _ in range(rng.integers(1, 5)):
        start = int(min(rng.exponential(len(content) / 20), len(content) - 1)) if rng.random() < 0.8 else 0
        start = start or int(rng.integers(len(content)))
        stop = start + int(rng.integers(1, 9))
        noise = rng.bytes(int(rng.integers(1, 9)))
        content = [
            content[:start] + bytes([content[start] ^ (1 << int(rng.integers(8)))]) + content[start + 1 :],
            content[:start] + noise + content[stop:],
            content[:start] + content[stop:],
            content[:stop] + content[start:],
            content[:start] + b"\xff" * 4 + content[start + 4 :],
            content[: max(start, 1)],
        ][rng.integers(6)] or whole
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_read_or_refused(kind, arrays, rng, tmp_path):
    read, write = KINDS[kind]
    path = tmp_path / "file"
    write(path, arrays)
    whole = path.read_bytes()
    refused = 0
    for _ in range(MUTANTS):
        content = mutated(whole, rng)
        path.write_bytes(content)
        try:
            got = read(path)
        except CheckpointError as error:
            refused += 1
            assert str(path) in str(error)
        else:
            assert all(type(name) is str and type(array) is np.ndarray for name, array in got.items())
            assert sum(array.nbytes for array in got.values()) <= len(content)
    assert 0 < refused < MUTANTS  # the mutations reach the instructions, and some only the values
