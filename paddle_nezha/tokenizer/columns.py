"""From encodings to the columns a call returns, and from columns to what `pad` works on."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from tokenizers import Encoding

from . import rows
from .call import Call

_WHOLE = "give what the tokenizer returned"


class Row(NamedTuple):
    """One row of the answer: the sample it comes from, and which of its tokens."""

    sample: int
    span: rows.Span


class Batch:
    """The encoded samples of one call, cut into rows.

    Args:
        first, second: encodings without special tokens; `second` is None where no second texts came.
        cut: what happens to samples that are too long.
    """

    def __init__(
        self, first: list[Encoding], second: Optional[list[Encoding]], call: Call, cut: Optional[rows.Cut]
    ) -> None:
        self.first, self.second, self.call = first, second, call
        special = call.special(second is not None)
        pairs = [None] * len(first) if second is None else [len(encoding) for encoding in second]
        self.rows = [
            Row(sample, span)
            for sample, (encoding, pair) in enumerate(zip(first, pairs))
            for span in rows.spans(len(encoding), pair, special, cut)
        ]

    def framed(self, attribute: str, begin: Any, end: Any) -> list[list[Any]]:
        """One attribute of the encodings (ids, offsets, word_ids) per row, with values at special tokens."""
        begins, ends = ([begin], [end]) if self.call.add_special_tokens else ([], [])
        first = [getattr(encoding, attribute) for encoding in self.first]
        if self.second is None:
            return [
                rows.frame(first[sample][span.first_start : span.first_stop], None, begins, ends)
                for sample, span in self.rows
            ]
        second = [getattr(encoding, attribute) for encoding in self.second]
        return [
            rows.frame(
                first[sample][span.first_start : span.first_stop],
                second[sample][span.second_start : span.second_stop],
                begins,
                ends,
            )
            for sample, span in self.rows
        ]

    def columns(self, begin_id: int, end_id: int) -> dict[str, list[Any]]:
        """What the call asks for, one entry per row and column."""
        call = self.call
        ids = self.framed("ids", begin_id, end_id)
        columns: dict[str, list[Any]] = {"input_ids": ids}
        if call.return_token_type_ids is not False:
            columns["token_type_ids"] = self._token_types(ids)
        if call.return_attention_mask:
            columns["attention_mask"] = [[1] * len(row) for row in ids]
        if call.return_special_tokens_mask:
            columns["special_tokens_mask"] = self._special_masks(ids)
        if call.offsets:
            columns["offset_mapping"] = self.framed("offsets", (0, 0), (0, 0))
        if call.return_length:
            columns["length"] = [len(row) for row in ids]
            columns["seq_len"] = list(columns["length"])
        if call.windows:
            columns["overflow_to_sample"] = [row.sample for row in self.rows]
        return columns

    def _token_types(self, ids: list[list[int]]) -> list[list[int]]:
        frame = self.call.special(pair=False)
        zeros = (span.first_stop - span.first_start + frame for _, span in self.rows)
        return [[0] * count + [1] * (len(row) - count) for count, row in zip(zeros, ids)]

    def _special_masks(self, ids: list[list[int]]) -> list[list[int]]:
        if not self.call.add_special_tokens:
            return [[0] * len(row) for row in ids]
        masks = []
        for _, span in self.rows:
            first = [0] * (span.first_stop - span.first_start)
            second = None if self.second is None else [0] * (span.second_stop - span.second_start)
            masks.append(rows.frame(first, second, [1], [1]))
        return masks

    def shortened(self) -> int:
        """How many samples lost tokens, where each is one row."""
        pairs = [0] * len(self.first) if self.second is None else [len(encoding) for encoding in self.second]
        whole = [len(encoding) + pair for encoding, pair in zip(self.first, pairs)]
        kept = [span.first_stop - span.first_start + span.second_stop - span.second_start for _, span in self.rows]
        return sum(some < all_ for some, all_ in zip(kept, whole))


def collected(given: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> tuple[dict[str, Any], bool]:
    """What calls returned as columns of plain lists, and whether it is a batch.

    Raises:
        TypeError: something else than columns.
        ValueError: no `input_ids`, or rows with different columns.
    """
    if isinstance(given, Mapping):
        columns = {name: plain(column) for name, column in given.items()}
    else:
        columns = _gathered(given)
    if "input_ids" not in columns:
        raise ValueError(f"expected a column 'input_ids' to pad, got {sorted(columns)}; {_WHOLE}")
    ids = columns["input_ids"]
    if not isinstance(ids, (list, tuple)):
        raise TypeError(f"expected 'input_ids' as a list of ids or of rows, got {type(ids).__name__}; {_WHOLE}")
    if len(ids) > 0 and isinstance(ids[0], int):
        return {name: [column] for name, column in columns.items()}, False
    return columns, True


def _gathered(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for row in given if isinstance(given, (list, tuple)) else [given]:
        if not isinstance(row, Mapping):
            raise TypeError(
                f"expected a mapping of columns to pad, or a list of them, got {type(row).__name__}; {_WHOLE}"
            )
    if not given:
        raise ValueError("expected at least one row to pad, got none; check for an empty batch")
    names = set(given[0])
    for number, row in enumerate(given):
        if set(row) != names:
            raise ValueError(
                f"expected the columns {sorted(names)} in every row, row {number} has {sorted(row)}; "
                "make all rows with the same keywords"
            )
    return {name: [plain(row[name]) for row in given] for name in given[0]}


def plain(values: Any) -> Any:
    """Arrays and tensors as Python numbers and lists, also inside lists."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if isinstance(values, (list, tuple)):
        return [plain(value) for value in values]
    return values
