"""EM and F1 of answers, held against figures worked out by hand from the two definitions."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training.scoring.spans import score_answer, score_spans, segments

TEXTS = st.text("苹果手机iphone 6６。，-.?", max_size=12)


@dataclass
class Question:
    answers: tuple


# Answers given, the predicted one, EM, and F1 as 2 * common / (segments of both).
BY_HAND = {
    "equal": (["北京大学"], "北京大学", 1, Fraction(1)),
    "part": (["北京大学"], "北京", 0, Fraction(2 * 2, 4 + 2)),
    "more": (["北京"], "在北京大学", 0, Fraction(2 * 2, 2 + 5)),
    "nothing in common": (["北京"], "上海", 0, Fraction(0)),
    # A substring: of 北京...大学 only one of the two runs counts, though all four characters are there.
    "run, not bag": (["北京大学"], "北京的大学", 0, Fraction(2 * 2, 4 + 5)),
    "order counts": (["大学北京"], "北京大学", 0, Fraction(2 * 2, 4 + 4)),
    "marks are removed": (["《红楼梦》"], "红楼梦。", 1, Fraction(1)),
    "case": (["BERT模型"], "bert模型", 1, Fraction(1)),
    # iphone6 | 手 | 机 against 手 | 机
    "mixed": (["iPhone6手机"], "手机", 0, Fraction(2 * 2, 3 + 2)),
    # iphone6 is one word, which iphone is not: 手 | 机 is the run
    "Latin word whole": (["iPhone6手机"], "iPhone手机", 0, Fraction(2 * 2, 3 + 3)),
    # the | beatles | 乐 | 队 against beatles | 乐 | 队
    "Latin words": (["The Beatles乐队"], "Beatles乐队", 0, Fraction(2 * 3, 4 + 3)),
    # Spaces do not count for F1, and do for EM.
    "spaces": (["3 月 5 日"], "3月5日", 0, Fraction(1)),
    "spaces around": (["三月"], "  三月 ", 1, Fraction(1)),
    # Not made half-width: ２０１８ | 年 against 2018 | 年
    "full-width digits": (["2018年"], "２０１８年", 0, Fraction(2 * 1, 2 + 2)),
    "full-width letters": (["ＡＢＣ公司"], "ａｂｃ公司", 1, Fraction(1)),
    # A removed mark does not end a word: wi-fi is wifi
    "hyphen": (["Wi-Fi"], "wifi", 1, Fraction(1)),
    # , ( and ) stay; , is a segment
    "ASCII comma": (["张三,李四"], "张三李四", 0, Fraction(2 * 2, 5 + 4)),
    # 3.5 | 亿 | 元 against 3 | 亿 | 元
    "decimal point": (["3.5亿元"], "3亿元", 0, Fraction(2 * 2, 3 + 3)),
    # 100 | % against 100
    "per cent": (["100%"], "100", 0, Fraction(2 * 1, 2 + 1)),
    # The lone ellipsis is no removed mark: 等 | … against 等
    "ellipsis": (["等…"], "等", 0, Fraction(2 * 1, 2 + 1)),
    # Both are empty once removed: equal, and no segment in common.
    "marks alone": (["。"], "！", 1, Fraction(0)),
    "empty": (["北京"], "", 0, Fraction(0)),
    "blank": (["北京"], " ", 0, Fraction(0)),
    "best of three": (["北京", "北京大学", "大学"], "北京大", 0, Fraction(2 * 3, 4 + 3)),
    "EM of one, F1 of it": (["上海", "北京市"], "北京市", 1, Fraction(1)),
    # Kana are no Chinese characters here: one word
    "kana": (["のび太"], "のび", 0, Fraction(2 * 1, 2 + 1)),
    "no answer, none given": ([], "", 1, Fraction(1)),
    "no answer, one given": ([], "北京", 0, Fraction(0)),
}

SQUAD = {
    "articles": (["The Norman dynasty"], "norman dynasty", 1, Fraction(1)),
    "marks": (["U.S. Army!"], "us army", 1, Fraction(1)),
    # bag: in | 1066 | ad against 1066 | in
    "bag of words": (["in 1066 AD"], "1066 in", 0, Fraction(2 * 2, 3 + 2)),
    "twice": (["new new york"], "new york york", 0, Fraction(2 * 2, 3 + 3)),
    "article alone": (["the"], "a", 1, Fraction(1)),
    "empty": (["Rome"], "", 0, Fraction(0)),
    "Chinese is one word": (["北京大学"], "北京", 0, Fraction(0)),
    "no answer, none given": ([], "", 1, Fraction(1)),
    "no answer, one given": ([], "Rome", 0, Fraction(0)),
}


@pytest.mark.parametrize(
    "definition, case",
    [("cmrc", case) for case in BY_HAND.values()] + [("squad", case) for case in SQUAD.values()],
    ids=[f"cmrc {name}" for name in BY_HAND] + [f"squad {name}" for name in SQUAD],
)
def test_by_hand(definition, case):
    answers, predicted, em, f1 = case
    score = score_answer(answers, predicted, definition)
    assert (score.em, score.f1) == (em, float(f1))


def test_segments_are_chinese_characters_and_latin_words():
    assert segments("iPhone6手机，A-b 1,000.5元 U.S.A") == ["iphone6", "手", "机", "ab", "1,000.5", "元", "u.s.a"]
    assert segments("（x+y）=z?") == ["xyz", "?"]
    assert segments("a.b. c,d 1, 2") == ["a.b", ".", "c", ",", "d", "1", ",", "2"]
    assert segments("——……「」") == ["—", "—", "…", "…"]
    assert segments("don't") == ["don", "'", "t"]


def test_a_file_is_the_mean_of_its_questions():
    records = [Question(tuple((0, text) for text in answers)) for answers, *_ in BY_HAND.values() if answers]
    cases = [case for case in BY_HAND.values() if case[0]]
    score = score_spans(records, [case[1] for case in cases])
    assert set(score) == {"em", "f1"}
    assert score["em"] == pytest.approx(sum(case[2] for case in cases) / len(cases), abs=1e-12)
    assert score["f1"] == pytest.approx(float(sum(case[3] for case in cases) / len(cases)), abs=1e-12)


def test_questions_without_an_answer_are_told_apart():
    records = [Question(((0, "北京"),)), Question(()), Question(())]
    assert score_spans(records, ["北", "", "上海"]) == {
        "em": 1 / 3,
        "f1": pytest.approx((2 / 3 + 1) / 3, abs=1e-12),
        "no_answer_accuracy": 0.5,
        "answered_em": 0.0,
        "answered_f1": 2 / 3,
    }
    assert score_spans(records[1:], ["", ""]) == {"em": 1.0, "f1": 1.0, "no_answer_accuracy": 1.0}


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="no questions came"):
        score_spans([], [])
    with pytest.raises(ValueError, match="an answer for each of 1 questions, but got 2"):
        score_spans([Question(())], ["", ""])
    with pytest.raises(ValueError, match="definition must be cmrc or squad, but got 'drcd'"):
        score_answer(["x"], "x", "drcd")


@settings(deadline=None)
@given(TEXTS, TEXTS, st.sampled_from(["cmrc", "squad"]))
def test_f1_is_symmetric_and_at_most_1_and_an_answer_is_its_own(one, other, definition):
    forth, back = score_answer([one], other, definition), score_answer([other], one, definition)
    assert forth == back and 0 <= forth.f1 <= 1
    itself = score_answer([one], one, definition)
    assert itself.em == 1 and itself.f1 == (1 if definition == "squad" or segments(one) else 0)
    assert score_answer([one, other], other, definition).em == 1
