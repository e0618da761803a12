"""Processes that do tasks one after another, and end with the one that started them, however that ends."""

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Callable, Optional

from paddle_nezha._children import end_with_parent

from .errors import CorpusError

_GRACE = 5.0  # seconds a process gets to end before it is killed


class Workers:
    """`count` processes, each with its own `prepare(*arguments)`, a function that is called with each task.

    With one worker all is done in this process. Nothing is queued: a task is handed over when a process is free, so
    that no more than `count` tasks are in memory.

    Args:
        prepare: importable by name, as processes are spawned: libraries with threads do not survive a fork.
    """

    def __init__(self, count: int, prepare: "Callable[..., Callable[[Any], Any]]", *arguments: Any) -> None:
        self._count, self._prepare, self._arguments = count, prepare, arguments
        self._run: "Optional[Callable[[Any], Any]]" = None
        self._idle: "list[_Worker]" = []
        self._busy: "list[_Worker]" = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: "Optional[type]", error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        for worker in (*self._idle, *self._busy):
            worker.end()

    def do(self, task: Any) -> "list[Any]":
        """Hands a task over, waiting for a free process, and gives the results that came meanwhile.

        Raises:
            CorpusError: a process died.
            Exception: what a task raised, or RuntimeError with its text.
        """
        if self._count == 1:
            self._run = self._run or self._prepare(*self._arguments)
            return [self._run(task)]
        done = [] if self._has_room() else self._collect()
        worker = self._idle.pop() if self._idle else _Worker(self._prepare, self._arguments)
        self._busy.append(worker)
        worker.send(task)
        return done

    def finish(self) -> "Iterator[Any]":
        """The results that are still to come."""
        while self._busy:
            yield from self._collect()

    def _has_room(self) -> bool:
        return len(self._busy) < self._count

    def _collect(self) -> "list[Any]":
        """Waits for at least one result."""
        ready = wait([worker.pipe for worker in self._busy])
        results = []
        for worker in [one for one in self._busy if one.pipe in ready]:
            results.append(worker.receive())
            self._busy.remove(worker)
            self._idle.append(worker)
        return results


class _Worker:
    def __init__(self, prepare: "Callable[..., Callable[[Any], Any]]", arguments: "tuple[Any, ...]") -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, prepare, arguments), daemon=True)
        with _interrupts_ignored():  # Ctrl-C reaches the whole group; a worker ends when its parent says so
            self.process.start()
        other.close()

    def send(self, task: Any) -> None:
        try:
            self.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None

    def receive(self) -> Any:
        try:
            result, error = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _died(self) -> CorpusError:
        self.process.join(_GRACE)
        code = self.process.exitcode
        return CorpusError(
            f"a worker process died (exit code {code}; -9 is often a lack of memory). What is finished is kept: run "
            "the same command again to go on, with fewer workers if memory was short"
        )


@contextmanager
def _interrupts_ignored() -> "Iterator[None]":
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection, prepare: "Callable[..., Callable[[Any], Any]]", arguments: "tuple[Any, ...]") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    run: "Optional[Callable[[Any], Any]]" = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has left
        while True:
            task = pipe.recv()
            try:
                run = run or prepare(*arguments)
                answer: "tuple[Any, Optional[Exception]]" = (run(task), None)
            except (CorpusError, OSError) as error:
                answer = None, error
            except Exception:  # one that may not survive the way through the pipe
                answer = None, RuntimeError(f"a worker process failed:\n{traceback.format_exc()}")
            pipe.send(answer)
