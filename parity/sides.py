"""One forward and backward on each side, with every stage written down as float64 NumPy arrays.

Nothing of paddle_nezha knows that it is watched: layers are observed by Paddle's own hooks, and the places that are no
layer (mask, table, scores) by standing in for the function for the time of one call. What the model answers with is
taken from its answer.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable
from unittest import mock

import numpy as np

import paddle_nezha.attention
import paddle_nezha.model
import paddle_nezha.native
import torch_ref
from paddle_nezha._paddle import paddle
from paddle_nezha.auto import MODEL_CLASSES
from paddle_nezha.config import NeZhaConfig
from parity.cases import Sample
from parity.stages import forward_stages, never_made, token_axes

import torch  # isort: skip  (after Paddle, as everywhere)

FORMS = ("dense", "blocked", "operator")
EMBEDS = "inputs_embeds"  # the input that has a gradient; adversarial training reads it

Stages = "dict[str, np.ndarray]"


@dataclass
class Observed:
    """The stages of one forward and, by the name of a parameter or of `inputs_embeds`, the gradients of one backward;
    float64 each."""

    stages: "dict[str, np.ndarray]" = field(default_factory=dict)
    gradients: "dict[str, np.ndarray]" = field(default_factory=dict)

    def named(self) -> "dict[str, np.ndarray]":
        """Stages and gradients under the names that rows carry, in the order they are computed. A backward begins at
        the last parameter, so the first gradient to part is the one beside the mistake."""
        return {**self.stages, **{f"grad:{name}": value for name, value in reversed(self.gradients.items())}}


# ---- Paddle


class PaddleSide:
    """A model of paddle_nezha in one dtype, on Paddle's current device.

    Args:
        model: an existing one; None builds one with random weights.
    """

    def __init__(self, config: NeZhaConfig, head: str, dtype: str, model: Any = None):
        self.config, self.head, self.dtype = config, head, dtype
        self.model = MODEL_CLASSES[head](config) if model is None else model
        self.model.to(dtype=dtype)
        self.model.train()  # dropouts are 0; a loss in eval mode would warn

    def load(self, arrays: "dict[str, np.ndarray]") -> None:
        state = self.model.state_dict()
        for name, parameter in state.items():
            parameter.set_value(arrays[name].astype(self.dtype))

    def observe(self, sample: Sample, form: str, small_blocks: bool = False) -> Observed:
        """
        Args:
            form: "dense" makes scores and probabilities whole; "operator" is what users run; "blocked" where it cannot.
            small_blocks: several blocks even in a short input; those of odd length are computed again in the backward.
        """
        seen: "dict[str, np.ndarray]" = {}
        with ExitStack() as stack:
            stack.enter_context(paddle_nezha.attention.using_form(form))
            stack.enter_context(_watched(self.model, self.head, seen, form, sample.real))
            if small_blocks:
                rows = max(2, sample.real.shape[1] // 3)
                # Every other length keeps its probabilities, so that both ways are judged with several blocks.
                kept = 0 if sample.real.shape[1] % 2 else paddle_nezha.native._KEPT_ELEMENTS
                limits = {"_BLOCK_ELEMENTS": 1, "_SMALLEST_BLOCK": rows, "_KEPT_ELEMENTS": kept}
                stack.enter_context(mock.patch.multiple(paddle_nezha.native, **limits))
            self.model.clear_gradients()
            arguments = {name: self._tensor(value) for name, value in {**sample.inputs, **sample.labels}.items()}
            given = {name: arguments[name] for name in sample.inputs if name == EMBEDS}
            for embeds in given.values():
                embeds.stop_gradient = False
            self._loss(sample, arguments, form, seen).backward()
        gradients = {name: _numpy(embeds.grad) for name, embeds in given.items()}
        gradients |= {
            name: np.zeros(parameter.shape) if parameter.grad is None else _numpy(parameter.grad)
            for name, parameter in self.model.named_parameters()
            if not name.endswith("decoder_weight")
        }
        order = forward_stages(self.config, self.head)
        return Observed({name: seen[name] for name in order if name in seen}, gradients)

    def _loss(
        self, sample: Sample, arguments: "dict[str, paddle.Tensor]", form: str, seen: "dict[str, np.ndarray]"
    ) -> "paddle.Tensor":
        whole = form == "dense"
        output = self.model(**arguments, output_hidden_states=whole, output_attentions=whole, return_dict=True)
        layers = self.config.num_hidden_layers
        seen.update({stage: _numpy(value) for stage, value in _answered(output, self.head, layers).items()})
        if self.head == "model":
            sequence, pooled = (self._tensor(item) for item in sample.cotangents)
            return (output.last_hidden_state * sequence).sum() + (output.pooler_output * pooled).sum()
        return output.loss

    def _tensor(self, value: np.ndarray) -> "paddle.Tensor":
        return paddle.to_tensor(value.astype(self.dtype) if value.dtype == np.float64 else value)


def _answered(output: Any, head: str, layers: int) -> "dict[str, paddle.Tensor]":
    """What a user is given, by the stage it is: a right stage under the wrong name is wrong."""
    found = {f"layer.{number}.probs": probs for number, probs in enumerate(output.attentions or ())}
    states = [f"layer.{number}.output" for number in range(layers)]
    found.update(zip(["embeddings", *states], output.hidden_states or ()))
    if head == "model":
        return {**found, states[-1]: output.last_hidden_state, "pooler": output.pooler_output}
    if head == "pretraining":
        found.update({"mlm.logits": output.prediction_logits, "nsp.logits": output.seq_relationship_logits})
    elif head == "question_answering":
        found["classifier.logits"] = paddle.stack([output.start_logits, output.end_logits], -1)
    else:
        stage = {"masked_lm": "mlm.logits", "next_sentence": "nsp.logits"}.get(head, "classifier.logits")
        found[stage] = output.logits
    return {**found, "loss": output.loss}


@contextmanager
def _watched(model: Any, head: str, seen: "dict[str, np.ndarray]", form: str, real: np.ndarray) -> Iterator[None]:
    base = model.base_model
    with ExitStack() as stack:

        def after(layer: Any, stage: str, part: Callable[[Any], Any] = lambda output: output) -> None:
            hook = layer.register_forward_post_hook(
                lambda _layer, _inputs, output: seen.update({stage: _numpy(part(output))})
            )
            stack.callback(hook.remove)

        def before(layer: Any, stage: str) -> None:
            hook = layer.register_forward_pre_hook(lambda _layer, inputs: seen.update({stage: _numpy(inputs[0])}))
            stack.callback(hook.remove)

        def function(module: Any, name: str, note: Callable[[Any], None]) -> None:
            inner = getattr(module, name)

            def watching(*arguments: Any, **keywords: Any) -> Any:
                result = inner(*arguments, **keywords)
                note(result)
                return result

            stack.enter_context(mock.patch.object(module, name, watching))

        after(base.embeddings, "embeddings")
        for number, layer in enumerate(base.encoder.layer):
            name, attention = f"layer.{number}", layer.attention
            after(attention, f"{name}.attention_output", lambda output: output[0])
            after(layer, f"{name}.output", lambda output: output[0])
            if form == "operator":
                continue  # watched, the products would be computed one by one, and not as users have them
            for part in ("query", "key", "value"):
                after(getattr(attention, part), f"{name}.{part}")
            before(attention.dense, f"{name}.context")
            before(layer.ffn_output, f"{name}.ffn")
        if form == "operator":
            context = _Counter(seen, "context")
            function(paddle_nezha.attention.NeZhaAttention, "_by_operator", context)
            # Masks of pairs of positions go another way.
            function(paddle_nezha.attention.NeZhaAttention, "_natively", lambda output: context(output[0]))
            function(paddle_nezha.model, "activated", _Counter(seen, "ffn"))
        after(base.pooler, "pooler")
        if head in ("pretraining", "masked_lm"):
            after(model.cls.predictions.layer_norm, "mlm.transform")

        function(paddle_nezha.model, "visible_keys", lambda visible: seen.update(mask=_numpy(visible, bool)))
        function(paddle_nezha.attention, "table_like", lambda table: seen.update(table=_numpy(table)))
        if form == "dense":
            function(paddle_nezha.native, "relative_scores", _Counter(seen, "scores"))
        yield
        _put_padding_back(seen, real)
        _complete(model.config, seen)


@dataclass
class _Counter:
    """Layers run in order, so the n-th call is layer n's."""

    seen: "dict[str, np.ndarray]"
    part: str
    calls: int = 0

    def __call__(self, value: Any) -> None:
        self.seen[f"layer.{self.calls}.{self.part}"] = _numpy(value)
        self.calls += 1


