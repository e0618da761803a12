"""Reading vocab.txt: what is accepted, and what each damaged file is told."""

import inspect

import numpy as np
import pytest

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.tokenizer.settings import KINDS

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


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("do_lower_case", "yes", "to be True or False, got 'yes'; .*without quotes"),
        ("do_lower_case", None, "to be True or False, got None"),
        ("strip_accents", "x", "to be True, False or None, got 'x'"),
        ("split_symbols", 2, "to be True, False or None, got 2"),
        ("tokenize_chinese_chars", [1], r"to be True or False, got \[1\]"),
        ("clean_up_tokenization_spaces", "no", "to be True or False, got 'no'"),
        ("model_max_length", "512", "at least 1, or None for no limit, got '512'"),
        ("model_max_length", 0, "got 0"),
        ("model_max_length", -1, "got -1"),
        ("model_max_length", 3.5, "got 3.5"),
        ("model_max_length", float("nan"), "got nan"),
        ("model_max_length", True, "got True"),
        ("unk_token", ["x"], r"to be text, not blank .*got \['x'\]; give the token itself"),
        ("pad_token", " ", "got ' '"),
        ("additional_special_tokens", "[X]", r"to be a list of texts.*got '\[X\]'; put one token in a list too"),
        ("additional_special_tokens", ["[X]", 3], r"got \['\[X\]', 3\]"),
    ],
)
def test_settings_of_another_kind_are_refused(vocab_file, name, value, part):
    with pytest.raises(ValueError, match=f"expected {name} {part}" if part.startswith("to") else part):
        NeZhaTokenizer(vocab_file, **{name: value})


def test_every_keyword_says_what_it_may_be():
    keywords = set(inspect.signature(NeZhaTokenizer).parameters) - {"vocab_file", "unknown"}
    assert keywords == set(KINDS)


def test_settings_have_one_form(vocab_file):
    tokenizer = NeZhaTokenizer(vocab_file, do_lower_case=0, strip_accents=np.bool_(True), model_max_length=np.int64(9))
    assert (tokenizer.do_lower_case, tokenizer.model_max_length) == (False, 9)
    assert type(tokenizer.model_max_length) is int
    assert NeZhaTokenizer(vocab_file, model_max_length=int(1e30)).model_max_length is None


def test_assigned_settings_are_checked(own_tokenizer):
    for name, value in {"model_max_length": "8", "padding_side": "top", "clean_up_tokenization_spaces": "x"}.items():
        before = getattr(own_tokenizer, name)
        with pytest.raises(ValueError, match=f"expected {name} to be .*got {value!r}"):
            setattr(own_tokenizer, name, value)
        assert getattr(own_tokenizer, name) == before


@pytest.mark.parametrize("path", [None, 3.5, ["vocab.txt"]])
def test_what_is_no_path_is_refused(own_tokenizer, path):
    with pytest.raises(TypeError, match=r"expected vocab_file to be a path \(str or os\.PathLike\), got \w+; check"):
        NeZhaTokenizer(path)
    for run in (NeZhaTokenizer.from_pretrained, own_tokenizer.save_pretrained, own_tokenizer.save_vocabulary):
        with pytest.raises(TypeError, match=r"expected folder to be a path \(str or os\.PathLike\), got \w+; check"):
            run(path)
