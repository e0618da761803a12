"""Texts for masked-language modelling, with the words that are masked whole."""

from collections.abc import Iterable
from typing import Any, Optional

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.corpus.words import Segmenter, WordTokenizer

from .framing import check_length, chunks, framed
from .report import FeatureReport


def language_features(
    texts: "Iterable[str]", tokenizer: NeZhaTokenizer, *, max_length: int, segmenter: Optional[str] = None
) -> "tuple[list[dict[str, Any]], FeatureReport]":
    """[CLS] text [SEP] for `DataCollatorForLanguageModeling`; a long text becomes several features.

    Args:
        max_length: tokens of a feature at most, [CLS] and [SEP] included.
        segmenter: whose words are masked whole, "rjieba", "jieba" or "none"; None is the first of the first two that is
            installed.

    Returns:
        Features with "input_ids", "token_type_ids" and "word_starts", 1 where a token begins a word or is [CLS] or
        [SEP]. Texts without any token have none.

    Raises:
        CorpusError: the segmenter is not installed.
    """
    check_length(max_length, 3, "room for a token beside [CLS] and [SEP]")
    words = WordTokenizer(tokenizer, Segmenter(segmenter))
    room = max_length - 2
    features: "list[dict[str, Any]]" = []
    report = FeatureReport()
    for chunk in chunks(texts):
        report.records += len(chunk)
        ids, starts, lengths = (array.tolist() for array in words(chunk))
        begin = 0
        for length in lengths:
            report.split_records += length > room
            for first in range(begin, begin + length, room):
                stop = min(first + room, begin + length)
                feature = framed(tokenizer, ids[first:stop])
                feature["word_starts"] = [1, 1, *starts[first + 1 : stop], 1]
                features.append(feature)
            begin += length
    report.features = len(features)
    return features, report
