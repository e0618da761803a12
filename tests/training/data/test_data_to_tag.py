"""What a model that tags is given: tagged files, tokens without tags, and texts whose characters are the tokens."""

import json

import pytest

from paddle_nezha.training.data.labels import KnownLabels
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.readers import SENTENCES, TOKENS, UNUSED, checked, open_to_tag
from paddle_nezha.training.data.records import DataError

KNOWN = KnownLabels(["B-LOC", "I-LOC", "O", "PER"], None)
LINES = "北京大学在北京。\n李明说你好\n"
TOKEN_LINES = "北\n京\n\n大\n学\n"


def read(path, layout=None, columns=None):
    """The tokens of each sentence, and what was noted."""
    notes = Notes()
    records = list(checked(open_to_tag(path, layout, columns, KNOWN, notes), KNOWN))
    return [record.tokens for record in records], notes.counts


@pytest.mark.parametrize("layout", [None, "tsv"])
@pytest.mark.parametrize(
    "content, texts",
    [
        (LINES, ["北京大学在北京。", "李明说你好"]),
        ("好\n坏\n很好\n", ["好", "坏", "很好"]),
        ("北京大学。\n\n李明说hello world\n", ["北京大学。", "", "李明说hello world"]),
        ("长" * 900, ["长" * 900]),
        ("hello world\nNew York is big\n", ["hello world", "New York is big"]),
    ],
)
def test_lines_are_sentences_of_characters(write, layout, content, texts):
    wanted = {} if layout else {SENTENCES: len(texts)}
    assert read(write("a.txt", content), layout) == ([tuple(text) for text in texts], wanted)


@pytest.mark.parametrize("layout", [None, "conll"])
@pytest.mark.parametrize(
    "content, sentences",
    [
        (TOKEN_LINES, [("北", "京"), ("大", "学")]),
        ("EU\nrejects\n\n2008\n……\n", [("EU", "rejects"), ("2008", "……")]),
        ("一\n二\n三\n四\n五\n六\n七\n八\n九\n北京\n", [(*"一二三四五六七八九", "北京")]),
        ("京\r\nhttp://www.example.org/a/long/path\r\n", [("京", "http://www.example.org/a/long/path")]),
    ],
)
def test_lines_of_one_character_or_word_are_tokens(write, layout, content, sentences):
    wanted = {} if layout else {TOKENS: len(sentences)}
    assert read(write("a.txt", content), layout) == (sentences, wanted)


def test_a_layout_forces_either(write):
    assert read(write("a.txt", LINES), "conll") == ([("北京大学在北京。", "李明说你好")], {})
    texts = write("a.json", '{"id": 0, "text": "北京"}')
    assert read(texts, "cluener") == read(texts, "jsonl") == ([("北", "京")], {})
    assert read(write("b.txt", TOKEN_LINES), "tsv") == ([("北",), ("京",), (), ("大",), ("学",)], {})


def test_tagged_files_stay_what_they_are(write):
    assert read(write("a.txt", "北 B-LOC\n京 I-LOC\n\n好 O\n")) == ([("北", "京"), ("好",)], {})
    assert read(write("b.txt", "李 PER\n明 PER\n\n好 O\n")) == ([("李", "明"), ("好",)], {})  # tags of the model alone
    row = json.dumps({"text": "北京", "label": {"LOC": {"北京": [[0, 1]]}}})
    for columns in (None, {"text": "text", "label": "label"}):
        (record,) = open_to_tag(write("c.json", row), None, columns, KNOWN, Notes()).records
        assert (record.tokens, record.labels) == (("北", "京"), ("B-LOC", "I-LOC"))
    assert read(write("c.json", row), None, {"text": "text"}) == ([("北", "京")], {})
    folder = write("two/source.txt", "北 京\n").parent
    write("two/target.txt", "B-LOC I-LOC\n")
    assert read(folder) == ([("北", "京")], {})


@pytest.mark.parametrize(
    "name, content, columns, noted",
    [
        ("a.jsonl", '{"text": "北京"}\n{"text": "好"}\n', None, {}),
        ("a.json", '{"id": 0, "text": "北京"}\n{"id": 1, "text": "好"}\n', None, {}),
        ("a.json", '[{"text": "北京"},\n{"text": "好"}]', None, {}),
        ("a.jsonl", '{"text": "北京", "label": "LOC"}\n{"text": "好", "label": null}\n', None, {UNUSED: 2}),
        ("a.txt", "text\n北京\n好\n", None, {}),
        ("a.csv", "text\n北京\n好\n", None, {}),
        ("a.tsv", "id\ttext\n1\t北京\n2\t好\n", None, {}),
        ("a.tsv", "label\ttext\n?\t北京\n\t好\n", None, {UNUSED: 2}),
        ("a.tsv", "甲\t乙\n1\t北京\n2\t好\n", {"text": "乙"}, {}),
        ("a.tsv", "x\t1\t北京\ny\t2\t好\n", {"text": 2}, {}),
        ("a.jsonl", '{"a": "北京"}\n{"a": "好"}\n', {"text": "a"}, {}),
        ("a.jsonl", '{"a": "北京"}\n{"a": "好"}\n', {"tokens": "a"}, {}),
    ],
)
def test_the_texts_of_tables_are_tagged_by_character(write, name, content, columns, noted):
    assert read(write(name, content), None, columns) == ([("北", "京"), ("好",)], noted)


def test_tokens_win_over_texts(write):
    row = {"text": "北京好", "tokens": ["北京", "好"], "tags": ["B-LOC", "O"]}
    assert read(write("a.jsonl", json.dumps(row))) == ([("北京", "好")], {})


@pytest.mark.parametrize("content", ["海 钓 比 赛\n厦 门\n", "京\tX\n城\tX\n", "京 NN\n城 NN\n\n好 JJ\n"])
def test_characters_with_blanks_between_them_may_be_either_and_are_refused(write, content):
    with pytest.raises(DataError, match=r"a\.txt:1: expected a sentence .* without the blanks, .* --layout conll"):
        read(write("a.txt", content))


def test_files_of_other_tasks_are_refused(write):
    for content, layout in (('{"data": []}', "squad"), ('[[["a"], [], "1"]]', "c3")):
        with pytest.raises(DataError, match=f"expected examples of the token task, got the layout '{layout}'"):
            read(write("a.json", content))
    with pytest.raises(DataError, match="expected tokens for the token task, got the names 'foo'"):
        read(write("a.jsonl", '{"foo": "北京"}'))
    with pytest.raises(DataError, match="got the layout 'squad'"):
        read(write("a.json", '{"data": []}'), "squad")
    with pytest.raises(ValueError, match="layout is one of"):
        read(write("a.txt", LINES), "xml")
