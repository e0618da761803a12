"""Contexts to windows and scores back to text: where answers stand, which windows teach what, the best span."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training import best_spans, span_features
from paddle_nezha.training.data.records import SpanRecord

CONTEXT = "一二三四五六七八九十甲乙丙丁"


def record(context, *answers, question="谁？", line=1):
    return SpanRecord("q1", question, context, answers, "train.json", line)


def make(tokenizer, *records, **options):
    return span_features(records, tokenizer, **{"max_length": 32, "stride": 4, **options})


def labelled(feature, context):
    """The text between the labelled positions; None at [CLS], "ignored" where there is none."""
    start, end = feature["start_positions"], feature["end_positions"]
    if start == end == -100:
        return "ignored"
    if start == end == 0:
        return None
    return context[feature["offset_mapping"][start][0] : feature["offset_mapping"][end][1]]


@given(
    st.text(alphabet="今天 早playing20\u200b，", max_size=40),
    st.integers(8, 30),
    st.integers(0, 40),
    st.integers(1, 12),
    st.booleans(),
    st.data(),
)
@settings(deadline=None, max_examples=150)
def test_windows_are_those_of_the_tokenizer_and_labels_spell_the_answer(
    tokenizer, context, max_length, start, size, is_hf, data
):
    question = "谁？"
    answer = context[start : start + size]
    room = max_length - 3 - 2
    stride = data.draw(st.integers(0, room - 2))
    how = {"stride": stride} if is_hf else {"doc_stride": stride + 1}
    one = record(context, *([(start, answer)] if answer.strip(" \u200b") else []), question=question)
    features, report = make(
        tokenizer, one, max_length=max_length, stride=how.get("stride"), doc_stride=how.get("doc_stride")
    )
    truth = tokenizer(
        [question], [context], truncation="only_second", max_length=max_length, return_offsets_mapping=True,
        return_overflowing_tokens=is_hf, stride=stride if is_hf else stride + 1,
    )  # fmt: skip
    assert [f["input_ids"] for f in features] == truth["input_ids"]
    assert [f["token_type_ids"] for f in features] == truth["token_type_ids"]
    for feature, offsets in zip(features, truth["offset_mapping"]):
        known = feature["offset_mapping"]
        assert [offset for offset in known if offset] == offsets[4:-1]
        assert known[:4] == [None] * 4 and known[-1] is None
    texts = [labelled(feature, context) for feature in features]
    if not one.answers:
        assert set(texts) == {None} and report.unanswered == 1
    elif report.lost_answers:
        assert set(texts) == {"ignored"}
    else:
        spans = set(texts) - {None, "ignored"}
        assert len(spans) <= 1 and all(answer.strip(" \u200b") in span for span in spans)
        assert bool(spans) != bool(report.divided_answers) and ("ignored" in texts) == bool(report.divided_answers)
        if not report.inexact_answers:
            assert spans <= {answer.strip()}


def test_an_answer_off_its_stated_start_is_found_nearest(tokenizer):
    context = "北京一二三北京四北京"
    for stated, expected, moved in ((0, 0, 0), (5, 5, 0), (4, 5, 1), (3, 5, 1), (2, 0, 1), (99, 8, 1), (-1, 0, 1)):
        (feature,), report = make(tokenizer, record(context, (stated, "北京")))
        assert labelled(feature, context) == "北京"
        assert feature["offset_mapping"][feature["start_positions"]][0] == expected
        assert (report.moved_answers, report.lost_answers) == (moved, 0)
    # One that stands where it is stated wins over an earlier one that does not.
    (feature,), report = make(tokenizer, record(context, (1, "四"), (8, "北京")))
    assert feature["offset_mapping"][feature["start_positions"]][0] == 8 and report.moved_answers == 0
    (feature,), report = make(tokenizer, record("今天一二", (0, " 一二 ")))
    assert labelled(feature, "今天一二") == "一二" and report.moved_answers == 1


def test_lost_answers_are_counted_and_teach_nothing(tokenizer):
    records = [record("今天", (0, "明"), line=n) for n in range(1, 13)] + [
        record("今天", (0, " ")),
        record("今", (0, "今")),
    ]
    features, report = make(tokenizer, *records)
    assert [labelled(f, "今天") for f in features] == ["ignored"] * 13 + ["今"]
    assert report.lost_answers == 13 and len(report.lost_at) == 10
    assert report.lost_at[0] == "train.json, line 1 (q1)" and "13 records have no answer that stands" in str(report)


def test_answers_at_the_edge_of_windows(tokenizer):
    # Windows hold 6 tokens of the context and share 2.
    def texts(start, size):
        one = record(CONTEXT, (start, CONTEXT[start : start + size]))
        features, report = make(tokenizer, one, max_length=11, stride=2, max_question_length=2)
        assert len(features) == 3 and report.split_records == 1
        return [labelled(f, CONTEXT) for f in features], report.divided_answers

    assert texts(4, 2) == (["五六", "五六", None], 0)  # in both
    assert texts(5, 2) == ([None, "六七", None], 0)  # the first holds a part of it
    assert texts(3, 4) == (["ignored", "ignored", None], 1)  # nowhere whole
    assert texts(0, 6) == (["一二三四五六", None, None], 0)


def test_answers_within_a_token_are_counted(tokenizer):
    (feature,), report = make(tokenizer, record("2018年", (1, "018年")))
    assert labelled(feature, "2018年") == "2018年" and report.inexact_answers == 1


def test_a_long_question_is_cut(tokenizer, shown):
    features, report = make(tokenizer, record("北京", question="一二三四五六七八九十"), max_question_length=3)
    assert shown(features[0]["input_ids"]) == "[CLS] 一 二 三 [SEP] 北 京 [SEP]" and report.cut_questions == 1
    features, _ = make(tokenizer, record("北京", question="一二三四五六七八九十"), max_length=6, stride=0)
    assert [shown(f["input_ids"]) for f in features] == ["[CLS] 一 二 [SEP] 北 [SEP]", "[CLS] 一 二 [SEP] 京 [SEP]"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"doc_stride": 4}, "stride=4 and doc_stride=4 both say"),
        ({"stride": -1}, "stride must be a whole number of at least 0, but got -1"),
        ({"stride": None, "doc_stride": 0}, "doc_stride must be a whole number of at least 1"),
        ({"stride": None}, "at least 133, room for a token of the question and 129 of the context"),
        ({"max_length": 8}, "max_length must be a whole number of at least 9"),
        ({"max_length": 4, "stride": 0}, "max_length must be a whole number of at least 5"),
    ],
)
def test_mistakes(tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        make(tokenizer, record("北京"), **options)


# ---- from scores to answers


def by_loops(records, features, starts, ends, longest):
    """The best span and no-answer score of each record, by trying all."""
    found = []
    for number in range(len(records)):
        best, none = {}, []
        for feature, start, end in zip(features, starts, ends):
            if feature["record"] != number:
                continue
            none.append(start[0] + end[0])
            offsets = feature["offset_mapping"]
            for i, j in itertools.product(range(len(offsets)), repeat=2):
                if offsets[i] and offsets[j] and i <= j < i + longest:
                    key = (offsets[i][0], offsets[j][1])
                    best[key] = max(best.get(key, -np.inf), start[i] + end[j])
        found.append((sorted(best.items(), key=lambda item: (-item[1], item[0])), min(none)))
    return found


@pytest.mark.parametrize("longest, n_best", [(1, 5), (3, 20), (200, 2)])
def test_the_best_span_of_all_windows(tokenizer, rng, longest, n_best):
    records = [record(CONTEXT), record("今天 playinger 很好"), record(""), record(CONTEXT[:3])]
    features, _ = make(tokenizer, *records, max_length=11, stride=2, max_question_length=2)
    # Whole numbers: many scores are equal, and sums are exact. Padded rows are longer than their features.
    starts, ends = rng.integers(-3, 4, [2, len(features), 16]).astype("float32")
    answers = best_spans(records, features, starts, ends, max_answer_length=longest, n_best=n_best)
    for one, answer, (best, none) in zip(records, answers, by_loops(records, features, starts, ends, longest)):
        assert answer.no_answer_score == none
        # Of equal scores a window keeps the earliest starts, so that its part of the whole order is kept.
        assert [c.score for c in answer.candidates] == [score for _, score in best[:n_best]]
        assert all(c.text == one.context[c.start : c.end] for c in answer.candidates)
        assert len({(c.start, c.end) for c in answer.candidates}) == len(answer.candidates)
        assert answer.text == (one.context[slice(*best[0][0])] if best else "")


def test_labels_as_scores_give_the_answers_back(tokenizer):
    records = [record(CONTEXT, (5, "六七")), record("今天去北京大学", (3, "北京")), record("今天")]
    features, _ = make(tokenizer, *records, max_length=11, stride=2, max_question_length=2)
    starts, ends = (
        [np.eye(11)[feature[name]] * 9 for feature in features] for name in ("start_positions", "end_positions")
    )
    answers = best_spans(records, features, starts, ends, max_answer_length=8, no_answer_threshold=0.0)
    assert [answer.text for answer in answers] == ["六七", "北京", ""]
    always = best_spans(records, features, starts, ends, max_answer_length=8)
    assert always[2].text != "" and always[2].no_answer_score == 18


def test_answers_need_all_scores(tokenizer):
    records = [record("今天"), record("北京", line=2)]
    features, _ = make(tokenizer, *records)
    scores = np.zeros([2, 16])
    with pytest.raises(ValueError, match="train.json, line 2: the record has no feature"):
        best_spans(records, features[:1], scores, scores, max_answer_length=8)
    with pytest.raises(ValueError, match="A feature of 7 tokens needs as many start and end scores, but got 5"):
        best_spans(records, features, scores[:, :5], scores, max_answer_length=8)
    with pytest.raises(ValueError, match="max_answer_length must be a whole number of at least 1"):
        best_spans(records, features, scores, scores, max_answer_length=0)
