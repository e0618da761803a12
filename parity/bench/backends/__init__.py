"""The engines' insides. Each module is imported, with its framework, only in the process that measures it."""

from importlib import import_module
from typing import Any, Callable, Protocol

from parity.bench.plan import Case, Engine, Setting

_HERE = "parity.bench.backends"
BACKENDS = {
    "ours": f"{_HERE}.ours:Ours",
    "bert": f"{_HERE}.bert:PaddleBert",
    "published": f"{_HERE}.published:Published",
    "paddlenlp": f"{_HERE}.foreign:PaddleNLP",
    "transformers": f"{_HERE}.foreign:Transformers",
    "inference": f"{_HERE}.inference:OursServed",
    "bert-inference": f"{_HERE}.inference:BertServed",
    "onnxruntime": f"{_HERE}.served:OnnxRuntime",
    "openvino": f"{_HERE}.served:OpenVino",
}


class Unavailable(Exception):
    """This engine cannot be measured here; the message says why."""


class Backend(Protocol):
    """One engine, opened in this process."""

    facts: "dict[str, str]"

    def build(self) -> None:
        """Makes the whole model, if it is not there yet."""

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        """What computes `task` once on inputs of this shape, which are made now."""

    def forget(self) -> None:
        """Drops tables that calls have left behind, for the next call to make them again."""


def open_backend(engine: Engine, setting: Setting) -> Backend:
    """
    Raises:
        Unavailable: a library is missing, or offers not what is needed.
    """
    module, _, name = BACKENDS[engine.backend].partition(":")
    return getattr(import_module(module), name)(engine, setting)
