"""What a file was taken for, and the counts of what is in it."""

import json

import pytest

from paddle_nezha.training.data.describing import describe
from paddle_nezha.training.data.records import DataError


def counts(description):
    """What was odd to how often."""
    return {what: int(rest.split()[0]) for what, rest in (note.split(": ", 1) for note in description.notes)}


def test_a_table_in_words(write):
    path = write(
        "train.tsv",
        "label\ttext_a\tid\n" + "1\t好\t7\n0\t坏坏坏\t8\n1\t好\t9\n0\t好\t9\n1\t \t9\n" + "10\t" + "长" * 9 + "\t9\n",
    )
    found = describe(path, longest=8)
    assert (found.layout, found.task, found.header, found.records) == ("tsv", "sentence", True, 6)
    assert found.columns == {"text": "text_a", "label": "label"}
    assert found.unused == ("id",)
    assert list(found.labels.items()) == [("0", 2), ("1", 3), ("10", 1)]
    assert found.lengths == (1, 9, 9)
    assert str(found) == (
        f"{path}: layout tsv, names in line 1, read for the sentence task\n"
        "  text from text_a, label from label\n"
        "  not used: id\n"
        "  6 examples; characters: median 1, 95 % up to 9, longest 9\n"
        "  labels: 0 2, 1 3, 10 1\n"
        f"  texts that an earlier line has too, with the same label: 1 ({path}:4)\n"
        f"  texts that an earlier line has too, with another label: 1 ({path}:5)\n"
        f"  empty texts, kept: 1 ({path}:6)\n"
        f"  examples longer than 8 characters: 1 ({path}:7)"
    )


@pytest.mark.parametrize(
    "name, content, layout, task",
    [
        ("a.tsv", "很好的\t很坏的\t1\n很坏的\t很好的\t0\n", "tsv", "pair"),
        ("a.tsv", "1\t很好的\n0\t很坏的\n", "tsv", "sentence"),
        ("a.tsv", "premise\thypo\tlabel\n一\t二\tneutral\n", "tsv", "pair"),
        ("a.csv", "text,label\n好,1\n", "csv", "sentence"),
        ("a.txt", "好\n坏\n", "tsv", "sentence"),
        ("a.json", json.dumps({"sentence1": "一", "sentence2": "二", "label": "0"}), "jsonl", "pair"),
        ("a.json", json.dumps({"tokens": ["一"], "labels": ["O"]}), "jsonl", "token"),
        ("a.json", json.dumps({"context": "一", "question": "二", "answers": []}), "jsonl", "span"),
        (
            "a.json",
            json.dumps({"context": "一", "question": "二", "choices": ["三", "四"], "label": 0}),
            "jsonl",
            "choice",
        ),
        ("a.json", json.dumps([{"text": "一", "label": "0"}]), "json", "sentence"),
        ("a.txt", "京 B-LOC\n城 I-LOC\n", "conll", "token"),
        ("a.json", json.dumps({"text": "京城", "label": {"LOC": {"京城": [[0, 1]]}}}), "cluener", "token"),
        (
            "a.json",
            json.dumps({"data": [{"paragraphs": [{"context": "一", "qas": [{"question": "二"}]}]}]}),
            "squad",
            "span",
        ),
        ("a.json", json.dumps([{"context_text": "一", "qas": [{"query_text": "二"}]}]), "cmrc", "span"),
        ("a.json", json.dumps([[["一"], [{"question": "二", "choice": ["三", "四"]}], "0"]]), "c3", "choice"),
    ],
)
def test_layout_and_task_are_told(write, name, content, layout, task):
    found = describe(write(name, content))
    assert (found.layout, found.task) == (layout, task)


def test_what_was_told_can_be_told_otherwise(write):
    path = write("a.tsv", "label\ttext_a\ttext_b\n1\t一\t二\n0\t三\t四\n")
    found = describe(path, columns={"text": "text_b", "label": "label"})
    assert (found.task, found.columns, found.unused) == ("sentence", {"text": "text_b", "label": "label"}, ("text_a",))


