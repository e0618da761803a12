"""Names of labels: their order, several in one, one class only, and labels that a model does not know."""

import random

import pytest

from paddle_nezha.training.data.labels import label_names, split_labels
from paddle_nezha.training.data.readers import read
from paddle_nezha.training.data.records import DataError, TextRecord, TokenRecord


def records(*labels):
    return [TextRecord("好", None, label, "train.tsv", line) for line, label in enumerate(labels, 1)]


@pytest.mark.parametrize(
    "names",
    [
        ["1", "2", "3", "10"],
        ["-1", "0", "1"],
        ["0.0", "2.5", "10"],
        ["1", "10", "2", "体育"],
        ["contradiction", "entailment", "neutral"],
        ["1", "nan"],
    ],
)
def test_order_does_not_depend_on_that_of_the_records(names):
    shuffled = names * 3
    random.Random(3).shuffle(shuffled)
    assert label_names(records(*shuffled)) == names


def test_tags_are_names_too():
    found = [TokenRecord(("京", "城"), ("B-LOC", "I-LOC"), "a", 1), TokenRecord(("好",), ("O",), "a", 4)]
    assert label_names(found) == ["B-LOC", "I-LOC", "O"]


def test_several_labels_in_one():
    assert split_labels("体育| 足球|", "|") == ["体育", "足球"]
    assert split_labels("体育|足球", None) == ["体育|足球"]
    assert label_names(records("体育|足球", "足球", "财经"), separator="|") == ["体育", "财经", "足球"]


@pytest.mark.parametrize(
    "given, told",
    [
        (records("1", "1"), r"train\.tsv:1: .*two classes or more, got all 2 examples have the label '1'\. .*column"),
        (records(None, None), r"train\.tsv:1: .*got 2 examples without"),
        ([], "no file: .*got 0 examples"),
    ],
)
def test_fewer_than_two_classes_are_refused(given, told):
    with pytest.raises(DataError, match=told):
        label_names(given)


def test_an_unknown_label_is_refused_with_file_line_and_those_known(write):
    path = write("dev.tsv", "label\ttext\n1\t好\n2\t一般\n")
    found = read("sentence", path, labels=["0", "1"])
    assert next(found).label == "1"
    with pytest.raises(DataError, match=r"dev\.tsv:3: unknown label '2': expected one of 0, 1\. Mend"):
        next(found)
    tags = write("dev.txt", "京 B-LOC\n城 I-LOC\n\n他 B-PER\n")
    with pytest.raises(DataError, match=r"dev\.txt:4: unknown label 'B-PER'"):
        list(read("token", tags, labels=["B-LOC", "I-LOC", "O"]))


def test_each_of_several_labels_must_be_known(write):
    path = write("dev.tsv", "label\ttext\n体育|足球\t好\n体育|财经\t好\n")
    found = read("sentence", path, labels=["体育", "足球"], separator="|")
    assert next(found).label == "体育|足球"
    with pytest.raises(DataError, match=":3: unknown label '财经'"):
        next(found)


def test_a_message_lists_no_more_labels_than_help(write):
    with pytest.raises(DataError, match="and 99980 more"):
        list(read("sentence", write("a.tsv", "label\ttext\nx\t好\n"), labels=map(str, range(100_000))))
