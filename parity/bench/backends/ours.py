"""paddle_nezha, in the form that is asked for. Each thing asked of the package stands in one function here."""

import contextlib
import inspect
from typing import Any, Optional

from paddle_nezha import NeZhaConfig, NeZhaModel, __version__
from paddle_nezha import attention as forms
from paddle_nezha._paddle import Tensor, nn, paddle
from paddle_nezha.native import native_form, relative_attention, table_like
from parity.bench.backends import Unavailable
from parity.bench.backends.inputs import Heads
from parity.bench.backends.paddle_base import Attention, PaddleEngine
from parity.bench.plan import Engine, Setting


def config_of(setting: Setting, relative: bool) -> NeZhaConfig:
    """NeZha of these sizes, or the same engine without the relative part."""
    return NeZhaConfig(
        **setting.sizes,
        hidden_dropout_prob=setting.dropout,
        attention_probs_dropout_prob=setting.dropout,
        position_encoding="functional_relative" if relative else "absolute",
    )


def forced_form(form: str) -> "contextlib.AbstractContextManager[Any]":
    """
    Raises:
        Unavailable: this version of the package cannot be told.
    """
    if not form:
        return contextlib.nullcontext()
    if not hasattr(forms, "using_form"):
        raise Unavailable("paddle_nezha.attention has no using_form: only the form it chooses itself can be measured")
    return forms.using_form(form)


def operator_problem() -> str:
    """Why the operator cannot be called in this process; "" where it can."""
    try:
        packed_attention(paddle.zeros([1, 2, 3 * 64]), None, 1, 64)
    except Exception as error:  # it says in its own words what it lacks: a compiler, a file, a processor
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def packed_attention(qkv: Tensor, visible: Optional[Tensor], heads: int, reach: int) -> Tensor:
    """The operator itself.

    Args:
        qkv: [B, L, 3N]. visible: bool [B, L].
        reach: m of the table; 0 leaves the relative part out.

    Returns:
        [B, L, N].
    """
    from paddle_nezha.operator import packed_attention as operator

    return operator(qkv, visible=visible, heads=heads, max_relative_position=reach)


def native_attention(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, config: NeZhaConfig, relative: bool, form: str
) -> Tensor:
    """The forms of Paddle's own operations: [B, H, L, D] each, visible bool [B, L]."""
    table = table_like(query, config) if relative else None
    visible = visible.unsqueeze([1, 2])
    return relative_attention(query, key, value, table, table, visible=visible, form=form or None)[0]


def encode(model: nn.Layer, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
    """The last hidden states; without the pads where the model can leave them out."""
    more = {"unpad": True} if padded and "unpad" in inspect.signature(model.forward).parameters else {}
    return model(ids, attention_mask=mask, **more)[0]


def instruction_set() -> str:
    """That of the operator in this process."""
    from paddle_nezha import operator

    return operator.instruction_set()


class Ours(PaddleEngine):
    def __init__(self, engine: Engine, setting: Setting) -> None:
        super().__init__(engine, setting)
        self.config = config_of(setting, engine.relative)
        with forced_form(engine.form):  # unavailable forms say so now
            problem = "" if engine.form else operator_problem()
        if engine.isa and problem:
            raise Unavailable(f"the operator, which has this instruction set, is not there ({problem})")
        self.packed = not engine.form and not problem
        self.facts["paddle_nezha"] = __version__
        self.facts["form"] = engine.form or ("operator" if self.packed else native_form(None, False))
        if problem:
            self.facts["without operator"] = problem
        if self.packed:
            self.facts["instructions"] = instruction_set()
            if engine.isa not in ("", self.facts["instructions"]):
                raise Unavailable(f"the operator runs as {self.facts['instructions']}, not as {engine.isa}")

    def make(self) -> nn.Layer:
        return NeZhaModel(self.config)

    def encode(self, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
        return encode(self.model, ids, mask, padded)

    def forced(self) -> "contextlib.AbstractContextManager[Any]":
        return forced_form(self.engine.form)

    def attention(self, given: Heads) -> Attention:
        seen = paddle.to_tensor(given.visible)
        if self.packed:
            count, reach = self.config.num_attention_heads, self.config.max_relative_position
            reach = reach if self.engine.relative else 0
            return Attention.of(given, True, lambda qkv: packed_attention(qkv, seen, count, reach))

        def native(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return native_attention(query, key, value, seen, self.config, self.engine.relative, self.engine.form)

        return Attention.of(given, False, native)
