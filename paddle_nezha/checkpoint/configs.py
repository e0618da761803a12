"""Configs of the other code bases, as data: which settings their files hold, and what they call them.

`to_foreign` writes what they read, `from_foreign` reads what they wrote. A setting that would silently mean
another model there is refused; one that has no place there and drives no number is left out, and so is every key that
nothing here reads, since elsewhere it may mean something (`quantization_config`, `auto_map`). `remarks` tells it all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..config import CONFIG_NAME, HUAWEI_CONFIG_NAME, NeZhaConfig
from .dialects import DIALECTS
from .errors import CheckpointError
from .names import HEADS

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
_RELATIVE = ("max_relative_position", "use_relative_position")
_HF_KEYS = (
    *_SIZES,
    *_RELATIVE,
    "layer_norm_eps",
    "classifier_dropout",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "use_cache",
    "problem_type",
    "id2label",
    "label2id",
)
_ENDINGS = {
    "model": "Model",
    "pretraining": "ForPreTraining",
    "masked_lm": "ForMaskedLM",
    "next_sentence": "ForNextSentencePrediction",
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
}
_WORD_HEADS = ("pretraining", "masked_lm")
_EPSILON = 1e-12

_SAME = (
    "gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "linear", "mish", "quick_gelu", "relu", "relu6",
    "sigmoid", "silu", "swish", "tanh",
)  # fmt: skip
_LIBRARY_ACTIVATIONS = {**dict(zip(_SAME, _SAME)), "gelu_tanh": "gelu_new"}


@dataclass(frozen=True)
class Schema:
    """What one code base's config file can say.

    Args:
        file: the name of its file.
        keys: settings that it holds under our names.
        activations: `hidden_act` here -> there. One that is not listed does not exist there.
        encodings: values of `position_encoding` that exist there.
        constants: what the file says beside the settings.
        fixed: settings that the code holds at a value, whatever a config says -> that value.
        prefix: what its classes begin with; no `architectures` are written without.
        span_outputs_are_labels: whether its head for answers has `num_labels` outputs.
        classes: its names of heads that do not end as transformers' do.
    """

    file: str
    keys: tuple[str, ...]
    activations: Mapping[str, str]
    encodings: tuple[str, ...] = ("functional_relative",)
    constants: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    span_outputs_are_labels: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)


_HF = Schema(
    CONFIG_NAME,
    _HF_KEYS,
    _LIBRARY_ACTIVATIONS,
    constants={"model_type": "nezha"},
    prefix="Nezha",
    span_outputs_are_labels=True,
)
SCHEMAS: Mapping[str, Schema] = {
    "paddlenlp": Schema(
        CONFIG_NAME,
        (*_HF_KEYS, "embedding_size", "num_choices", "return_dict", "output_hidden_states", "output_attentions"),
        _LIBRARY_ACTIVATIONS,
        encodings=("functional_relative", "absolute"),
        constants={"model_type": "nezha"},
        prefix="NeZha",
        classes={"pretraining": "NeZhaForPretraining"},
    ),
    "hf": _HF,
    "huawei": Schema(
        HUAWEI_CONFIG_NAME,
        (*_SIZES, *_RELATIVE, "layer_norm_eps"),
        {"gelu": "gelu", "gelu_python": "gelu", "relu": "relu", "swish": "swish", "silu": "swish"},
        encodings=("functional_relative", "absolute"),
    ),
    "nezha_chinese_pytorch": replace(_HF, prefix="NeZha"),  # the same keys, other class names
    "bert4torch": Schema(
        CONFIG_NAME,
        (*_SIZES, *_RELATIVE, "layer_norm_eps", "pad_token_id"),
        {
            **{name: name for name in _SAME if name not in ("gelu_10", "relu6")},
            **{"gelu_python": "gelu", "gelu_tanh": "gelu_new"},
        },
        constants={"model_type": "nezha", "model": "nezha"},
    ),
    "tensorflow": Schema(
        HUAWEI_CONFIG_NAME,
        (*_SIZES, "use_relative_position"),
        {"gelu_new": "gelu", "gelu_tanh": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear"},
        encodings=("functional_relative", "absolute"),
        fixed={"max_relative_position": 64, "layer_norm_eps": _EPSILON},
    ),
}
# Settings that shape no number of a forward pass in eval mode, so that a file may go without them.
_HARMLESS = (
    "embedding_size", "classifier_dropout", "pad_token_id", "bos_token_id", "eos_token_id", "use_cache", "num_choices",
    "problem_type", "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id",
)  # fmt: skip


def to_foreign(config: NeZhaConfig, dialect: str, head: str) -> dict[str, Any]:
    """The content of another code base's config file for a model with this config.

    Args:
        config: ours.
        dialect: whose file, one of `SCHEMAS`; `SCHEMAS[dialect].file` is its name.
        head: one of `HEADS`, for `architectures`.

    Raises:
        CheckpointError: a setting that does not exist there, so that the file would describe another model.
        ValueError: no such dialect or head.
    """
    schema = _schema(dialect)
    if head not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, but got {head!r}.")
    _refuse_what_it_lacks(config, dialect, schema)
    facts = {key: getattr(config, key) for key in schema.keys}
    facts["hidden_act"] = schema.activations[config.hidden_act]
    if dialect == "paddlenlp" and config.classifier_dropout is None:
        facts["classifier_dropout"] = config.hidden_dropout_prob  # what None means; PaddleNLP reads null as 0.1
    if _counts_labels_of_spans(config, schema, head):
        facts.update({key: getattr(NeZhaConfig(num_labels=2), key) for key in ("id2label", "label2id")})
    if schema.prefix:
        facts["architectures"] = [schema.classes.get(head, schema.prefix + _ENDINGS[head])]
    return {**schema.constants, **facts}


def from_foreign(raw: Mapping[str, Any], dialect: str, **overrides: Any) -> NeZhaConfig:
    """Our config from the content of another code base's file.

    Args:
        raw: the file's content.
        dialect: whose tensors lie beside it. Huawei's two code bases share a file format but not its meaning:
            "gelu" is the tanh form in TensorFlow, so it becomes "gelu_new" here.
        overrides: settings that win over the file's.

    Raises:
        ValueError: a setting that this model cannot honour.
    """
    schema = _schema(dialect)
    facts = {key: value for key, value in raw.items() if key == "model_type" or key not in schema.constants}
    if dialect == "tensorflow" and facts.get("hidden_act", "gelu") == "gelu":
        facts["hidden_act"] = "gelu_new"
    facts.update(schema.fixed)
    return NeZhaConfig.from_dict(facts, origin=schema.file, **overrides)


def remarks(config: NeZhaConfig, dialect: str, head: str) -> list[str]:
    """What a person should know about a file that `to_foreign` writes: renamed, left out, not honoured there."""
    schema = _schema(dialect)
    said = []
    written = schema.activations.get(config.hidden_act, config.hidden_act)
    if written != config.hidden_act:
        meaning = ", the name of the tanh form in Huawei's TensorFlow code" if dialect == "tensorflow" else ""
        said.append(f"hidden_act {config.hidden_act!r} is written as {written!r}{meaning}")
    if _counts_labels_of_spans(config, schema, head):
        said.append(f"num_labels {config.num_labels} is written as 2, the start and the end of an answer")
    lost = _lost(config, schema)
    if lost:
        said.append(f"left out, since the file has no such key: {', '.join(lost)}")
    if config.layer_norm_eps != _EPSILON and dialect == "paddlenlp":
        said.append(f"layer_norm_eps {config.layer_norm_eps} is written, but PaddleNLP computes with {_EPSILON}")
    if config.layer_norm_eps != _EPSILON and dialect in ("huawei", "bert4torch") and head in _WORD_HEADS:
        said.append(f"layer_norm_eps {config.layer_norm_eps} is written, but the masked-LM head there has {_EPSILON}")
    if dialect == "paddlenlp" and head in ("masked_lm", "next_sentence"):
        said.append(f"PaddleNLP has no {schema.prefix}{_ENDINGS[head]}: its NeZhaModel reads the encoder")
    return said


def remarks_from(raw: Mapping[str, Any], dialect: str) -> list[str]:
    """What a person should know about the config that `from_foreign` makes of a file."""
    if dialect == "tensorflow" and raw.get("hidden_act", "gelu") == "gelu":
        return [
            "hidden_act 'gelu' is written as 'gelu_new': in Huawei's TensorFlow code it is the tanh form, with which "
            "these weights were trained. The published conversions say 'gelu', the exact form, up to 4.7e-4 apart at "
            "each call: pass hidden_act='gelu' to match them"
        ]
    return []


def _schema(dialect: str) -> Schema:
    if dialect not in SCHEMAS:
        raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, but got {dialect!r}.")
    return SCHEMAS[dialect]


def _counts_labels_of_spans(config: NeZhaConfig, schema: Schema, head: str) -> bool:
    """Whether the head for answers has `num_labels` outputs there; here it always has the two it needs."""
    return schema.span_outputs_are_labels and head == "question_answering" and config.num_labels != 2


def _lost(config: NeZhaConfig, schema: Schema) -> list[str]:
    """Settings that are not at their default and have no key in the file."""
    default = NeZhaConfig(num_labels=config.num_labels)
    lost = [name for name in _HARMLESS if name not in schema.keys and getattr(config, name) != getattr(default, name)]
    if "id2label" not in schema.keys and config.num_labels != NeZhaConfig.num_labels:
        lost.append("num_labels")
    return lost + sorted(config.unread)


def _refuse_what_it_lacks(config: NeZhaConfig, dialect: str, schema: Schema) -> None:
    if config.position_encoding not in schema.encodings:
        advice = (
            "Keep the checkpoint in this project's own format."
            if config.position_encoding == "parametric_relative"
            else "Such a model is a BERT: write it with the names of 'huawei', which a BERT class reads."
        )
        raise _refused(dialect, "position_encoding", config.position_encoding, schema.encodings, advice)
    if config.hidden_act not in schema.activations:
        advice = "If another one will do, say so: pass hidden_act=."
        raise _refused(dialect, "hidden_act", config.hidden_act, tuple(schema.activations), advice)
    for name, value in schema.fixed.items():
        if getattr(config, name) != value and not (name in _RELATIVE and not config.use_relative_position):
            raise _refused(dialect, name, getattr(config, name), (value,), "Write it in another dialect.")


def _refused(dialect: str, name: str, value: Any, known: tuple[Any, ...], advice: str) -> CheckpointError:
    return CheckpointError(
        f"{name}={value!r} has no spelling in the config of {dialect}, whose code knows "
        f"{', '.join(map(repr, known))}: the file would describe another model. {advice}"
    )
