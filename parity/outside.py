"""Implementations nobody here wrote, on the same weights and inputs: transformers 4.57.6, PaddleNLP 3.0.0b4.

They check `torch_ref`, which checks `paddle_nezha`. Each framework is imported only when it is asked for, in
this process; where one is missing, `available` and `run` say so in words. What is known to differ stands in
`KNOWN_DIFFERENCES`, as data with the reason.

Both frameworks make the position table themselves, in float32, and keep it. For float64 work it is
overwritten by the float64 table, gathered to [L, L, D] as they hold it: the 3e-8 of float32 would hide all
smaller differences.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
import zlib  # noqa: F401  before paddle: Paddle 2.6.2 breaks it otherwise
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module, metadata
from typing import Any, Callable, NamedTuple

import numpy as np
import torch

import torch_ref
from paddle_nezha.config import NeZhaConfig

VERSIONS = {"transformers": "4.57.6", "paddlenlp": "3.0.0b4"}
_MODULES = {
    # the second stands until 4.41
    "transformers": ("transformers.models.deprecated.nezha", "transformers.models.nezha"),
    "paddlenlp": ("paddlenlp.transformers.nezha.modeling",),
}
_CLASSES = {
    "transformers": {
        "model": "NezhaModel",
        "pretraining": "NezhaForPreTraining",
        "masked_lm": "NezhaForMaskedLM",
        "next_sentence": "NezhaForNextSentencePrediction",
        "sequence_classification": "NezhaForSequenceClassification",
        "token_classification": "NezhaForTokenClassification",
        "question_answering": "NezhaForQuestionAnswering",
        "multiple_choice": "NezhaForMultipleChoice",
    },
    "paddlenlp": {
        "model": "NeZhaModel",
        "pretraining": "NeZhaForPretraining",
        "sequence_classification": "NeZhaForSequenceClassification",
        "token_classification": "NeZhaForTokenClassification",
        "question_answering": "NeZhaForQuestionAnswering",
        "multiple_choice": "NeZhaForMultipleChoice",
    },
}
# PaddleNLP builds its table for this many tokens, whatever the config says.
PADDLENLP_LENGTH = 512


class OutsideUnavailable(RuntimeError):
    """The framework is not installed, or cannot run this case; the message says which, and what to do."""


class Result(NamedTuple):
    """What an outside implementation gave, in torch_ref's terms.

    `outputs` holds those of torch_ref's outputs that the framework returns, without the loss. `loss` is None
    and `gradients`, by PaddleNLP name and in its layout, is empty where it computes no loss for these labels.
    """

    outputs: dict[str, Any]
    loss: float | None
    gradients: dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One forward: `inputs` and `labels` by the keywords of `torch_ref.Reference.forward`, NumPy arrays."""

    config: NeZhaConfig
    head: str
    inputs: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]

    @property
    def length(self) -> int:
        embeds = self.inputs.get("inputs_embeds")
        return self.inputs["input_ids"].shape[-1] if embeds is None else embeds.shape[-2]

    @property
    def mask_rank(self) -> int:
        """2 for one mask a text, 3 for one a query, 4 for one a head; the choices' axis is not counted."""
        mask = self.inputs.get("attention_mask")
        return 2 if mask is None else mask.ndim - (self.head == "multiple_choice")

    @property
    def labels_are_numbers(self) -> bool:
        """Regression targets and yes-or-no marks, in which -1 is a number and not "no label"."""
        kind = self.config.problem_type
        if kind is None:
            floats = any(x.dtype.kind == "f" for x in self.labels.values())
            kind = "regression" if floats or self.config.num_labels == 1 else "single_label_classification"
        return self.head == "sequence_classification" and kind != "single_label_classification"

    def unlabelled(self, labels: np.ndarray) -> np.ndarray:
        """Which places of an array of labels hold none."""
        if self.labels_are_numbers:
            return np.zeros(labels.shape, dtype=bool)
        beyond = labels >= self.length if self.head == "question_answering" else False
        return (labels < 0) | beyond


