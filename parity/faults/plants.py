"""The tools that faults are planted with. Each is undone when its `with` block ends."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any, Callable
from unittest import mock

import numpy as np

import paddle_nezha.native
from paddle_nezha._paddle import paddle

Plant = Callable[[Any], "AbstractContextManager[Any]"]
Tensor = Any  # paddle.Tensor, which no type checker knows


def find(model: Any, path: str) -> Any:
    """A part of a model; a path through the encoder begins at "layer.N", one through the base at its own name."""
    if path.startswith("layer."):
        _, number, *rest = path.split(".")
        layer = model.base_model.encoder.layer[int(number)]
        return attrgetter(".".join(rest))(layer) if rest else layer
    root = model if hasattr(model, path.split(".")[0]) else model.base_model
    return attrgetter(path)(root)


def function(module: Any, name: str, make: "Callable[[Any], Any]") -> Plant:
    """`module.name` replaced by `make(module.name)`."""
    return lambda model: mock.patch.object(module, name, make(getattr(module, name)))


def method(path: str, name: str, make: "Callable[[Any, Any], Any]") -> Plant:
    """An attribute or method of one part of the model replaced by `make(original, part)`."""

    def plant(model: Any) -> "AbstractContextManager[Any]":
        part = find(model, path)
        return mock.patch.object(part, name, make(getattr(part, name), part))

    return plant


def input_of(path: str, change: "Callable[..., Any]") -> Plant:
    """The first input of a layer replaced by `change(input)`."""
    return lambda model: _hooked(
        find(model, path).register_forward_pre_hook, lambda _, inputs: (change(inputs[0]), *inputs[1:])
    )


def output_of(path: str, change: "Callable[[Tensor], Tensor]") -> Plant:
    """The output of a layer replaced by `change(output)`."""
    return lambda model: _hooked(
        find(model, path).register_forward_post_hook, lambda _layer, _inputs, output: change(output)
    )


def gradient_of(path: str, change: "Callable[[Tensor], Tensor]") -> Plant:
    """The gradient of a parameter replaced by `change(gradient)`."""
    return lambda model: _hooked(find(model, path).register_hook, change)


@contextmanager
def _hooked(register: "Callable[[Any], Any]", hook: "Callable[..., Any]") -> Iterator[None]:
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


def values(changes: "Callable[[Any], dict[str, np.ndarray]]") -> Plant:
    """Parameters given other values: `changes(model)` by path."""

    @contextmanager
    def plant(model: Any) -> Iterator[None]:
        new = changes(model)
        old = {path: find(model, path).numpy() for path in new}
        try:
            _set(model, new)
            yield
        finally:
            _set(model, old)

    return plant


def value(path: str, change: "Callable[[np.ndarray], np.ndarray]") -> Plant:
    """One parameter given the value `change(value)`."""
    return values(lambda model: {path: change(find(model, path).numpy().copy())})


def swapped(*pairs: "tuple[str, str]") -> Plant:
    """Each pair of parameters given each other's values."""
    return values(
        lambda model: {
            **{one: find(model, other).numpy() for one, other in pairs},
            **{other: find(model, one).numpy() for one, other in pairs},
        }
    )


def _set(model: Any, new: "dict[str, np.ndarray]") -> None:
    for path, array in new.items():
        find(model, path).set_value(array)


def table(formula: "Callable[[int, int], np.ndarray]") -> Plant:
    """Another sinusoid table, `formula(m, D)`."""

    @contextmanager
    def plant(model: Any) -> Iterator[None]:
        forget = paddle_nezha.native._eager_table.cache_clear
        forget()
        try:
            with mock.patch.object(paddle_nezha.native, "relative_table", formula):
                yield
        finally:
            forget()

    return plant


def positions_by(row: "Callable[[Tensor, int], Tensor]") -> Plant:
    """Another row of the table for each distance: `row(distance, m)`."""

    def make(_: Any) -> "Callable[[Tensor, int, int, int], Tensor]":
        def by_distance(table: Tensor, first_query: int, queries: int, keys: int) -> Tensor:
            distance = paddle.arange(-first_query - queries, keys - first_query, dtype="int64")
            return paddle.gather(table, row(distance, (table.shape[0] - 1) // 2))

        return by_distance

    return function(paddle_nezha.native, "by_distance", make)


def with_gradient_of(right: Tensor, wrong: Tensor) -> Tensor:
    """The value of `right` and the gradient of `wrong`."""
    return wrong + (right - wrong).detach()
