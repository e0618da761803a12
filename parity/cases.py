"""The cases the judge runs: tiny models on inputs chosen to hurt, made from seeds in NumPy."""

from dataclasses import dataclass, field, replace
from typing import Any, Optional

import numpy as np

from paddle_nezha.checkpoint.names import parameter_shapes
from paddle_nezha.config import NeZhaConfig
from parity.stages import HEADS

# Odd and unequal sizes, so that swapped axes cannot cancel out.
TINY = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_relative_position=64,
    max_position_embeddings=160,
    num_labels=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    classifier_dropout=0.0,
)


@dataclass(frozen=True)
class Case:
    """One situation.

    Args:
        name: what a report and `--case` call it.
        why: what goes wrong here in code that is wrong.
        config: settings beyond TINY.
        heads: those it makes sense for.
        padding: "none", "right", "left", "ragged" (both ends, each row its own) or "row" (one row all hidden).
        mask: None, "2d", "3d-causal", "3d-random", "4d", "4d-heads": the mask's rank and content.
        mask_dtype: NumPy dtype of the mask as the model gets it.
        segments: two segments in place of none given.
        embeds: word embeddings in place of ids.
        query_gain: multiplies query and key weights: peaked scores.
        head_gain: multiplies the head's weights: logits far apart.
        labels: "all", "some" (part ignored) or "none" (all ignored).
        only: the one label that is given, of a head that takes two.
        ids_dtype: NumPy dtype of ids and segments as the model gets them.
    """

    name: str
    why: str
    config: "dict[str, Any]" = field(default_factory=dict)
    heads: "tuple[str, ...]" = HEADS
    batch: int = 2
    length: int = 7
    padding: str = "none"
    mask: Optional[str] = None
    mask_dtype: str = "int64"
    segments: bool = False
    embeds: bool = False
    query_gain: float = 1.0
    head_gain: float = 1.0
    labels: str = "some"
    only: str = ""
    ids_dtype: str = "int64"

    def make_config(self) -> NeZhaConfig:
        return NeZhaConfig(**{**TINY, **self.config})


def _lengths(m: int, *lengths: int, batch: int = 2) -> "list[Case]":
    return [
        Case(
            f"m{m}-length{length}",
            "where the clip begins, ends and repeats",
            {"max_relative_position": m},
            batch=batch,
            length=length,
            padding="right" if length > 2 else "none",
            mask="2d" if length > 2 else None,
        )
        for length in lengths
    ]


CASES: "list[Case]" = [
    Case("plain", "the smallest whole model, no mask"),
    Case(
        "odd-sizes",
        "three heads of ten, odd everywhere else",
        {"hidden_size": 30, "num_attention_heads": 3},
        batch=3,
        length=11,
    ),
    Case("one-head", "D = N", {"num_attention_heads": 1}),
    Case("many-heads", "sixteen heads of two: one sine and one cosine each", {"num_attention_heads": 16}),
    Case("deep", "errors that grow with depth", {"num_hidden_layers": 6}, heads=("model", "masked_lm")),
    *_lengths(5, 1, 2, 4, 5, 6, 10, 11, 12, 23),
    *_lengths(64, 1, 64, 65, 66, 128, 129, 130),
    *_lengths(127, 127, 128, 255, batch=1),
    Case("pad-right", "pads must be invisible", padding="right", mask="2d"),
    Case("pad-left", "relative positions do not count from the start", padding="left", mask="2d"),
    Case(
        "pad-ragged", "each row its own text, somewhere in the middle", batch=4, length=13, padding="ragged", mask="2d"
    ),
    Case("row-hidden", "a row without any visible key: probabilities 0, not NaN", batch=3, padding="row", mask="2d"),
    Case("mask-bool", "bool", padding="right", mask="2d", mask_dtype="bool"),
    Case("mask-float", "0 and 1 as floats", padding="right", mask="2d", mask_dtype="float32"),
    Case("mask-3d-causal", "each query its own keys", mask="3d-causal", mask_dtype="int32"),
    Case("mask-3d-random", "some queries see nothing", length=9, mask="3d-random"),
    Case("mask-4d", "one mask for all heads", length=9, mask="4d", mask_dtype="bool"),
    Case("mask-4d-heads", "each head its own", length=9, mask="4d-heads"),
    Case("segments", "two segments", segments=True, padding="right", mask="2d"),
    Case("embeds", "word embeddings given", embeds=True, segments=True),
    Case("peaked", "softmax with one winner", length=17, query_gain=8.0),
    Case("far-logits", "logits 200 apart: the loss is their distance, not 64", head_gain=200.0),
    Case("nothing-labelled", "the loss is 0, not NaN", labels="none"),
    Case("all-labelled", "no ignored position", labels="all"),
    Case("words-alone", "pre-training without the next sentence", heads=("pretraining",), only="masked_lm_labels"),
    Case("order-alone", "pre-training without masked words", heads=("pretraining",), only="next_sentence_label"),
    Case("int32", "ids as some readers give them", segments=True, padding="right", mask="2d", ids_dtype="int32"),
    Case("gelu-tanh", "the other gelu", {"hidden_act": "gelu_new"}),
    Case("relu", "an activation with a corner", {"hidden_act": "relu"}, heads=("masked_lm",)),
    Case("epsilon", "the config's epsilon is the one used", {"layer_norm_eps": 1e-3}),
    Case("regression", "one label: squared error", {"num_labels": 1}, heads=("sequence_classification",)),
    Case(
        "multi-label",
        "several labels at once",
        {"num_labels": 5, "problem_type": "multi_label_classification"},
        heads=("sequence_classification",),
    ),
    Case(
        "parametric",
        "learned tables",
        {"position_encoding": "parametric_relative", "max_relative_position": 5},
        length=13,
    ),
    Case(
        "parametric-padded",
        "learned tables under a mask",
        {"position_encoding": "parametric_relative", "max_relative_position": 5},
        length=13,
        padding="ragged",
        mask="2d",
    ),
    Case("absolute", "plain BERT", {"position_encoding": "absolute"}, segments=True),
    Case("absolute-padded", "plain BERT under a mask", {"position_encoding": "absolute"}, padding="right", mask="2d"),
    Case(
        "base-width",
        "sums as long as in the published models",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 1},
        heads=("masked_lm",),
        batch=1,
        length=70,
    ),
]


