"""A vocabulary that spells the tests' texts, with pieces."""

import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer

TOKENS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    *"今天早上我们去公园气很好他在北京大学读书谁哪里一二三四五六七八九十，。？甲乙丙丁",
    "hello", "##world", "play", "##ing", "##er", "s", "20", "##18", "年", "a", "##a",
]  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    return NeZhaTokenizer(path)


@pytest.fixture(scope="session")
def shown(tokenizer):
    """The tokens of a row of ids, with spaces between them."""
    return lambda ids: " ".join(tokenizer.convert_ids_to_tokens(ids))
