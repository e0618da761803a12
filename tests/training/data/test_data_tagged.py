"""Tagged sentences: CoNLL columns, People's Daily in two files, rows of lists; and what does not fit together."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_nezha.training.data import tagged
from paddle_nezha.training.data.describing import describe
from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.readers import read
from paddle_nezha.training.data.records import DataError, TokenRecord

TOKENS = st.text(st.characters(exclude_characters="\0\n\r\t \ufeff", exclude_categories=["Cs"]), min_size=1)
TAGS = st.sampled_from(["O", "B-LOC", "I-LOC", "S-PER", "E_公司"])


def sentences(path, **options):
    return [
        (" ".join(found.tokens), found.labels and " ".join(found.labels)) for found in read("token", path, **options)
    ]


@pytest.mark.parametrize("between", [" ", "\t", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_conll_with_the_line_on_which_each_sentence_begins(write, between, end):
    lines = ["", "海 O", "钓 O", "", "", "厦 B-LOC", "门 I-LOC"]  # the last line has no end
    path = write("dev.txt", end.join(lines).replace(" ", between))
    assert list(read("token", path)) == [
        TokenRecord(("海", "钓"), ("O", "O"), str(path), 2),
        TokenRecord(("厦", "门"), ("B-LOC", "I-LOC"), str(path), 6),
    ]


def test_conll_2003_has_documents_and_more_columns(write):
    path = write(
        "a.txt",
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\n",
    )
    assert sentences(path) == [("EU rejects", "I-ORG O"), ("Peter", "I-PER")]
    assert sentences(path, columns={"tokens": 0, "labels": 1}) == [("EU rejects", "NNP VBZ"), ("Peter", "NNP")]
    assert sentences(path, columns={"tokens": 0, "labels": -2})[1] == ("Peter", "I-NP")
    assert sentences(path, columns={"tokens": 0})[1] == ("Peter", None)


@pytest.mark.parametrize("line", ["\u3000 O", "\u3000\tO", "\xa0 O"])
def test_white_space_may_be_a_token(write, line):
    (record,) = read("token", write("a.txt", f"京 B-LOC\n{line}\n"))
    assert record.tokens == ("京", line[0])


@pytest.mark.parametrize("line", ["  O", " \tO", "\tO", " O"])
def test_a_blank_as_a_token_stays_one(write, line):
    (record,) = read("token", write("a.txt", f"京 B-LOC\n{line}\n城 O\n"))
    assert record.tokens == ("京", " ", "城")
    assert record.labels == ("B-LOC", "O", "O")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(TOKENS, TAGS), min_size=1), min_size=1), st.sampled_from(" \t"))
def test_every_sentence_comes_back(write, content, between):
    content = [[("-" if token.startswith("-DOCSTART-") else token, tag) for token, tag in found] for found in content]
    path = write("a.txt", "京 O\n\n" + "\n".join("".join(f"{a}{between}{b}\n" for a, b in found) for found in content))
    found = [list(zip(record.tokens, record.labels)) for record in read("token", path, layout="conll")]
    assert found[1:] == content


def test_tokens_without_tags(write):
    assert sentences(write("test.txt", "海\n钓\n\n厦\n")) == [("海 钓", None), ("厦", None)]


@pytest.mark.parametrize(
    "content, told",
    [
        ("京 B-LOC\n城\n好 O\n", r"a\.txt:2: expected 2 columns.*got 1: '城'.*blank"),
        ("京 B-LOC\n城 x I-LOC\n好 O\n", r"a\.txt:2: expected 2 columns.*got 3"),
        ("京\tB-LOC\n城\t\n好\tO\n" + "好\tO\n" * 20, r"a\.txt:2: expected a tag, got none"),
        ("今天天气很好 我们去公园 他也去\n", r"a\.txt:1: expected a token and its tag.*'今天.*holds both.*LETTER-TYPE"),
    ],
)
def test_lines_that_do_not_fit_are_refused(write, content, told):
    with pytest.raises(DataError, match=told):
        sentences(write("a.txt", content))


@pytest.mark.parametrize(
    "columns, told",
    [
        (
            {"tokens": 0, "labels": 2},
            r"takes labels from column 2, .* columns 0 to 1\. Give places, as in --columns '\{t",
        ),
        ({"tokens": "word"}, r"takes tokens from 'word', .* no names, .* columns 0 to 1\. .*counted from 0"),
        ({"text": 0, "label": 1}, r"names 'text'; a token task has tokens, labels"),
        ({"labels": 1}, "says nothing of tokens"),
        ({"tokens": 0.0, "labels": 1}, r"takes tokens from 0\.0: give a name, or a place counted from 0"),
        ({"tokens": 0, "labels": True}, "takes labels from True: give a name, or a place"),
        ({"tokens": None, "labels": 1}, "takes tokens from None: give a name, or a place"),
    ],
)
def test_columns_that_are_not_there_are_refused(write, columns, told):
    with pytest.raises(DataError, match=r"a\.txt:1: columns " + told):
        sentences(write("a.txt", "京 B-LOC\n"), columns=columns)


def test_two_files_as_a_pair_or_as_their_folder(write):
    source = write("train/source.txt", "海 钓 比 赛\n\n厦 门\n")
    target = write("train/target.txt", "O O O O\n\nB-LOC I-LOC")
    notes = Notes()
    wanted = [
        TokenRecord(tuple("海钓比赛"), ("O",) * 4, str(source), 1),
        TokenRecord(tuple("厦门"), ("B-LOC", "I-LOC"), str(source), 3),
    ]
    assert list(read("token", (source, target), notes=notes)) == wanted
    assert notes.counts == {"sentences without a character, passed over": 1}
    assert list(read("token", source.parent)) == wanted


@pytest.mark.parametrize(
    "source, target, told",
    [
        ("海 钓\n厦 门\n", "O O\nB-LOC\n", r"source\.txt:2: 2 characters, but 1 tags in .*target\.txt:2: '厦 门'"),
        ("海 钓\n厦 门\n", "O O\n", r"source\.txt:2: expected as many lines as in .*target\.txt, which has 1"),
        ("海 钓\n", "O O\nB-LOC\n", r"target\.txt:2: expected as many lines as in .*source\.txt, which has 1"),
        ("O O\n", "海 钓\n", r"source\.txt:1: expected characters, got tags.*characters first"),
    ],
)
def test_two_files_that_do_not_belong_together_are_refused(write, source, target, told):
    with pytest.raises(DataError, match=told):
        sentences((write("source.txt", source), write("target.txt", target)))


def test_a_folder_without_the_two_files_is_refused_with_what_it_holds(write):
    folder = write("data/source_train.txt", "海\n").parent
    write("data/source_dev.txt", "海\n")
    with pytest.raises(DataError, match=r"holds source_dev\.txt, source_train\.txt\. Give the two paths"):
        sentences(folder)
    with pytest.raises(DataError, match="expected two paths"):
        sentences([folder])


def test_rows_of_tokens_and_tags(write):
    row = {"tokens": ["海", "钓"], "ner_tags": ["O", "O"]}
    assert sentences(write("a.jsonl", json.dumps(row))) == [("海 钓", "O O")]
    named = {"text": "海钓", "bio": ["O", "O"]}
    columns = {"tokens": "text", "labels": "bio"}
    assert sentences(write("a.jsonl", json.dumps(named)), columns=columns) == [("海 钓", "O O")]
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected a list of tags by name, got '\[0, 0\]'"):
        sentences(write("a.jsonl", json.dumps({**row, "ner_tags": [0, 0]})))
    with pytest.raises(DataError, match=r"a\.jsonl:1: 2 tokens, but 1 tags"):
        sentences(write("a.jsonl", json.dumps({**row, "ner_tags": ["O"]})))
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected a list of tokens, or a text, got '3'"):
        sentences(write("a.jsonl", json.dumps({**row, "tokens": 3})))


def entities(*lines):
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


BANK = {
    "text": "浙商银行叶老桂说银行",
    "label": {"name": {"叶老桂": [[4, 6]]}, "company": {"浙商银行": [[0, 3]], "银行": [[8, 9]]}},
}
BANK_TAGS = "B-company I-company I-company I-company B-name I-name I-name O B-company I-company"


def test_cluener_has_entities_by_their_places(write):
    none, twice = {"text": "好", "label": {}}, {"text": "京，京", "label": {"city": {"京": [[0, 0], [2, 2]]}}}
    path = write("train.json", entities(none, BANK, twice))
    assert list(read("token", path)) == [
        TokenRecord(("好",), ("O",), str(path), 1),
        TokenRecord(tuple(BANK["text"]), tuple(BANK_TAGS.split()), str(path), 2),
        TokenRecord(tuple("京，京"), ("B-city", "O", "B-city"), str(path), 3),
    ]
    assert list(read("token", path, layout="cluener", columns={"text": "text", "label": "label"})) == list(
        read("token", path)
    )
    told = describe(path)
    assert str(told).startswith(
        f"{path}: layout cluener, read for the token task\n  text from text, label from label\n"
    )
    assert list(read("token", path, columns=told.columns)) == list(read("token", path))
    renamed = write("b.json", entities({"正文": BANK["text"], "实体": BANK["label"]}))
    assert sentences(renamed, columns={"text": "正文", "label": "实体"}) == [(" ".join(BANK["text"]), BANK_TAGS)]
    with pytest.raises(
        DataError, match=r"train\.json:1: .* sentence task, got the layout 'cluener', which is for token"
    ):
        list(read("sentence", path))
    with pytest.raises(DataError, match=r"expected a list of tags by name, got .* the layout 'cluener', whose columns"):
        sentences(renamed, columns={"tokens": "正文", "labels": "实体"})
    assert [record.text for record in read("sentence", path, columns={"text": "text"})][0] == "好"


def test_cluener_of_the_test_file_has_no_tags(write):
    path = write("test.json", entities({"id": 0, "text": "四川"}, {"id": 1, "text": ""}))
    notes = Notes()
    assert list(read("token", path, notes=notes)) == [TokenRecord(("四", "川"), None, str(path), 1)]
    assert notes.counts == {"sentences without a character, passed over": 1}
    (_, renamed) = read("token", write("b.json", entities({"a": "四川"}, {"a": "山"})), columns={"text": "a"})
    assert (renamed.tokens, renamed.labels) == (("山",), None)
    with pytest.raises(DataError, match="columns takes label from 'label', but the keys are 'id', 'text'"):
        sentences(path, columns={"text": "text", "label": "label"})
    # What else there is may be the tags.
    with pytest.raises(DataError, match="expected tokens for the token task, got the names 'text', 'bio'"):
        sentences(write("a.jsonl", entities({"text": "四川", "bio": ["O", "O"]})))
    with pytest.raises(DataError, match="expected tokens for the token task, got the names 'text', 'label'"):
        sentences(write("a.jsonl", entities({"text": "四川", "label": "好"})))


@pytest.mark.parametrize(
    "label, tags",
    [
        ({"LOC": {"京城": [[0, 1]]}, "ORG": {"城很": [[1, 2]]}}, ["B-LOC", "I-LOC", "O", "O", "O"]),
        ({"LOC": {"城": [[1, 1]]}, "ORG": {"京城": [[0, 1]]}}, ["B-ORG", "I-ORG", "O", "O", "O"]),
        ({"LOC": {"京": [[0, 0]]}, "ORG": {"京": [[0, 0]]}}, ["B-LOC", "O", "O", "O", "O"]),
    ],
)
def test_of_entities_that_overlap_the_longest_stays_and_the_other_is_noted(write, label, tags):
    path = write("a.json", entities(BANK, {"text": "京城很大。", "label": label}))
    notes = Notes()
    assert list(list(read("token", path, notes=notes))[1].labels) == tags
    assert notes.sentences() == [f"{tagged.OVERLAPPING}: 1 ({path}:2)"]


@pytest.mark.parametrize(
    "label, told",
    [
        (
            {"LOC": {"京城": [[0, 0]]}},
            r"the entity '京城' \(LOC\) at \[0, 0\] is not there: the text has '京'\. .* belongs",
        ),
        ({"LOC": {"京城": [[0, 2]]}}, r"'京城' .* at \[0, 2\] is not there: the text has '京城很'"),
        (
            {"LOC": {"大": [[4, 5]]}},
            r"'大' .* at \[4, 5\] is empty or not within the text, which has 5 characters\. Places",
        ),
        ({"LOC": {"大": [[-1, -1]]}}, "not within"),
        ({"LOC": {"": [[1, 0]]}}, "is empty"),
        ({"LOC": {"京城": [0, 1]}}, r"expected entities .*\[\[0, 1\]\]\}\}, or \{\} where .* got \"\{'LOC'"),
        ({"LOC": {"京城": [["0", "1"]]}}, "expected entities"),
        ({"LOC": {"京城": [[0, 1, 2]]}}, "expected entities"),
        ({"LOC": {"京城": 0}}, "expected entities"),
        ({"LOC": ["京城"]}, "expected entities"),
        ([], r"expected entities .* got '\[\]'"),
        (None, r"expected entities .* got nothing\. Mend or remove"),
    ],
)
def test_entities_that_cannot_be_tagged_are_refused(write, label, told):
    path = write("a.json", entities(BANK, {"text": "京城很大。", "label": label}))
    with pytest.raises(DataError, match=r"a\.json:2: .*" + told):
        sentences(path)