@dataclass(frozen=True)
class KnownDifference:
    """Something in which a framework does not compute what this project does.

    `stages` are output names, "loss", "grad" (all gradients) or "*": then the case is not run there at all.
    """

    framework: str
    stages: tuple[str, ...]
    when: Callable[[Case], bool]
    reason: str


def _blind_query(case: Case) -> bool:
    mask = case.inputs.get("attention_mask")
    return mask is not None and bool(np.any(~np.asarray(mask, dtype=bool).any(axis=-1)))


def _some_unlabelled(case: Case) -> bool:
    return any(case.unlabelled(x).any() for x in case.labels.values())


def _all_unlabelled(case: Case) -> bool:
    return any(case.unlabelled(x).all() for x in case.labels.values())


KNOWN_DIFFERENCES = (
    KnownDifference(
        "transformers", ("*",), lambda c: c.config.position_encoding != "functional_relative",
        "transformers' NeZha has the sinusoidal relative positions alone",
    ),
    KnownDifference(
        "transformers", ("*",), lambda c: c.length > c.config.max_position_embeddings,
        "transformers builds its position table for max_position_embeddings tokens and fails beyond",
    ),
    KnownDifference(
        "transformers", ("*",), lambda c: c.mask_rank > 3, "transformers takes masks of rank 2 and 3 alone"
    ),
    KnownDifference(
        "transformers", ("*",), lambda c: c.mask_rank > 2 and c.head == "multiple_choice",
        "transformers' multiple choice flattens a mask to rank 2",
    ),
    KnownDifference(
        "transformers", ("loss", "grad"), lambda c: c.head == "pretraining" and len(c.labels) == 1,
        "transformers computes the pretraining loss from both labels or not at all",
    ),
    KnownDifference(
        "transformers", ("loss", "grad"), _all_unlabelled,
        "transformers' mean over no label is NaN, ours is 0",
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: c.head not in _CLASSES["paddlenlp"],
        "PaddleNLP has no NeZha head for masked language modelling or next sentence alone",
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: c.config.position_encoding == "parametric_relative",
        "PaddleNLP's NeZha has no learned relative tables",
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: not c.config.use_relative_position,
        "PaddleNLP adds absolute positions, but keeps the relative terms in its attention",
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: c.length > PADDLENLP_LENGTH,
        "PaddleNLP's position table ends at 512 tokens",
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: c.mask_rank > 2, "PaddleNLP takes masks of rank 2 alone"
    ),
    KnownDifference(
        "paddlenlp", ("*",), lambda c: np.float32(c.config.layer_norm_eps) != np.float32(1e-12),
        "PaddleNLP sets every LayerNorm's epsilon to 1e-12, whatever the config says",
    ),
    KnownDifference(
        "paddlenlp", ("attentions",), lambda c: True,
        "PaddleNLP returns masked scores in place of probabilities",
    ),
    KnownDifference(
        "paddlenlp", ("loss", "grad"), lambda c: c.head != "question_answering" and _some_unlabelled(c),
        "Paddle 3 divides a cross-entropy with ignored labels by all positions, ours by the labelled ones",
    ),
    KnownDifference(
        "paddlenlp", ("loss", "grad"),
        lambda c: c.head == "pretraining" and set(c.labels) == {"next_sentence_label"},
        "PaddleNLP computes no loss from the next-sentence label alone",
    ),
    *(
        KnownDifference(
            framework, ("*",), _blind_query,
            f"a query without any visible key has probabilities 0 here, and meaningless ones in {framework}",
        )
        for framework in VERSIONS
    ),
)  # fmt: skip

# Of the loss, where a case draws its logits far apart.
FAR_LOGITS = "Paddle's cross-entropy lets no probability fall below exp(-64) on a CPU, so PaddleNLP's losses end at 64"

