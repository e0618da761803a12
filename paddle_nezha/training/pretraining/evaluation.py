"""How well a model does on held-out documents."""

import dataclasses
import math
from typing import Any, Optional

from paddle_nezha.training.corpus import Corpus
from paddle_nezha.training.engine import measured
from paddle_nezha.training.examples import ExampleSettings, ExampleStream
from paddle_nezha.training.pretraining.objective import PretrainingObjective

# Held-out examples are the same for every run and every seed, so that runs can be compared.
_SEED = 0


def held_out_stream(corpus: Corpus, settings: ExampleSettings) -> ExampleStream:
    """Examples to evaluate on: one set of masks, whatever the epoch, so that evaluations differ by the model alone."""
    return ExampleStream(corpus, dataclasses.replace(settings, dupe_factor=1), _SEED)


def evaluate(
    model: Any,
    corpus: Corpus,
    settings: Optional[ExampleSettings] = None,
    *,
    examples: int = 2048,
    batch_size: int = 32,
) -> "dict[str, float]":
    """The figures that `pretrain` writes, for any model, corpus and length.

    Args:
        model: a `NeZhaForPretraining`, or a `NeZhaForMaskedLM` with settings that make no pairs.
        corpus: what to evaluate on, usually `Corpus.open(folder, split="held_out")`.
        settings: what examples are made of; None is the defaults, with pairs if the model reads them.
        examples: how many.

    Returns:
        mlm_loss, mlm_accuracy, mask_accuracy, mlm_perplexity, and, with pairs, nsp_loss and nsp_accuracy.
    """
    objective = PretrainingObjective(model, corpus.mask_id)
    settings = settings or ExampleSettings(next_sentence=objective.has_pairs)
    stream = held_out_stream(corpus, settings)
    if not model.training:  # as a new layer is
        objective.eval()
    starts = range(0, examples, batch_size)
    sums = measured(objective, (stream.batch(start, min(batch_size, examples - start)) for start in starts))
    return with_perplexity(means(dict(zip(objective.statistics, sums.tolist())), objective.has_pairs))


def with_perplexity(found: "dict[str, float]") -> "dict[str, float]":
    return {**found, "mlm_perplexity": math.exp(min(found["mlm_loss"], 700.0))}


def means(sums: "dict[str, float]", has_pairs: bool) -> "dict[str, float]":
    """Losses and accuracies of `PretrainingObjective`'s sums; `mask_accuracy` counts what the input shows as [MASK]."""
    words, masks, pairs = (max(1.0, sums[name]) for name in ("mlm_count", "mask_count", "nsp_count"))
    found = {
        "mlm_loss": sums["mlm_loss"] / words,
        "mlm_accuracy": sums["mlm_correct"] / words,
        "mask_accuracy": sums["mask_correct"] / masks,
    }
    if has_pairs:
        found.update({"nsp_loss": sums["nsp_loss"] / pairs, "nsp_accuracy": sums["nsp_correct"] / pairs})
    return found
