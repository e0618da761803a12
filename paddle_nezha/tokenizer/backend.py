"""The Rust tokenizer: how it is built, how it is called, and what a fork must not do to it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from tokenizers import AddedToken, Encoding, Regex, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as InOrder

from .kinds import ADDABLE, checked

# Unicode's symbols, and eight characters of other classes that PaddleNLP's BasicTokenizer also sets apart.
_SYMBOL = Regex("[\\p{S}\u00ad\u00b2\u00ba\u3007\u00b5\u00d8\u014b\u01b1]")
_PARALLELISM = "TOKENIZERS_PARALLELISM"


def build(
    vocabulary: Mapping[str, int],
    unk_token: str,
    *,
    do_lower_case: bool,
    strip_accents: Optional[bool],
    tokenize_chinese_chars: bool,
    split_symbols: bool,
) -> Tokenizer:
    """WordPiece without padding, truncation or framing: in the Rust object those are shared state."""
    rust = Tokenizer(WordPiece(dict(vocabulary), unk_token=unk_token, max_input_chars_per_word=100))
    rust.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=do_lower_case,
    )
    rust.pre_tokenizer = (
        InOrder([Split(_SYMBOL, "isolated"), BertPreTokenizer()]) if split_symbols else BertPreTokenizer()
    )
    return rust


def special_token(content: str) -> AddedToken:
    """Matched in the raw text, before lower-casing could hide it."""
    return AddedToken(content, special=True, normalized=False)


def added_token(token: Union[str, AddedToken], special: bool) -> AddedToken:
    """A token to add; one given as text is matched in the cleaned text unless it is special.

    Raises:
        ValueError: no text, or one that no text holds, or every text: lone surrogates, blanks.
    """
    checked("a token to add", token, ADDABLE)
    if isinstance(token, AddedToken):
        return token
    return special_token(token) if special else AddedToken(token, normalized=True)


def encode(rust: Tokenizer, texts: Sequence[Union[str, list[str]]], *, words: bool, offsets: bool) -> list[Encoding]:
    """Token ids of each text; with `offsets` also characters and words, which costs about a sixth more."""
    run: Any = rust.encode_batch if offsets else rust.encode_batch_fast
    try:
        return run(texts, is_pretokenized=words, add_special_tokens=False)
    except TypeError:  # Rust strings cannot hold lone surrogates
        texts = [_without_surrogates(text) for text in texts]
        return run(texts, is_pretokenized=words, add_special_tokens=False)


def _without_surrogates(text: Union[str, list[str]]) -> Union[str, list[str]]:
    """U+FFFD for each lone surrogate: cleaning drops either, and offsets stay those of the caller's text."""
    if isinstance(text, str):
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return [str(_without_surrogates(word)) for word in text]


def _serial_in_child() -> None:
    # The pool's threads do not survive a fork. Left to itself the library turns parallel batches off in the
    # child; told TOKENIZERS_PARALLELISM=true it obeys, and the child's first batch waits forever.
    if _PARALLELISM in os.environ:
        os.environ[_PARALLELISM] = "false"


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_serial_in_child)
