"""Span questions in the layouts of SQuAD, CMRC 2018 and DRCD, and choices in that of C3."""

import copy
import json

import pytest

from paddle_nezha.training.data.notes import Notes
from paddle_nezha.training.data.readers import read
from paddle_nezha.training.data.records import ChoiceRecord, DataError, SpanRecord

CONTEXT = "范廷颂是越南罗马天主教枢机。1963年被任为主教。"
SQUAD = {
    "version": "v1.0",
    "data": [
        {
            "title": "范廷颂",
            "paragraphs": [
                {
                    "id": "DEV_0",
                    "context": CONTEXT,
                    "qas": [
                        {
                            "question": "何时被任为主教？",
                            "id": "Q0",
                            "answers": [{"text": "1963年", "answer_start": 14}],
                        },
                        {"question": "他是谁？", "id": "Q1", "answers": [{"text": "枢机", "answer_start": 0}]},
                        {
                            "question": "他几岁？",
                            "id": 2,
                            "is_impossible": True,
                            "answers": [],
                            "plausible_answers": [{"text": "1963年", "answer_start": 14}],
                        },
                    ],
                }
            ],
        }
    ],
}
CMRC = [
    {
        "context_id": "DEV_0",
        "context_text": CONTEXT,
        "qas": [{"query_id": "Q0", "query_text": "何时被任为主教？", "answers": ["1963年", "一九六三年", ""]}],
        "title": "范廷颂",
    }
]
C3 = [
    [
        ["女：您看我该报什么班？", "男：先做个测试。"],
        [
            {"question": "女的要做什么？", "choice": ["买书", "报班"], "answer": "报班"},
            {"question": "男的是谁？", "choice": ["老师", "学生", "医生"], "answer": "老师"},
        ],
        "1-140",
    ],
    [["一段文章。"], [{"question": "说了什么？", "choice": ["好", "坏"], "id": 7}], "2"],
]


def dumped(content, **options):
    return json.dumps(content, ensure_ascii=False, **options)


def changed(content, change):
    content = copy.deepcopy(content)
    change(content)
    return content


def test_squad_keeps_starts_as_they_are_and_counts_those_that_are_off(write):
    path = write("dev.json", dumped(SQUAD))
    notes = Notes()
    assert list(read("span", path, notes=notes)) == [
        SpanRecord("Q0", "何时被任为主教？", CONTEXT, ((14, "1963年"),), str(path), 1),
        SpanRecord("Q1", "他是谁？", CONTEXT, ((0, "枢机"),), str(path), 1),
        SpanRecord("2", "他几岁？", CONTEXT, (), str(path), 1),
    ]
    assert notes.counts == {"answers that do not stand at their start": 1}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_every_question_has_its_line(write, ascii_only):
    path = write("dev.json", json.dumps(SQUAD, indent=2, ensure_ascii=ascii_only))
    lines = path.read_text(encoding="utf-8").splitlines()
    for record in read("span", path):
        assert json.loads("{" + lines[record.line - 1].rstrip(",") + "}") == {"question": record.question}


def test_the_same_question_twice_has_two_lines(write):
    twice = changed(SQUAD, lambda content: content["data"].append(copy.deepcopy(content["data"][0])))
    lines = [record.line for record in read("span", write("dev.json", dumped(twice, indent=1)))]
    assert lines == sorted(set(lines))


def test_drcd_and_test_files_without_answers(write):
    def as_test(content):
        for question in content["data"][0]["paragraphs"][0]["qas"]:
            del question["answers"], question["id"]

    found = list(read("span", write("test.json", dumped(changed(SQUAD, as_test)))))
    assert [record.answers for record in found] == [(), (), ()]
    assert len({record.id for record in found}) == 3


def test_a_question_said_to_be_impossible_has_no_answers(write):
    def impossible(content):
        first_paragraph(content)["qas"][0]["is_impossible"] = True

    assert next(read("span", write("dev.json", dumped(changed(SQUAD, impossible))))).answers == ()


def test_a_start_from_behind_is_off(write):
    def from_behind(content):
        first_paragraph(content)["qas"][0]["answers"][0].update(text=CONTEXT[-3:-1], answer_start=-3)

    notes = Notes()
    record = next(read("span", write("dev.json", dumped(changed(SQUAD, from_behind))), notes=notes))
    assert record.answers == ((-3, "主教"),)
    assert notes.counts == {"answers that do not stand at their start": 1}


def test_the_older_cmrc_list_states_no_starts(write):
    path = write("dev.json", dumped(CMRC))
    notes = Notes()
    (record,) = read("span", path, notes=notes)
    assert record == SpanRecord("Q0", "何时被任为主教？", CONTEXT, ((14, "1963年"), (-1, "一九六三年")), str(path), 1)
    assert notes.counts == {"answers that do not stand in their text at all": 1, "answers without text, dropped": 1}


def test_rows_with_questions(write):
    row = {"id": "Q0", "context": CONTEXT, "question": "何时？", "answers": {"text": ["1963年"], "answer_start": [14]}}
    (record,) = read("span", write("a.jsonl", dumped(row)))
    assert (record.id, record.answers) == ("Q0", ((14, "1963年"),))
    (record,) = read("span", write("a.jsonl", dumped({**row, "answers": ["枢机"]})))
    assert record.answers == ((11, "枢机"),)
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected answers with text and answer_start"):
        list(read("span", write("a.jsonl", dumped({**row, "answers": {"text": ["1963年"], "answer_start": []}}))))