def _put_padding_back(seen: "dict[str, np.ndarray]", real: np.ndarray) -> None:
    """Stages [tokens, ...] of a model that left the padding out by itself, as [B, L, ...] with zeros for padding."""
    for stage, value in seen.items():
        if token_axes(stage) == 1 and value.shape[0] == real.sum() != real.size and value.ndim == 2:
            whole = np.zeros([*real.shape, value.shape[-1]])
            whole[real] = value
            seen[stage] = whole


def _complete(config: NeZhaConfig, seen: "dict[str, np.ndarray]") -> None:
    """The stages that are looked up rather than computed: rows as attention finds them, and a mask nobody gave."""
    batch, length, _ = seen["embeddings"].shape
    if config.use_relative_position:
        # Attention's own way from a table to pairs, walked by the row numbers themselves.
        numbers = paddle.arange(2 * config.max_relative_position + 1, dtype="float32").unsqueeze(-1)
        by_distance = paddle_nezha.native.by_distance(numbers, 0, length, length)
        pairs = paddle_nezha.native.skew(by_distance.reshape([1, 1, 1, -1]).expand([1, 1, length, 2 * length]), length)
        seen["rows"] = _numpy(pairs)[0, 0]
    visible = seen.get("mask", np.ones((batch, 1, 1, length), bool))
    seen["mask"] = np.broadcast_to(visible, (batch, visible.shape[1], length, length)).astype(np.float64)


