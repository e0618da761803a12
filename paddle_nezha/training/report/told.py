"""How numbers and texts are told: what is known of each number, its digits, and what is safe within HTML."""

import html
import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from paddle_nezha.training.scoring import UNSEEN


class Metric(NamedTuple):
    """How a number is told.

    Attributes:
        form: "number", "share" (of one, told in percent) or "count".
        best: min or max; None where neither end is the better one.
        is_logarithmic: values span magnitudes, and equal ratios are equal lengths.
        is_noisy: what is to be seen is the mean of the steps.
    """

    title: str
    unit: str
    section: str
    form: str = "number"
    best: Optional[str] = None
    is_logarithmic: bool = False
    is_noisy: bool = True


LEARNING, OTHER, _OPTIMIZATION, _SPEED = "Learning", "More measures", "Optimization", "Speed"
SECTIONS = (LEARNING, OTHER, _OPTIMIZATION, _SPEED)
_KNOWN = {
    "mlm_loss": Metric("Masked LM loss", "nats a token", LEARNING, best="min"),
    "mlm_perplexity": Metric("Masked LM perplexity", "", LEARNING, best="min", is_logarithmic=True),
    "mlm_accuracy": Metric("Masked LM accuracy", "of the chosen tokens", LEARNING, "share", "max"),
    "mask_accuracy": Metric("[MASK] accuracy", "of those shown as [MASK]", LEARNING, "share", "max"),
    "nsp_loss": Metric("Sentence pair loss", "nats a pair", LEARNING, best="min"),
    "nsp_accuracy": Metric("Sentence pair accuracy", "of the pairs", LEARNING, "share", "max"),
    "loss": Metric("Loss", "what is minimized", LEARNING, best="min"),
    "accuracy": Metric("Accuracy", "", LEARNING, "share", "max"),
    "f1": Metric("F1", "", LEARNING, "share", "max"),
    "em": Metric("Exact match", "", LEARNING, "share", "max"),
    "macro_f1": Metric("Macro F1", "mean over the classes", LEARNING, "share", "max"),
    "mcc": Metric("Matthews correlation", "", LEARNING, best="max"),
    "precision": Metric("Precision", "", LEARNING, "share", "max"),
    "recall": Metric("Recall", "", LEARNING, "share", "max"),
    "learning_rate": Metric("Learning rate", "", _OPTIMIZATION, is_noisy=False),
    "gradient_norm": Metric("Gradient norm", "before clipping", _OPTIMIZATION, is_logarithmic=True),
    "tokens_per_second": Metric("Throughput", "tokens a second", _SPEED, "count"),
    "of_peak": Metric("Share of peak", "of a matrix product's FLOP/s", _SPEED, "share"),
    "seconds": Metric("Time of a step", "seconds", _SPEED),
}
_ENDINGS = {"loss": "min", "perplexity": "min", "accuracy": "max", "f1": "max"}
_KINDS = {"step": "training", "eval": "held out"}
NOT_DRAWN = ("tokens",)  # an axis


def metric(name: str) -> Metric:
    """What is known of a number, or what its name tells."""
    if name in _KNOWN:
        return _KNOWN[name]
    if name.startswith(UNSEEN):
        whole = metric(name[len(UNSEEN) :])
        return whole._replace(title=f"{whole.title}, texts not in train", section=OTHER)
    words = name.replace("_", " ").strip() or name
    ending = words.rpartition(" ")[2].lower()
    form = "share" if ending == "accuracy" else "number"
    return Metric(words[:1].upper() + words[1:], "", OTHER, form, _ENDINGS.get(ending), ending == "perplexity")


def in_order(names: "Iterable[str]") -> "list[str]":
    known = list(_KNOWN)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def kind_name(kind: str) -> str:
    return _KINDS.get(kind, kind)


def told(value: float, form: str = "number") -> str:
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "not a number")
    if form == "share":
        return f"{value:.1%}"
    size = abs(value)
    if form == "count" or size >= 1000:
        return f"{value:,.0f}"
    if size and size < 0.001:
        return f"{value:.2e}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3 if size >= 1 else 4}f}"


def short(value: float) -> str:
    """On an axis: 2.5k, 40M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02} min"


def count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# What changes the order of the letters around it is told by its number, as it would make a page show what is not there.
_SEEN = {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_SEEN.update({code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"})


def text(value: Any) -> str:
    """Safe within HTML and its attributes, and writable as UTF-8; controls of any kind are seen and do nothing."""
    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8").translate(_SEEN))
