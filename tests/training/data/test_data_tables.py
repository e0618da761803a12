"""TSV, CSV and JSONL as in ChnSentiCorp, LCQMC, XNLI, OCNLI and CLUE, and what goes wrong in them."""

import csv
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.readers import label_names, read
from paddle_nezha.training.data.records import DataError, TextRecord

TEXTS = st.text(st.characters(exclude_characters="\0\n\r\t\ufeff", exclude_categories=["Cs"]), min_size=1)
IN_A_FOLDER = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows(task, path, **options):
    """(label, text, pair if any, line) of every record."""
    return [
        (record.label, record.text, *([] if record.pair is None else [record.pair]), record.line)
        for record in read(task, path, **options)
    ]


def of_objects(*objects):
    return "".join(json.dumps(found, ensure_ascii=False) + "\n" for found in objects)


def test_chnsenticorp(write):
    path = write("train.tsv", 'label\ttext_a\n1\t很好,很大\n0\t"不好的"地方很多\n0\t没有"\n')
    assert list(read("sentence", path))[1] == TextRecord('"不好的"地方很多', None, "0", str(path), 3)
    assert rows("sentence", path) == [("1", "很好,很大", 2), ("0", '"不好的"地方很多', 3), ("0", '没有"', 4)]


@pytest.mark.parametrize("header", ["", "text_a\ttext_b\tlabel\n"])
def test_lcqmc_with_and_without_header(write, header):
    path = write("dev.tsv", header + "喜欢打篮球的男生\t爱打篮球的男生\t1\n我手机丢了\t我想换手机\t0\n")
    first = 2 if header else 1
    assert rows("pair", path) == [
        ("1", "喜欢打篮球的男生", "爱打篮球的男生", first),
        ("0", "我手机丢了", "我想换手机", first + 1),
    ]


def test_xnli_of_the_translated_training_file(write):
    path = write("train.tsv", "premise\thypo\tlabel\n从概念上看\t有两个方面\tneutral\n他来了\t他没来\tcontradictory\n")
    notes = Notes()
    assert rows("pair", path, notes=notes) == [
        ("neutral", "从概念上看", "有两个方面", 2),
        ("contradiction", "他来了", "他没来", 3),
    ]
    assert notes.sentences() == [f'"contradictory" read as "contradiction": 1 ({path}:3)']
    kept = rows("pair", path, labels=["neutral", "contradictory"])
    assert [label for label, *_ in kept] == ["neutral", "contradictory"]


def test_ocnli_drops_and_counts_pairs_without_a_majority(write):
    path = write(
        "dev.json",
        of_objects(
            {"level": "easy", "sentence1": "一", "sentence2": "二", "label": "-", "id": 0},
            {"level": "easy", "sentence1": "三", "sentence2": "四", "label": "neutral", "id": 1},
        ).rstrip("\n"),
    )
    notes = Notes()
    assert rows("pair", path, notes=notes) == [("neutral", "三", "四", 2)]
    assert notes.counts == {'pairs labelled "-" (no majority), dropped': 1}
    assert len(rows("pair", path, labels=["-", "neutral"])) == 2
    # For a single text it is a label: that of bad reviews, say.
    assert rows("sentence", write("a.tsv", "-\t很差的房间\n+\t很好的房间\n"))[0][0] == "-"


def test_clue_labels_are_texts_whether_numbers_or_not(write):
    news = {"label": "102", "label_desc": "news_entertainment", "sentence": "江疏影甜甜圈自拍", "keywords": "江疏影"}
    path = write("train.json", of_objects(news, {**news, "label": 9}))
    assert rows("sentence", path) == [("102", "江疏影甜甜圈自拍", 1), ("9", "江疏影甜甜圈自拍", 2)]
    assert label_names(read("sentence", path)) == ["9", "102"]
    described = rows("sentence", path, columns={"text": "sentence", "label": "label_desc"})
    assert described[0][0] == "news_entertainment"
    test = write("test.json", of_objects({"id": 0, "sentence": "在设计史上"}))
    assert rows("sentence", test) == [(None, "在设计史上", 1)]


def test_a_list_of_objects_has_their_lines(write):
    path = write("a.json", json.dumps([{"text": "好", "label": 1}, {"text": "坏", "label": 0}], indent=1))
    assert [(label, text) for label, text, _ in rows("sentence", path)] == [("1", "好"), ("0", "坏")]
    found = path.read_text(encoding="utf-8").splitlines()
    assert all(json.dumps(text)[1:-1] in found[line - 1] for _, text, line in rows("sentence", path))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_marks_do_not_get_into_names_and_labels(write, end, last, mark):
    content = mark + end.join(["text_a\tlabel", "很好\t1", "不好\t0"]) + (end if last else "")
    assert rows("sentence", write("a.tsv", content)) == [("1", "很好", 2), ("0", "不好", 3)]


