"""How layouts and columns are told, what the user may say, and what is refused because it cannot be told."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import paddle_nezha
from paddle_nezha.training.data.readers import LAYOUTS, TASKS, read
from paddle_nezha.training.data.records import DataError

REVIEWS = ["房间很大，服务也好", "早餐很差", "不会再来了，太吵", "位置方便，下次还住"]


def pairs(path, **options):
    return [(record.label, record.text) for record in read("sentence", path, **options)]


def table(*rows, between="\t"):
    return "".join(between.join(row) + "\n" for row in rows)


@pytest.mark.parametrize("label_first", [True, False])
@pytest.mark.parametrize("labels", ["0101", ["好", "坏", "坏", "好"], ["1", "2", "3", "10"]])
def test_the_label_of_a_file_without_header_is_told_from_the_content(write, label_first, labels):
    rows = [(label, text) if label_first else (text, label) for label, text in zip(labels, REVIEWS)]
    assert pairs(write("a.tsv", table(*rows))) == list(zip(labels, REVIEWS))


def test_names_are_known_in_any_case_and_order(write):
    assert pairs(write("a.tsv", "ID\tSentence\tLabel\n7\t很好\t1\n8\t不好\t0\n")) == [("1", "很好"), ("0", "不好")]
    assert pairs(write("a.csv", "标签,内容\n好评,很好\n差评,不好\n")) == [("好评", "很好"), ("差评", "不好")]


def test_one_unknown_name_beside_a_known_one_is_the_missing_column(write):
    assert pairs(write("a.tsv", "label\tbody\n1\t很好\n0\t不好\n")) == [("1", "很好"), ("0", "不好")]


@pytest.mark.parametrize("labels", [list("01"), ["好评", "差评"]])
def test_a_header_is_not_taken_for_data(write, labels):
    rows = [("情感", "正文"), *zip(labels * 20, REVIEWS * 10)]
    path = write("a.tsv", table(*rows))
    with pytest.raises(
        DataError, match=r"a\.tsv:1: .*looks like a header.*--columns '\{text: \"正文\", label: \"情感\"\}' \("
    ):
        pairs(path)
    assert pairs(path, columns={"text": "正文", "label": "情感"}) == [(a, b) for a, b in rows[1:]]
    assert pairs(path, columns={"text": 1, "label": 0}) == rows  # the user says that it is an example


def test_a_header_does_not_hide_which_column_holds_numbers(write):
    rows = [("甲", "乙"), ("好", "1.5"), ("坏", "2.5"), ("中", "0.5")]  # texts as short as the labels
    with pytest.raises(DataError, match=r"a\.tsv:1: '甲', '乙' looks like a header"):
        pairs(write("a.tsv", table(*rows)))
    assert pairs(write("a.tsv", table(*rows[1:]))) == [(b, a) for a, b in rows[1:]]


def test_a_rare_first_label_is_no_header(write):
    rows = [
        ("中评", "服务还可以吧，只是早餐的品种实在是不多，房间里也有一点吵"),
        *zip(["好评", "差评"] * 20, REVIEWS * 10),
    ]
    assert pairs(write("a.tsv", table(*rows))) == rows


@pytest.mark.parametrize("columns", [{"text": "c", "label": "a"}, {"text": 2, "label": 0}, {"text": -1, "label": -3}])
def test_columns_by_name_or_by_place(write, columns):
    rows = [("1", "x", "很好"), ("0", "y", "不好")]
    content = table(*([("a", "b", "c")] if isinstance(columns["text"], str) else []), *rows)
    assert pairs(write("a.tsv", content), columns=columns) == [("1", "很好"), ("0", "不好")]


def test_columns_by_place_skip_a_header_whose_names_are_known(write):
    path = write("a.tsv", "qid\tlabel\ttext_a\n7\t1\t很好\n8\t0\t不好\n")
    assert pairs(path, columns={"text": 2, "label": 0}) == [("7", "很好"), ("8", "不好")]
    assert pairs(path, columns={"text": 2}) == [(None, "很好"), (None, "不好")]


@pytest.mark.parametrize(
    "content, columns, told",
    [
        (
            "a\tb\n1\t好\n",
            {"text": "c", "label": "a"},
            r"a\.tsv:1: columns takes text from 'c', but line 1 has 'a', 'b'",
        ),
        ("1\t好的\n", {"text": 2, "label": 0}, r"a\.tsv:1: columns .* text from column 2, .* has columns 0 to 1\."),
        ("好的\n", {"text": 1}, r"a\.tsv:1: columns takes text from column 1, but the file has column 0 alone\."),
        ("1\t好的\n", {"label": 0}, r"a\.tsv:1: columns says nothing of text"),
        ("1\t好的\n", {"text": 1, "tags": 0}, r"a\.tsv:1: columns names 'tags'; a sentence task has text, label"),
        (
            "1\tx\t好的\n0\ty\t坏的\n",
            None,
            r"a\.tsv:1: .*among 3 columns.*'x', '好的'.*--columns '.* \(counted from 0;",
        ),
        ("id\tlabel\tbody\n", None, r"a\.tsv:1: expected text for the sentence task, got the names 'id'.*--columns '"),
        ("text_a\ttext_b\tlabel\n", None, r"a\.tsv:1: expected one text .* got two.*pair task"),
        ("label\ttext\n", None, r"a\.tsv:1: expected examples, got none"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(write, content, columns, told):
    with pytest.raises(DataError, match=told):
        pairs(write("a.tsv", content), columns=columns)


def test_keys_that_are_not_there_are_refused_with_those_that_are(write):
    path = write("a.jsonl", json.dumps({"body": "好", "label": 1}))
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected text .* got the names 'body', 'label'.*--columns '"):
        pairs(path)
    with pytest.raises(DataError, match=r"a\.jsonl:1: columns takes text from 'txt', but the keys are 'body', 'label'"):
        pairs(path, columns={"text": "txt"})
    assert pairs(path, columns={"text": "body", "label": "label"}) == [("1", "好")]


def test_a_sentence_file_is_no_pair_file(write):
    with pytest.raises(DataError, match=r"a\.tsv:1: expected pair for the pair task, got the names 'label', 'text_a'"):
        list(read("pair", write("a.tsv", "label\ttext_a\n1\t好\n")))
    with pytest.raises(DataError, match=r"a\.tsv:1: expected text and pair.*among 2 columns"):
        list(read("pair", write("a.tsv", "1\t很好的\n0\t不好的\n")))


@pytest.mark.parametrize(
    "content, told",
    [
        ("京 B-LOC\n城 I-LOC\n", "got the layout 'conll', which is for token"),
        (json.dumps({"data": []}), "got the layout 'squad', which is for span"),
        (json.dumps([[["一"], [], "1"]]), "got the layout 'c3', which is for choice"),
        (json.dumps([{"context_text": "一", "qas": []}]), "got the layout 'cmrc', which is for span"),
    ],
)
def test_a_file_for_another_task_is_refused_with_the_task_that_it_is_for(write, content, told):
    with pytest.raises(DataError, match=r"a\.dat:1: expected examples of the sentence task, " + told):
        pairs(write("a.dat", content))


def test_content_and_not_names_tell_the_layout(write):
    assert pairs(write("a.json", "1\t很好的\n0\t不好的\n"))[0] == ("1", "很好的")
    assert pairs(write("a.tsv", '{"text": "很好", "label": 1}\n'))[0] == ("1", "很好")
    assert pairs(write("a.txt", "label,text\n1,很好\n"))[0] == ("1", "很好")
    assert pairs(write("a.csv", "很好的房间,1\n不好的房间,0\n"))[0] == ("1", "很好的房间")
    assert pairs(write("a.tsv", "[荐书] 很好看的\t1\n{笑} 不好看的\t0\n"))[0] == ("1", "[荐书] 很好看的")
    assert pairs(write("a.txt", "好,很好,\n坏\n")) == [(None, "好,很好,"), (None, "坏")]


def test_every_file_may_be_gzipped(write):
    content = gzip.compress("label\ttext\n1\t很好\n".encode())
    assert pairs(write("a.tsv.gz", content)) == [("1", "很好")]
    assert pairs(write("a.csv.gz", gzip.compress("1,很好的\n0,不好的\n".encode())))[0] == ("1", "很好的")


def test_a_layout_can_be_forced(write):
    path = write("a.txt", "text,label\n好,1\n")
    assert pairs(path, layout="tsv") == [(None, "text,label"), (None, "好,1")]
    with pytest.raises(DataError, match=r"a\.txt:1: expected a JSON object"):
        pairs(path, layout="jsonl")
    with pytest.raises(DataError, match=r"a\.json:1: expected the layout 'squad', got another.*--layout c3"):
        list(read("span", write("a.json", json.dumps([[["一"], [], "1"]])), layout="squad"))
    with pytest.raises(DataError, match=r"a\.json:1: expected SQuAD or CMRC"):
        list(read("span", write("a.json", '{"answers":\n {}}')))


def test_layouts_without_columns_take_none(write):
    path = write("a.json", json.dumps({"data": []}))
    with pytest.raises(DataError, match="the layout 'squad' has no columns to name"):
        list(read("span", path, columns={"question": "q", "context": "c"}))
    folder = write("two/source.txt", "海\n").parent
    write("two/target.txt", "O\n")
    with pytest.raises(DataError, match="the layout 'two-file' has no columns to name"):
        list(read("token", folder, columns={"tokens": 0}))


@pytest.mark.parametrize(
    "options, told", [({"task": "ner"}, "task is one of"), ({"layout": "xml"}, "layout is one of")]
)
def test_unknown_words_are_refused_with_the_known_ones(write, options, told):
    with pytest.raises(ValueError, match=told):
        read(**{"task": "sentence", "path": write("a.tsv", "1\t好\n"), **options})


def test_a_folder_is_no_table(write):
    with pytest.raises(DataError, match="got a folder. Name a file"):
        pairs(write("data/a.tsv", "1\t好\n").parent)
    with pytest.raises(DataError, match="the layout 'two-file', which is for token"):
        pairs([write("a.txt", "好\n"), write("b.txt", "O\n")])


def test_no_framework_is_imported():
    code = (
        "import sys, paddle_nezha.training.data.describing; print({'paddle', 'torch', 'tokenizers'} & set(sys.modules))"
    )
    root = Path(paddle_nezha.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


def test_every_task_has_a_layout():
    assert {task for tasks in LAYOUTS.values() for task in tasks} == set(TASKS)


def test_a_table_is_read_row_by_row(write):
    path = write("a.tsv", "label\ttext\n" + "1\t好\n0\t坏\n" * 5000 + "坏了\n")
    found = read("sentence", path)
    assert next(found).label == "1"
    with pytest.raises(DataError, match=":10002: expected 2 columns"):
        list(found)


def test_a_sample_that_ends_within_quotes_tells_the_columns(write):
    long = '"' + "好\n" * 700 + '"'
    path = write("a.csv", "label,text\n" + "".join(f"{place % 2},{long}\n" for place in range(5)))
    assert pairs(path) == [(str(place % 2), "好\n" * 700) for place in range(5)]
