"""`NeZhaConfig`: the facts of a NeZha model, read from and written to every config file in circulation.

No framework is imported here: a config opens on a machine that has neither Paddle nor torch.
"""

import difflib
import json
import math
import os
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Callable, Optional, Union

from paddle_nezha._files import listing, replaced

CONFIG_NAME = "config.json"
LEGACY_CONFIG_NAME = "model_config.json"  # PaddleNLP before 2.5: init arguments, one model nested in another
HUAWEI_CONFIG_NAME = "bert_config.json"

POSITION_ENCODINGS = ("functional_relative", "parametric_relative", "absolute")
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
ACTIVATIONS = (
    "gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_tanh", "linear", "mish",
    "quick_gelu", "relu", "relu6", "sigmoid", "silu", "swish", "tanh",
)  # fmt: skip

# PaddleNLP's second names, accepted wherever the first is.
ATTRIBUTE_MAP = {"dropout": "classifier_dropout", "num_classes": "num_labels"}

_BASE: dict[str, Any] = {
    "vocab_size": 21128,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "max_relative_position": 64,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "use_relative_position": True,
}
_LARGE = {**_BASE, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
# The four published checkpoints. "wwm" (whole-word masking) ones differ in their bytes only.
NEZHA_PRETRAINED_INIT_CONFIGURATION: dict[str, dict[str, Any]] = {
    "nezha-base-chinese": _BASE,
    "nezha-large-chinese": _LARGE,
    "nezha-base-wwm-chinese": _BASE,
    "nezha-large-wwm-chinese": _LARGE,
}
_HOST = "https://bj.bcebos.com/paddlenlp/models/transformers/nezha"
NEZHA_PRETRAINED_RESOURCE_FILES_MAP = {
    "model_state": {name: f"{_HOST}/{name}.pdparams" for name in NEZHA_PRETRAINED_INIT_CONFIGURATION}
}


# Names that PaddleNLP's documentation lists and that never led to a file.
HISTORICAL_NAMES = {
    "nezha-cn-12L768H": "PaddleNLP's documentation lists it as another name of nezha-large-chinese, though 12 layers "
    "of width 768 are the base model; it was never registered in its code nor hosted. Use nezha-base-chinese "
    "(12 x 768, 12 heads) or nezha-large-chinese (24 x 1024, 16 heads).",
    "nezha-en-12L768H": "PaddleNLP's documentation lists it as the English NeZha with 16 heads; Huawei's English "
    "config has 12 heads, 28,996 words and max_relative_position 127. It was never registered in its code nor hosted. "
    "Convert Huawei's own release with `paddle-nezha convert`; the published names are Chinese.",
}


def _integer(at_least: int, at_most: int = 1 << 20) -> Callable[[str, Any], int]:
    """A size. What is built from a config is as large as it says, and a config may come from anywhere: far above
    everything in use there is an end."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral) or not at_least <= int(value) <= at_most:
            raise ValueError(f"{name} must be an integer from {at_least} to {at_most:,}, but got {value!r}.")
        return int(value)

    return check


def _real(low: float, high: float, what: str) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) < high:
            raise ValueError(f"{name} must be {what}, but got {value!r}.")
        return float(value)

    return check


def _choice(*choices: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(choices)}, but got {value!r}.{_nearest(value, choices)}"
            )
        return value

    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, but got {value!r}.")
    return value


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _names(name: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} must be a list of class names, but got {value!r}.")
    return list(value)


def _nearest(word: Any, known: Any, likeness: float = 0.6) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=likeness)
    return f" Did you mean {close[0]!r}?" if close else ""


def _notes(value: Any) -> "dict[str, Any]":
    """Keys of a config that nothing here reads, as a new dict: all that JSON can hold."""
    if not isinstance(value, dict):
        raise ValueError(f"unread must be a dict of notes, but got {value!r}.")
    for name, note in value.items():
        try:
            json.dumps(note)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"The config's note {name!r} must be something that JSON can hold, but is of type "
                f"{type(note).__name__} ({error}): turn it into a number, a string, a list or a dict first."
            ) from None
    return dict(value)


_count, _size = _integer(1), _integer(0, (1 << 31) - 1)
_rows = _integer(1, 1 << 27)  # of a vocabulary
_layers = _integer(1, 1000)
_probability = _real(0.0, 1.0, "a probability, 0 <= p < 1")
_scale = _real(0.0, float("inf"), "a finite number of at least 0")
_epsilon = _real(0.0, math.nextafter(1e-3, 1.0), "a number from 0 to 0.001, beyond which Paddle has no LayerNorm")


def _fact(default: Any, check: Callable[[str, Any], Any]) -> Any:
    return field(default=default, metadata={"check": check})


class _Checked:
    """How a config's attributes are set and found.

    It is a class of its own, and no dataclass, for one more reason: Paddle's tracer copies an instance whose classes
    are all dataclasses field by field, and loses its properties.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        name = ATTRIBUTE_MAP.get(name, name)
        check = _CHECKS.get(name)
        if name == "unread":
            value = _notes(value)
        elif name in _FIXED and value != getattr(type(self), name, None):
            raise AttributeError(f"{name} is part of NeZhaConfig itself and cannot be set: call the note otherwise.")
        if check is None and name not in _FIELD_NAMES and not hasattr(type(self), name):
            near = _nearest(name, _FIELD_NAMES, 0.8)  # a slip of the hand; less alike is somebody's own word
            if near and name not in self.unread:
                raise AttributeError(f"NeZhaConfig has no setting {name!r}.{near}")
            if name in _READ_ELSEWHERE and value:
                raise AttributeError(
                    f"{name}={value!r} in a config file means another model: a note needs a name of its own."
                )
            # Somebody's own note: kept and written, like an unread key of a file.
            self.unread.update(_notes({name: value}))
            return
        object.__setattr__(self, name, check(name, value) if check else value)
        if name == "num_labels" and len(self.__dict__.get("_id2label", ())) != self.num_labels:
            object.__setattr__(self, "_id2label", {i: f"LABEL_{i}" for i in range(self.num_labels)})

    def __delattr__(self, name: str) -> None:
        if name not in self.unread:
            raise AttributeError(f"{name} is no note in this config: a setting can be assigned to, but not removed.")
        del self.unread[name]

    def __copy__(self) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, unread=dict(self.unread), _id2label=dict(self.__dict__["_id2label"]))
        return twin

    def __getattr__(self, name: str) -> Any:  # reached only where ordinary look-up found nothing
        if name in ATTRIBUTE_MAP:
            return getattr(self, ATTRIBUTE_MAP[name])
        unread = self.__dict__.get("unread", {})
        if name in unread:
            return unread[name]
        raise AttributeError(f"NeZhaConfig has no setting {name!r}.{_nearest(name, _FIELD_NAMES)}")


