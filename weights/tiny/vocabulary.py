"""The WordPiece vocabulary of `nezha-tiny-chinese`, learnt from its own text."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers.trainers import WordPieceTrainer

from paddle_nezha.tokenizer import NeZhaTokenizer, backend

SIZE = 8_000
LEAST_TIMES = 5  # a character that comes less often is not in the vocabulary
SHA256 = "6d16637d84f478d43dd510ca1f3eb338a8deac33f6f0c05771c2bd6b29c08198"  # of vocab.txt, from the stated text
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4


def learn_vocabulary(texts: "Iterable[Path]", out_folder: Path, size: int = SIZE) -> "list[str]":
    """Learns a vocabulary and writes it as a folder that `NeZhaTokenizer.from_pretrained` opens.

    The text is lower-cased and stripped of accents, and each Han character is a word of its own, as in BERT. The same
    texts give the same vocabulary.

    Args:
        texts: files of one sentence a line, UTF-8.
        out_folder: gets vocab.txt and the tokenizer's settings.
        size: the number of tokens, special ones included.

    Returns:
        The tokens in the order of their ids.

    Raises:
        ValueError: the texts give fewer tokens than `size`, or more characters than fit.
    """
    learner = backend.build(
        {"[UNK]": 0},
        "[UNK]",
        do_lower_case=True,
        strip_accents=None,
        tokenize_chinese_chars=True,
        split_symbols=False,
    )
    normalize = learner.normalizer.normalize_str
    lines = [normalize(line) for path in texts for line in path.read_text(encoding="utf-8").split("\n")]
    times = Counter(character for line in lines for character in line)
    # Left out here, not by the trainer's limit: that breaks ties by chance.
    rare = str.maketrans({character: " " for character, count in times.items() if count < LEAST_TIMES})

    def learnt(size: int, first: "list[str]") -> "dict[str, int]":
        trainer = WordPieceTrainer(
            vocab_size=size, min_frequency=LEAST_TIMES, special_tokens=first, show_progress=False
        )
        learner.train_from_iterator((line.translate(rare) for line in lines), trainer)
        return learner.get_vocab()

    # The trainer numbers the characters that continue words ("##a") in the order of a hash table, another one in each
    # process, and breaks ties by number. So a first round without merges finds them, and a second gets them in order.
    continuing = sorted(token for token in learnt(0, list(SPECIAL)) if token.startswith("##"))
    ids = learnt(size, [*SPECIAL, *continuing])
    tokens = sorted(ids, key=ids.__getitem__)
    if len(tokens) != size:
        raise ValueError(
            f"expected {size} tokens, got {len(tokens)}: the texts hold {len(times)} characters, "
            f"{sum(count >= LEAST_TIMES for count in times.values())} of them {LEAST_TIMES} times or more. "
            "Pass another size, or more text."
        )
    out_folder.mkdir(parents=True, exist_ok=True)
    vocabulary = out_folder / "vocab.txt"
    vocabulary.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8", newline="\n")
    NeZhaTokenizer(vocabulary).save_pretrained(out_folder)
    return tokens


def check(folder: Path) -> None:
    """Holds a vocabulary to the stated one.

    Raises:
        ValueError: it is another one.
    """
    digest = hashlib.sha256((folder / "vocab.txt").read_bytes()).hexdigest()
    if digest != SHA256:
        raise ValueError(
            f"{folder / 'vocab.txt'} came out with sha256 {digest}, expected {SHA256}. The texts are the stated ones, "
            "so another release of `tokenizers` learns otherwise: install the one in requirements/dev.txt."
        )


def coverage(tokenizer: NeZhaTokenizer, texts: "Iterable[Path]") -> "dict[str, Any]":
    """How a tokenizer reads texts: numbers of tokens and of [UNK], the share of [UNK], characters a token."""
    tokens = unknown = characters = 0
    for batch in _batches(texts):
        for ids in tokenizer(batch, add_special_tokens=False)["input_ids"]:
            tokens += len(ids)
            unknown += ids.count(tokenizer.unk_token_id)
        characters += sum(map(len, batch))
    return {
        "tokens": tokens,
        "unknown": unknown,
        "unknown_share": unknown / tokens,
        "characters_a_token": characters / tokens,
    }


def _batches(texts: "Iterable[Path]", size: int = 10_000) -> "Iterator[list[str]]":
    for path in texts:
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line]
        for begin in range(0, len(lines), size):
            yield lines[begin : begin + size]