@dataclass(frozen=True)
class Sample:
    """A case with numbers: what both sides are given.

    Args:
        arrays: parameters by PaddleNLP's names, float64 (rounded to float32 where float32 is judged).
        inputs: forward arguments beside labels; ids int64, mask as the case says, embeddings float64.
        labels: forward arguments that are labels.
        real: bool [B, L] (choices merged into B): the tokens that are no padding.
        cotangents: for the head "model", what its two outputs are multiplied with to give a loss.
    """

    config: NeZhaConfig
    head: str
    arrays: "dict[str, np.ndarray]"
    inputs: "dict[str, np.ndarray]"
    labels: "dict[str, np.ndarray]"
    real: np.ndarray
    cotangents: "tuple[np.ndarray, ...]" = ()

    def rounded(self) -> "Sample":
        """The same with every number a float32 can hold, so that float32 is judged on its arithmetic alone."""

        def single(x: np.ndarray) -> np.ndarray:
            return x.astype(np.float32).astype(np.float64) if x.dtype == np.float64 else x

        def all_single(named: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
            return {name: single(x) for name, x in named.items()}

        return replace(
            self,
            arrays=all_single(self.arrays),
            inputs=all_single(self.inputs),
            labels=all_single(self.labels),
            cotangents=tuple(map(single, self.cotangents)),
        )


def make_sample(case: Case, head: str, seed: int) -> Sample:
    """The numbers of a case: the same for the same seed, on any machine."""
    # The name decides too, so that two cases of one shape do not share their weights.
    rng = np.random.default_rng([seed, *f"{case.name}/{head}".encode()])
    config = case.make_config()
    choices = 3 if head == "multiple_choice" else 1
    rows = case.batch * choices
    real = _real_tokens(case, rows, rng)
    inputs = _inputs(case, config, rows, real, rng)
    if head == "multiple_choice":
        inputs = {name: x.reshape(case.batch, choices, *x.shape[1:]) for name, x in inputs.items()}
    cotangents: "tuple[np.ndarray, ...]" = ()
    if head == "model":
        sequence = rng.standard_normal((rows, case.length, config.hidden_size)) * real[:, :, None]
        cotangents = (sequence, rng.standard_normal((rows, config.hidden_size)))
    arrays = random_parameters(config, head, rng, case.query_gain, case.head_gain)
    labels = make_labels(config, head, case.batch, real, rng, case.labels)
    labels = {name: values for name, values in labels.items() if not case.only or name == case.only}
    return Sample(config, head, arrays, inputs, labels, real, cotangents)


def random_parameters(
    config: NeZhaConfig, head: str, rng: np.random.Generator, query_gain: float = 1.0, head_gain: float = 1.0
) -> "dict[str, np.ndarray]":
    """Every parameter of a head, float64, of a size that keeps activations near 1: no stage may be so small that
    nothing shows in it."""
    arrays = {}
    for name, shape in parameter_shapes(config, head).items():
        if name.endswith("decoder_weight"):
            continue  # tied below
        if name.endswith(("layer_norm.weight",)):
            values = 1.0 + 0.2 * rng.standard_normal(shape)
        elif len(shape) == 1:
            values = 0.2 * rng.standard_normal(shape)
        elif "embeddings." in name or ".relative_" in name:
            values = rng.standard_normal(shape)
        else:
            values = rng.standard_normal(shape) / np.sqrt(shape[0])
        if ".query." in name or ".key." in name:
            values = values * query_gain
        if name.startswith(("cls.", "classifier.")) and "layer_norm" not in name:
            values = values * head_gain
        arrays[name] = values
    for name in parameter_shapes(config, head):
        if name.endswith("decoder_weight"):
            arrays[name] = arrays["nezha.embeddings.word_embeddings.weight"]
    return arrays


def _real_tokens(case: Case, rows: int, rng: np.random.Generator) -> np.ndarray:
    length = case.length
    real = np.ones((rows, length), bool)
    position = np.arange(length)
    for row in range(rows):
        first = int(rng.integers(1, max(2, length // 2 + 1)))
        if case.padding == "right":
            real[row] = position < length - (first if row else 0)
        elif case.padding == "left":
            real[row] = position >= (first if row else 0)
        elif case.padding == "ragged":
            real[row] = (position >= first // 2) & (position < length - first // 2 - row % 2)
    return real


def _inputs(
    case: Case, config: NeZhaConfig, rows: int, real: np.ndarray, rng: np.random.Generator
) -> "dict[str, np.ndarray]":
    length = case.length
    ids = np.where(real, rng.integers(1, config.vocab_size, (rows, length)), config.pad_token_id).astype(case.ids_dtype)
    inputs = (
        {"inputs_embeds": rng.standard_normal((rows, length, config.hidden_size))}
        if case.embeds
        else {"input_ids": ids}
    )
    if case.segments:
        inputs["token_type_ids"] = (np.arange(length)[None] >= rng.integers(1, length, (rows, 1))).astype(
            case.ids_dtype
        )
    if case.mask:
        inputs["attention_mask"] = _mask(case, config, real, rng).astype(case.mask_dtype)
    return inputs


def _mask(case: Case, config: NeZhaConfig, real: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows, length = real.shape
    if case.mask == "2d":
        # A hidden row is text like any other: what it gives is defined, and judged.
        return real & (np.arange(rows)[:, None] % 3 != 1) if case.padding == "row" else real
    if case.mask == "3d-causal":
        return np.broadcast_to(np.tri(length, dtype=bool), (rows, length, length)).copy()
    heads = {"3d-random": (), "4d": (1,), "4d-heads": (config.num_attention_heads,)}[str(case.mask)]
    mask = rng.random((rows, *heads, length, length)) < 0.6
    mask[..., length // 2, :] = False  # a query that sees nothing
    return mask


def make_labels(
    config: NeZhaConfig, head: str, batch: int, real: np.ndarray, rng: np.random.Generator, labelled: str = "some"
) -> "dict[str, np.ndarray]":
    """Labels without meaning for a head, by its forward's keywords.

    Args:
        batch: B; `real` has B rows, or B times the choices.
        labelled: "all", "some" or "none" of what is real.
    """
    rows, length = real.shape

    def classes(shape: "tuple[int, ...]", count: int) -> np.ndarray:
        labels = rng.integers(0, count, shape)
        if labelled == "none":
            return np.full(shape, -100)
        if labelled == "some" and labels.size > 1:
            labels.flat[::3] = rng.choice([-100, -1], labels.flat[::3].shape)
        return labels

    def tokens(count: int) -> np.ndarray:
        return np.where(real, classes((rows, length), count), -100)

    if head == "pretraining":
        return {"masked_lm_labels": tokens(config.vocab_size), "next_sentence_label": classes((batch,), 2)}
    if head == "masked_lm":
        return {"labels": tokens(config.vocab_size)}
    if head == "next_sentence":
        return {"next_sentence_label": classes((batch,), 2)}
    if head == "sequence_classification":
        if config.problem_type == "multi_label_classification":
            return {"labels": rng.integers(0, 2, (batch, config.num_labels)).astype(np.float64)}
        return {
            "labels": rng.standard_normal(batch) if config.num_labels == 1 else classes((batch,), config.num_labels)
        }
    if head == "token_classification":
        return {"labels": tokens(config.num_labels)}
    if head == "question_answering":
        positions = [classes((batch,), length) for _ in range(2)]
        if labelled == "some":
            positions[1][-1] = length  # an answer that was cut off
        return dict(zip(("start_positions", "end_positions"), positions))
    if head == "multiple_choice":
        return {"labels": classes((batch,), rows // batch)}
    return {}
