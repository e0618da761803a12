"""What the engines that run in Paddle's eager mode have in common."""

import contextlib
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from paddle_nezha._paddle import Tensor, nn, paddle
from parity.bench.backends.inputs import Heads, heads, ids_and_mask, packed, state_gradient, unpacked
from parity.bench.plan import ATTENTION, FORWARD, TRAINING, Case, Engine, Setting


@dataclass
class Attention:
    """One attention on inputs that are there: `run` computes the context from `inputs`."""

    inputs: "list[Tensor]"
    run: "Callable[[], Tensor]"
    gradient: Tensor
    packed: bool

    @classmethod
    def of(cls, given: Heads, pack: bool, compute: "Callable[..., Tensor]") -> "Attention":
        """
        Args:
            pack: `compute` takes [B, L, 3N] and gives [B, L, N], in place of three [B, H, L, D] and one.
        """
        arrays = [packed(*given[:3])] if pack else list(given[:3])
        inputs = [paddle.to_tensor(array) for array in arrays]
        gradient = paddle.to_tensor(packed(given.gradient) if pack else given.gradient)
        return cls(inputs, lambda: compute(*inputs), gradient, pack)


def additive(visible: Tensor) -> Tensor:
    """A mask [B, L] as PaddleNLP adds it to scores: 0 and -10000, float32 [B, 1, 1, L]."""
    return ((1.0 - visible.astype("float32")) * -1e4).unsqueeze([1, 2])


class PaddleEngine:
    """Subclasses make the model, encode with it, and give one attention."""

    def __init__(self, engine: Engine, setting: Setting) -> None:
        paddle.set_device("cpu")
        paddle.seed(20)
        self.engine, self.setting = engine, setting
        self.facts = {"paddle": paddle.__version__}
        self.model: Any = None

    def make(self) -> nn.Layer:
        raise NotImplementedError

    def encode(self, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
        """The last hidden states."""
        raise NotImplementedError

    def attention(self, given: Heads) -> Attention:
        raise NotImplementedError

    def forced(self) -> "contextlib.AbstractContextManager[Any]":
        """What a call of this engine is made under."""
        return contextlib.nullcontext()

    def forget(self) -> None:
        pass

    def build(self) -> None:
        if self.model is None:
            self.model = self.make()

    def call(self, task: str, case: Case) -> "Callable[[], Any]":
        if task in (FORWARD, TRAINING):
            self.build()
            return self._model_call(task, case)
        given = self.attention(heads(case, self.setting))
        return self._attention_forward(given) if task == ATTENTION else self._attention_training(given)

    def _model_call(self, task: str, case: Case) -> "Callable[[], Any]":
        ids, mask = map(paddle.to_tensor, ids_and_mask(case, self.setting))

        def forward() -> None:
            self._set_training(False)
            with paddle.no_grad(), self.forced():
                self.encode(ids, mask, case.padded)

        if task == FORWARD:
            return forward
        gradient = paddle.to_tensor(state_gradient(case, self.setting))

        def training() -> None:
            self._set_training(True)
            with self.forced():
                self.encode(ids, mask, case.padded).backward(gradient)
            for parameter in self.model.parameters():
                parameter.clear_gradient(False)  # given back, not set to zero: as the first step finds them

        return training

    def _set_training(self, training: bool) -> None:
        if self.model.training != training:
            self.model.train() if training else self.model.eval()

    def _attention_forward(self, given: Attention) -> "Callable[[], Any]":
        def forward() -> Tensor:
            with paddle.no_grad(), self.forced():
                return given.run()

        return forward

    def _attention_training(self, given: Attention) -> "Callable[[], Any]":
        for tensor in given.inputs:
            tensor.stop_gradient = False

        def training() -> None:
            with self.forced():
                given.run().backward(given.gradient)
            for tensor in given.inputs:
                tensor.clear_gradient(False)

        return training

    def context_and_gradients(self, given: Heads) -> "tuple[np.ndarray, list[np.ndarray]]":
        """The context [B, H, L, D] and the gradients of query, key and value."""
        attention = self.attention(given)
        for tensor in attention.inputs:
            tensor.stop_gradient = False
        with self.forced():
            context = attention.run()
            context.backward(attention.gradient)
        count = self.setting.sizes["num_attention_heads"]
        gradients = [tensor.grad.numpy() for tensor in attention.inputs]
        if attention.packed:
            return unpacked(context.numpy(), 1, count)[0], unpacked(gradients[0], 3, count)
        return context.numpy(), gradients
