"""Which examples share a batch: those of about the same length, in an order that any number of processes agrees on.

The plan of an epoch follows from the lengths, the settings, the seed and the epoch alone. Each process computes all of
it and reads its share, so a run goes on after a stop at any batch, on any number of processes. Needs no Paddle.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np

# Shuffled examples are sorted by length this many batches at a time: examples meet others in each epoch, and padding
# stays small (see `LengthBatchSampler`).
POOL_BATCHES = 100
_POOLS, _ORDER = range(2)  # what a generator is for


def feature_lengths(features: "Sequence[Mapping[str, Any]]") -> "list[int]":
    """Tokens of each feature; of one with choices all its rows, padded to the longest of them."""
    lengths = []
    for feature in features:
        ids = feature["input_ids"]
        is_nested = len(ids) > 0 and hasattr(ids[0], "__len__")
        lengths.append(len(ids) * max(map(len, ids)) if is_nested else len(ids))
    return lengths


class LengthBatchSampler:
    """Batches of examples of about the same length, for `batch_sampler` of `paddle.io.DataLoader`.

    Shuffled, the examples of an epoch come in random order, are sorted by length within pools of about `POOL_BATCHES`
    batches, cut into batches, and the batches of all pools come in random order. With a token budget T, the padding of
    a pool is at most T * ln(longest / shortest): a batch of lengths from s to l holds at most T / l examples, so its
    padding is at most T * (l - s) / l <= T * ln(l / s), and these sum up along the sorted pool. With a fixed batch size
    it is at most batch_size * (longest - shortest). Both hold for the global batch, so for each process's share too.

    Args:
        lengths: tokens of each example (see `feature_lengths`).
        tokens_per_batch: tokens of a global batch at most, padding included unless `unpad`; a longer example is a batch
            of its own.
        batch_size: examples of a global batch. Give one of the two.
        unpad: the model removes padding, so that real tokens alone count.
        pad_to_multiple_of: as the collator's, for the length that counts.
        minimum_rows: no batch has fewer examples, even where `tokens_per_batch` or `batch_size` is exceeded for it. At
            least the number of processes, so that each gets a share.
        shuffle: False sorts all examples, the longest first, the same in every epoch.
        seed: an integer from 0 on.
        rank, processes: this process, 0 .. processes - 1, and how many there are. Its share of a batch is every
            `processes`-th example of it from number `rank` on, so that shares are alike in length.

    A pass goes from the batch that `set_epoch` gave to the end of the epoch; the next pass begins the next epoch. A
    pass that is broken off changes nothing, and the next one begins where it began.

    Raises:
        ValueError: no examples, a setting out of its range, or fewer examples than processes.
    """

    def __init__(
        self,
        lengths: "Sequence[int]",
        *,
        tokens_per_batch: Optional[int] = None,
        batch_size: Optional[int] = None,
        unpad: bool = False,
        pad_to_multiple_of: int = 1,
        minimum_rows: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        if (tokens_per_batch is None) == (batch_size is None):
            raise ValueError(
                f"Give tokens_per_batch or batch_size, one of the two, but got {tokens_per_batch} and {batch_size}."
            )
        for name, value, least in (
            ("tokens_per_batch", tokens_per_batch, 1),
            ("batch_size", batch_size, 1),
            ("pad_to_multiple_of", pad_to_multiple_of, 1),
            ("minimum_rows", minimum_rows, 1),
            ("seed", seed, 0),
            ("rank", rank, 0),
            ("processes", processes, 1),
        ):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"{name} must be a whole number of at least {least}, but got {value!r}.")
        if rank >= processes:
            raise ValueError(f"rank must be below processes={processes}, but got {rank}.")
        if minimum_rows < processes:
            raise ValueError(
                f"Every batch must hold an example for each of {processes} processes, but minimum_rows is "
                f"{minimum_rows}: set it to {processes} or more, and the same for any number of processes whose "
                "batches are to be equal."
            )
        if batch_size is not None and batch_size < minimum_rows:
            raise ValueError(f"batch_size must be at least minimum_rows={minimum_rows}, but got {batch_size}.")
        real = np.asarray(lengths, "int64")
        if real.ndim != 1 or len(real) < processes or real.min() < 1:
            raise ValueError(
                f"lengths must be the tokens of at least {processes} examples, each at least 1, but got "
                f"{len(real)} of them{f', the shortest {real.min()}' if real.size else ''}: check the data."
            )
        padded = -(-real // pad_to_multiple_of) * pad_to_multiple_of
        self._lengths = real if unpad else padded
        self.tokens_per_batch, self.batch_size, self.unpad = tokens_per_batch, batch_size, unpad
        self.minimum_rows, self.shuffle, self.seed = minimum_rows, shuffle, seed
        self.rank, self.processes = rank, processes
        self.epoch, self.first_batch = 0, 0
        self._plan: "tuple[int, list[np.ndarray]]" = (-1, [])

    def set_epoch(self, epoch: int, first_batch: int = 0) -> None:
        """The next pass goes through this epoch, from this of its batches on (both from 0).

        Raises:
            ValueError: the epoch has fewer batches.
        """
        if not 0 <= first_batch <= len(self.batches(epoch)):
            raise ValueError(
                f"first_batch must be from 0 to {len(self.batches(epoch))}, the batches of epoch {epoch}, but got "
                f"{first_batch}: the data or the settings have changed."
            )
        self.epoch, self.first_batch = epoch, first_batch

    def resume(self, number: int) -> None:
        """The next pass begins with this batch, counted from 0 through all epochs."""
        epoch = 0
        while number >= len(self.batches(epoch)):
            number -= len(self.batches(epoch))
            epoch += 1
        self.set_epoch(epoch, number)

    def batches(self, epoch: int) -> "list[np.ndarray]":
        """The global batches of an epoch in their order, each the indices of its examples, the longest first."""
        if not self.shuffle:
            epoch = 0
        if self._plan[0] != epoch:
            self._plan = epoch, self._planned(epoch)
        return self._plan[1]

    def __iter__(self) -> "Iterator[list[int]]":
        for batch in self.batches(self.epoch)[self.first_batch :]:
            yield batch[self.rank :: self.processes].tolist()
        self.epoch, self.first_batch = self.epoch + 1, 0

    def __len__(self) -> int:
        """Batches of the next pass. Epochs may differ by a few, as examples meet others in each."""
        return len(self.batches(self.epoch)) - self.first_batch

    def _planned(self, epoch: int) -> "list[np.ndarray]":
        count = len(self._lengths)
        if not self.shuffle:
            return self._cut(np.arange(count))
        order = np.random.default_rng([_POOLS, epoch, self.seed]).permutation(count)
        found = [batch for pool in self._pools(order) for batch in self._cut(pool)]
        places = np.random.default_rng([_ORDER, epoch, self.seed]).permutation(len(found))
        return [found[place] for place in places]

    def _pools(self, order: np.ndarray) -> "list[np.ndarray]":
        """The examples in equal parts of about `POOL_BATCHES` batches."""
        if self.batch_size is not None:
            size = POOL_BATCHES * self.batch_size
            borders = list(range(size, len(order), size))
            if borders and len(order) - borders[-1] < self.minimum_rows:
                borders.pop()
            return np.split(order, borders)
        rows = (self.tokens_per_batch or 0) / self._lengths.mean()
        size = POOL_BATCHES * int(max(self.minimum_rows, rows))
        return np.array_split(order, max(1, round(len(order) / size)))

    def _cut(self, pool: np.ndarray) -> "list[np.ndarray]":
        """Batches of a pool; of equal lengths those that come first in the pool are taken first."""
        pool = pool[np.argsort(-self._lengths[pool], kind="stable")]
        lengths = self._lengths[pool].tolist()
        starts = [0]
        tokens = 0
        for place, length in enumerate(lengths):
            rows = place - starts[-1]
            if rows >= self.minimum_rows and not self._fits(rows + 1, lengths[starts[-1]], tokens + length):
                starts.append(place)
                tokens = 0
            tokens += length
        if len(starts) > 1 and len(pool) - starts[-1] < self.minimum_rows:
            # The last batch takes examples of the one before, and joins it where that would then have too few.
            border = len(pool) - self.minimum_rows
            starts[-1:] = [border] if border - starts[-2] >= self.minimum_rows else []
        return np.split(pool, starts[1:])

    def _fits(self, rows: int, longest: int, tokens: int) -> bool:
        if self.batch_size is not None:
            return rows <= self.batch_size
        return (tokens if self.unpad else rows * longest) <= (self.tokens_per_batch or 0)