def first_paragraph(content):
    return content["data"][0]["paragraphs"][0]


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda c: c["data"].append(3), r'\(data\[1\]\): expected an object with a list under "paragraphs", got 3'),
        (lambda c: first_paragraph(c).pop("context"), r'\(data\[0\]\.paragraphs\[0\]\): .*text under "context"'),
        (lambda c: first_paragraph(c)["qas"][1].pop("question"), r'qas\[1\]\): .*text under "question"'),
        (
            lambda c: first_paragraph(c)["qas"][1].update(answers=[{"text": "枢机"}]),
            r"qas\[1\]\.answers\): expected a list of texts, each with its answer_start.*Mend",
        ),
    ],
)
def test_entries_that_are_no_squad_are_refused_with_their_place(write, change, told):
    with pytest.raises(DataError, match=r"dev\.json:\d+ .*" + told):
        list(read("span", write("dev.json", dumped(changed(SQUAD, change), indent=1))))


def test_a_document_cut_short_is_refused_with_the_line(write):
    text = dumped(SQUAD, indent=1)
    with pytest.raises(DataError, match=r"dev\.json:\d\d: expected JSON.*Is the file whole"):
        list(read("span", write("dev.json", text[:-40])))
    with pytest.raises(DataError, match="nested too deep"):
        list(read("span", write("dev.json", '{"data": ' + "[" * 100_000)))


def test_c3(write):
    path = write("c3-d-train.json", dumped(C3, indent=1))
    found = list(read("choice", path))
    assert found[0] == ChoiceRecord(
        "1-140-0",
        "女：您看我该报什么班？\n男：先做个测试。",
        "女的要做什么？",
        ("买书", "报班"),
        1,
        str(path),
        found[0].line,
    )
    assert [(record.id, record.label, len(record.choices)) for record in found] == [
        ("1-140-0", 1, 2),
        ("1-140-1", 0, 3),
        ("7", None, 2),
    ]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(record.question in lines[record.line - 1] for record in found)


@pytest.mark.parametrize(
    "change, told",
    [
        (
            lambda c: c[0][1][0].update(answer="学琴"),
            r'\(\[0\]\[1\]\[0\]\.answer\): expected one of the choices, got "学琴"',
        ),
        (lambda c: c[0][1][0].update(choice=["报班"]), r"\(\[0\]\[1\]\[0\]\.choice\): expected a list of two"),
        (lambda c: c[1].pop(0), r"\(\[1\]\): expected a list of lines, a list of questions and an id"),
        (lambda c: c[1][1][0].pop("question"), r'\(\[1\]\[1\]\[0\]\): .*"question"'),
    ],
)
def test_entries_that_are_no_c3_are_refused_with_their_place(write, change, told):
    with pytest.raises(DataError, match=r"c3\.json:\d+ " + told):
        list(read("choice", write("c3.json", dumped(changed(C3, change), indent=1))))


def test_notes_name_the_part_of_a_document(write):
    content = copy.deepcopy(SQUAD)
    questions = content["data"][0]["paragraphs"][0]["qas"]
    questions.append({**questions[0], "answers": [{"text": "中国", "answer_start": 0}]})
    path, notes = write("dev.json", dumped(content)), Notes()
    list(read("span", path, notes=notes))
    assert notes.sentences() == [
        f"answers that do not stand at their start: 1 ({path}:1 (data[0].paragraphs[0].qas[1]))",
        f"answers that do not stand in their text at all: 1 ({path}:1 (data[0].paragraphs[0].qas[3]))",
        f"questions whose id an earlier one has: 1 ({path}:1 (data[0].paragraphs[0].qas[3]))",
    ]


def test_rows_with_one_id_are_noted(write):
    row = {"context": CONTEXT, "question": "何时？", "answers": [], "id": 7}
    path, notes = write("a.jsonl", dumped(row) + "\n" + dumped(row)), Notes()
    assert [record.id for record in read("span", path, notes=notes)] == ["7", "7"]
    assert notes.sentences() == [f"questions whose id an earlier one has: 1 ({path}:2)"]


def test_rows_with_choices(write):
    row = {"context": "一段文章。", "question": "说了什么？", "choices": ["好", "坏"], "answer": "坏"}
    path = write("a.jsonl", dumped(row))
    assert list(read("choice", path)) == [ChoiceRecord("1", "一段文章。", "说了什么？", ("好", "坏"), 1, str(path), 1)]
    for right in (0, 0.0):
        (record,) = read("choice", write("a.jsonl", dumped({**row, "answer": right})))
        assert record.label == 0 and type(record.label) is int
    for wrong in (2, -1, True, "中", 0.5, float("nan")):
        with pytest.raises(DataError, match=r"a\.jsonl:1: expected the text of a choice, or its index from 0 to 1"):
            list(read("choice", write("a.jsonl", dumped({**row, "answer": wrong}))))
