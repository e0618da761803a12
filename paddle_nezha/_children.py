"""Processes that this package starts."""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """From now on this process ends when the one that started it does, however that ends: a killed parent tells nobody,
    and its workers would wait for it for ever."""
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
