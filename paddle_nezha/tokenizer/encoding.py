"""What a call returns: a dict with attributes, of lists or of tensors."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

TENSOR_KINDS = ("np", "pd", "pt")


class BatchEncoding(dict):
    """A dict of columns that also answers to attributes: `encoded["input_ids"]` is `encoded.input_ids`."""

    def __init__(self, columns: Mapping[str, Any], word_ids: Optional[Sequence[list[Optional[int]]]] = None):
        super().__init__(columns)
        self._word_ids = word_ids

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"expected one of the columns {sorted(self)}, got {name!r}; "
                "ask for more in the call, for example return_attention_mask=True"
            ) from None

    def word_ids(self, row: int = 0) -> list[Optional[int]]:
        """For each token of a row the index of its word, None at special tokens and padding.

        Raises:
            ValueError: the texts did not come as words.
        """
        if self._word_ids is None:
            raise ValueError("word_ids needs texts given as words; call the tokenizer with is_split_into_words=True")
        return self._word_ids[row]


def to_tensors(columns: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Columns of equally long rows as int64 tensors (float32 where they hold floats).

    Raises:
        ValueError: `kind` is unknown, there is no row, or the rows differ in length.
        ImportError: the framework is not installed.
    """
    convert = _converter(kind)
    return {name: convert(_array(name, column)) for name, column in columns.items()}


def _array(name: str, column: Any) -> np.ndarray:
    if len(column) == 0:
        raise ValueError(f"expected at least one text to make tensors of, {name!r} is empty; check for an empty batch")
    try:
        array = np.asarray(column)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"expected rows of one length, those of {name!r} differ or hold no numbers; "
            "pass padding=True (and truncation=True with max_length) to get tensors"
        )
    is_real = array.dtype.kind == "f" and array.size > 0  # NumPy makes empty rows float
    return array.astype(np.float32 if is_real else np.int64)


def _converter(kind: str) -> Any:
    if kind == "np":
        return lambda array: array
    if kind == "pd":
        from .._paddle import paddle

        return paddle.to_tensor
    if kind == "pt":
        return _torch().from_numpy
    raise ValueError(
        f"expected return_tensors to be one of {TENSOR_KINDS} or None, got {kind!r}; NeZha on Paddle takes 'pd'"
    )


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "return_tensors='pt' needs torch, which is not installed; NeZha on Paddle takes return_tensors='pd'"
        ) from error
    return torch