# transformers' word table has a padding_idx, which takes the look-up's gradient from that row.
PAD_ROW = "transformers gives the word embedding's row of pad_token_id no gradient"


def differences(
    name: str,
    config: NeZhaConfig,
    head: str,
    inputs: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray],
) -> dict[str, str]:
    """What must not be compared in this case: stage -> reason, stages as in `KnownDifference`."""
    case = Case(config, head, _present(inputs), _present(labels))
    return {
        stage: known.reason
        for known in KNOWN_DIFFERENCES
        if known.framework == name and known.when(case)
        for stage in known.stages
    }


def comparable_gradient(name: str, config: NeZhaConfig, parameter: str, gradient: np.ndarray) -> np.ndarray:
    """The part of a gradient that the framework is asked for: without the padding row (`PAD_ROW`)."""
    if name == "transformers" and parameter.endswith("word_embeddings.weight"):
        return np.delete(gradient, config.pad_token_id, axis=0)
    return gradient


def available(name: str) -> str | None:
    """None where the framework can be used, else the reason and the remedy.

    Raises:
        ValueError: a name that is not in `VERSIONS`.
    """
    if name not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise ValueError(f"outside implementation: expected one of {known}, got {name!r}; choose one of these")
    try:
        _module(name)
    except OutsideUnavailable as error:
        return str(error)
    return None


@functools.cache
def _module(name: str) -> Any:
    wanted = f"expected {name}=={VERSIONS[name]}: run `make oracles`, which builds an environment that has it"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise OutsideUnavailable(f"{name} is not installed; {wanted}") from None
    failures = []
    for module in _MODULES[name]:
        try:
            with _quiet():
                return _with_classes(import_module(module), name)
        except Exception as error:  # a framework that does not fit its surroundings fails in its own way
            failures.append(f"{type(error).__name__}: {error}".splitlines()[0])
    raise OutsideUnavailable(f"{name} {version} offers no NeZha here ({'; '.join(failures)}); {wanted}")


def _with_classes(module: Any, name: str) -> Any:
    for class_name in _CLASSES[name].values():
        getattr(module, class_name)  # a lazy module imports, and fails, only now
    return module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the frameworks' warnings and log lines, and what they print (one prints its logits' shape)."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def run(
    name: str,
    config: NeZhaConfig,
    head: str,
    arrays: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None = None,
    dtype: str = "float64",
) -> Result:
    """Run a framework's own NeZha, without dropout, forward and (given labels) backward.

    Args:
        name: "transformers" or "paddlenlp".
        config, head: as for `torch_ref.build`.
        arrays: weights under PaddleNLP's names, as for `torch_ref.load_paddle`.
        inputs: `input_ids` or `inputs_embeds`, `token_type_ids`, `attention_mask`; None is as good as absent.
        labels: by the keywords of `torch_ref`. "No label" is said in the framework's own way.
        dtype: "float64" (with the exact position table) or "float32" (with the framework's own).

    Raises:
        OutsideUnavailable: the framework is missing, or a known difference keeps it from this case.
        ValueError: `arrays` are not those of this head.
    """
    case = Case(config, head, _present(inputs), _present(labels or {}))
    reason = available(name) or differences(name, config, head, case.inputs, case.labels).get("*")
    if reason:
        raise OutsideUnavailable(reason)
    with _quiet():
        return {"transformers": _run_transformers, "paddlenlp": _run_paddlenlp}[name](case, arrays, dtype)


def untrained(name: str, config: NeZhaConfig, **more: Any) -> Any:
    """A framework's own bare model with weights of its own drawing, for what asks no numbers of it.

    Args:
        name: "transformers" or "paddlenlp".
        more: further settings of the framework's config, by its names.

    Raises:
        OutsideUnavailable: the framework is missing.
    """
    module = _module(name)
    sizes = {**_sizes(config, "model"), **more}
    with _quiet():
        if name == "transformers":
            return module.NezhaModel(module.NezhaConfig(**sizes))
        return module.NeZhaModel(module.NeZhaConfig(**sizes, use_relative_position=True))


