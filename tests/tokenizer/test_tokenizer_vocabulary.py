"""Reading vocab.txt: what is accepted, and what each damaged file is told."""

import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer

GOOD = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天", "\u2028", "##\u2028", "\u3000", "好"]


def opened(tmp_path, data: bytes) -> NeZhaTokenizer:
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    return NeZhaTokenizer(path)


@pytest.mark.parametrize(
    ("between", "last", "start"),
    [("\n", "\n", ""), ("\n", "", ""), ("\r\n", "\r\n", ""), ("\r\n", "", ""), ("\n", "\n", "\ufeff")],
    ids=["lf", "no last newline", "crlf", "crlf, no last newline", "byte order mark"],
)
def test_line_ends_do_not_change_ids(tmp_path, between, last, start):
    tokenizer = opened(tmp_path, (start + between.join(GOOD) + last).encode("utf-8"))
    assert tokenizer.get_vocab() == {token: number for number, token in enumerate(GOOD)}


def test_lines_end_at_newline_alone(tokenizer, vocabulary):
    assert tokenizer.vocab_size == len(tokenizer) == 21128
    assert tokenizer.convert_tokens_to_ids("\u2028") == vocabulary.index("\u2028")
    assert tokenizer.convert_ids_to_tokens([21127, 8013]) == ["[unused21127]", "！"]


def test_released_vocabulary(released_vocab_file):
    tokenizer = NeZhaTokenizer(released_vocab_file)
    assert len(tokenizer) == 21128
    assert tokenizer.convert_tokens_to_ids(["\u2028", "##\u2028"]) == [343, 13502]
    assert tokenizer("欢迎使用百度飞桨！").input_ids == [
        101, 3614, 6816, 886, 4500, 4636, 2428, 7607, 3444, 8013, 102,
    ]  # fmt: skip
    assert tokenizer.tokenize("NBA iPhone Apple") == ["nba", "iphone", "apple"]
    assert NeZhaTokenizer(released_vocab_file, do_lower_case=False).tokenize("NBA 好") == ["[UNK]", "好"]


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("\n".join([*GOOD, "天"]).encode(), ["'天' on lines 6 and 11", "fetch the vocabulary again"]),
        ("\n".join(GOOD[:5] + [""] + GOOD[5:]).encode(), ["line 6", "is empty"]),
        (b"", ["is empty", "one token per line"]),
        ("\n".join(GOOD).encode() + b"\n\xb5\xc2\n", ["expected UTF-8", "line 11", "0xb5", "iconv"]),
        ("\n".join(["[PAD]\r", *GOOD[1:]]).encode(), ["mixes", "at line 2", "dos2unix"]),
        ("\n".join(GOOD[:4] + GOOD[5:]).encode(), ["mask_token", "does not hold '[MASK]'", "mask_token="]),
    ],
    ids=["duplicate", "empty line", "empty file", "not utf-8", "mixed line ends", "no [MASK]"],
)
def test_damaged_vocabulary_says_where_and_what_to_do(tmp_path, data, parts):
    with pytest.raises(ValueError) as caught:
        opened(tmp_path, data)
    for part in parts:
        assert part in str(caught.value)


def test_missing_vocabulary(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no file at .*vocab\.txt.*from_pretrained\(folder\)"):
        NeZhaTokenizer(tmp_path / "vocab.txt")
    with pytest.raises(FileNotFoundError, match=r"from_pretrained\(folder\)"):
        NeZhaTokenizer(tmp_path)


def test_other_special_tokens(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["<pad>", *GOOD[1:]]), encoding="utf-8")
    assert NeZhaTokenizer(path, pad_token="<pad>").pad_token_id == 0


def test_unknown_keyword_names_the_nearest(vocab_file):
    with pytest.raises(TypeError, match=r"'do_lowercase'; did you mean 'do_lower_case'\?"):
        NeZhaTokenizer(vocab_file, do_lowercase=True)
    with pytest.raises(ValueError, match="'left' or 'right', got 'top'"):
        NeZhaTokenizer(vocab_file, padding_side="top")
