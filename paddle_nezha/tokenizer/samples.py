"""The texts of a call in one form, whatever form the caller gave them in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

Text = Union[str, list[str]]  # a text, or its words


@dataclass(frozen=True)
class Samples:
    """`texts[i]` goes with `pairs[i]`; `batched` says whether the caller gave a list of them."""

    texts: list[Text]
    pairs: Optional[list[Text]]
    batched: bool


def read_samples(text: Any, text_pair: Any, words: bool) -> Samples:
    """One text or many, alone or in pairs, as text or (with `words`) as words.

    A batch of tuples is a batch of pairs: a text is no tuple, and the words of one are no lists.

    Raises:
        TypeError: something that is no text; the message says where it stands and what it is.
        ValueError: batches of different size; pairs mixed with texts.
    """
    batched = _is_batch(text, words)
    if batched and text_pair is None:
        text, text_pair = unzip_pairs(text, words, tuple)
    texts = _texts("text", text, words, batched)
    if text_pair is None:
        return Samples(texts, None, batched)
    if _is_batch(text_pair, words) != batched:
        raise TypeError(
            f"expected text_pair in the form of text ({_form(batched)}), got {_form(not batched)}; "
            "give one second text for each first one"
        )
    pairs = _texts("text_pair", text_pair, words, batched)
    if len(pairs) != len(texts):
        raise ValueError(
            f"expected one second text per text, got {len(pairs)} for {len(texts)} texts; "
            "repeat a second text that several texts share"
        )
    return Samples(texts, pairs, batched)


def unzip_pairs(batch: Sequence[Any], words: bool, *forms: type) -> tuple[list[Any], Optional[list[Any]]]:
    """A batch whose elements may be (first, second), in one of `forms`, as first texts and second texts.

    Raises:
        ValueError: pairs mixed with something else.
    """
    is_pair = [isinstance(item, forms) and (not words or _is_batch(item, True)) for item in batch]
    if not any(is_pair):
        return list(batch), None
    for number, item in enumerate(batch):
        if not is_pair[number] or len(item) != 2:
            got = f"{len(item)} texts" if is_pair[number] else type(item).__name__
            raise ValueError(
                f"expected a batch of texts or one of (first, second) pairs, got a mixture: element {number} is "
                f"{got}; split the batch"
            )
    return [first for first, _ in batch], [second for _, second in batch]


def _is_batch(text: Any, words: bool) -> bool:
    if not isinstance(text, (list, tuple)):
        return False
    return not words or (len(text) > 0 and isinstance(text[0], (list, tuple)))


def _form(batched: bool) -> str:
    return "a list of texts" if batched else "a single text"


def _texts(name: str, given: Any, words: bool, batched: bool) -> list[Text]:
    if not batched:
        return [_text(name, given, words)]
    return [_text(f"{name}[{number}]", item, words) for number, item in enumerate(given)]


def _text(name: str, given: Any, words: bool) -> Text:
    if not words:
        _check_str(name, given)
        return given
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"expected {name} as a list of words under is_split_into_words=True, got {type(given).__name__}; "
            "leave is_split_into_words out for plain text"
        )
    for number, word in enumerate(given):
        _check_str(f"{name}[{number}]", word)
    return list(given)


def _check_str(name: str, given: Any) -> None:
    if isinstance(given, str):
        return
    hint = "check for missing values in the data"
    if isinstance(given, (list, tuple)):
        hint = "pass is_split_into_words=True for lists of words; (first, second) pairs are tuples"
    elif isinstance(given, bytes):
        hint = "decode it first, .decode('utf-8')"
    elif hasattr(given, "tolist"):
        hint = "give a list, .tolist()"
    raise TypeError(f"expected {name} to be str, got {type(given).__name__}; {hint}")
