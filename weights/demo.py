"""The recipe of `nezha-seeded-demo`: a small checkpoint in the official layout, its numbers drawn from a seed.

It knows no Chinese; it is there so that everything that handles a checkpoint has one at hand. The vocabulary is made
from the sentences beside it, and special tokens stand where the published vocabulary has them.
"""

from pathlib import Path

import numpy as np

from paddle_nezha.checkpoint import TIES, parameter_shapes, pdparams
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.tokenizer import NeZhaTokenizer

FOLDER = Path(__file__).resolve().parent / "nezha-seeded-demo"
SENTENCES = "sentences.txt"
SEED = 1909
_SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}


def make(folder: Path, sentences: Path = FOLDER / SENTENCES) -> None:
    """Writes vocabulary, tokenizer settings, config and weights into `folder`: the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    text = sentences.read_text(encoding="utf-8")
    words = vocabulary(text)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8", newline="\n")
    NeZhaTokenizer(folder / "vocab.txt").save_pretrained(folder)
    config = NeZhaConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=160,
        architectures=["NeZhaForPretraining"],
    )
    config.save_pretrained(folder)
    pdparams.write(folder / "model_state.pdparams", parameters(config))


def vocabulary(text: str) -> "list[str]":
    """Every character of a text, lower-cased; those that words are spelled with as continued pieces too."""
    characters = sorted({character for character in text.lower() if not character.isspace()})
    spelling = [character for character in characters if not "\u4e00" <= character <= "\u9fff"]
    place = {number: token for token, number in _SPECIAL_TOKENS.items()}
    head = [place.get(number, f"[unused{number}]") for number in range(max(place) + 1)]
    return [*head, *characters, *(f"##{character}" for character in spelling)]


def parameters(config: NeZhaConfig) -> "dict[str, np.ndarray]":
    """float32 parameters of a pretraining model, large enough for every stage to show: at the usual 0.02 attention is
    all but uniform, and a mistake in it hardly moves a number."""
    rng = np.random.default_rng(SEED)
    arrays: "dict[str, np.ndarray]" = {}
    for name, shape in parameter_shapes(config, "pretraining").items():
        if name in TIES:
            continue
        if name.endswith("layer_norm.weight"):
            values = 1.0 + 0.1 * rng.standard_normal(shape)
        elif len(shape) == 1:
            values = 0.1 * rng.standard_normal(shape)
        else:
            values = rng.standard_normal(shape) / np.sqrt(shape[-1] if "embeddings" in name else shape[0])
        arrays[name] = values.astype(np.float32)
    return {**arrays, **{tied: arrays[f"nezha.{partner}"] for tied, partner in TIES.items()}}