def _present(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in arrays.items() if value is not None}


def _sizes(config: NeZhaConfig, head: str) -> dict[str, Any]:
    """The settings under which both frameworks build the same model."""
    kept = (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "hidden_act", "max_position_embeddings", "max_relative_position", "type_vocab_size", "pad_token_id",
        "problem_type",
    )  # fmt: skip
    sizes = {key: getattr(config, key) for key in kept}
    if config.hidden_act == "gelu_tanh":
        sizes["hidden_act"] = "gelu_new"  # their name for it
    sizes["layer_norm_eps"] = float(np.float32(config.layer_norm_eps))  # as torch_ref, and as Paddle keeps it
    if head in ("sequence_classification", "token_classification"):
        sizes["num_labels"] = config.num_labels
    return sizes


def _exact_table(case: Case) -> Any:
    """A gathered to [L, L, D], a float64 torch tensor."""
    reach = case.config.max_relative_position
    return torch_ref.position_table(reach, case.config.head_size)[torch_ref.relative_rows(case.length, reach)]


def _typed(values: np.ndarray, dtype: str) -> np.ndarray:
    return values.astype(dtype if values.dtype.kind == "f" else "int64")


def _labels(case: Case, ignored: int, renamed: Mapping[str, str], dtype: str) -> dict[str, np.ndarray]:
    """The labels under the framework's keywords, places without one as `ignored`."""
    return {
        renamed.get(key, key): np.where(case.unlabelled(values), ignored, _typed(values, dtype))
        for key, values in case.labels.items()
    }


def _outputs(out: Any, to_numpy: Callable[[Any], np.ndarray]) -> dict[str, Any]:
    """A framework's output object under torch_ref's names; hidden states and probabilities as lists."""
    found = {}
    for key in (f.name for f in fields(torch_ref.Outputs) if f.name != "loss"):
        value = getattr(out, key, None)
        if value is not None:
            found[key] = [to_numpy(v) for v in value] if isinstance(value, (list, tuple)) else to_numpy(value)
    found.setdefault("last_hidden_state", found["hidden_states"][-1])
    return found


def _same_parameters(name: str, theirs: Iterable[str], ours: Iterable[str]) -> None:
    left = set(theirs) ^ set(ours)
    if left:
        raise ValueError(
            f"{name}: expected the arrays of this head, but on one side alone there are "
            f"{', '.join(sorted(left))}; give those of torch_ref.parameters for the same config and head"
        )


# ---- transformers


def _run_transformers(case: Case, arrays: Mapping[str, np.ndarray], dtype: str) -> Result:
    with torch.device("meta"):  # the names alone
        names = torch_ref.names(torch_ref.build(case.config, case.head))
    _same_parameters("transformers", (n.paddle for n in names), arrays)
    model = _transformers_model(case, names, arrays, dtype)
    given = {key: torch.from_numpy(_typed(value, dtype)) for key, value in case.inputs.items()}
    renamed = {"masked_lm_labels": "labels"}
    if case.head == "next_sentence":
        renamed["next_sentence_label"] = "labels"
    ignored = case.length if case.head == "question_answering" else -100
    labels = {key: torch.from_numpy(x) for key, x in _labels(case, ignored, renamed, dtype).items()}
    out = model(**given, **labels, output_hidden_states=True, output_attentions=True, return_dict=True)
    outputs = _outputs(out, lambda t: t.detach().numpy())
    if getattr(out, "loss", None) is None:
        return Result(outputs, None, {})
    out.loss.backward()
    own = dict(model.named_parameters())
    gradients = {}
    for n in names:
        if n.hf not in own or own[n.hf].grad is None:  # nothing that this head reads
            gradients[n.paddle] = np.zeros(arrays[n.paddle].shape, dtype)
        else:
            gradient = own[n.hf].grad.numpy()
            gradients[n.paddle] = gradient.T if n.turned else gradient
    return Result(outputs, out.loss.item(), gradients)


