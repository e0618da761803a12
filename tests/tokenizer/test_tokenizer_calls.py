"""The keywords of a call: columns, padding, truncation, windows, tensors."""

import re
import warnings
from dataclasses import fields

import numpy as np
import pytest

from paddle_nezha.tokenizer.call import Call
from paddle_nezha.tokenizer.rows import Cut, spans

LONG = "一二三四五六七八九十"


def words(tokenizer, row):
    return "".join(tokenizer.convert_ids_to_tokens(row, skip_special_tokens=True))


def test_every_column(tokenizer):
    encoded = tokenizer(
        ["今天", "好"],
        ["我", "我们很好"],
        padding=True,
        return_attention_mask=True,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
        return_length=True,
    )
    assert [tokenizer.decode(row) for row in encoded.input_ids] == [
        "[CLS] 今 天 [SEP] 我 [SEP] [PAD] [PAD]",
        "[CLS] 好 [SEP] 我 们 很 好 [SEP]",
    ]
    assert encoded.token_type_ids == [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert encoded.attention_mask == [[1, 1, 1, 1, 1, 1, 0, 0], [1] * 8]
    assert encoded.special_tokens_mask == [[1, 0, 0, 1, 0, 1, 1, 1], [1, 0, 1, 0, 0, 0, 0, 1]]
    assert encoded.offset_mapping[0] == [(0, 0), (0, 1), (1, 2), (0, 0), (0, 1), (0, 0), (0, 0), (0, 0)]
    assert encoded.length == encoded.seq_len == [6, 8]


def test_defaults_are_ids_and_segments(tokenizer):
    assert list(tokenizer("好")) == ["input_ids", "token_type_ids"]
    assert list(tokenizer("好", return_token_type_ids=False)) == ["input_ids"]
    assert tokenizer([]) == {"input_ids": [], "token_type_ids": []}
    with pytest.raises(AttributeError, match="'attention_mask'; ask for more in the call"):
        tokenizer("好").attention_mask  # noqa: B018


def test_empty_second_text_is_a_pair(tokenizer):
    assert tokenizer("好", "").token_type_ids == [0, 0, 0, 1]


def test_without_special_tokens(tokenizer):
    encoded = tokenizer("今", "天", add_special_tokens=False, return_special_tokens_mask=True)
    assert encoded.token_type_ids == [0, 1]
    assert encoded.special_tokens_mask == [0, 0]
    assert tokenizer(LONG, add_special_tokens=False, max_length=3).input_ids == tokenizer(LONG).input_ids[1:4]


def test_encode_and_batch_encode_are_the_call(tokenizer):
    assert tokenizer.encode("今", "天") == tokenizer.encode_plus("今", "天") == tokenizer("今", "天")
    assert tokenizer.batch_encode(["今", "天"]) == tokenizer(["今", "天"])
    assert tokenizer.batch_encode([("今", "天"), ["好", "好"]]) == tokenizer(["今", "好"], ["天", "好"])
    split = tokenizer.batch_encode([["今", "天"]], is_split_into_words=True)
    assert split == tokenizer([["今", "天"]], is_split_into_words=True)


def test_tuples_are_pairs(tokenizer):
    expected = tokenizer(["今", "好"], ["天", "很好"], padding=True)
    assert tokenizer([("今", "天"), ("好", "很好")], padding=True) == expected
    assert tokenizer(("今", "天")) == tokenizer(["今", "天"])
    words = [(["今", "天"], ["好"]), (["我"], [])]
    expected = tokenizer([["今", "天"], ["我"]], [["好"], []], is_split_into_words=True)
    assert tokenizer(words, is_split_into_words=True) == expected
    assert tokenizer([("今", "天")], is_split_into_words=True).token_type_ids == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("batch", "part"),
    [
        (["今", ("今", "天")], "element 0 is str; split the batch"),
        ([("今", "天"), "今"], "element 1 is str"),
        ([("今", "天"), ("今", "天", "好")], "element 1 is 3 texts"),
    ],
)
def test_pairs_and_texts_do_not_mix(tokenizer, batch, part):
    for run in (tokenizer, tokenizer.batch_encode):
        with pytest.raises(ValueError, match=f"got a mixture: {part}"):
            run(batch)


