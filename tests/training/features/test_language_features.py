"""Texts for masked-language modelling: no token is lost, and words are told."""

import pytest

from paddle_nezha.training import language_features


def test_texts_with_their_words(tokenizer, shown):
    pytest.importorskip("jieba")
    features, report = language_features(
        ["我们在北京大学playinger", "", "好"], tokenizer, max_length=32, segmenter="jieba"
    )
    assert [shown(f["input_ids"]) for f in features] == [
        "[CLS] 我 们 在 北 京 大 学 play ##ing ##er [SEP]",
        "[CLS] 好 [SEP]",
    ]
    assert features[0]["word_starts"] == [1, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1]
    assert (report.records, report.features) == (3, 2)


def test_long_texts_become_several(tokenizer):
    text = "一二三四五六七八九十"
    features, report = language_features([text], tokenizer, max_length=6, segmenter="none")
    assert [len(f["input_ids"]) for f in features] == [6, 6, 4] and report.split_records == 1
    assert [piece for f in features for piece in f["input_ids"][1:-1]] == tokenizer(text)["input_ids"][1:-1]
    assert all(len(f["word_starts"]) == len(f["input_ids"]) == len(f["token_type_ids"]) for f in features)
