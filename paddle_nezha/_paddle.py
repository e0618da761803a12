"""The one door to Paddle: its import, and every difference between the releases this package runs on."""

import warnings
import zlib  # noqa: F401  Paddle 2.6.2 exports its own zlib: whoever imports the real one later crashes.
from typing import Any, Optional

import numpy as np

try:
    with warnings.catch_warnings():
        # Paddle looks for ccache each time it is imported; nothing here compiles.
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle
except ModuleNotFoundError as error:
    if error.name != "paddle":
        raise
    raise ModuleNotFoundError(
        "paddle_nezha's models need PaddlePaddle, which is not installed. Install one of:\n"
        "    pip install 'paddle_nezha[cpu]'    # processors\n"
        "    pip install 'paddle_nezha[gpu]'    # NVIDIA GPUs; for Paddle 3 see the README for Paddle's own index\n"
        "Configs, tokenizers and checkpoint files work without it.",
        name="paddle",
    ) from None


# Imported rather than assigned, so that type checkers take them for types.
from paddle import Tensor, nn  # noqa: E402
from paddle.nn import functional as F  # noqa: E402

try:
    from paddle.jit.sot.utils import StepInfoManager as _default_tracer
except ImportError:  # no public name says whether it is at work
    _default_tracer = None

__all__ = [
    "F",
    "Tensor",
    "constant",
    "is_eager",
    "is_eager_throughout",
    "known_sizes",
    "load_operators",
    "nn",
    "paddle",
    "place_name",
    "plain_python",
    "run_operator",
    "scaled",
    "sizes",
    "traced_whole",
    "values_can_be_read",
]


def is_eager() -> bool:
    """False while a graph is traced (`paddle.jit.to_static`, `paddle.jit.save`)."""
    return paddle.in_dynamic_mode()


# Tracing rewrites or simulates the code it enters, so that even `shape` gives tensors there. What only looks at types
# and sizes, or decides by them, stays plain Python under this decorator (Paddle 3 has two tracers, and a word for
# both).
plain_python = paddle.jit.marker.unified if hasattr(paddle.jit, "marker") else paddle.jit.not_to_static


def traced_whole(layer: type) -> type:
    """A layer class that Paddle 3's default tracer takes as one step, as it takes Paddle's own: inside it `is_eager` is
    false. Simulated line by line, code that asks whether it is traced would be told it is not."""
    return paddle.jit.marker.unified(layer, for_ast=False) if hasattr(paddle.jit, "marker") else layer


@plain_python
def is_eager_throughout() -> bool:
    """Whether a whole call is eager. Paddle's default tracer runs eagerly what it cannot trace and traces what follows,
    so that what a part decides by values, the next one cannot act upon."""
    return is_eager() and (_default_tracer is None or _default_tracer().current_code is None)


@plain_python
def known_sizes(tensor: Tensor) -> "list[int]":
    """The shape as integers; an axis that a traced graph leaves open is -1."""
    return list(tensor.shape)


@plain_python
def sizes(tensor: Tensor) -> list:
    """The shape as numbers to compute with: integers, or scalar tensors for the axes a traced graph leaves open."""
    known = list(tensor.shape)
    if min(known, default=0) >= 0:
        return known
    dynamic = paddle.shape(tensor)
    return [dynamic[axis] if size < 0 else size for axis, size in enumerate(known)]


@plain_python
def constant(values: np.ndarray, dtype: str, place: Optional[str] = None) -> Tensor:
    """A float64 array as a tensor, rounded once to `dtype`."""
    near = values.astype("float32")
    if dtype != "float64":
        return paddle.to_tensor(near, place=place).astype(dtype)
    if is_eager():
        return paddle.to_tensor(values, place=place)
    # A graph stores its constants in float32, so what that rounding loses becomes a second constant.
    lost = (values - near).astype("float32")
    return paddle.to_tensor(near).astype(dtype) + paddle.to_tensor(lost).astype(dtype)


@plain_python
def scaled(tensor: Tensor, factor: float) -> Tensor:
    """``tensor * factor``. A graph would round the factor to float32, as an attribute of its scale operation."""
    if is_eager() or tensor.dtype != paddle.float64:
        return tensor * factor
    return tensor * paddle.full([], factor, tensor.dtype)


@plain_python
def place_name(tensor: Tensor) -> str:
    """Where a tensor is, as "cpu" or "gpu:0": Paddle 2.6.2 takes no `Place` object in `Layer.to`."""
    return str(tensor.place)[len("Place(") : -1]


@plain_python
def values_can_be_read(tensor: Tensor) -> bool:
    """Whether looking at a tensor's values is free: eager mode on a CPU. On a GPU it would be a synchronisation."""
    return is_eager() and tensor.place.is_cpu_place()


def load_operators(library: str) -> None:
    """Registers the custom operators of a library with Paddle."""
    paddle.utils.cpp_extension.load_op_meta_info_and_register_op(library)


@plain_python
def run_operator(
    name: str, inputs: "dict[str, Optional[Tensor]]", settings: "dict[str, Any]", outputs: "tuple[str, ...]"
) -> "list[Tensor]":
    """Runs a registered custom operator, or adds it to the graph that is traced.

    Args:
        inputs: by the operator's names in their order; one that may be None ends in "@OPTIONAL", Paddle's own mark.
        settings: its attributes, likewise.
        outputs: the names of what it returns.
    """
    if is_eager() or getattr(paddle.framework, "in_dynamic_or_pir_mode", is_eager)():
        run = getattr(paddle._C_ops, "_run_custom_op", None) or paddle.base.core.eager._run_custom_op
        if is_eager() and not paddle.is_grad_enabled():
            # Paddle records custom operators under no_grad too, and would keep their inputs alive.
            inputs = {key: None if tensor is None else tensor.detach() for key, tensor in inputs.items()}
        answer = run(name, *inputs.values(), *settings.values())
        return list(answer) if isinstance(answer, (list, tuple)) else [answer]
    helper = paddle.base.layer_helper.LayerHelper(name)
    # The type given here is replaced by what the operator infers.
    made = {output: helper.create_variable_for_type_inference(dtype="float32") for output in outputs}
    present = {key: tensor for key, tensor in inputs.items() if tensor is not None}
    helper.append_op(type=name, inputs=present, outputs=made, attrs=settings)
    return list(made.values())
