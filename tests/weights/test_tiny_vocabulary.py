"""A vocabulary is learnt from text, the same every time, and opens as a tokenizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer
from weights.tiny import vocabulary

LINES = ["我们在北京学习。", "他们说 Hello 和 hello。", "学习１９９８年的历史", "help helping hello", "稀"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES[:4] * 8 + LINES[4:]), encoding="utf-8")
    return path


def test_the_tokens_and_their_places(tmp_path, text):
    tokens = vocabulary.learn_vocabulary([text], tmp_path / "out", 50)
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] and len(set(tokens)) == 50
    assert "hello" in tokens and "Hello" not in tokens and "学" in tokens and "学习" not in tokens
    assert "稀" not in tokens  # seen once
    tokenizer = NeZhaTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.pad_token_id == 0 and tokenizer.convert_ids_to_tokens(list(range(50))) == tokens
    assert tokenizer.convert_ids_to_tokens(tokenizer("Hello学习稀")["input_ids"]) == [
        "[CLS]", "hello", "学", "习", "[UNK]", "[SEP]",
    ]  # fmt: skip


def test_processes_and_thread_counts_learn_the_same(tmp_path, text):
    program = (
        "import sys; from pathlib import Path; from weights.tiny import vocabulary; "
        "vocabulary.learn_vocabulary([Path(sys.argv[1])], Path(sys.argv[2]), 50)"
    )
    written = []
    for threads in ("1", "4"):
        out = tmp_path / threads
        subprocess.run(
            [sys.executable, "-c", program, str(text), str(out)],
            check=True,
            cwd=Path(vocabulary.__file__).parents[2],
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
        )
        written.append((out / "vocab.txt").read_bytes())
    assert written[0] == written[1]


def test_a_size_the_text_cannot_fill_is_an_error(tmp_path, text):
    with pytest.raises(
        ValueError, match="expected 5000 tokens, got 51: the texts hold 28 characters, 27 of them 5 times"
    ):
        vocabulary.learn_vocabulary([text], tmp_path / "out", 5000)
    with pytest.raises(ValueError, match="expected 10 tokens"):
        vocabulary.learn_vocabulary([text], tmp_path / "out", 10)
    assert not (tmp_path / "out").exists()


def test_coverage_counts_unknown_tokens(tmp_path, text):
    vocabulary.learn_vocabulary([text], tmp_path / "out", 50)
    held_out = tmp_path / "held_out.txt"
    held_out.write_text("学习稀\n\n北京\n", encoding="utf-8")
    found = vocabulary.coverage(NeZhaTokenizer.from_pretrained(tmp_path / "out"), [held_out])
    assert found == {"tokens": 5, "unknown": 1, "unknown_share": 0.2, "characters_a_token": 1.0}
