"""Entities out of tags: by hand, and beside seqeval's own figures."""

import pytest
import seqeval.metrics
import seqeval.scheme
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training.scoring.entities import (
    Entity,
    detect_scheme,
    entity_scores,
    find_entities,
    joined,
    score_entities,
    wrong_entities,
)


def tags(*rows):
    return [row.split() for row in rows]


def spans(row, *way):
    return [(item.start, item.end, item.type) for item in find_entities(tags(row), *way)]


@pytest.mark.parametrize(
    "row, lenient, bio",
    [
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")], [(0, 2, "PER"), (3, 4, "LOC")]),
        ("O I-PER I-PER O", [(1, 3, "PER")], []),  # an I- that follows nothing
        ("B-PER I-LOC I-LOC", [(0, 1, "PER"), (1, 3, "LOC")], [(0, 1, "PER")]),  # ... or another type
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")], [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")], [(1, 2, "PER")]),
        ("B I O", [(0, 2, "_")], [(0, 2, "_")]),
        ("B-A-B I-A-B", [(0, 2, "A-B")], [(0, 2, "A-B")]),
        ("O O", [], []),
        ("", [], []),
    ],
)
def test_lenient_and_strict(row, lenient, bio):
    assert spans(row) == lenient
    assert spans(row, "strict", "BIO") == bio


def test_strict_schemes():
    assert spans("I-PER I-PER B-PER O", "strict", "IOB1") == [(0, 2, "PER"), (2, 3, "PER")]
    assert spans("B-PER I-PER E-PER S-LOC", "strict", "BIOES") == [(0, 3, "PER"), (3, 4, "LOC")]
    assert spans("B-PER I-PER O", "strict", "BIOES") == []  # it has no end
    assert spans("B-PER I-PER O") == [(0, 2, "PER")]


def test_other_letters_for_the_same_places():
    expected = spans("B-PER I-PER E-PER S-LOC O")
    assert spans("B-PER M-PER E-PER S-LOC O") == spans("B-PER I-PER L-PER U-LOC O") == expected


def test_schemes_are_told_from_correct_tags():
    assert detect_scheme(tags("O B-PER I-PER", "B-LOC B-LOC")) == "BIO"
    assert detect_scheme(tags("O I-PER I-PER", "I-LOC B-LOC")) == "IOB1"
    assert detect_scheme(tags("O O", "B-PER M-PER E-PER")) == detect_scheme(tags("S-PER")) == "BIOES"
    assert detect_scheme(tags("O O")) == "BIO"
    with pytest.raises(ValueError, match="no single scheme: row 1 begins an entity with I-.*row 0 with B-"):
        detect_scheme(tags("O B-PER", "I-PER O"))


def test_scores_by_hand():
    labels = tags("B-PER I-PER O B-LOC", "B-LOC I-LOC O O", "O O")
    given = tags("B-PER I-PER O B-PER", "B-LOC O O O", "O B-ORG")
    # One right, of 3 there and 4 found.
    assert score_entities(labels, given) == {
        "precision": 1 / 4,
        "recall": 1 / 3,
        "f1": 2 / 7,
        "f1_LOC": 0.0,
        "f1_ORG": 0.0,
        "f1_PER": 2 / 3,
    }
    table = entity_scores(labels, given)
    assert [(one.type, one.support, one.predicted) for one in table] == [
        ("LOC", 2, 1),
        ("ORG", 0, 1),
        ("PER", 1, 2),
        ("", 3, 4),
    ]
    assert score_entities(tags("O"), tags("O")) == {"precision": 0, "recall": 0, "f1": 0}


def test_an_entity_counts_in_its_own_row_alone():
    assert score_entities(tags("B-PER", "O"), tags("O", "B-PER"))["f1"] == 0
    # Two rows that meet in one type are two entities.
    assert [(item.row, item.end) for item in find_entities(tags("B-PER", "I-PER"))] == [(0, 1), (1, 1)]


