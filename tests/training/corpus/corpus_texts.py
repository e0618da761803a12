"""Text for corpora, and what a folder holds."""

import hashlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
CHARACTERS = "今天气很好我们去公园散步自然语言处理是人工智能的重要方向"


def written(seed, documents):
    """Text of documents of 1 to 8 sentences of 3 to 30 characters."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(documents):
        sentences = []
        for _ in range(rng.integers(1, 9)):
            drawn = rng.integers(len(CHARACTERS), size=rng.integers(3, 30))
            sentences.append("".join(CHARACTERS[place] for place in drawn) + " abc。")
        made.append("\n".join(sentences) + "\n")
    return "\n".join(made)


def content(folder):
    """What a folder holds, by name: the digest of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