# ---- PyTorch


class TorchSide:
    """The reference in one dtype.

    Args:
        device: a torch device; the float64 truth stays on the CPU.
    """

    def __init__(self, config: NeZhaConfig, head: str, dtype: str, device: str = "cpu"):
        self.config, self.head = config, head
        self.dtype = getattr(torch, dtype)
        self.model = torch_ref.build(config, head, self.dtype).to(device)

    def load(self, arrays: "dict[str, np.ndarray]") -> None:
        torch_ref.load_paddle(self.model, arrays)

    def observe(self, sample: Sample) -> Observed:
        self.model.zero_grad()
        record: "dict[str, Any]" = {}
        device = next(self.model.parameters()).device
        given = {
            name: torch.tensor(value, dtype=self.dtype, device=device, requires_grad=True)
            for name, value in sample.inputs.items()
            if name == EMBEDS
        }
        output = self.model(**{**sample.inputs, **given}, **sample.labels, record=record)
        if self.head == "model":
            sequence, pooled = (torch.as_tensor(item).to(output.pooler_output) for item in sample.cotangents)
            loss = (output.last_hidden_state * sequence).sum() + (output.pooler_output * pooled).sum()
        else:
            loss = output.loss
        loss.backward()
        # A copy: the reference hands out its own storage, and a later backward writes into it.
        gradients = {name: _torch_numpy(embeds.grad) for name, embeds in given.items()}
        gradients |= {name: np.array(value, np.float64) for name, value in torch_ref.gradients(self.model).items()}
        order = forward_stages(self.config, self.head)
        return Observed({name: _torch_numpy(record[name]) for name in order if name in record}, gradients)


def missing_stages(observed: Observed, config: NeZhaConfig, head: str, form: str) -> "list[str]":
    """Stages that a side should have shown but did not: a judge that looks at nothing passes everything."""
    return [
        stage for stage in forward_stages(config, head) if stage not in observed.stages and not never_made(stage, form)
    ]


def _numpy(tensor: Any, dtype: type = np.float64) -> np.ndarray:
    return np.array(tensor.numpy(), dtype)


def _torch_numpy(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float64)