@dataclass(eq=False)
class NeZhaConfig(_Checked):
    """Everything that defines a NeZha model. A field can be assigned to; each assignment is checked.

    Args:
        vocab_size: rows V of the word table.
        embedding_size: stored and written back because PaddleNLP's files carry it; drives nothing.
        hidden_size: width N of every layer; `num_attention_heads` must divide it into heads of even size D = N / H
            (the relative table pairs a sine with a cosine).
        hidden_act: activation of the feed-forward and of the masked-LM head. "gelu" is the exact erf form;
            "gelu_new" and "gelu_tanh" are the tanh form, which Huawei's TensorFlow code trained with.
        hidden_dropout_prob, attention_probs_dropout_prob: dropout of the layers and of the attention probabilities.
        classifier_dropout: dropout before a classifier; None means `hidden_dropout_prob`. Alias: `dropout`.
        max_position_embeddings: longest input under absolute positions, and the tokenizer's limit. Relative
            positions read any length.
        max_relative_position: m; distances beyond it share one row of the table (R = 2m + 1 rows).
        layer_norm_eps: epsilon of every LayerNorm.
        position_encoding: "functional_relative" (NeZha), "parametric_relative" (learned tables, Shaw et al. 2018)
            or "absolute" (BERT). `use_relative_position=False` is the older spelling of "absolute".
        num_labels: width of a classifier; `id2label` and `label2id` follow it. Alias: `num_classes`.
        problem_type: None decides anew at each call, see `NeZhaForSequenceClassification`.
        bos_token_id, eos_token_id, use_cache: stored and written back, drive nothing (this is an encoder).

    Raises:
        ValueError: a value out of its range, or sizes that do not fit together.
        TypeError: an unknown keyword; the message gives the nearest known one.
    """

    vocab_size: int = _fact(21128, _rows)
    embedding_size: int = _fact(128, _count)
    hidden_size: int = _fact(768, _count)
    num_hidden_layers: int = _fact(12, _layers)
    num_attention_heads: int = _fact(12, _count)
    intermediate_size: int = _fact(3072, _count)
    hidden_act: str = _fact("gelu", _choice(*ACTIVATIONS))
    hidden_dropout_prob: float = _fact(0.1, _probability)
    attention_probs_dropout_prob: float = _fact(0.1, _probability)
    max_position_embeddings: int = _fact(512, _count)
    max_relative_position: int = _fact(64, _count)
    type_vocab_size: int = _fact(2, _count)
    initializer_range: float = _fact(0.02, _scale)
    layer_norm_eps: float = _fact(1e-12, _epsilon)
    classifier_dropout: Optional[float] = _fact(0.1, _optional(_probability))
    pad_token_id: int = _fact(0, _size)
    bos_token_id: Optional[int] = _fact(2, _optional(_size))
    eos_token_id: Optional[int] = _fact(3, _optional(_size))
    use_cache: bool = _fact(True, _boolean)
    position_encoding: str = _fact("functional_relative", _choice(*POSITION_ENCODINGS))
    num_labels: int = _fact(2, _count)
    num_choices: int = _fact(2, _count)
    problem_type: Optional[str] = _fact(None, _optional(_choice(*PROBLEM_TYPES)))
    return_dict: bool = _fact(False, _boolean)
    output_hidden_states: bool = _fact(False, _boolean)
    output_attentions: bool = _fact(False, _boolean)
    architectures: Optional[list[str]] = _fact(None, _optional(_names))
    # Keys of a config file that no line of this project reads: kept, and written back.
    unread: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    model_type = "nezha"  # no annotation: a constant of the class, not a field
    attribute_map = ATTRIBUTE_MAP

    def __init__(self, **facts: Any) -> None:
        if facts.pop("model_type", self.model_type) != self.model_type:
            raise ValueError("model_type must be 'nezha': this config describes no other model.")
        for old, new in ATTRIBUTE_MAP.items():
            if old in facts:
                if facts.get(new, facts[old]) != facts[old]:
                    raise ValueError(
                        f"{old}={facts[old]!r} and {new}={facts[new]!r} are two names of one setting: give one."
                    )
                facts[new] = facts.pop(old)
        _settle_position_encoding(facts)
        labels = {key: facts.pop(key, None) for key in ("id2label", "label2id")}
        unknown = sorted(set(facts) - _FIELD_NAMES)
        if unknown:
            known = [*_FIELD_NAMES, *ATTRIBUTE_MAP, "use_relative_position", "id2label", "label2id"]
            hints = " ".join(f"NeZhaConfig has no setting {name!r}.{_nearest(name, known)}" for name in unknown)
            raise TypeError(f"{hints} It has: {', '.join(sorted(set(known) - {'unread'}))}.")
        for item in fields(self):
            default = {} if item.name == "unread" else item.default
            setattr(self, item.name, facts.get(item.name, default))
        self._accept_labels(given_num_labels="num_labels" in facts, **labels)
        self.validate()

    def __eq__(self, other: object) -> bool:
        """Two configs are equal if they would be written alike."""
        return self.to_dict() == other.to_dict() if isinstance(other, NeZhaConfig) else NotImplemented

    # ---- facts that follow from others

    @property
    def head_size(self) -> int:
        """D, the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def use_relative_position(self) -> bool:
        """False is BERT: learned absolute positions and no relative term."""
        return self.position_encoding != "absolute"

    @use_relative_position.setter
    def use_relative_position(self, value: bool) -> None:
        if not _boolean("use_relative_position", value):
            self.position_encoding = "absolute"
        elif self.position_encoding == "absolute":
            self.position_encoding = "functional_relative"

    @property
    def id2label(self) -> dict[int, str]:
        """Label names by class index; as many as `num_labels`."""
        return self._id2label

    @id2label.setter
    def id2label(self, value: dict[Any, str]) -> None:
        try:
            names = {int(index): str(name) for index, name in value.items()}
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"id2label must be a mapping from class index to name, but got {value!r}.") from None
        if sorted(names) != list(range(len(names))) or not names or len(set(names.values())) != len(names):
            raise ValueError(f"id2label must name each class 0..n-1 once, each name different, but got {value!r}.")
        object.__setattr__(self, "_id2label", dict(sorted(names.items())))
        self.num_labels = len(names)

    @property
    def label2id(self) -> dict[str, int]:
        """Class index by label name: `id2label` read backwards."""
        return {name: index for index, name in self._id2label.items()}

    @label2id.setter
    def label2id(self, value: dict[str, Any]) -> None:
        try:
            self.id2label = {int(index): name for name, index in value.items()}
        except (AttributeError, TypeError):
            raise ValueError(f"label2id must be a mapping from name to class index, but got {value!r}.") from None

    def _accept_labels(self, given_num_labels: bool, id2label: Any, label2id: Any) -> None:
        num_labels = self.num_labels
        if label2id is not None:
            self.label2id = label2id
        if id2label is not None:
            previous = self.label2id
            self.id2label = id2label
            if label2id is not None and previous != self.label2id:
                raise ValueError(f"id2label {id2label!r} and label2id {label2id!r} contradict each other.")
        if given_num_labels and self.num_labels != num_labels:
            raise ValueError(
                f"num_labels is {num_labels}, but id2label names {self.num_labels} classes: give one of them."
            )

    def validate(self) -> None:
        """Checks the sizes against each other; called at construction and whenever a model is built.

        Raises:
            ValueError: `hidden_size` not divisible into heads, an odd head size, or a pad id outside the vocabulary.
        """
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads "
                f"({self.num_attention_heads}): change one of the two."
            )
        if self.head_size % 2:
            raise ValueError(
                f"The head size hidden_size / num_attention_heads = {self.hidden_size} / {self.num_attention_heads} = "
                f"{self.head_size} must be even, since the position table pairs a sine with a cosine."
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id ({self.pad_token_id}) must be below vocab_size ({self.vocab_size}).")

    # ---- files

    @classmethod
    def from_dict(cls, raw: dict[str, Any], *, origin: str = CONFIG_NAME, **overrides: Any) -> "NeZhaConfig":
        """A config from the content of a config file: PaddleNLP's, Hugging Face's or Huawei's.

        Args:
            raw: the file's content. Keys that nothing here reads are kept in `unread` and written back.
            origin: the file's name. It decides what a missing `use_relative_position` means: a Huawei
                `bert_config.json` without it is a BERT, anything else without it a NeZha.
            overrides: settings that win over the file's; unknown ones are refused.

        Raises:
            ValueError: a setting that this model cannot honour (a decoder, cross-attention, another model's file).
        """
        facts = _flatten_legacy(raw) if "init_args" in raw or "init_class" in raw else dict(raw)
        for key, meaning in (("is_decoder", "a decoder"), ("add_cross_attention", "cross-attention")):
            if facts.get(key):
                raise ValueError(
                    f"The config asks for {meaning} ({key}={facts[key]!r}); NeZha is an encoder. Set it to false."
                )
        model_type = facts.pop("model_type", None) or cls.model_type
        says_positions = {"use_relative_position", "position_encoding"} & (set(facts) | set(overrides))
        if model_type != cls.model_type and not (model_type == "bert" and says_positions):
            raise ValueError(
                f"The config is of a {model_type!r} model, not of NeZha. To open a BERT here, pass "
                "use_relative_position=False; other models are not NeZha's arithmetic."
            )
        if origin == HUAWEI_CONFIG_NAME and not says_positions:
            facts["use_relative_position"] = False
        facts.update(_without_contradictions(facts, overrides))
        known = _FIELD_NAMES - {"unread"} | set(ATTRIBUTE_MAP) | {"use_relative_position", "id2label", "label2id"}
        unread = {key: facts.pop(key) for key in list(facts) if key not in known and key not in overrides}
        # Some files write null for "not set".
        facts = {
            key: value for key, value in facts.items() if value is not None or key in _MAY_BE_NONE | set(overrides)
        }
        return cls(**facts, unread=unread)

    @classmethod
    def from_pretrained(
        cls, name_or_folder: Union[str, os.PathLike], *, cache_dir: Any = None, **overrides: Any
    ) -> "NeZhaConfig":
        """The config of a published name, a folder, or a config file.

        Args:
            name_or_folder: one of `NEZHA_PRETRAINED_INIT_CONFIGURATION` (no file is needed then), a folder that holds
                `config.json`, `model_config.json` or `bert_config.json`, or the path of one such file.
            cache_dir: accepted as for models; a config of a published name needs no file.
            overrides: settings that win over the file's.

        Raises:
            FileNotFoundError: no config there; the message lists what was looked for and what was found.
            ValueError: the file is not JSON, or holds a setting that cannot be honoured.
        """
        path = Path(name_or_folder)
        if str(name_or_folder) in NEZHA_PRETRAINED_INIT_CONFIGURATION and not path.exists():
            return cls.from_dict(NEZHA_PRETRAINED_INIT_CONFIGURATION[str(name_or_folder)], **overrides)
        file = path if path.is_file() else _config_file(path)
        try:
            raw = json.loads(file.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{file} is not a JSON file ({error}): restore it from where the checkpoint came from."
            ) from error
        if not isinstance(raw, dict):
            raise ValueError(f"{file} holds a JSON {type(raw).__name__}, but a config is a JSON object of settings.")
        try:
            return cls.from_dict(raw, origin=file.name, **overrides)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Every setting, the unread keys of the source file included: what `config.json` holds."""
        facts = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "unread"}
        facts.update(use_relative_position=self.use_relative_position, id2label=self.id2label, label2id=self.label2id)
        return {**self.unread, "model_type": self.model_type, **facts}

    def to_json_string(self) -> str:
        _notes(self.unread)  # one that was a list or a dict may have grown something else since
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"

    def save_pretrained(self, folder: Union[str, os.PathLike]) -> None:
        """Writes `config.json` into `folder`, which is made if need be."""
        text = self.to_json_string().encode("utf-8", "backslashreplace")  # as JSON spells a lone surrogate
        Path(folder).mkdir(parents=True, exist_ok=True)
        with replaced(Path(folder) / CONFIG_NAME) as temporary:
            Path(temporary).write_bytes(text)


