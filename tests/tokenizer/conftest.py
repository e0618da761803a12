"""A vocabulary made here: size and special ids of the released Chinese one, with words the tests spell."""

import os
from pathlib import Path

import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer

SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
PUBLISHED = {
    "欢": 3614, "迎": 6816, "使": 886, "用": 4500, "百": 4636, "度": 2428, "飞": 7607, "桨": 3444, "！": 8013,
}  # fmt: skip
SPELLED = [
    *"一二三四五六七八九十今天气很好我们新疫苗",
    *"abcdehilnopwx0125,.!?[]'℃①，（",
    "ａｂ", "hello", "apple", "iphone", "nba", "mask", "world", "25",
    "##a", "##b", "##s", "##er", "##lo", "##℃", "\u2028", "##\u2028",
]  # fmt: skip


@pytest.fixture(scope="session")
def vocabulary() -> list:
    """21,128 tokens, those of `SPECIAL` and `PUBLISHED` at their published ids."""
    lines = [f"[unused{number}]" for number in range(21128)]
    for token, number in {**SPECIAL, **PUBLISHED}.items():
        lines[number] = token
    lines[104 : 104 + len(SPELLED)] = SPELLED
    return lines


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory, vocabulary) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_bytes("".join(f"{line}\n" for line in vocabulary).encode("utf-8"))
    return path


@pytest.fixture(scope="session")
def tokenizer(vocab_file) -> NeZhaTokenizer:
    """Shared by tests that only call it; calls keep no state, which `test_tokenizer_state.py` holds."""
    return NeZhaTokenizer(vocab_file)


@pytest.fixture
def own_tokenizer(vocab_file) -> NeZhaTokenizer:
    """For tests that add tokens or assign settings."""
    return NeZhaTokenizer(vocab_file)


@pytest.fixture(scope="session")
def released_vocab_file() -> Path:
    path = os.environ.get("PADDLE_NEZHA_VOCAB")
    if not path:
        pytest.skip("PADDLE_NEZHA_VOCAB does not name the released vocabulary")
    return Path(path)
