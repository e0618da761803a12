"""The examples of each step, made ahead of it, in order, by a thread or by processes of their own."""

import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Optional

import numpy as np

from paddle_nezha._children import end_with_parent
from paddle_nezha.training.examples import ExampleStream

logger = logging.getLogger("paddle_nezha")

# Steps made ahead, for each worker: one is worked on while another waits.
_AHEAD = 2


@dataclass(frozen=True)
class Share:
    """Which examples of a step one process computes.

    Args:
        batch_size: examples of a step, over all processes.
        first: of them, where this process's begin.
        count: how many micro-batches it makes of them.
        size: how many each of these holds.
    """

    batch_size: int
    first: int
    count: int
    size: int


@dataclass(frozen=True)
class StepBatches:
    """Micro-batches of a step, and where its examples begin in the stream (`ExampleStream.position`)."""

    step: int
    batches: "list[dict[str, np.ndarray]]"
    position: "dict[str, int]"


class Maker:
    """Makes the batches of any step; it can be sent to another process."""

    def __init__(self, stream: ExampleStream, share: Share):
        self._stream, self._share = stream, share

    def __call__(self, step: int) -> StepBatches:
        begin = step * self._share.batch_size
        size, first = self._share.size, begin + self._share.first
        batches = [self._stream.batch(first + number * size, size) for number in range(self._share.count)]
        return StepBatches(step, batches, self._stream.position(begin))


@contextmanager
def step_batches(maker: Maker, first: int, end: int, workers: int) -> "Iterator[Iterator[StepBatches]]":
    """The batches of steps first .. end - 1, the same whatever the workers.

    Args:
        workers: processes that make them; 0 is a thread of this one.
    """
    with ExitStack() as stack:
        yield _all(maker, first, end, workers, stack)


def _all(maker: Maker, first: int, end: int, workers: int, stack: ExitStack) -> "Iterator[StepBatches]":
    try:
        for made in _in_order(maker, first, end, workers, stack):
            first = made.step + 1
            yield made
    except BrokenProcessPool:
        logger.warning(
            "A process that makes batches died (was it killed for want of memory?): this process makes them from step "
            "%d on, the same ones.",
            first + 1,
        )
        yield from _in_order(maker, first, end, 0, stack)


def _in_order(maker: Maker, first: int, end: int, workers: int, stack: ExitStack) -> "Iterator[StepBatches]":
    executor = stack.enter_context(_executor(maker, workers))
    stack.callback(executor.shutdown, wait=False, cancel_futures=True)  # runs before the executor's own, which waits
    make, ahead = (maker if workers == 0 else _made), _AHEAD * max(1, workers)
    waiting: "deque[Future[StepBatches]]" = deque()
    for step in range(first, end):
        while len(waiting) < ahead and step + len(waiting) < end:
            waiting.append(executor.submit(make, step + len(waiting)))
        yield waiting.popleft().result()


def _executor(maker: Maker, workers: int) -> Executor:
    if workers == 0:
        return ThreadPoolExecutor(1)
    # Spawned, since a process that runs Paddle has threads, which a fork would not take along.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(maker,))


_maker: Optional[Maker] = None


def _begin_worker(maker: Maker) -> None:
    global _maker
    _maker = maker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches it too, and the trainer ends it
    end_with_parent()


def _made(step: int) -> StepBatches:
    assert _maker is not None
    return _maker(step)
