"""Whether a tokenizer belongs to a model: its ids are rows of the model's embeddings, and nothing else says which."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Optional

from paddle_nezha.config import NeZhaConfig
from paddle_nezha.tokenizer import NeZhaTokenizer

TASK_FILE = "task.json"  # of a fine-tuned model

logger = logging.getLogger("paddle_nezha")


def check_vocabulary(config: NeZhaConfig, tokenizer: NeZhaTokenizer) -> None:
    """Warns of fewer tokens than the model has embeddings, which may be padding or lines that a file lost.

    Raises:
        ValueError: the tokenizer has ids that the model does not know.
    """
    tokens, rows = len(tokenizer), config.vocab_size
    if tokens > rows:
        raise ValueError(f"The tokenizer has {tokens} tokens and the model {rows}: they do not belong together.")
    if tokens < rows:
        logger.warning(
            "The tokenizer has %d tokens and the model embeddings for %d. That is right where the model's were padded; "
            "otherwise vocab.txt lost lines or is another model's, and what the model says is wrong.",
            tokens,
            rows,
        )


def vocabulary_digest(tokenizer: NeZhaTokenizer) -> str:
    """sha256 of all tokens, added ones too, in the order of their ids, and of how texts are cut into them."""
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(repr((tokens, tokenizer.behaviour)).encode("utf-8", "backslashreplace")).hexdigest()


def recorded_digest(folder: Path) -> "Optional[str]":
    """The `vocabulary_digest` that fine-tuning recorded in a model's folder; None where there is none.

    Raises:
        ValueError: its record is damaged.
    """
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    try:
        digest = json.loads(path.read_text(encoding="utf-8")).get("vocabulary")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not what fine-tuning wrote ({error}).") from None
    return None if digest is None else str(digest)