def test_columns_without_names_are_told_as_columns_takes_them(write):
    path = write("a.tsv", "1\t很好的\n0\t很坏的\n")
    found = describe(path)
    assert (found.columns, found.header) == ({"text": 1, "label": 0}, False)
    assert "  text from column 1, label from column 0 (counted from 0)\n" in str(found)
    assert describe(path, columns=found.columns) == found
    tagged = describe(write("a.txt", "京 NN B-LOC\n城 NN I-LOC\n"))
    assert "; tokens from column 0, labels from column 2 (counted from 0)\n" in tagged.brief()
    assert "counted" not in str(describe(write("b.tsv", "label\ttext\n1\t很好的\n0\t很坏的\n")))


def test_places_from_behind_are_told_from_the_front(write):
    found = describe(write("a.tsv", "1\tx\t好\n0\ty\t坏\n"), columns={"text": -1, "label": -3})
    assert found.columns == {"text": 2, "label": 0}


def test_lengths(write):
    texts = ["长" * length for length in range(1, 21)]
    assert describe(write("a.txt", "\n".join(texts))).lengths == (10.5, 19, 20)


def test_tags_that_go_on_with_nothing(write):
    found = describe(
        write("a.txt", "一 I-LOC\n二 I-LOC\n三 O\n四 B-PER\n五 I-LOC\n六 M-LOC\n七 E-LOC\n八 S-PER\n九 E-PER\n")
    )
    assert counts(found) == {"tags that go on with an entity that none begins (IOB1 begins its entities so)": 3}
    assert found.labels["I-LOC"] == 3


def test_one_class_and_regression_are_told(write):
    found = describe(write("a.tsv", "label\ttext\n1\t一\n1\t二\n"))
    assert found.notes == ("one class only, '1': nothing can be learnt from it",)
    found = describe(write("a.tsv", "label\ttext\n1.0\t一\n2.5\t二\n"))
    assert found.notes == (
        "labels are numbers, not all of them whole: each is a class of its own, and regression is no task here",
    )


def test_one_number_in_several_spellings_is_noted(write):
    def notes(*labels):
        return describe(write("a.tsv", "label\ttext\n" + "".join(f"{a}\t一{a}\n" for a in labels))).notes

    told = "labels that are the same number, yet classes of their own: {}; spell them alike"
    assert notes("1", "1.0", "0", "好", "01") == (told.format("'01' and '1' and '1.0'"),)
    assert notes("0", "0.0", "1", "1.0", "2", "2.0", "3", "3.0") == (
        told.format("'0' and '0.0', '1' and '1.0', '2' and '2.0', ..."),
    )
    assert notes("9007199254740992", "9007199254740993", "1e-99999999999999999999", "好") == ()


def test_several_labels_count_each(write):
    path = write("a.tsv", "label\ttext\n体育|足球\t一\n体育\t二\n")
    assert describe(path, separator="|").labels == {"体育": 2, "足球": 1}
    assert describe(path).labels == {"体育": 1, "体育|足球": 1}


def test_choices_and_questions(write):
    choice = {"context": "一", "question": "二", "choices": ["三", "四"]}
    path = write("a.jsonl", "\n".join(json.dumps(found) for found in [{**choice, "label": 1}, choice]))
    found = describe(path)
    assert found.labels == {"choice 2": 1}
    assert "questions that do not say which choice is right" in counts(found)
    assert found.lengths == (4, 4, 4)
    span = {"context": "一", "question": "二", "answers": []}
    assert counts(describe(write("a.jsonl", json.dumps(span)))) == {"questions without an answer": 1}


def test_what_reading_refuses_describing_refuses(write):
    with pytest.raises(DataError, match=":3: expected 2 columns"):
        describe(write("a.tsv", "label\ttext\n1\t一\n1\n"))
    with pytest.raises(DataError, match=":3: unknown label '2'"):
        describe(write("a.tsv", "label\ttext\n1\t一\n2\t二\n"), labels=["0", "1"])


def test_many_labels_are_cut_in_words_alone(write):
    found = describe(write("a.tsv", "label\ttext\n" + "".join(f"{place}\t一{place}\n" for place in range(30))))
    assert len(found.labels) == 30
    assert "and 10 more" in str(found)


def test_the_same_choice_twice_is_noted(write):
    entry = [["一段文章。"], [{"question": "说了什么？", "choice": ["好", "坏", "好"], "answer": "坏"}], "9"]
    path = write("a.json", json.dumps([entry]))
    assert describe(path).notes == (f"questions with the same choice twice: 1 ({path}:1 (9-0))",)
