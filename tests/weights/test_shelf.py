"""The trained model of the shelf: it answers, and its card says what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from paddle_nezha import NeZhaConfig, NeZhaTokenizer, pipeline

FOLDER = Path(__file__).resolve().parents[2] / "weights" / "nezha-tiny-chinese"


@pytest.fixture(scope="module")
def facts():
    return json.loads((FOLDER / "training.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def cells(card, name):
    """Of the table row that begins so."""
    line = next(line for line in card.split("\n") if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_it_fills_masks_with_sensible_words():
    answers = pipeline("fill-mask", top_k=3)(["今天天气很[MASK]。", "请用 ls 命令列出目录中的文[MASK]。"])
    assert "好" in [answer.token for answer in answers[0][0]]
    assert answers[1][0][0].token == "件"


def test_it_is_what_its_settings_say(facts):
    config = NeZhaConfig.from_pretrained(FOLDER)
    trained = {name: value for name, value in facts["settings"]["config"].items() if "dropout" not in name}
    assert {name: getattr(config, name) for name in trained} == trained
    assert config.position_encoding == "functional_relative" and config.hidden_dropout_prob == 0.1
    assert len(NeZhaTokenizer.from_pretrained(FOLDER)) == config.vocab_size == 8000


def test_the_card_tells_the_training(facts, card):
    steps = [f"{one['step']:,}" for one in facts["evaluations"]]
    assert cells(card, "step") == steps and steps[-1] == f"{facts['settings']['steps']:,}"
    for name, key in (("right at [MASK]", "mask_accuracy"), ("next sentence right", "nsp_accuracy")):
        digits = 1 if key == "mask_accuracy" else 0
        assert cells(card, name)[: len(steps)] == [f"{100 * one[key]:.{digits}f} %" for one in facts["evaluations"]]
    told = cells(card, "perplexity, all masked words")
    assert told == [f"{one['mlm_perplexity']:.0f}" for one in facts["evaluations"]]
    for name, text in facts["texts"].items():
        assert cells(card, f"`{name}`") == [
            text["package"], text["licence"], f"{text['documents']:,}", f"{text['characters']:,}",
        ]  # fmt: skip


def test_the_card_tells_what_was_measured(facts, card):
    model, counting = facts["measured"]["model"], facts["measured"]["counting"]
    assert model["mask_accuracy"] >= 2 * counting["bigram_accuracy"] and model["nsp_accuracy"] >= 0.75
    assert cells(card, "the model")[0] == f"{100 * model['mask_accuracy']:.1f} %"
    assert cells(card, "the model")[1].startswith(f"{model['mlm_perplexity']:.0f} ")
    for name, key in (("two-sided bigram with backoff", "bigram"), ("unigram", "unigram")):
        accuracy, perplexity = counting[f"{key}_accuracy"], counting[f"{key}_perplexity"]
        assert cells(card, name) == [f"{100 * accuracy:.1f} %", f"{perplexity:.0f}"]
    assert f"{counting['positions']:,} [MASK] positions" in card
    assert f"{100 * model['nsp_accuracy']:.1f} %" in card


def test_the_card_tells_the_comparison_of_positions(facts, card):
    for encoding in ("functional_relative", "absolute"):
        for length in (128, 256, 512):
            rows = [one for one in facts["positions"] if (one["encoding"], one["length"]) == (encoding, length)]
            assert [one["seed"] for one in rows] == [0, 1, 2]
            shown = []
            for name, digits, factor, unit in (
                ("mlm_loss", 3, 1, ""), ("mask_accuracy", 1, 100, " %"), ("nsp_accuracy", 1, 100, " %"),
            ):  # fmt: skip
                values = [factor * one[name] for one in rows]
                shown.append(f"{np.mean(values):.{digits}f}{unit} ± {np.std(values, ddof=1):.{digits}f}")
            assert cells(card, f"{encoding.replace('_', ' ')} | {length}")[1:] == shown


def test_the_card_tells_the_tasks(card):
    shown = {}
    for run in json.loads((FOLDER / "finetuned.json").read_text(encoding="utf-8")):
        settings, seeds = run["settings"], [one["test"] for one in run["seeds"]]
        assert settings["learning_rate"] == 3e-4 and settings["warmup_ratio"] == 0.1
        assert settings["batch_size"] == (8 if run["corpus"] == "CMRC 2018" else 32)
        told = {}
        for name in seeds[0]:
            values = [100 * scores[name] for scores in seeds]
            told[name] = f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")
        shown[run["corpus"]] = f"{settings['epochs']}, {settings['max_length']}", told
    scores = {
        "ChnSentiCorp, 3 seeds": ("ChnSentiCorp", "accuracy {accuracy}"),
        "People's Daily NER": ("People's Daily NER", "F1 {f1}"),
        "OCNLI, 9,000 pairs": ("OCNLI", "accuracy {accuracy}"),
        "CMRC 2018": ("CMRC 2018", "EM {em}, F1 {f1}"),
    }
    for row, (corpus, words) in scores.items():
        length, told = shown[corpus]
        found = cells(card, row)
        assert (found[0], found[2]) == (length, words.format(**told))
    apart = cells(card, "its 869 test texts that are not in train")
    assert apart[2] == f"accuracy {shown['ChnSentiCorp'][1]['unseen_accuracy']}"
