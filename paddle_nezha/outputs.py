"""What the models return under `return_dict=True`: dataclasses that are mappings and sequences too.

Each offers ``o.loss``, ``o["loss"]``, ``o[0]``, ``o[1:]`` and ``o.items()``. A part that was not computed is None as an
attribute and absent from the mapping and the sequence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    from paddle import Tensor


class ModelOutput(dict):
    """The mapping side of every output; subclasses are dataclasses."""

    def __post_init__(self) -> None:
        first = fields(self)[0].name  # type: ignore[arg-type]
        # Whoever rebuilds a mapping hands its pairs over in one piece, as `dict` takes them: Paddle's tracer does.
        pairs = getattr(self, first)
        if isinstance(pairs, (Iterator, Mapping)):
            super().__setattr__(first, None)
            known = {item.name for item in fields(self)}  # type: ignore[arg-type]
            for name, value in dict(pairs).items():
                if name not in known:
                    raise TypeError(f"{type(self).__name__} has no part {name!r}; it has: {', '.join(sorted(known))}.")
                super().__setattr__(name, value)
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if value is not None:
                super().__setitem__(item.name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if value is not None and name in self:
            super().__setitem__(name, value)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __getitem__(self, key: "Union[str, int, slice]") -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), dict(self.items()))

    def to_tuple(self) -> "tuple[Any, ...]":
        """The parts that were computed, in the order of the fields."""
        return tuple(self.values())


def _rebuild(kind: type, parts: "dict[str, Any]") -> ModelOutput:
    return kind(**parts)


@dataclass(eq=False, repr=False)
class BaseModelOutputWithPoolingAndCrossAttentions(ModelOutput):
    """last_hidden_state [B, L, N], pooler_output [B, N], hidden_states (layers + 1) x [B, L, N], attentions layers x
    [B, H, L, L] (probabilities). NeZha has no cross-attention; the name is the field's."""

    last_hidden_state: "Optional[Tensor]" = None
    pooler_output: "Optional[Tensor]" = None
    hidden_states: "Optional[tuple[Tensor, ...]]" = None
    attentions: "Optional[tuple[Tensor, ...]]" = None


@dataclass(eq=False, repr=False)
class NeZhaForPreTrainingOutput(ModelOutput):
    """loss [], prediction_logits [B, L, V], seq_relationship_logits [B, 2]."""

    loss: "Optional[Tensor]" = None
    prediction_logits: "Optional[Tensor]" = None
    seq_relationship_logits: "Optional[Tensor]" = None
    hidden_states: "Optional[tuple[Tensor, ...]]" = None
    attentions: "Optional[tuple[Tensor, ...]]" = None


@dataclass(eq=False, repr=False)
class _LogitsOutput(ModelOutput):
    loss: "Optional[Tensor]" = None
    logits: "Optional[Tensor]" = None
    hidden_states: "Optional[tuple[Tensor, ...]]" = None
    attentions: "Optional[tuple[Tensor, ...]]" = None


class MaskedLMOutput(_LogitsOutput):
    """loss [], logits [B, L, V]."""


class NextSentencePredictorOutput(_LogitsOutput):
    """loss [], logits [B, 2]; class 0 follows, class 1 is random."""


class SequenceClassifierOutput(_LogitsOutput):
    """loss [], logits [B, num_labels]."""


class TokenClassifierOutput(_LogitsOutput):
    """loss [], logits [B, L, num_labels]."""


class MultipleChoiceModelOutput(_LogitsOutput):
    """loss [], logits [B, C]."""


@dataclass(eq=False, repr=False)
class QuestionAnsweringModelOutput(ModelOutput):
    """loss [], start_logits [B, L], end_logits [B, L]."""

    loss: "Optional[Tensor]" = None
    start_logits: "Optional[Tensor]" = None
    end_logits: "Optional[Tensor]" = None
    hidden_states: "Optional[tuple[Tensor, ...]]" = None
    attentions: "Optional[tuple[Tensor, ...]]" = None