@IN_A_FOLDER
@given(st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from("012")), min_size=1))
def test_every_pair_comes_back_from_tsv_csv_and_jsonl(write, pairs):
    wanted = [(label, text, pair) for text, pair, label in pairs]
    names = {"text": "text_a", "pair": "text_b", "label": "label"}
    lines = "".join("\t".join(pair) + "\n" for pair in [tuple(names.values()), *pairs])
    written = io.StringIO(newline="")
    csv.writer(written).writerows([tuple(names.values()), *pairs])
    objects = of_objects(*(dict(zip(names.values(), pair)) for pair in pairs))
    for name, content in (("a.tsv", lines), ("a.csv", written.getvalue()), ("a.jsonl", objects)):
        assert [row[:-1] for row in rows("pair", write(name, content))] == wanted, name


def test_a_quoted_csv_has_the_line_on_which_each_row_begins(write):
    path = write("a.csv", 'label,text\n1,"好,\n很""好"""\n0,坏\n')
    assert rows("sentence", path) == [("1", '好,\n很"好"', 2), ("0", "坏", 4)]


def test_a_quoted_tsv_is_read_as_one_when_told_and_noted_when_not(write):
    path = write("a.tsv", 'label\ttext\n1\t"一""二"\n0\t坏\n')
    notes = Notes()
    assert rows("sentence", path, notes=notes)[0] == ("1", '"一""二"', 2)
    assert "tsv-quoted" in notes.sentences()[0]
    assert rows("sentence", path, layout="tsv-quoted")[0] == ("1", '一"二', 2)


@pytest.mark.parametrize("header", ['"label"\t"text"\n', '"category"\t"words"\n', ""])
def test_quotes_are_no_part_of_a_label(write, header):
    content = header + "".join(f'"{number % 2}"\t"很好的{number}"\n' for number in range(4))
    path = write("a.tsv", content)
    for columns in (None, {"text": 1, "label": 0}):
        with pytest.raises(DataError, match=r"a\.tsv:1: .* in quotes.* Say --layout tsv-quoted"):
            rows("sentence", path, columns=columns)
    if not header:
        plain = write("b.tsv", 'label\ttext\n1\t一\n"0"\t二\n')
        with pytest.raises(DataError, match=r"b\.tsv:3: expected a label, got one in quotes: \"0\"\. Say --layout"):
            rows("sentence", plain)
    assert rows("sentence", path, layout="tsv-quoted", columns=columns)[-1][:2] == ("1", "很好的3")


def test_nan_is_no_label_and_no_text(write):
    for value in ("NaN", "Infinity", "-Infinity", "1e999"):
        with pytest.raises(DataError, match=r"a\.jsonl:2: expected a label under 'label'.*(NaN|Infinity)\. Add it"):
            rows("sentence", write("a.jsonl", f'{{"text": "好", "label": 1}}\n{{"text": "坏", "label": {value}}}'))
        with pytest.raises(DataError, match=r"b\.jsonl:1: expected a text under 'text', got"):
            rows("sentence", write("b.jsonl", f'{{"text": {value}, "label": 1}}'))


def test_a_whole_number_is_one_label_however_it_is_written(write):
    labels = ("1", "1.0", "-0.0", "1.5", '"1.0"')
    path = write("a.jsonl", "\n".join(f'{{"text": "好", "label": {label}}}' for label in labels))
    assert [row[0] for row in rows("sentence", path)] == ["1", "1", "0", "1.5", "1.0"]


def test_quotes_that_do_not_add_up_are_refused_where_the_row_begins(write):
    path = write("a.csv", 'label,text\n1,好\n0,"坏\n1,好\n')
    with pytest.raises(DataError, match=r"a\.csv:3: the quotes of the row .*--layout tsv"):
        rows("sentence", path)
    long = write("b.csv", 'label,text\n1,好\n0,"坏\n' + "1,好\n" * 40_000)  # more than a cell may hold
    with pytest.raises(DataError, match=r"b\.csv:3: the quotes"):
        rows("sentence", long)


