"""Texts and pairs: the tokenizer's own rows, labels, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training import sentence_features
from paddle_nezha.training.data.records import DataError, TextRecord


def record(text, pair=None, label=None, line=1):
    return TextRecord(text, pair, label, "train.tsv", line)


texts = st.text(alphabet="今天早上我们 ，hello\u200b", max_size=30)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5), st.integers(4, 20))
@settings(deadline=None, max_examples=60)
def test_rows_are_those_of_the_tokenizer(tokenizer, pairs, max_length):
    for records in ([record(a) for a, _ in pairs], [record(a, b) for a, b in pairs]):
        features, report = sentence_features(records, tokenizer, max_length=max_length)
        given = [[r.text for r in records], [r.pair for r in records] if records[0].pair is not None else None]
        truth = tokenizer(*given, truncation=True, max_length=max_length)
        assert [f["input_ids"] for f in features] == truth["input_ids"]
        assert [f["token_type_ids"] for f in features] == truth["token_type_ids"]
        whole = [len(row) for row in tokenizer(*given, truncation=False)["input_ids"]]
        assert report.cut_records == sum(length > max_length for length in whole)
        assert report.cut_tokens == sum(max(0, length - max_length) for length in whole)
        assert report.records == report.features == len(pairs)


def test_labels_are_indices_or_numbers(tokenizer):
    records = [record("好", label="1"), record("天", label="0")]
    assert [f["labels"] for f in sentence_features(records, tokenizer, max_length=8, label_names=["1", "0"])[0]] == [
        0,
        1,
    ]
    numbers = [f["labels"] for f in sentence_features(records, tokenizer, max_length=8)[0]]
    assert numbers == [1.0, 0.0] and isinstance(numbers[0], float)
    assert "labels" not in sentence_features([record("好")], tokenizer, max_length=8, label_names=["1"])[0][0]


@pytest.mark.parametrize(
    "second, options, message",
    [
        (
            record("天", label="x", line=7),
            {"label_names": ["1"]},
            r"train.tsv, line 7: the label 'x' is none of .*\(1\)",
        ),
        (record("天", label="x", line=7), {}, "train.tsv, line 7: without label_names a label must be a number.*'x'"),
        (record("天", label="nan", line=7), {}, "must be a number, but got 'nan'"),
        (
            record("天", line=7),
            {"label_names": ["1"]},
            "train.tsv, line 7: the record has no label, unlike those before",
        ),
        (
            record("天", "好", "1", 7),
            {"label_names": ["1"]},
            "train.tsv, line 7: the record is a pair, unlike those bef",
        ),
    ],
)
def test_records_that_do_not_go_together(tokenizer, second, options, message):
    with pytest.raises(DataError, match=message):
        sentence_features([record("好", label="1"), second], tokenizer, max_length=8, **options)


def test_settings(tokenizer):
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 3.*but got 2"):
        sentence_features([record("好")], tokenizer, max_length=2)
    with pytest.raises(ValueError, match="label_names must be different names"):
        sentence_features([record("好", label="a")], tokenizer, max_length=8, label_names=["a", "a"])
    assert sentence_features([], tokenizer, max_length=8)[0] == []


def test_more_records_than_are_encoded_at_once(tokenizer):
    records = [record("好" * (n % 7 + 1), label=str(n)) for n in range(2300)]
    features, report = sentence_features(iter(records), tokenizer, max_length=16)
    assert [f["labels"] for f in features] == list(range(2300))
    assert [len(f["input_ids"]) for f in features] == [n % 7 + 3 for n in range(2300)] and report.records == 2300