def test_lists_are_no_pairs_in_a_call(tokenizer):
    with pytest.raises(TypeError, match=r"text\[0\] .*got list; .*\(first, second\) pairs are tuples"):
        tokenizer([["今", "天"]])
    with pytest.raises(TypeError, match=r"expected text_pair\[0\] to be str, got NoneType"):
        tokenizer([("今", None)])


def test_batch_as_a_list_of_dicts(tokenizer):
    batch = tokenizer(["今天", "好"], return_dict=False)
    assert batch == [dict(tokenizer("今天")), dict(tokenizer("好"))]


# Padding


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({}, [4, 3]),
        ({"padding": "do_not_pad"}, [4, 3]),
        ({"padding": True}, [4, 4]),
        ({"padding": "longest", "pad_to_multiple_of": 3}, [6, 6]),
        ({"padding": "max_length", "max_length": 7}, [7, 7]),
        ({"padding": "max_length", "max_length": 7, "pad_to_multiple_of": 4}, [8, 8]),
        ({"padding": "max_length", "max_length": 3}, [4, 3]),
        ({"padding": "max_length", "max_length": 3, "truncation": True}, [3, 3]),
        ({"padding": "max_length"}, [512, 512]),
        ({"max_seq_len": 6, "pad_to_max_seq_len": True}, [6, 6]),
        ({"pad_to_max_seq_len": True}, [4, 4]),
    ],
)
def test_padding(tokenizer, options, lengths):
    assert [len(row) for row in tokenizer(["今天", "好"], **options).input_ids] == lengths


def test_padding_on_the_left(tokenizer, own_tokenizer):
    options = {"padding": "max_length", "max_length": 5, "return_attention_mask": True}
    encoded = tokenizer("好", padding_side="left", **options)
    assert encoded.input_ids[:2] == [0, 0] and encoded.attention_mask == [0, 0, 1, 1, 1]
    own_tokenizer.padding_side = "left"
    assert own_tokenizer("好", **options) == encoded
    with pytest.raises(ValueError, match="got 'top'"):
        own_tokenizer("好", padding_side="top", **options)


def test_pad_gives_what_a_padded_call_gives(tokenizer):
    texts = ["今天", "好"]
    rows = [tokenizer(text, return_offsets_mapping=True, return_attention_mask=True) for text in texts]
    whole = tokenizer(texts, return_offsets_mapping=True, return_attention_mask=True, padding=True)
    assert tokenizer.pad(rows)["input_ids"] == whole.input_ids
    assert tokenizer.pad(rows)["attention_mask"] == whole.attention_mask
    assert tokenizer.pad(tokenizer(texts), return_attention_mask=True)["attention_mask"] == whole.attention_mask
    assert tokenizer.pad(rows[1], padding="max_length", max_length=4)["input_ids"] == whole.input_ids[1]
    left = tokenizer.pad(rows, padding_side="left")
    assert left["input_ids"][1][0] == tokenizer.pad_token_id


def test_pad_keeps_labels_and_makes_tensors(tokenizer):
    rows = [{**tokenizer("今天"), "label": 1, "weight": 0.5}, {**tokenizer("好"), "label": 0, "weight": 1.0}]
    batch = tokenizer.pad(rows, return_tensors="np", pad_to_multiple_of=8)
    assert batch["input_ids"].shape == (2, 8) and batch["input_ids"].dtype == np.int64
    assert batch["label"].tolist() == [1, 0] and batch["weight"].dtype == np.float32
    again = tokenizer.pad({"input_ids": batch["input_ids"]}, padding="max_length", max_length=9)
    assert [len(row) for row in again["input_ids"]] == [9, 9]


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([], "at least one row"),
        ([{"label": 1}], "'input_ids'"),
        ([{"input_ids": [1]}, {"input_ids": [1], "label": 2}], "row 1"),
        (None, "got NoneType; give what the tokenizer returned"),
        ([{"input_ids": [1]}, [1]], "expected a mapping of columns to pad, or a list of them, got list"),
        ({"input_ids": 3}, "as a list of ids or of rows, got int"),
    ],
)
def test_pad_refuses(tokenizer, rows, part):
    with pytest.raises((TypeError, ValueError), match=part):
        tokenizer.pad(rows)


