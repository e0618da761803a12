"""The keywords of a tokenizer call: defaults, what they mean together, and which contradict each other."""

import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from . import rows
from .kinds import DISTANCE, FLAG, LENGTH, SIDE, checked

_PADDINGS = ("longest", "max_length", "do_not_pad")
_TRUNCATIONS = ("longest_first", "only_first", "only_second", "do_not_truncate")
# Other keywords are looked up where they are used; None leaves any keyword at its default.
_KINDS = {
    **dict.fromkeys(("max_length", "max_seq_len", "pad_to_multiple_of"), LENGTH),
    "stride": DISTANCE,
    "padding_side": SIDE,
    "is_split_into_words": FLAG._replace(advice="make ids of ready tokens with convert_tokens_to_ids"),
    **dict.fromkeys(
        (
            "add_special_tokens", "pad_to_max_seq_len", "return_attention_mask", "return_dict", "return_length",
            "return_offsets_mapping", "return_overflowing_tokens", "return_position_ids",
            "return_special_tokens_mask", "return_token_type_ids", "verbose",
        ),
        FLAG,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class PadTo:
    """How rows become equally long; `length` None is that of the longest."""

    length: Optional[int]
    multiple: Optional[int]


@dataclass(frozen=True)
class Call:
    """The keywords of one call; `NeZhaTokenizer.__call__` says what each means."""

    max_length: Optional[int] = None
    stride: int = 0
    is_split_into_words: bool = False
    padding: Union[bool, str, None] = False
    truncation: Union[bool, str, None] = False
    return_token_type_ids: bool = True
    return_attention_mask: bool = False
    return_offsets_mapping: bool = False
    return_special_tokens_mask: bool = False
    return_length: bool = False
    return_overflowing_tokens: bool = False
    return_position_ids: bool = False
    return_dict: bool = True
    add_special_tokens: bool = True
    pad_to_multiple_of: Optional[int] = None
    padding_side: Optional[str] = None
    return_tensors: Optional[str] = None
    max_seq_len: Optional[int] = None
    pad_to_max_seq_len: bool = False
    verbose: bool = True

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Call":
        """The call these keywords describe.

        Raises:
            TypeError: an unknown keyword, with the nearest known one.
            ValueError: a value the keyword cannot have.
        """
        refuse_unknown("a NeZhaTokenizer call", given, [item.name for item in fields(cls)])
        call = cls(
            **{
                name: checked(name, value, _KINDS[name]) if name in _KINDS else value
                for name, value in given.items()
                if value is not None
            }
        )
        if call.return_position_ids:
            raise ValueError(
                "expected return_position_ids=False, got True: NeZha's positions are relative and no input of the "
                "model; leave it out"
            )
        return call

    @property
    def length(self) -> Optional[int]:
        """`max_length`, also under its old name."""
        new, old = self.max_length, self.max_seq_len
        if new is not None and old is not None and new != old:
            raise ValueError(f"max_length={new} and max_seq_len={old} (its old name) contradict each other; give one")
        return new if old is None else old

    @property
    def steps(self) -> bool:
        """Whether second texts become windows `stride` tokens apart, as PaddleNLP reads a stride."""
        return self.stride > 0 and not self.return_overflowing_tokens

    @property
    def windows(self) -> bool:
        """Whether a sample may become several rows."""
        return self.steps or self.return_overflowing_tokens

    @property
    def offsets(self) -> bool:
        """Whether offsets are returned; PaddleNLP's windows always carry them."""
        return self.return_offsets_mapping or self.steps

    @property
    def truncation_name(self) -> str:
        """The strategy's name; a length alone, without padding and truncation, truncates, as in PaddleNLP."""
        name = _choice("truncation", self.truncation, "longest_first", _TRUNCATIONS)
        unsaid = not self.truncation and not self.padding
        return "longest_first" if unsaid and self.length is not None else name

    @property
    def padding_name(self) -> str:
        """The padding's name, with the old `pad_to_max_seq_len` where `padding` is not given."""
        if not self.padding and self.pad_to_max_seq_len:
            return "longest" if self.length is None else "max_length"
        return _choice("padding", self.padding, "longest", _PADDINGS)

    def special(self, pair: bool) -> int:
        """The number of special tokens that frame a row."""
        if not self.add_special_tokens:
            return 0
        return 3 if pair else 2

    def cut(self, pair: bool, default_length: Optional[int]) -> Optional[rows.Cut]:
        """What happens to samples that are too long; None where nothing does.

        Raises:
            ValueError: the keywords contradict each other, or `max_length` leaves no room.
        """
        name = self.truncation_name
        if self.steps:
            name = self._step_strategy(pair, name)
        elif self.return_overflowing_tokens and name == "do_not_truncate":
            raise ValueError(
                "return_overflowing_tokens=True needs a length to overflow, got truncation=False; "
                "pass truncation=True with max_length"
            )
        if name == "do_not_truncate":
            return None
        if name == "only_second" and not pair:
            raise ValueError("truncation='only_second' needs text_pair, got one text; use 'only_first' or True")
        limit = default_length if self.length is None else self.length
        return None if limit is None else rows.Cut(self._checked(limit, pair), name, self._advance(limit, pair))

    def _step_strategy(self, pair: bool, name: str) -> str:
        if not pair:
            raise ValueError(
                f"stride={self.stride} alone makes windows of second texts, and no text_pair came; "
                "pass return_overflowing_tokens=True for windows of one text"
            )
        return "only_first" if name == "only_first" else "only_second"

    def _checked(self, limit: int, pair: bool) -> int:
        least = self.special(pair)
        if limit < least:
            raise ValueError(
                f"expected max_length of at least {least}, the special tokens of a row, got {limit}; "
                "raise it, or pass add_special_tokens=False"
            )
        return limit

    def _advance(self, limit: int, pair: bool) -> Any:
        if self.steps:
            return rows.stepping(self.stride)
        if not self.return_overflowing_tokens:
            return None
        advance = rows.overlapping(self.stride)
        if self.stride:
            advance(limit - self.special(pair))  # refused now, not at the first text that is too long
        return advance

    def pad_to(self, cut: Optional[rows.Cut], default_length: Optional[int]) -> Optional[PadTo]:
        """How rows are padded; None where they are not.

        Raises:
            ValueError: no length to pad to, or `pad_to_multiple_of` does not go with the rest.
        """
        name, multiple = self.padding_name, self.pad_to_multiple_of
        if name == "do_not_pad":
            if multiple is not None:
                raise ValueError(f"pad_to_multiple_of={multiple} needs padding, got padding=False; pass padding=True")
            return None
        if multiple is not None and cut is not None and cut.max_length % multiple:
            raise ValueError(
                f"expected pad_to_multiple_of to divide max_length={cut.max_length}, got {multiple}: padded rows "
                "would be longer than max_length; pass a max_length that is a multiple of it"
            )
        if name == "longest":
            if self.length is not None and cut is None and self.verbose:
                warnings.warn(
                    f"max_length={self.length} does nothing with padding=True and no truncation; "
                    "pass truncation=True, or padding='max_length'",
                    stacklevel=3,
                )
            return PadTo(None, multiple)
        length = default_length if self.length is None else self.length
        if length is None:
            raise ValueError("padding='max_length' needs a length, and model_max_length is None; pass max_length")
        return PadTo(length, multiple)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """TypeError for the first keyword that is not known, with the one that looks most like it."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
            raise TypeError(f"{what} has no keyword {name!r}; {hint}")


def _choice(keyword: str, value: Any, meaning_of_true: str, choices: tuple[str, ...]) -> str:
    if value is True:
        return meaning_of_true
    if value is False or value is None:
        return choices[-1]
    if value not in choices:
        raise ValueError(f"expected {keyword} to be True, False or one of {choices}, got {value!r}; pass one of these")
    return str(value)