@pytest.mark.parametrize(
    "content, told",
    [
        (
            "label\ttext_a\n1\t好\t的\n",
            r"a\.tsv:2: expected 2 columns \(label, text_a\), got 3: '1\\t好\\t的'. A tab inside",
        ),
        (
            "label\ttext_a\n1\t好\n的\n",
            r"a\.tsv:3: expected 2 columns .*, got 1: '的'. Is a tab missing, or .* two lines",
        ),
        ("1\t很好的\n0\t很差的\n1\n", r"a\.tsv:3: expected 2 columns, got 1"),
        ("1\t好\t的\n0\t很差的\n1\t很好的\n", r"a\.tsv:1: expected 2 columns, got 3"),
    ],
)
def test_a_wrong_number_of_columns_is_refused_with_the_line(write, content, told):
    with pytest.raises(DataError, match=told):
        rows("sentence", write("a.tsv", content))


def test_a_long_line_is_shortened_in_the_message(write):
    with pytest.raises(DataError) as error:
        rows("sentence", write("a.tsv", "label\ttext\n1\t好\n0\t" + "长" * 5000 + "\t\n"))
    assert len(str(error.value)) < 400


def test_a_comma_too_many_is_refused(write):
    with pytest.raises(DataError, match=r'a\.csv:3: expected 2 columns .*got 3.*in "quotes"'):
        rows("sentence", write("a.csv", "label,text\n1,好\n0,坏,很坏\n"))


def test_blank_lines_are_passed_over_and_counted(write):
    notes = Notes()
    found = rows("sentence", write("a.tsv", "\nlabel\ttext\n1\t好\n\n \n0\t坏\n\n"), notes=notes)
    assert found == [("1", "好", 3), ("0", "坏", 6)]
    assert notes.counts == {"blank lines, passed over": 4}


def test_a_text_a_line_is_kept_line_for_line(write):
    assert rows("sentence", write("a.txt", "一\n\n三\n")) == [(None, "一", 1), (None, "", 2), (None, "三", 3)]


def test_empty_texts_are_kept_and_empty_labels_refused(write):
    assert rows("sentence", write("a.tsv", "label\ttext\n1\t\n0\t坏\n"))[0] == ("1", "", 2)
    with pytest.raises(DataError, match=r"a\.tsv:2: expected a label in 'label', got an empty one"):
        rows("sentence", write("a.tsv", "label\ttext\n \t好\n0\t坏\n"))
    with pytest.raises(
        DataError, match=r"a\.tsv:2: expected a label in 'column 0 \(counted from 0\)', got an empty one"
    ):
        rows("sentence", write("a.tsv", "1\t很好的\n \t很坏的\n"), columns={"text": 1, "label": 0})
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: expected a label under 'label', as other lines have, got nothing"
    ):
        rows("sentence", write("a.jsonl", of_objects({"text": "好", "label": 1}, {"text": "坏"})))


@pytest.mark.parametrize(
    "line, told",
    [
        ("{'text': 1}", r"a\.jsonl:2: expected a JSON object, got no JSON .*\{'text"),
        ('["好", 1]', r"a\.jsonl:2: expected a JSON object, got '\["),
        ('{"label": 1}', r"a\.jsonl:2: expected a text under 'text', got nothing"),
        ('{"text": ["好"], "label": 1}', r"a\.jsonl:2: expected a text under 'text', got .*好"),
        ('{"text": "好", "label": ["a", "b"]}', r"a\.jsonl:2: expected one label .* got a list.*separator"),
        ('{"text": "\\u0000", "label": 1}', r"a\.jsonl:2: expected text, got NUL"),
        ('{"text": "\\ud83d", "label": 1}', r"a\.jsonl:2: expected text, got half a surrogate pair"),
        ('{"text": ' + "[" * 100_000, r"a\.jsonl:2: expected a JSON object"),
    ],
)
def test_objects_that_are_no_examples_are_refused(write, line, told):
    with pytest.raises(DataError, match=told):
        rows("sentence", write("a.jsonl", '{"text": "好", "label": 1}\n' + line + "\n"))


def test_float_labels_stay_texts_in_the_order_of_numbers(write):
    path = write("a.tsv", "一个人\t一个男人\t10\n一只猫\t一条狗\t2.5\n一辆车\t一朵花\t0.0\n")
    assert [label for label, *_ in rows("pair", path)] == ["10", "2.5", "0.0"]
    assert label_names(read("pair", path)) == ["0.0", "2.5", "10"]
    assert rows("pair", write("a.jsonl", of_objects({"text_a": "一", "text_b": "二", "score": 2.5})))[0][0] == "2.5"