# Truncation


def one_token_at_a_time(first: int, second: int, room: int) -> tuple:
    """BERT's rule: while the pair is too long, shorten the longer text, of equals the second."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@pytest.mark.parametrize("room", range(0, 12))
def test_longest_first_takes_one_token_at_a_time(room):
    cut = Cut(room + 3, "longest_first")
    for first in range(9):
        for second in range(9):
            (span,) = spans(first, second, 3, cut)
            assert (span.first_stop, span.second_stop) == one_token_at_a_time(first, second, room)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"truncation": True, "max_length": 9}, "一二三", "一二三"),
        ({"truncation": "longest_first", "max_length": 10}, "一二三四", "一二三"),
        ({"truncation": "only_first", "max_length": 9}, "一二", "一二三四"),
        ({"truncation": "only_second", "max_length": 14}, LONG, "一"),
        ({"max_length": 9}, "一二三", "一二三"),
        ({"max_seq_len": 9}, "一二三", "一二三"),
        ({"max_length": 9, "truncation": "do_not_truncate"}, LONG, "一二三四"),
        ({}, LONG, "一二三四"),
    ],
)
def test_truncation(tokenizer, options, first, second):
    if options == {"max_length": 9, "truncation": "do_not_truncate"}:
        options = {**options, "padding": "max_length"}
    row = tokenizer(LONG, "一二三四", **options).input_ids
    assert row[: len(first) + 1] == tokenizer(first).input_ids[:-1]
    assert words(tokenizer, row) == first + second


def test_length_of_the_model_is_the_default_and_said(own_tokenizer):
    own_tokenizer.model_max_length = 5
    with pytest.warns(UserWarning, match=r"1 of 2 texts were cut to model_max_length=5.*max_length="):
        rows = own_tokenizer([LONG, "好"], truncation=True).input_ids
    assert [len(row) for row in rows] == [5, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(own_tokenizer(LONG).input_ids) == 12
        assert len(own_tokenizer("好", truncation=True).input_ids) == 3
        assert len(own_tokenizer(LONG, truncation=True, max_length=6).input_ids) == 6
    own_tokenizer.model_max_length = None
    assert len(own_tokenizer(LONG, truncation=True).input_ids) == 12


def test_length_without_effect_is_said(tokenizer):
    with pytest.warns(UserWarning, match="max_length=5 does nothing"):
        assert len(tokenizer(LONG, padding=True, max_length=5).input_ids) == 12


# Windows


def test_overflow_shares_stride_tokens(tokenizer):
    encoded = tokenizer([LONG, "好"], truncation=True, max_length=6, stride=2, return_overflowing_tokens=True)
    assert [words(tokenizer, row) for row in encoded.input_ids] == [
        "一二三四", "三四五六", "五六七八", "七八九十", "好",
    ]  # fmt: skip
    assert encoded.overflow_to_sample == [0, 0, 0, 0, 1]


def test_overflow_of_one_side_of_a_pair(tokenizer):
    options = {
        "max_length": 9,
        "stride": 1,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    second = tokenizer("今天", LONG, truncation="only_second", **options)
    assert [words(tokenizer, row) for row in second.input_ids] == [
        "今天一二三四", "今天四五六七", "今天七八九十",
    ]  # fmt: skip
    assert second.offset_mapping[1][4:8] == [(3, 4), (4, 5), (5, 6), (6, 7)]
    first = tokenizer(LONG, "今天", truncation="only_first", **options)
    assert [words(tokenizer, row)[:4] for row in first.input_ids] == ["一二三四", "四五六七", "七八九十"]
    assert tokenizer("好", truncation=True, return_overflowing_tokens=True).input_ids == [tokenizer("好").input_ids]


def test_stride_alone_steps_as_in_paddlenlp(tokenizer):
    encoded = tokenizer(["今天"], [LONG], max_seq_len=9, stride=3, padding="max_length")
    assert [words(tokenizer, row) for row in encoded.input_ids] == [
        "今天一二三四", "今天四五六七", "今天七八九十",
    ]  # fmt: skip
    assert encoded.overflow_to_sample == [0, 0, 0] and encoded.offset_mapping[2][4] == (6, 7)
    wide = tokenizer(["今天"], [LONG], max_length=9, stride=100)
    assert [words(tokenizer, row)[2:] for row in wide.input_ids] == ["一二三四", "五六七八", "九十"]


@pytest.mark.parametrize("room", [1, 2, 5])
@pytest.mark.parametrize("count", range(0, 12))
def test_windows_cover_every_token_in_order(room, count):
    for shared in range(room):
        parts = spans(count, None, 2, Cut(room + 2, "only_first", lambda size, shared=shared: size - shared))
        assert [part.first_start for part in parts] == [(room - shared) * k for k in range(len(parts))]
        assert parts[-1].first_stop == count
        assert all(part.first_stop - part.first_start == room for part in parts[:-1])
        assert all(part.first_stop < count for part in parts[:-1])


# Keywords that do not go together


@pytest.mark.parametrize(
    ("pair", "options", "part"),
    [
        (None, {"max_length": 1}, "at least 2"),
        (LONG, {"max_length": 2}, "at least 3"),
        (None, {"truncation": "only_second"}, "needs text_pair"),
        (None, {"truncation": "shortest"}, "expected truncation to be"),
        (None, {"padding": "left"}, "expected padding to be"),
        (LONG, {"truncation": "only_first", "max_length": 13}, "second text whole, but its 10 tokens"),
        (LONG, {"truncation": "only_second", "max_length": 9}, "first text whole, but its 10 tokens"),
        (None, {"max_length": 8, "stride": 6, "return_overflowing_tokens": True}, "below the 6 tokens"),
        (
            "好",
            {"max_length": 14, "stride": 3, "return_overflowing_tokens": True, "truncation": "only_second"},
            None,
        ),
        (LONG, {"max_length": 9, "truncation": True, "return_overflowing_tokens": True}, "'longest_first'"),
        (None, {"return_overflowing_tokens": True}, "pass truncation=True with max_length"),
        (None, {"stride": 2}, "no text_pair came"),
        (None, {"max_length": 1, "truncation": True}, "raise it, or pass add_special_tokens=False"),
        (None, {"max_length": 8, "max_seq_len": 9}, "contradict"),
        (None, {"pad_to_multiple_of": 8}, "needs padding"),
        (
            None,
            {"padding": True, "truncation": True, "max_length": 9, "pad_to_multiple_of": 8},
            "divide max_length=9, got 8.*pass a max_length that is a multiple",
        ),
        (None, {"return_tensors": "tf"}, "got 'tf'; NeZha on Paddle takes 'pd'"),
        (None, {"return_position_ids": True}, "positions are relative .*leave it out"),
        (None, {"return_tensors": "np", "return_dict": False}, "return_dict=False"),
    ],
)
def test_contradictions_are_refused(tokenizer, pair, options, part):
    if part is None:  # the row beside the refused ones: exactly enough room is fine
        assert tokenizer(LONG, pair, **options).overflow_to_sample == [0]
        return
    with pytest.raises(ValueError, match=part):
        tokenizer(LONG, pair, **options)


WHOLE = "a whole number of at least"


@pytest.mark.parametrize(
    ("name", "values", "part"),
    [
        ("max_length", ["8", 3.5, 0, -1, True, [8]], f"{WHOLE} 1"),
        ("max_seq_len", ["8", 0], f"{WHOLE} 1"),
        ("pad_to_multiple_of", [0, -8, 3.5, "8"], f"{WHOLE} 1"),
        ("stride", [-1, 1.5, "3"], f"{WHOLE} 0"),
        ("padding_side", ["top", 3], "'left' or 'right'"),
        ("padding", ["left", 3, ["longest"]], "True, False or one of"),
        ("truncation", ["shortest", ["longest_first"]], "True, False or one of"),
        ("return_tensors", ["tf", 3], "one of"),
        ("is_split_into_words", ["token"], "True or False"),
        ("return_attention_mask", ["yes", 2], "True or False"),
        ("verbose", ["no"], "True or False"),
    ],
)
def test_values_of_another_kind_are_refused(tokenizer, name, values, part):
    for value in values:
        with pytest.raises(ValueError, match=rf"expected {name} to be {part}.*got {re.escape(repr(value))}; \w+"):
            tokenizer("好", **{"padding": "max_length", name: value})


def test_ready_tokens_are_told_where_to_go(tokenizer):
    with pytest.raises(ValueError, match="got 'token'; make ids of ready tokens with convert_tokens_to_ids"):
        tokenizer(["好", "##b"], is_split_into_words="token")


def test_pad_refuses_values_of_another_kind(tokenizer):
    for name, value in {"max_length": -1, "pad_to_multiple_of": 0, "padding_side": "top", "verbose": "no"}.items():
        with pytest.raises(ValueError, match=f"expected {name} to be .*got {value!r}; "):
            tokenizer.pad(tokenizer("好"), **{"padding": "max_length", name: value})


def test_none_is_the_default_of_every_keyword(tokenizer):
    names = [item.name for item in fields(Call)]
    assert tokenizer(["今天", "好"], **dict.fromkeys(names)) == tokenizer(["今天", "好"])


def test_keywords_of_paddlenlp(tokenizer):
    assert tokenizer("好", return_position_ids=False, verbose=True, return_attention_mask=np.bool_(True)) == {
        **tokenizer("好"),
        "attention_mask": [1, 1, 1],
    }


def test_verbose_false_keeps_warnings_back(own_tokenizer):
    own_tokenizer.model_max_length = 5
    assert len(own_tokenizer(LONG, truncation=True, verbose=False).input_ids) == 5
    assert len(own_tokenizer(LONG, padding=True, max_length=5, verbose=False).input_ids) == 12
    assert len(own_tokenizer.pad(own_tokenizer(LONG), max_length=5, verbose=False)["input_ids"]) == 12


def test_no_limit_leaves_nothing_to_pad_to(own_tokenizer):
    own_tokenizer.model_max_length = None
    with pytest.raises(ValueError, match="pass max_length"):
        own_tokenizer("好", padding="max_length")


def test_unknown_keyword_names_the_nearest(tokenizer):
    with pytest.raises(TypeError, match=r"'maxlength'; did you mean 'max_length'\?"):
        tokenizer("好", maxlength=3)


# Tensors


def test_numpy_tensors(tokenizer):
    encoded = tokenizer(["今天", "好"], padding=True, return_tensors="np", return_offsets_mapping=True)
    assert encoded.input_ids.shape == (2, 4) and encoded.input_ids.dtype == np.int64
    assert encoded.offset_mapping.shape == (2, 4, 2)
    assert tokenizer("好", return_tensors="np").input_ids.shape == (1, 3)
    empty = tokenizer(["", ""], return_tensors="np", add_special_tokens=False)
    assert empty.input_ids.shape == (2, 0) and empty.input_ids.dtype == np.int64


@pytest.mark.parametrize(("kind", "module"), [("pd", "paddle"), ("pt", "torch")])
def test_framework_tensors(tokenizer, kind, module):
    import zlib  # noqa: F401  before paddle, as paddle_nezha._paddle explains

    framework = pytest.importorskip(module)
    tensor = tokenizer(["今天", "好"], padding=True, return_tensors=kind).input_ids
    assert tensor.dtype == framework.int64
    assert tensor.tolist() == tokenizer(["今天", "好"], padding=True).input_ids


def test_ragged_rows_make_no_tensor(tokenizer):
    with pytest.raises(ValueError, match="padding=True"):
        tokenizer(["今天", "好"], return_tensors="np")
    with pytest.raises(ValueError, match="empty batch"):
        tokenizer([], return_tensors="np")
