"""Sentences to tokens, and where among them each word begins: the words that are masked whole.

A Chinese word is what the segmenter finds in a stretch of Han characters. Everything between two such stretches goes by
the tokenizer: a token without "##" begins a word, its pieces belong to it. The segmenter sees Han characters alone:
what is beside them it would join by rules of its own, not those of the tokens.

Source: the NeZha paper, section 3.3 (whole-word masking, with jieba for the words).
"""

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Optional

import numpy as np

from paddle_nezha.tokenizer import NeZhaTokenizer, backend

from .errors import CorpusError

SEGMENTERS = ("rjieba", "jieba", "none")
# What BERT's tokenizers set apart as Chinese characters.
HAN = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_SPANS = re.compile(f"([{HAN}]+)")
# Characters of the units kept with their tokens; some 40 MB.
_KEPT_CHARACTERS = 500_000


class Segmenter:
    """Words of Han text by `rjieba`, by `jieba` (the same algorithm, some 25 times slower), or none: each character.

    Args:
        name: one of SEGMENTERS; None is the first of the two that is installed.

    Raises:
        CorpusError: another name, or a package that is not installed.
    """

    name: str
    version: Optional[str]

    def __init__(self, name: Optional[str] = None) -> None:
        if name is not None and name not in SEGMENTERS:
            raise CorpusError(f"expected the segmenter to be one of {', '.join(SEGMENTERS)}, got {name!r}")
        for candidate in ("rjieba", "jieba") if name is None else (name,):
            try:
                self._cut = _CUTS[candidate]()
            except ImportError:
                continue
            self.name = candidate
            self.version = None if candidate == "none" else version(candidate)
            return
        raise CorpusError(
            f"expected {name or 'rjieba or jieba'} for word boundaries, it is not installed: pip install "
            "'paddle_nezha[train]'. Segmenter none (--segmenter none) makes each Chinese character a word instead"
        )

    def words(self, spans: "Sequence[str]") -> "list[list[str]]":
        """The words of each span of Han characters, in order and without a gap."""
        if not spans:
            return []
        # One call for all: the segmenter ends every word at a line end.
        joined = "\n".join(spans)
        cut = self._cut(joined)
        if "".join(cut) != joined:
            raise CorpusError(
                f"{self.name} {self.version} does not give back the text it cut, so its words cannot be aligned; "
                "use the other segmenter"
            )
        return [line.split() for line in " ".join(cut).split("\n")]


def _rjieba() -> Any:
    import rjieba

    return rjieba.Jieba().cut  # one of our own: the module's may have been given words


def _jieba() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pkg_resources, and of its own regular expressions
        import jieba

    jieba.setLogLevel("WARNING")
    return jieba.Tokenizer().lcut


_CUTS: "dict[str, Any]" = {"rjieba": _rjieba, "jieba": _jieba, "none": lambda: list}


