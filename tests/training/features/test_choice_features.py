"""A row for each choice, with the same part of the context in all of them."""

import pytest

from paddle_nezha.training import best_choices, choice_features
from paddle_nezha.training.data.records import ChoiceRecord, DataError


def record(context="一二三四五六", question="谁？", choices=("甲", "乙丙"), label=None, line=1):
    return ChoiceRecord("q1", context, question, choices, label, "c3.json", line)


def rows(tokenizer, shown, *records, **options):
    features, report = choice_features(records, tokenizer, **{"max_length": 32, **options})
    return [[shown(row) for row in feature["input_ids"]] for feature in features], report


def test_both_styles(tokenizer, shown):
    assert rows(tokenizer, shown, record())[0] == [
        ["[CLS] 一 二 三 四 五 六 谁 ？ [SEP] 甲 [SEP]", "[CLS] 一 二 三 四 五 六 谁 ？ [SEP] 乙 丙 [SEP]"]
    ]
    assert rows(tokenizer, shown, record("一二"), style="c3")[0] == [
        ["[CLS] 一 二 [SEP] 谁 ？ [SEP] 甲 [SEP]", "[CLS] 一 二 [SEP] 谁 ？ [SEP] 乙 丙 [SEP]"]
    ]
    types = [
        choice_features([record("一二")], tokenizer, max_length=32, style=style)[0][0]["token_type_ids"][0]
        for style in ("pair", "c3")
    ]
    assert types == [[0] * 6 + [1] * 2, [0] * 4 + [1] * 5]


def test_all_rows_keep_the_same_part_of_a_long_context(tokenizer, shown):
    found, report = rows(tokenizer, shown, record(), max_length=10)
    assert found == [["[CLS] 一 二 三 谁 ？ [SEP] 甲 [SEP]", "[CLS] 一 二 三 谁 ？ [SEP] 乙 丙 [SEP]"]]
    assert (report.cut_records, report.cut_tokens, report.cut_questions) == (1, 3, 0)
    found, _ = rows(tokenizer, shown, record(), max_length=10, cut_context="front")
    assert found == [["[CLS] 四 五 六 谁 ？ [SEP] 甲 [SEP]", "[CLS] 四 五 六 谁 ？ [SEP] 乙 丙 [SEP]"]]
    found, _ = rows(tokenizer, shown, record(), max_length=7, cut_context="front")
    assert found[0][1] == "[CLS] 谁 ？ [SEP] 乙 丙 [SEP]"


@pytest.mark.parametrize("style", ["pair", "c3"])
@pytest.mark.parametrize("cut", ["back", "front"])
@pytest.mark.parametrize("max_length", range(7, 40, 3))
def test_no_row_is_too_long(tokenizer, style, cut, max_length):
    one = record("一二三" * 5, "谁在哪里？" * 3, ("甲" * 20, "", "乙"))
    (feature,), report = choice_features([one], tokenizer, max_length=max_length, style=style, cut_context=cut)
    lengths = [len(row) for row in feature["input_ids"]]
    assert max(lengths) <= max_length
    whole = 15 + 15 + 21
    special = 3 if style == "pair" else 4
    shared = lengths[1] - special
    assert report.cut_tokens == whole - shared - (lengths[0] - special - shared) - (lengths[2] - special - shared)


def test_fewer_choices_are_filled_up_and_never_chosen(tokenizer, shown):
    records = [record("一", choices=("甲", "乙", "丙"), label=2), record("二", choices=("甲",), label=0)]
    found, report = rows(tokenizer, shown, *records)
    assert found[1] == ["[CLS] 二 谁 ？ [SEP] 甲 [SEP]"] + ["[CLS] 二 谁 ？ [SEP] [SEP]"] * 2
    assert report.added_choices == 2
    assert best_choices(records, [[1, 5, 2], [1, 5, 2]]) == [1, 0]
    features, _ = choice_features(records, tokenizer, max_length=32)
    assert [f["labels"] for f in features] == [2, 0]


@pytest.mark.parametrize(
    "one, options, message",
    [
        (record(choices=(), line=3), {}, "c3.json, line 3: the record must have 1 to 1 choices, but has 0"),
        (record(line=3), {"num_choices": 1}, "c3.json, line 3: the record must have 1 to 1 choices, but has 2"),
        (record(label=2, line=3), {}, "c3.json, line 3: the label must be one of the choices 0 to 1, but is 2"),
        (record(), {"style": "race"}, "style must be one of pair, c3, but got 'race'"),
        (record(), {"cut_context": "middle"}, "cut_context must be one of back, front, but got 'middle'"),
        (record(), {"max_length": 5}, "max_length must be a whole number of at least 6"),
    ],
)
def test_mistakes(tokenizer, one, options, message):
    with pytest.raises(ValueError, match=message):
        choice_features([one], tokenizer, **{"max_length": 32, **options})
    with pytest.raises(DataError, match="line 1: the record has no label, unlike"):
        choice_features([record(label=1), record()], tokenizer, max_length=32)