_CHECKS = {item.name: item.metadata["check"] for item in fields(NeZhaConfig) if "check" in item.metadata}
_FIELD_NAMES = {item.name for item in fields(NeZhaConfig)}
_READ_ELSEWHERE = {"is_decoder", "add_cross_attention", "init_args", "init_class"}  # by `from_dict`
_FIXED = {name for name in dir(NeZhaConfig) if not name.startswith("__") and name not in _FIELD_NAMES} - {
    name for name, found in vars(NeZhaConfig).items() if isinstance(found, property)
}
_MAY_BE_NONE = {"bos_token_id", "eos_token_id", "classifier_dropout", "dropout", "problem_type", "architectures"}


def _settle_position_encoding(facts: dict[str, Any]) -> None:
    """Turns the older boolean into `position_encoding`; both may be given when they agree."""
    relative = facts.pop("use_relative_position", None)
    if relative is None:
        return
    _boolean("use_relative_position", relative)
    encoding = facts.setdefault("position_encoding", "functional_relative" if relative else "absolute")
    if relative != (encoding != "absolute"):
        raise ValueError(
            f"use_relative_position={relative} contradicts position_encoding={encoding!r}: give one of them."
        )


def _without_contradictions(facts: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """`overrides`, after dropping from `facts` what they replace under another name."""
    groups = (
        ("use_relative_position", "position_encoding"),
        ("num_labels", "num_classes", "id2label", "label2id"),
        ("classifier_dropout", "dropout"),
    )
    for group in groups:
        if any(key in overrides for key in group):
            for key in group:
                facts.pop(key, None)
    return overrides


def _flatten_legacy(raw: dict[str, Any]) -> dict[str, Any]:
    """PaddleNLP's `model_config.json`: a head's own arguments around those of the model it was given."""
    facts: dict[str, Any] = {}
    arguments = raw.get("init_args") or ()
    if not isinstance(arguments, (list, tuple)):
        raise ValueError(f"init_args must be a list of arguments, but got {arguments!r}: restore the file.")
    for argument in arguments:
        if isinstance(argument, dict):
            facts.update(_flatten_legacy(argument))
    facts.update({key: value for key, value in raw.items() if key not in ("init_args", "init_class")})
    if "init_class" in raw and str(raw["init_class"]).startswith("NeZha"):
        facts["architectures"] = [raw["init_class"]]
    # A head built without the argument stored null: the default then, as in PaddleNLP's constructors.
    return {key: value for key, value in facts.items() if value is not None}


def _config_file(folder: Path) -> Path:
    names = (CONFIG_NAME, LEGACY_CONFIG_NAME, HUAWEI_CONFIG_NAME)
    for name in names:
        if (folder / name).is_file():
            return folder / name
    if folder.is_dir():
        raise FileNotFoundError(
            f"No config in {folder}: looked for {', '.join(names)}. Put the checkpoint's config there (or, to "
            f"convert, name it with --config). The folder holds {listing(folder)}."
        )
    if str(folder) in HISTORICAL_NAMES:
        raise FileNotFoundError(f"{str(folder)!r} names no file: {HISTORICAL_NAMES[str(folder)]}")
    published = ", ".join(NEZHA_PRETRAINED_INIT_CONFIGURATION)
    raise FileNotFoundError(
        f"{str(folder)!r} is neither a folder, nor a config file, nor a published name ({published})."
    )
