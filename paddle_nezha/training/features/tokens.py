"""Sentences of words with a tag each: to windows of pieces, and from predictions of pieces back to words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.data.records import TokenRecord

from .framing import IGNORED, check_all_or_none, check_length, chunks, encode, framed, label_id, label_ids
from .report import FeatureReport

CONTINUED = ("ignore", "inside")


def token_features(
    records: "Iterable[TokenRecord]",
    tokenizer: NeZhaTokenizer,
    *,
    max_length: int,
    label_names: "Sequence[str]",
    continued: str = "ignore",
    stride: int = 0,
) -> "tuple[list[dict[str, Any]], FeatureReport]":
    """Windows of the pieces of each record's words; each word is labelled, and predicted, in exactly one of them.

    A record of more than `max_length` becomes several windows, cut between words. Where neighbours share words, the
    first half of these belongs to the earlier window, so that every word is read with text on both sides of it.
    Words that the tokenizer drops become [UNK]: no word is lost.

    Args:
        max_length: tokens of a window at most, [CLS] and [SEP] included.
        label_names: the tags; a label is the index of its name.
        continued: what the second and later pieces of a word are labelled: "ignore" -100, "inside" I-X for a word
            tagged B-X, E-X or S-X if I-X is among `label_names`, else the word's own tag.
        stride: tokens that neighbouring windows share, at most; whole words alone are shared.

    Returns:
        Features with "input_ids", "token_type_ids", "record" (the record's index), "word_ids" (for each piece the index
        of its word; None at [CLS], [SEP] and at words that belong to another window) and, where the records have
        labels, "labels" (-100 where `word_ids` is None).

    Raises:
        DataError: a tag that is none of `label_names`; labels in some of the records alone.
        ValueError: a setting out of its range.
    """
    check_length(max_length, 3, "room for a token beside [CLS] and [SEP]")
    if continued not in CONTINUED:
        raise ValueError(f"continued must be one of {', '.join(CONTINUED)}, but got {continued!r}.")
    room = max_length - 2
    if isinstance(stride, bool) or not isinstance(stride, int) or not 0 <= stride < room:
        raise ValueError(
            f"stride, the tokens two windows share, must be a whole number from 0 to {room - 1}, below the {room} that "
            f"a window holds, but got {stride!r}: lower it or raise max_length."
        )
    ids = label_ids(label_names)
    inside = {tag: _inside(tag, ids) if continued == "inside" else IGNORED for tag in ids}
    features: "list[dict[str, Any]]" = []
    report = FeatureReport()
    known: "dict[str, list[int]]" = {}
    labelled: Optional[bool] = None
    for chunk in chunks(records):
        labelled = check_all_or_none(chunk, [record.labels is not None for record in chunk], labelled)
        _learn(known, tokenizer, chunk)
        for record in chunk:
            pieces = [known[word] for word in record.tokens]
            sizes = list(map(len, pieces))
            if sizes and not 1 <= min(sizes) <= max(sizes) <= room:
                report.blank_words += sizes.count(0)
                report.cut_words += sum(size > room for size in sizes)
                report.cut_tokens += sum(max(0, size - room) for size in sizes)
                pieces = [word[:room] or [tokenizer.unk_token_id] for word in pieces]
                sizes = list(map(len, pieces))
            pairs = [(label_id(ids, tag, record), inside[tag]) for tag in record.labels or ()]
            windows = _windows(sizes, room, stride)
            owned = _owned(windows)
            report.split_records += len(windows) > 1
            for window, (begin, end) in zip(windows, owned):
                inside_window = slice(*window)
                feature = framed(tokenizer, [piece for word in pieces[inside_window] for piece in word])
                feature["record"] = report.records
                numbers = [number if begin <= number < end else None for number in range(*window)]
                repeated = zip(numbers, sizes[inside_window])
                feature["word_ids"] = [None, *(number for number, size in repeated for _ in range(size)), None]
                if labelled:
                    of_words = [
                        _labels(*pairs[number], size) if begin <= number < end else [IGNORED] * size
                        for number, size in enumerate(sizes[inside_window], window[0])
                    ]
                    feature["labels"] = [IGNORED, *(label for labels in of_words for label in labels), IGNORED]
                features.append(feature)
            report.records += 1
    report.features = len(features)
    return features, report


def word_tags(
    features: "Iterable[Mapping[str, Any]]", predictions: "Iterable[Sequence[int]]", label_names: "Sequence[str]"
) -> "list[list[str]]":
    """The tags of the words of each record, from predictions of all windows.

    Args:
        features: what `token_features` gave, in its order and whole.
        predictions: of each feature the class of each piece, [L] or longer where it was padded; of a word its first
            piece counts.
        label_names: the tags, as for `token_features`.

    Returns:
        One list for each record, with a tag for each of its words.
    """
    tags: "list[list[str]]" = []
    for feature, predicted in zip(features, predictions):
        if feature["record"] == len(tags):
            tags.append([])
        found = tags[feature["record"]]
        for word, number in zip(feature["word_ids"], predicted):
            if word is not None and word == len(found):
                found.append(label_names[int(number)])
    return tags


def _learn(known: "dict[str, list[int]]", tokenizer: NeZhaTokenizer, records: "Sequence[TokenRecord]") -> None:
    """Puts the pieces of each word into `known`; they do not depend on the words around it, and many words recur."""
    words = list(dict.fromkeys(word for record in records for word in record.tokens if word not in known))
    known.update(zip(words, encode(tokenizer, words)))


def _windows(sizes: "Sequence[int]", room: int, stride: int) -> "list[tuple[int, int]]":
    """First word and the one behind the last of each window; a record without words has one window of none."""
    windows = []
    start, count = 0, len(sizes)
    while True:
        stop, size = start, 0
        while stop < count and size + sizes[stop] <= room:
            size += sizes[stop]
            stop += 1
        windows.append((start, stop))
        if stop == count:
            return windows
        # The next window goes back by whole words, and must reach further than this one.
        following, shared = stop, 0
        while following - 1 > start and shared + sizes[following - 1] <= min(stride, room - sizes[stop]):
            following -= 1
            shared += sizes[following]
        start = following


def _owned(windows: "Sequence[tuple[int, int]]") -> "list[tuple[int, int]]":
    """The words that belong to each window: all of them, each once."""
    borders = [
        windows[0][0],
        *(-(-(begin + end) // 2) for (begin, _), (_, end) in zip(windows[1:], windows)),
        windows[-1][1],
    ]
    return list(zip(borders, borders[1:]))


def _inside(tag: str, ids: "Mapping[str, int]") -> int:
    kind = tag[2:]
    return ids.get(f"I-{kind}", ids[tag]) if tag[:2] in ("B-", "E-", "S-") else ids[tag]


def _labels(first: int, others: int, size: int) -> "list[int]":
    return [first] + [others] * (size - 1)
