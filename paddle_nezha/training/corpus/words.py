"""Sentences to tokens, and where among them each word begins: the words that are masked whole.

A Chinese word is what the segmenter finds in a stretch of Han characters. Everything between two such stretches goes by
the tokenizer: a token without "##" begins a word, its pieces belong to it. The segmenter sees Han characters alone:
what is beside them it would join by rules of its own, not those of the tokens.

Source: the NeZha paper, section 3.3 (whole-word masking, with jieba for the words).
"""

import os
import re
import warnings
from collections.abc import Iterable, Sequence
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
# Characters of the units kept with their tokens; some 50 MB.
_KEPT_CHARACTERS = 2_000_000


class Segmenter:
    """Words of Han text by `rjieba`, by `jieba` (the same algorithm, some 20 times slower), or none: each character.

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
        tokenizer: a NeZhaTokenizer, or the folder of one. A private copy is made.
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
        # depend on its neighbours, and are looked up in place of being computed: four times as fast.
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
        units = [
            [unit for place, part in enumerate(parts) for unit in (next(words) if place % 2 else (part,))]
            for parts in pieces
        ]
        marked = self._by_units(units) if self.is_by_units else self._by_offsets(sentences, units)
        lengths = np.fromiter((len(starts) for _, starts in marked), np.int64, len(sentences))
        tokens = np.frombuffer(b"".join([ids for ids, _ in marked]), self.dtype)
        return tokens, np.frombuffer(b"".join([starts for _, starts in marked]), np.uint8), lengths

    def _by_units(self, units: "list[list[str]]") -> "list[tuple[bytes, bytes]]":
        # A space ends a token in any text; other blanks do not in all.
        parted = [[part for unit in row for part in unit.split(" ")] for row in units]
        known = self._known
        new = list({part for row in parted for part in row if part not in known})
        for part, encoding in zip(new, backend.encode(self._rust, new, words=False, offsets=False)):
            ids = self._allowed(encoding.ids)
            is_han = _SPANS.match(part) is not None
            starts = bytes(not place or not (is_han or self._is_piece[number]) for place, number in enumerate(ids))
            known[part] = np.array(ids, self.dtype).tobytes(), starts
        marked = []
        for row in parted:
            found = [known[part] for part in row]
            marked.append((b"".join([ids for ids, _ in found]), b"".join([starts for _, starts in found])))
        self._kept += sum(map(len, new))
        if self._kept > _KEPT_CHARACTERS:
            known.clear()
            self._kept = 0
        return marked

    def _by_offsets(self, sentences: "Sequence[str]", units: "list[list[str]]") -> "list[tuple[bytes, bytes]]":
        marked = []
        for row, encoding in zip(units, backend.encode(self._rust, sentences, words=False, offsets=True)):
            ids, unit_of = self._allowed(encoding.ids), _unit_of_characters(row)
            starts, last = bytearray(len(ids)), None
            for place, (number, (first, _)) in enumerate(zip(ids, encoding.offsets)):
                unit = unit_of[first]
                is_han = _SPANS.match(row[unit]) is not None
                starts[place] = unit != last or not (is_han or self._is_piece[number])
                last = unit
            marked.append((np.array(ids, self.dtype).tobytes(), bytes(starts)))
        return marked

    def _allowed(self, ids: "Iterable[int]") -> "list[int]":
        return [self._unknown if number in self._never else number for number in ids]


def _plain_backend(tokenizer: NeZhaTokenizer) -> Any:
    """A copy of a tokenizer's Rust object that takes special tokens in a text for text."""
    rust = type(tokenizer._rust).from_str(tokenizer._rust.to_str())
    rust.encode_special_tokens = True
    return rust


def _unit_of_characters(units: "list[str]") -> "list[int]":
    return [number for number, unit in enumerate(units) for _ in unit]


def one_thread() -> None:
    """Keeps the tokenizer of this process from starting a thread per core: the build has a process per core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
