"""Lists of features to padded NumPy arrays, for `collate_fn` of `paddle.io.DataLoader`. Needs no Paddle.

Every collator gives int64 arrays with "input_ids", "token_type_ids" and "attention_mask" (1 at tokens, 0 at padding),
whatever the features hold of the last two, and the labels. Padding comes behind the texts whatever the tokenizer's
`padding_side`, since heads read position 0. What no model takes (offsets, word ids, lengths, ...) stays out.

The names and first arguments are those of PaddleNLP and Hugging Face. Of the tokenizer the collators keep a few numbers
alone, so that they are small for data workers.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha.tokenizer.rows import padded_length
from paddle_nezha.training.masking import IGNORED, Masking

Features = Sequence[Mapping[str, Any]]
_PADDINGS = ("longest", "max_length")


class DataCollatorWithPadding:
    """Pads texts and pairs, each with one label or none.

    Args:
        tokenizer: whose `pad_token_id` and `pad_token_type_id` fill up.
        padding: True or "longest" pads to the longest of the list, "max_length" to `max_length`.
        max_length: with padding="max_length" the tokens of a row, in which every feature must fit.
        pad_to_multiple_of: rounds the length up.

    Called with features, it gives arrays [B, L]. "labels" (or "label") come as int64 [B], or as float32 [B] or [B, K]
    where they are floats.

    Raises:
        ValueError: settings that do not go together; features that are none, lack "input_ids", differ in their labels
            or exceed `max_length`.
    """

    def __init__(
        self,
        tokenizer: Any,
        padding: Union[bool, str] = True,
        max_length: Optional[int] = None,
        pad_to_multiple_of: Optional[int] = None,
    ) -> None:
        name = "longest" if padding is True else padding
        if name not in _PADDINGS:
            raise ValueError(f"padding must be True, 'longest' or 'max_length', but got {padding!r}: rows of a batch "
                             "need one length.")  # fmt: skip
        if (name == "max_length") != (max_length is not None):
            raise ValueError(
                f"padding='max_length' and max_length go together, but got padding={padding!r} and "
                f"max_length={max_length}: give both or neither."
            )
        for setting, value in (("max_length", max_length), ("pad_to_multiple_of", pad_to_multiple_of)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{setting} must be a whole number of at least 1, but got {value!r}.")
        self.pad_id = int(tokenizer.pad_token_id)
        self.pad_type_id = int(tokenizer.pad_token_type_id)
        self.max_length, self.pad_to_multiple_of = max_length, pad_to_multiple_of

    def __call__(self, features: Features) -> "dict[str, np.ndarray]":
        _check(features)
        return {**self._inputs(features), **_scalar_labels(features)}

    def _inputs(self, features: Features) -> "dict[str, np.ndarray]":
        ids = [feature["input_ids"] for feature in features]
        length = self._length(ids)
        types = [feature.get("token_type_ids", [0] * len(row)) for feature, row in zip(features, ids)]
        masks = [feature.get("attention_mask", [1] * len(row)) for feature, row in zip(features, ids)]
        for number, (row, *others) in enumerate(zip(ids, types, masks)):
            if any(len(other) != len(row) for other in others):
                raise ValueError(
                    f"Feature {number} must have as many token_type_ids and attention_mask as its {len(row)} "
                    f"input_ids, but has {len(others[0])} and {len(others[1])}: give what the tokenizer returned."
                )
        return {
            "input_ids": _padded(ids, length, self.pad_id),
            "token_type_ids": _padded(types, length, self.pad_type_id),
            "attention_mask": _padded(masks, length, 0),
        }

    def _length(self, rows: "Sequence[Sequence[int]]") -> int:
        longest = max(map(len, rows))
        if self.max_length is not None and longest > self.max_length:
            raise ValueError(
                f"max_length={self.max_length} must hold every feature, but one has {longest} tokens: make the "
                "features with this max_length, or raise it."
            )
        return padded_length(longest, self.max_length, self.pad_to_multiple_of)


class DataCollatorForTokenClassification(DataCollatorWithPadding):
    """Pads sentences with a label for each token: int64 [B, L], `label_pad_token_id` at padding.

    Args:
        tokenizer, padding, max_length, pad_to_multiple_of: as for `DataCollatorWithPadding`.
        label_pad_token_id: -100, which the loss ignores.
    """

    def __init__(
        self,
        tokenizer: Any,
        padding: Union[bool, str] = True,
        max_length: Optional[int] = None,
        pad_to_multiple_of: Optional[int] = None,
        label_pad_token_id: int = IGNORED,
    ) -> None:
        super().__init__(tokenizer, padding, max_length, pad_to_multiple_of)
        self.label_pad_token_id = label_pad_token_id

    def __call__(self, features: Features) -> "dict[str, np.ndarray]":
        _check(features)
        batch = self._inputs(features)
        name = _label_name(features)
        if name is not None:
            labels = [feature[name] for feature in features]
            for number, (feature, row) in enumerate(zip(features, labels)):
                if np.ndim(row) != 1 or len(row) != len(feature["input_ids"]):
                    raise ValueError(
                        f"Feature {number} must have a label for each of its {len(feature['input_ids'])} tokens, but "
                        f"has {len(row) if np.ndim(row) == 1 else row!r}: make it with token_features."
                    )
            batch["labels"] = _padded(labels, batch["input_ids"].shape[1], self.label_pad_token_id)
        return batch


class DataCollatorForQuestionAnswering(DataCollatorWithPadding):
    """Pads windows of contexts; "start_positions" and "end_positions", where the features have them, are int64 [B]."""

    def __call__(self, features: Features) -> "dict[str, np.ndarray]":
        _check(features)
        positions = {
            name: np.array(_column(features, name), "int64")
            for name in ("start_positions", "end_positions")
            if name in features[0]
        }
        return {**self._inputs(features), **positions}


class DataCollatorForMultipleChoice(DataCollatorWithPadding):
    """Pads the rows of all choices to one length: arrays [B, C, L], and "labels" int64 [B]."""

    def __call__(self, features: Features) -> "dict[str, np.ndarray]":
        _check(features)
        choices = len(features[0]["input_ids"])
        for number, feature in enumerate(features):
            if len(feature["input_ids"]) != choices:
                raise ValueError(
                    f"All features of a batch must have the same number of choices, but feature {number} has "
                    f"{len(feature['input_ids'])} and feature 0 has {choices}: give num_choices to choice_features."
                )
        names = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in features[0]]
        rows = [{name: feature[name][choice] for name in names} for feature in features for choice in range(choices)]
        batch = self._inputs(rows)
        shape = (len(features), choices, -1)
        return {**{name: array.reshape(shape) for name, array in batch.items()}, **_scalar_labels(features)}


class DataCollatorForLanguageModeling(DataCollatorWithPadding):
    """Pads texts and hides words in them: "labels" are int64 [B, L], -100 where nothing is to predict.

    What is hidden follows from the seed, the epoch and the tokens of the example alone: it is the same in any batch,
    in any order and with any number of data workers.

    Args:
        tokenizer: a `NeZhaTokenizer`.
        mlm: only True; NeZha predicts hidden words.
        mlm_probability: the share of the tokens of an example that is predicted.
        whole_word: hides whole words: those that "word_starts" of the features tell (see `language_features`), or a
            token with the "##" pieces behind it, which leaves Chinese characters alone. False hides single tokens.
        seed: an integer from 0 on.
        padding, max_length, pad_to_multiple_of: as for `DataCollatorWithPadding`.

    `set_epoch` chooses other words. Workers of a `DataLoader` are told with its next pass over the data; those with
    `persistent_workers=True` are not.
    """

    def __init__(
        self,
        tokenizer: Any,
        mlm: bool = True,
        mlm_probability: float = 0.15,
        pad_to_multiple_of: Optional[int] = None,
        *,
        whole_word: bool = True,
        seed: int = 0,
        padding: Union[bool, str] = True,
        max_length: Optional[int] = None,
    ) -> None:
        super().__init__(tokenizer, padding, max_length, pad_to_multiple_of)
        if mlm is not True:
            raise ValueError(f"mlm must be True, but got {mlm!r}: NeZha predicts hidden words, and not the next one.")
        if not 0 < mlm_probability <= 1:
            raise ValueError(f"mlm_probability must be above 0 and at most 1, but got {mlm_probability!r}.")
        vocabulary = tokenizer.get_vocab()
        self.whole_word, self.seed, self.epoch = whole_word, seed, 0
        self._masking = Masking(
            vocab_size=len(tokenizer),
            special_ids=tokenizer.all_special_ids,
            mask_id=tokenizer.mask_token_id,
            whole_word=whole_word,
            mask_probability=mlm_probability,
        )
        self._special = sorted({*tokenizer.all_special_ids, self.pad_id} - {tokenizer.unk_token_id})
        self._continues = np.zeros(len(tokenizer), bool)
        self._continues[[number for token, number in vocabulary.items() if token.startswith("##")]] = True

    def set_epoch(self, epoch: int) -> None:
        """Hides other words from now on."""
        self.epoch = epoch

    def __call__(self, features: Features) -> "dict[str, np.ndarray]":
        _check(features)
        batch = self._inputs(features)
        ids = batch["input_ids"]
        if self.whole_word and "word_starts" in features[0]:
            starts = _padded(_column(features, "word_starts"), ids.shape[1], 1).astype(bool)
        else:
            starts = ~self._continues[ids]
        starts |= np.isin(ids, self._special)
        starts[:, 1:] |= np.isin(ids[:, :-1], self._special)  # a "##" piece behind [CLS] belongs to nothing before it
        starts[:, 0] = True
        keys = np.array([self._key(feature["input_ids"]) for feature in features], "uint64")
        batch["input_ids"], batch["labels"] = self._masking(ids, starts, keys)
        return batch

    def _key(self, ids: "Sequence[int]") -> int:
        content = np.array([self.seed, self.epoch, *ids], "<i8").tobytes()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _check(features: Features) -> None:
    if not features:
        raise ValueError("A collator needs at least one feature, but got none: check the batch sampler.")
    if not isinstance(features[0], Mapping) or "input_ids" not in features[0]:
        got = sorted(features[0]) if isinstance(features[0], Mapping) else type(features[0]).__name__
        raise ValueError(
            f"Features must be dicts with 'input_ids', but got {got}: give what the functions of "
            "paddle_nezha.training.features or the tokenizer return."
        )


def _column(features: Features, name: str) -> "list[Any]":
    for number, feature in enumerate(features):
        if name not in feature:
            raise ValueError(f"Feature 0 has {name!r} and feature {number} has not: give it to all of them or to none.")
    return [feature[name] for feature in features]


def _label_name(features: Features) -> Optional[str]:
    found: "set[Optional[str]]" = set()
    for feature in features:
        found.add("labels" if "labels" in feature else "label" if "label" in feature else None)
    if len(found) > 1:
        raise ValueError("Some features of the batch have labels and others have none: label all of them or none.")
    return found.pop()


def _scalar_labels(features: Features) -> "dict[str, np.ndarray]":
    name = _label_name(features)
    if name is None:
        return {}
    try:
        labels = np.array([feature[name] for feature in features])
    except ValueError:
        labels = np.array([None])
    is_float = labels.dtype.kind == "f"
    if labels.dtype.kind not in "biuf" or labels.ndim > (2 if is_float else 1):
        raise ValueError(
            "Labels must be one int or float for each feature, or a list of floats of one length, but got "
            f"{features[0][name]!r} first: labels of tokens need DataCollatorForTokenClassification."
        )
    return {"labels": labels.astype("float32" if is_float else "int64")}


def _padded(rows: "Sequence[Sequence[int]]", length: int, value: int) -> np.ndarray:
    """int64 [rows, length], filled up behind."""
    lengths = np.array([len(row) for row in rows])
    array = np.full((len(rows), length), value, "int64")
    array[np.arange(length) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), "int64", lengths.sum())
    return array