def _transformers_model(case: Case, names: list[torch_ref.Name], arrays: Mapping[str, np.ndarray], dtype: str) -> Any:
    module = _module("transformers")
    kind = getattr(module, _CLASSES["transformers"][case.head])
    model = kind(module.NezhaConfig(**_sizes(case.config, case.head))).to(getattr(torch, dtype)).eval()
    state = {n.hf: torch.from_numpy(np.array(arrays[n.paddle])) for n in names}
    state = {n.hf: state[n.hf].T if n.turned else state[n.hf] for n in names}
    missing, unexpected = model.load_state_dict(state, strict=False)
    # Tied to tensors that were given; a pooler, which heads that do not read it have not got there.
    tied = [n for n in missing if n.startswith("cls.predictions.decoder.")]
    absent = [n for n in unexpected if n.startswith("nezha.pooler.")]
    _same_parameters("transformers", set(missing) - set(tied), set(unexpected) - set(absent))
    if dtype == "float64":
        for part in model.modules():
            if hasattr(part, "positions_encoding"):
                part.positions_encoding = _exact_table(case)
    return model


# ---- PaddleNLP


def _run_paddlenlp(case: Case, arrays: Mapping[str, np.ndarray], dtype: str) -> Result:
    import paddle

    default = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)  # the model is built in it, and so is its additive mask
    try:
        model = _paddlenlp_model(case, arrays, dtype)
        given = {key: paddle.to_tensor(_typed(value, dtype)) for key, value in case.inputs.items()}
        if "inputs_embeds" in given:  # PaddleNLP makes the defaults from the ids, which are not there
            shape = case.inputs["inputs_embeds"].shape[:-1]
            for key, fill in (("attention_mask", 1), ("token_type_ids", 0)):
                given.setdefault(key, paddle.full(shape, fill, "int64"))
        renamed = {"labels": "masked_lm_labels"} if case.head == "pretraining" else {}
        ignored = {"pretraining": -1, "question_answering": case.length}.get(case.head, -100)
        labels = {key: paddle.to_tensor(x) for key, x in _labels(case, ignored, renamed, dtype).items()}
        out = model(**given, **labels, output_hidden_states=True, output_attentions=True, return_dict=True)
        outputs = _outputs(out, lambda t: t.numpy())
        if getattr(out, "loss", None) is None:
            return Result(outputs, None, {})
        out.loss.backward()
        gradients = {
            name: np.zeros(p.shape, dtype) if p.grad is None else p.grad.numpy() for name, p in model.named_parameters()
        }
        return Result(outputs, out.loss.item(), gradients)
    finally:
        paddle.set_default_dtype(default)


def _paddlenlp_model(case: Case, arrays: Mapping[str, np.ndarray], dtype: str) -> Any:
    import paddle

    module = _module("paddlenlp")
    sizes = _sizes(case.config, case.head)
    if case.head == "multiple_choice":
        sizes["num_choices"] = next(iter(case.inputs.values())).shape[1]
    kind = getattr(module, _CLASSES["paddlenlp"][case.head])
    model = kind(module.NeZhaConfig(**sizes, use_relative_position=True))
    model.eval()
    own = dict(model.named_parameters())
    _same_parameters("paddlenlp", own, arrays)
    for name, p in own.items():
        p.set_value(np.ascontiguousarray(arrays[name], dtype))
    if dtype == "float64":
        table = paddle.to_tensor(_exact_table(case).numpy())
        for part in model.sublayers():
            if hasattr(part, "relative_positions_embeddings"):
                part.relative_positions_embeddings = table
    return model