class WordTokenizer:
    """Tokens of sentences, and which of them begin a word.

    Special tokens are never found in a text: "[MASK]" is a bracket, a word and a bracket, and a word that the
    vocabulary has as [PAD], [CLS], [SEP] or [MASK] is unknown.

    Args:
        tokenizer: stays as it is; a copy of its Rust object is used.
        segmenter: whose words.
    """

    def __init__(self, tokenizer: NeZhaTokenizer, segmenter: Segmenter) -> None:
        self._segmenter = segmenter
        self._rust = _plain_backend(tokenizer)
        self._unknown = tokenizer.unk_token_id
        self._never = {tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id}
        tokens = tokenizer.get_vocab()
        self._is_piece = bytearray(len(tokens))
        for token, number in tokens.items():
            self._is_piece[number] = token.startswith("##") and len(token) > 2
        self.dtype = np.dtype(np.uint16 if len(tokens) <= 1 << 16 else np.uint32)
        # Where each Chinese character is set apart and no added token reaches over one, the tokens of a word do not
        # depend on its neighbours, and are looked up in place of being computed: more than twice as fast.
        self.is_by_units = tokenizer._behaviour["tokenize_chinese_chars"] and not any(
            not token.special for token in self._rust.get_added_tokens_decoder().values()
        )
        self._known: "dict[str, tuple[bytes, bytes]]" = {}
        self._kept = 0

    def __call__(self, sentences: "Sequence[str]") -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
        """Tokens of all sentences one after another.

        Returns:
            tokens: uint16, or uint32 for more than 65,536 of them, [n].
            word_starts: uint8 [n], 1 where a token begins a word. The first of a sentence always does.
            lengths: int64 [len(sentences)], tokens of each; 0 for one of blanks and control characters alone.
        """
        pieces = [_SPANS.split(sentence) for sentence in sentences]  # Han spans stand at the odd places
        words = iter(self._segmenter.words([span for parts in pieces for span in parts[1::2]]))
        return self._by_units(pieces, words) if self.is_by_units else self._by_offsets(sentences, pieces, words)

    def _by_units(
        self, pieces: "list[list[str]]", words: "Iterator[list[str]]"
    ) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
        units: "list[str]" = []
        ends = [0]
        for parts in pieces:
            for place, part in enumerate(parts):
                units += next(words) if place % 2 else part.split(" ")  # other blanks do not end a token in all texts
            ends.append(len(units))
        self._learn({unit for unit in units if unit not in self._known})
        found = [self._known[unit] for unit in units]
        running = np.zeros(len(units) + 1, np.int64)
        np.cumsum(np.fromiter((len(starts) for _, starts in found), np.int64, len(found)), out=running[1:])
        tokens = np.frombuffer(b"".join([ids for ids, _ in found]), self.dtype)
        word_starts = np.frombuffer(b"".join([starts for _, starts in found]), np.uint8)
        if self._kept > _KEPT_CHARACTERS:
            self._known.clear()
            self._kept = 0
        return tokens, word_starts, np.diff(running[ends])

    def _learn(self, units: "set[str]") -> None:
        """Puts the tokens of each unit, and where words begin among them, into `_known`."""
        words = {unit for unit in units if _SPANS.match(unit)}
        others = list(units - words | {char for word in words for char in word if char not in self._known})
        for unit, encoding in zip(others, backend.encode(self._rust, others, words=False, offsets=False)):
            ids = self._allowed(encoding.ids)
            starts = bytes(not place or not self._is_piece[number] for place, number in enumerate(ids))
            self._known[unit] = np.array(ids, self.dtype).tobytes(), starts
        for word in words:
            ids_of = b"".join([self._known[char][0] for char in word])
            self._known[word] = ids_of, b"\1".ljust(len(ids_of) // self.dtype.itemsize, b"\0") if ids_of else b""
        self._kept += sum(map(len, others)) + sum(map(len, words))

    def _by_offsets(
        self, sentences: "Sequence[str]", pieces: "list[list[str]]", words: "Iterator[list[str]]"
    ) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
        ids: "list[int]" = []
        starts, lengths = bytearray(), []
        for parts, encoding in zip(pieces, backend.encode(self._rust, sentences, words=False, offsets=True)):
            units = [
                (unit, place % 2)
                for place, part in enumerate(parts)
                for unit in (next(words) if place % 2 else (part,))
            ]
            unit_of = [number for number, (unit, _) in enumerate(units) for _ in unit]  # of each character
            last = -1
            for token, (first, _) in zip(encoding.ids, encoding.offsets):
                unit = unit_of[first]
                starts.append(unit != last or not (units[unit][1] or self._is_piece[token]))
                last = unit
            ids += self._allowed(encoding.ids)
            lengths.append(len(encoding.ids))
        return np.array(ids, self.dtype), np.frombuffer(bytes(starts), np.uint8), np.array(lengths, np.int64)

    def _allowed(self, ids: "Iterable[int]") -> "list[int]":
        return [self._unknown if number in self._never else number for number in ids]


def _plain_backend(tokenizer: NeZhaTokenizer) -> Any:
    """A copy of a tokenizer's Rust object that takes special tokens in a text for text."""
    rust = type(tokenizer._rust).from_str(tokenizer._rust.to_str())
    rust.encode_special_tokens = True
    return rust


def one_thread() -> None:
    """Keeps the tokenizer of this process from starting a thread per core: the build has a process per core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
