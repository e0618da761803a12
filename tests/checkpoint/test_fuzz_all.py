"""Mutated files over all readers: every outcome is a right read or a named error that took no more memory than the file
warrants, never a crash, a hang (the time limit of a test) or another exception. 2,000 of them here, 100,000 in
`make test-slow`."""

import numpy as np
import pytest
from mutants import KINDS, Search

pytest.importorskip("torch")

FEW, MANY = 2_004 // len(KINDS), 100_000 // len(KINDS) + 1


def searched(kind, folder, seed, mutants):
    search = Search(KINDS[kind], folder, np.random.default_rng(seed))
    try:
        search.run(mutants)
    except BaseException:
        print(f"found at mutant {search.read + search.refused + 1} of kind {kind!r}, seed {seed}: {search.path}")
        raise
    return search


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_read_or_refused(kind, tmp_path):
    search = searched(kind, tmp_path, 1909, FEW)
    assert search.read + search.refused == FEW + 1  # the file before any mutation is read
    assert search.refused and len(search.said) > 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_mutants(kind, tmp_path):
    search = searched(kind, tmp_path, 204, MANY)
    print(f"{kind}: {search.read} read, {search.refused} refused, {len(search.said)} different sentences")
    assert search.read + search.refused == MANY + 1 and search.read > 1