LETTERS = {"BIO": "BI", "IOB1": "BI", "BIOES": "BIES"}
SCHEMES = {"BIO": seqeval.scheme.IOB2, "IOB1": seqeval.scheme.IOB1, "BIOES": seqeval.scheme.IOBES}


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(sorted(LETTERS)))
def test_as_seqeval_has_it(data, scheme):
    tag = st.sampled_from(["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in ("PER", "LOC"))])
    rows = data.draw(st.lists(st.lists(st.tuples(tag, tag), min_size=1, max_size=8), min_size=1, max_size=4))
    labels, given_ = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    figures = {
        "precision": seqeval.metrics.precision_score,
        "recall": seqeval.metrics.recall_score,
        "f1": seqeval.metrics.f1_score,
    }
    lenient = score_entities(labels, given_)
    strict = score_entities(labels, given_, "strict", scheme)
    for name, figure in figures.items():
        # The same counts, with F1 by another formula.
        assert lenient[name] == pytest.approx(figure(labels, given_, zero_division=0), abs=1e-12)
        expected = figure(labels, given_, mode="strict", scheme=SCHEMES[scheme], zero_division=0)
        assert strict[name] == pytest.approx(expected, abs=1e-12)


def test_strict_takes_the_scheme_of_the_labels():
    labels, given_ = tags("B-PER I-PER"), tags("I-PER I-PER")
    assert score_entities(labels, given_)["f1"] == 1
    assert score_entities(labels, given_, "strict")["f1"] == 0
    assert score_entities(tags("I-PER I-PER"), tags("I-PER I-PER"), "strict")["f1"] == 1


def test_wrong_entities_have_their_text_and_kind():
    tokens = [list("张三在北京大学"), ["用", "iPhone", "6", "手", "机"], ["好"]]
    labels = tags("B-PER I-PER O B-ORG I-ORG I-ORG I-ORG", "O B-X I-X I-X I-X", "O")
    given_ = tags("B-LOC I-LOC O B-LOC I-LOC O O", "O O O O O", "B-X")
    wrong = wrong_entities(tokens, labels, given_)
    assert [(one.row, one.kind, one.label_text, one.prediction_text) for one in wrong] == [
        (0, "type", "张三", "张三"),
        (0, "ends", "北京大学", "北京"),
        (1, "missed", "iPhone 6手机", ""),
        (2, "invented", "", "好"),
    ]
    assert wrong[1].label == Entity(0, 3, 7, "ORG") and wrong[1].prediction == Entity(0, 3, 5, "LOC")
    assert wrong[2].prediction is None and wrong[3].label is None
    assert wrong_entities(tokens, labels, labels) == []


def test_each_wrong_entity_is_told_once():
    # One found over two there: the first takes it, the second is missed.
    wrong = wrong_entities([list("甲乙丙丁")], tags("B-A I-A B-A I-A"), tags("B-A I-A I-A I-A"))
    assert [(one.kind, one.label_text) for one in wrong] == [("ends", "甲乙"), ("missed", "丙丁")]


def test_tokens_are_put_together_as_they_are_read():
    assert joined(["New", "York", "市", "2", "号"]) == "New York市2号" and joined([]) == ""


@pytest.mark.parametrize(
    "labels, given_, message",
    [
        ([], [], "nothing to score"),
        (tags("O"), tags("O", "O"), "as many rows as each other, but have 1, 2"),
        (tags("O", "O O"), tags("O", "O"), "row 1 has 2 and 1; tokens cut off at the longest length need a tag"),
        (tags("O PER"), tags("O O"), "token 1 of row 0 has 'PER'"),
        (tags("O B-"), tags("O O"), "token 1 of row 0 has 'B-'"),
        (tags("O O-PER"), tags("O O"), "has 'O-PER'"),
        ([["O", ""]], tags("O O"), "has ''"),
    ],
)
def test_what_cannot_be_scored_is_refused(labels, given_, message):
    with pytest.raises(ValueError, match=message):
        score_entities(labels, given_)


def test_modes_and_schemes_are_checked():
    with pytest.raises(ValueError, match="mode must be lenient, or strict with a scheme.*'strict' with None"):
        find_entities(tags("O"), "strict")
    with pytest.raises(ValueError, match="got 'conll' with 'BIO'"):
        find_entities(tags("O"), "conll", "BIO")
    with pytest.raises(ValueError, match="BIO has tags O, B- and I- alone, but row 1 has 'E-PER': is it BIOES"):
        find_entities(tags("O", "E-PER"), "strict", "BIO")
