"""Words to windows of pieces and back: no word is lost, each is labelled once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training import token_features, word_tags
from paddle_nezha.training.data.records import DataError, TokenRecord

NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "S-X", "NN"]
WORDS = ["今", "天", "helloworld", "playinger", "aaaaaaa", "\u200b", "　", "好", "中"]


def record(tokens, labels=None, line=1):
    return TokenRecord(tuple(tokens), None if labels is None else tuple(labels), "train.bio", line)


def make(tokenizer, records, **options):
    return token_features(records, tokenizer, **{"max_length": 16, "label_names": NAMES, **options})


sentences = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(NAMES)), max_size=25)


@given(st.lists(sentences, min_size=1, max_size=4), st.integers(3, 14), st.data())
@settings(deadline=None, max_examples=150)
def test_every_word_is_labelled_once_and_comes_back(tokenizer, sentences, max_length, data):
    stride = data.draw(st.integers(0, max_length - 3))
    continued = data.draw(st.sampled_from(["ignore", "inside"]))
    records = [record([word for word, _ in s], [tag for _, tag in s]) for s in sentences]
    features, report = make(tokenizer, records, max_length=max_length, stride=stride, continued=continued)
    assert max(len(f["input_ids"]) for f in features) <= max_length
    for feature in features:
        assert len({len(feature[name]) for name in ("input_ids", "token_type_ids", "word_ids", "labels")}) == 1
        assert feature["labels"][0] == feature["labels"][-1] == -100
        assert feature["word_ids"][0] is feature["word_ids"][-1] is None
        assert all(label == -100 for label, word in zip(feature["labels"], feature["word_ids"]) if word is None)
    for number, one in enumerate(records):
        pieces = [w for f in features if f["record"] == number for w in f["word_ids"] if w is not None]
        assert pieces == sorted(pieces) and set(pieces) == set(range(len(one.tokens)))
    # Labels, read as predictions, give the tags back. Continued pieces' labels must not matter.
    predictions = [[label if label >= 0 else 0 for label in f["labels"]] + [3, 3] for f in features]
    assert word_tags(features, predictions, NAMES) == [list(one.labels) for one in records]
    if continued == "ignore":
        assert sum(label >= 0 for f in features for label in f["labels"]) == sum(len(r.tokens) for r in records)
    assert (report.records, report.features) == (len(records), len(features))
    assert report.blank_words == sum(word in "\u200b　" for s in sentences for word, _ in s)


def test_pieces_of_a_word(tokenizer, shown):
    one = record(["今", "playinger", "\u200b", "20182018"], ["O", "B-PER", "I-PER", "S-X"])
    for continued, expected in (
        ("ignore", [-100, 0, 1, -100, -100, 2, 5, -100, -100, -100, -100]),
        ("inside", [-100, 0, 1, 2, 2, 2, 5, -100]),
    ):
        feature = make(tokenizer, [one], continued=continued)[0][0]
        assert shown(feature["input_ids"]).startswith("[CLS] 今 play ##ing ##er [UNK]")
        assert feature["word_ids"][:6] == [None, 0, 1, 1, 1, 2]
        assert feature["labels"][:6] == expected[:6]
    tags = {"B-PER": 2, "I-PER": 2, "E-PER": 2, "S-X": 5, "O": 0, "NN": 6}  # I-X is no label here, so S-X stays
    names = [*NAMES, "E-PER"]
    for tag, expected in tags.items():
        features = make(tokenizer, [record(["helloworld"], [tag])], continued="inside", label_names=names)[0]
        assert features[0]["labels"] == [-100, names.index(tag), expected, -100]


def test_neighbouring_windows_share_words_and_halve_them(tokenizer, shown):
    words = "一二三四五六七八九十"
    features, report = make(tokenizer, [record(words, ["O"] * 10)], max_length=8, stride=2)
    assert [shown(f["input_ids"]) for f in features] == [
        "[CLS] 一 二 三 四 五 六 [SEP]",
        "[CLS] 五 六 七 八 九 十 [SEP]",
    ]
    assert [f["word_ids"] for f in features] == [
        [None, 0, 1, 2, 3, 4, None, None],
        [None, None, 5, 6, 7, 8, 9, None],
    ]
    assert [f["labels"] for f in features] == [[-100, 0, 0, 0, 0, 0, -100, -100], [-100, -100, 0, 0, 0, 0, 0, -100]]
    assert report.split_records == 1 and report.cut_tokens == 0
    features, _ = make(tokenizer, [record(["一", "playinger", "二"], ["O"] * 3)], max_length=5)
    assert [shown(f["input_ids"])[6:-6] for f in features] == ["一", "play ##ing ##er", "二"]  # never within a word


def test_a_word_longer_than_a_window_keeps_its_tag(tokenizer):
    features, report = make(tokenizer, [record(["今", "aaaaaaa", "好"], ["O", "NN", "O"])], max_length=5)
    assert (report.cut_words, report.cut_tokens) == (1, 4)
    assert [f["labels"] for f in features] == [[-100, 0, -100], [-100, 6, -100, -100, -100], [-100, 0, -100]]


def test_records_without_words_or_labels(tokenizer):
    features, _ = make(tokenizer, [record([]), record(["好"])])
    assert [f["word_ids"] for f in features] == [[None, None], [None, 0, None]] and "labels" not in features[0]
    assert word_tags(features, [[1, 1], [1, 2, 1]], NAMES) == [[], ["I-PER"]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"continued": "first"}, "continued must be one of ignore, inside, but got 'first'"),
        ({"stride": 14}, "stride, the tokens two windows share, must be a whole number from 0 to 13"),
        ({"max_length": 2}, "max_length must be a whole number of at least 3"),
        ({"label_names": ["O"]}, "train.bio, line 9: the label 'B-PER' is none of those to learn"),
    ],
)
def test_mistakes(tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        make(tokenizer, [record(["好"], ["B-PER"], line=9)], **options)
    with pytest.raises(DataError, match="line 2: the record has a label, unlike those before"):
        make(tokenizer, [record(["好"]), record(["好"], ["O"], line=2)])
