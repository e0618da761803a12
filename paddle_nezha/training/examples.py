"""Examples for pre-training: sentence pairs as BERT made them, or full sentences, numbered without end.

Example number n depends on the corpus, the settings and the seed alone: not on how many workers read, on the size of a
batch or on where reading began. So a run goes on after a stop, on any number of processes, as if there had been none.

An epoch goes through all shards of the corpus, in an order of its own, a window of `SHARDS_PER_WINDOW` at a time. The
plan of a window says of each example where its tokens lie; it is shuffled within the window, and is all that is held in
memory. Texts are read from the memory-mapped shards when a batch is made.
"""

import hashlib
import math
from bisect import bisect_right
from dataclasses import astuple, dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, Optional

import numpy as np

from paddle_nezha.training.masking import DRAWS_PER, Masking

# So many shards are shuffled together. More mix better, and need 41 bytes of memory for each of their examples.
SHARDS_PER_WINDOW = 8
# Batches are as long as their longest example, rounded up to this: kernels like it, and traced shapes are few.
LENGTH_STEP = 8

# One example: `length` tokens of a shard from `first` on, a second sequence likewise (of length 0 without pairs),
# whether that is a random one, and the key of its masking.
_EXAMPLE = np.dtype(
    [
        ("shard", "i4"), ("length", "i4"), ("first", "i8"),
        ("second_shard", "i4"), ("second_length", "i4"), ("second_first", "i8"),
        ("is_random", "i1"), ("key", "u8"),
    ]
)  # fmt: skip
# What a generator is for: no two of them begin alike.
_PLAN, _SHARD_ORDER, _WINDOW_ORDER = range(1, 4)


@dataclass(frozen=True)
class ExampleSettings:
    """What examples are made of.

    Args:
        max_length: tokens of an example at most, with [CLS] and [SEP].
        next_sentence: pairs of sequences, the second of which follows the first or is a random one; False takes full
            sentences of one document.
        short_sequence_probability: this share of examples aims at a random length from 2 tokens on, so that a model
            sees short texts too; the others aim at `max_length`.
        whole_word, mask_probability, max_predictions, replacement, draw_per: see `Masking`.
        dupe_factor: k repeats the examples and masks of k epochs, in a new order each time (static masking); None makes
            each epoch's anew (dynamic masking).

    Raises:
        ValueError: a setting out of its range; the message names it.
    """

    max_length: int = 128
    next_sentence: bool = True
    short_sequence_probability: float = 0.1
    whole_word: bool = True
    mask_probability: float = 0.15
    max_predictions: Optional[int] = None
    replacement: "tuple[float, float, float]" = (0.8, 0.1, 0.1)
    draw_per: str = "token"
    dupe_factor: Optional[int] = None

    def __post_init__(self) -> None:
        for name in ("next_sentence", "whole_word"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, but got {getattr(self, name)!r}.")
        _check_integer("max_length", self.max_length, 5 if self.next_sentence else 3)
        for name in ("max_predictions", "dupe_factor"):
            if getattr(self, name) is not None:
                _check_integer(name, getattr(self, name), 1, " or None")
        _check_share("short_sequence_probability", self.short_sequence_probability)
        _check_share("mask_probability", self.mask_probability)
        if self.mask_probability == 0:
            raise ValueError("mask_probability must be above 0, but got 0: nothing would be predicted.")
        if self.draw_per not in DRAWS_PER:
            raise ValueError(f"draw_per must be one of {', '.join(DRAWS_PER)}, but got {self.draw_per!r}.")
        if not isinstance(self.replacement, (list, tuple)) or len(self.replacement) != 3:
            raise ValueError(
                "replacement must be three shares, of [MASK], of a random token and of the token itself, but got "
                f"{self.replacement!r}."
            )
        for share in self.replacement:
            _check_share("replacement", share)
        if not math.isclose(sum(self.replacement), 1, abs_tol=1e-6):  # 1e-6: shares written with a few digits
            raise ValueError(f"replacement must add up to 1, but got {self.replacement!r}.")
        object.__setattr__(self, "replacement", tuple(self.replacement))  # YAML and JSON give lists


def _check_integer(name: str, value: Any, least: int, otherwise: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be an integer of at least {least}{otherwise}, but got {value!r}.")


def _check_share(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, but got {value!r}.")


class _Place(NamedTuple):
    """Where a window begins: the number of its first example, its epoch, and which of the epoch's windows it is."""

    number: int
    epoch: int
    window: int


class ExampleStream:
    """The endless stream of a corpus's examples, any part of it at any time.

    Args:
        corpus: a `Corpus`, or anything with its attributes.
        settings: what examples are made of.
        seed: an integer from 0 on.
        position: what `position` of an equal stream gave. Examples from there on are then found without walking there
            from the first; earlier ones still can be had, by walking.

    Raises:
        ValueError: a corpus without examples, one document where pairs are asked for, a position of another stream.
    """

    def __init__(
        self, corpus: Any, settings: ExampleSettings, seed: int, position: "Optional[dict[str, int]]" = None
    ) -> None:
        _check_integer("seed", seed, 0)
        self.corpus, self.settings, self.seed = corpus, settings, seed
        self._shards = [number for number, shard in enumerate(corpus.shards) if len(shard.documents) > 1]
        n_documents = sum(len(corpus.shards[number].documents) - 1 for number in self._shards)
        if n_documents == 0:
            raise ValueError(
                f"The corpus {corpus.folder} ({corpus.split}) must hold at least one document, but holds none: build "
                "it from more text."
            )
        if n_documents == 1 and settings.next_sentence:
            raise ValueError(
                f"Sentence pairs need at least two documents, as some second sequences come from another one, but the "
                f"corpus {corpus.folder} ({corpus.split}) holds one: put blank lines between the documents of its "
                "text and build it anew, or set next_sentence to False."
            )
        self._windows = -(-len(self._shards) // SHARDS_PER_WINDOW)
        self._masking = Masking(
            vocab_size=corpus.vocab_size,
            special_ids=(corpus.pad_id, corpus.unk_id, corpus.cls_id, corpus.sep_id, corpus.mask_id),
            mask_id=corpus.mask_id,
            whole_word=settings.whole_word,
            mask_probability=settings.mask_probability,
            max_predictions=settings.max_predictions,
            replacement=settings.replacement,
            draw_per=settings.draw_per,
        )
        self._places = [_Place(0, 0, 0)]  # windows next to each other, as far as known
        self._plans: "dict[tuple[int, int], np.ndarray]" = {}
        if position is not None:
            self._begin_at(position)

    def batch(self, start: int, count: int) -> "dict[str, np.ndarray]":
        """Examples start .. start + count - 1.

        Returns:
            int64 arrays by the names that `NeZhaForPretraining` takes. [count, L], L the length of the longest rounded
            up to 8: `input_ids`, `token_type_ids`, `attention_mask`, `masked_lm_labels` (-100 where nothing is
            predicted). [count], with pairs alone: `next_sentence_label`, 0 where the second sequence follows the first,
            1 where it is a random one.
        """
        _check_integer("start", start, 0)
        _check_integer("count", count, 1)
        examples = self._examples(start, count)
        whole = self._whole(examples)
        input_ids, labels = self._masking(whole.ids, whole.word_starts, examples["key"])
        batch = {
            "input_ids": input_ids,
            "token_type_ids": whole.types,
            "attention_mask": whole.visible,
            "masked_lm_labels": labels,
        }
        if self.settings.next_sentence:
            batch["next_sentence_label"] = examples["is_random"].astype("int64")
        return batch

    def position(self, number: int) -> "dict[str, int]":
        """Where example `number` is, for a new stream to begin there; JSON can hold it. `epoch` counts from 0."""
        _check_integer("number", number, 0)
        place = self._find(number)
        return {"number": place.number, "epoch": place.epoch, "window": place.window, "stream": self._identity()}

    def _identity(self) -> int:
        """Of the corpus, the settings and the seed: 53 bits, which every reader of JSON keeps."""
        described = repr((self.corpus.digest, astuple(self.settings), self.seed, SHARDS_PER_WINDOW))
        return int.from_bytes(hashlib.sha256(described.encode()).digest()[:8], "big") >> 11

    def _begin_at(self, position: "dict[str, int]") -> None:
        expected = ("number", "epoch", "window", "stream")
        if not isinstance(position, dict) or set(position) != set(expected):
            raise ValueError(f"A position must hold {', '.join(expected)}, but got {position!r}.")
        for name in expected:
            _check_integer(name, position[name], 0)
        if position["stream"] != self._identity():
            raise ValueError(
                "The position was taken from another stream: the corpus, the settings of its examples or the seed have "
                "changed since. Go on with those of the earlier run, or begin without a position."
            )
        self._places = [_Place(position["number"], position["epoch"], position["window"])]

    def _find(self, number: int) -> _Place:
        """The window that holds an example."""
        if number < self._places[0].number:
            self._places = [_Place(0, 0, 0)]
        place = self._places[bisect_right(self._places, (number, math.inf)) - 1]
        while True:
            following = place.number + len(self._plan(place))
            if number < following:
                return place
            epoch, window = divmod(place.epoch * self._windows + place.window + 1, self._windows)
            place = _Place(following, epoch, window)
            if following > self._places[-1].number:
                self._places.append(place)

    def _examples(self, start: int, count: int) -> np.ndarray:
        parts = []
        while count:
            place = self._find(start)
            part = self._plan(place)[start - place.number :][:count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return np.concatenate(parts)

    def _plan(self, place: _Place) -> np.ndarray:
        """The examples of a window in their order; the two made last are kept, as a batch may lie in both."""
        key = (place.epoch, place.window)
        plan = self._plans.get(key)
        if plan is None:
            order = self._generator(_SHARD_ORDER, place.epoch, 0).permutation(self._shards)
            shards = order[place.window * SHARDS_PER_WINDOW :][:SHARDS_PER_WINDOW].tolist()
            epoch = place.epoch % self.settings.dupe_factor if self.settings.dupe_factor else place.epoch
            plan = np.concatenate([self._shard_plan(shard, epoch) for shard in shards])
            plan = self._generator(_WINDOW_ORDER, *key).permutation(plan)
            self._plans = dict([*self._plans.items()][-1:] + [(key, plan)])
        return plan

    def _generator(self, purpose: int, epoch: int, part: int) -> np.random.Generator:
        return np.random.default_rng([purpose, epoch, part, self.seed])

    def _shard_plan(self, number: int, epoch: int) -> np.ndarray:
        """The examples of a shard, in the order of its text."""
        rng = self._generator(_PLAN, epoch, number)
        shard = self.corpus.shards[number]
        sentences, documents = np.asarray(shard.sentences), np.asarray(shard.documents)
        if self.settings.next_sentence:
            plan = self._pairs(rng, number, sentences, documents)
        else:
            plan = self._full_sentences(rng, *_pieces(sentences, documents, self._room))
        plan["shard"] = number
        plan["key"] = rng.integers(0, 2**64, len(plan), dtype="uint64")
        return plan

    @property
    def _room(self) -> int:
        """How many tokens an example holds beside [CLS] and [SEP]."""
        return self.settings.max_length - (3 if self.settings.next_sentence else 2)

    def _targets(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """How many tokens an example aims at that begins with a sentence, for each sentence."""
        short = rng.random(count) < self.settings.short_sequence_probability
        return np.where(short, rng.integers(min(2, self._room), self._room, count, endpoint=True), self._room)

    def _full_sentences(self, rng: np.random.Generator, sentences: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Examples of as many sentences as fit."""
        here = np.arange(len(sentences) - 1)
        targets = self._targets(rng, len(here))
        ends = np.searchsorted(sentences, sentences[:-1] + targets, "right") - 1
        ends = np.minimum(np.maximum(ends, here + 1), _document_ends(documents))
        chosen = _chain(ends)
        plan = np.zeros(len(chosen), _EXAMPLE)
        plan["first"] = sentences[chosen]
        plan["length"] = sentences[ends[chosen]] - sentences[chosen]
        return plan

    def _pairs(self, rng: np.random.Generator, number: int, sentences: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Pairs of sequences as BERT's `create_pretraining_data.py` makes them.

        A chunk of a document is cut behind a random sentence. The second sequence is the rest, or, half of the time and
        whenever there is no rest, as long a sequence of another document, and the rest begins the next chunk. In BERT a
        document draws one target length; here each chunk does, as short targets would otherwise make far more examples
        than their share.
        """
        # What a chunk would be is computed for every sentence at which one could begin.
        here = np.arange(len(sentences) - 1)
        targets = self._targets(rng, len(here))
        ends = np.minimum(np.searchsorted(sentences, sentences[:-1] + targets), _document_ends(documents))
        cuts = rng.integers(here + 1, np.maximum(ends, here + 2))
        is_random = (cuts == ends) | (rng.random(len(here)) < 0.5)
        chosen = _chain(np.where(is_random, cuts, ends))

        first, cut, end, is_random = sentences[chosen], cuts[chosen], ends[chosen], is_random[chosen]
        plan = np.zeros(len(chosen), _EXAMPLE)
        plan["is_random"] = is_random
        plan["first"], plan["length"] = first, sentences[cut] - first
        plan["second_shard"] = number
        plan["second_first"], plan["second_length"] = sentences[cut], sentences[end] - sentences[cut]
        which = np.flatnonzero(is_random)
        document = np.searchsorted(documents, chosen[which], "right") - 1
        wanted = np.maximum(targets[chosen[which]] - plan["length"][which], 1)
        self._add_random(rng, plan, which, number, document, wanted)
        _truncate(rng, plan, self._room)
        return plan

    def _add_random(
        self,
        rng: np.random.Generator,
        plan: np.ndarray,
        which: np.ndarray,
        number: int,
        document: np.ndarray,
        wanted: np.ndarray,
    ) -> None:
        """Gives some examples sequences of other documents: of their own shard if it has others, so that reading stays
        in one place.

        Args:
            which: the examples.
            document: that of each in shard `number`.
            wanted: how many tokens each is to have at least, unless the other document ends before.
        """
        alone = len(self.corpus.shards[number].documents) == 2
        others = [other for other in self._shards if other != number] if alone else [number]
        shards = rng.choice(others, len(which))
        plan["second_shard"][which] = shards
        for other in np.unique(shards).tolist():
            those = shards == other
            shard = self.corpus.shards[other]
            sentences, documents = np.asarray(shard.sentences), np.asarray(shard.documents)
            if alone:
                chosen = rng.integers(0, len(documents) - 1, those.sum())
            else:
                chosen = rng.integers(0, len(documents) - 2, those.sum())
                chosen += chosen >= document[those]
            start = rng.integers(documents[chosen], documents[chosen + 1])
            end = np.minimum(np.searchsorted(sentences, sentences[start] + wanted[those]), documents[chosen + 1])
            plan["second_first"][which[those]] = sentences[start]
            plan["second_length"][which[those]] = sentences[end] - sentences[start]

    def _whole(self, examples: np.ndarray) -> "_Whole":
        """Reads a batch's texts and puts the special tokens around them."""
        first, second = examples["length"].astype("int64"), examples["second_length"].astype("int64")
        pairs = self.settings.next_sentence
        lengths = first + second + (3 if pairs else 2)
        width = min(-(-int(lengths.max()) // LENGTH_STEP) * LENGTH_STEP, self.settings.max_length)
        ids = np.full([len(examples), width], self.corpus.pad_id, "int64")
        word_starts = np.ones([len(examples), width], bool)
        opened: "dict[int, tuple[np.ndarray, np.ndarray]]" = {}

        def read(row: int, column: int, number: int, begin: int, length: int) -> None:
            if number not in opened:
                # Slices of a plain array cost a fifth of those of a memory map.
                shard = self.corpus.shards[number]
                opened[number] = np.asarray(shard.tokens), np.asarray(shard.word_starts)
            tokens, starts = opened[number]
            ids[row, column : column + length] = tokens[begin : begin + length]
            # The first token stays a start: it may be what a cut has left of a word.
            word_starts[row, column + 1 : column + length] = starts[begin + 1 : begin + length]

        for row, (shard, length, begin, second_shard, second_length, second_begin, _, _) in enumerate(
            examples.tolist()
        ):
            read(row, 1, shard, begin, length)
            if pairs:
                read(row, length + 2, second_shard, second_begin, second_length)
        rows, columns = np.arange(len(examples)), np.arange(width)
        ids[:, 0] = self.corpus.cls_id
        ids[rows, first + 1] = self.corpus.sep_id
        ids[rows, lengths - 1] = self.corpus.sep_id
        visible = columns < lengths[:, None]
        types = visible & (columns > first[:, None] + 1)
        return _Whole(ids, word_starts, types.astype("int64"), visible.astype("int64"))


@dataclass(frozen=True)
class _Whole:
    """Examples before they are masked, all [B, L]: ids, types and what is visible in int64, word starts in bool."""

    ids: np.ndarray
    word_starts: np.ndarray
    types: np.ndarray
    visible: np.ndarray


def _document_ends(documents: np.ndarray) -> np.ndarray:
    """Of each sentence, the end of its document: int64 [sentences]."""
    return np.repeat(documents[1:], np.diff(documents))


def _chain(following: np.ndarray) -> np.ndarray:
    """The sentences at which examples begin, from the first on; `following` gives of each the next one."""
    steps, here, chain = following.tolist(), 0, []
    while here < len(steps):
        chain.append(here)
        here = steps[here]
    return np.array(chain, "int64")


def _pieces(sentences: np.ndarray, documents: np.ndarray, room: int) -> "tuple[np.ndarray, np.ndarray]":
    """The same text with each sentence longer than `room` cut into pieces of that length, the last one shorter."""
    counts = -(-np.diff(sentences) // room)
    before = np.concatenate([[0], counts.cumsum()])
    within = np.arange(before[-1]) - np.repeat(before[:-1], counts)
    starts = np.repeat(sentences[:-1], counts) + within * room
    return np.append(starts, sentences[-1]), before[documents]


def _truncate(rng: np.random.Generator, plan: np.ndarray, room: int) -> None:
    """Shortens pairs to `room` tokens as BERT does: always the longer by one token, in front or behind at random.

    Of so many tokens at so many ends only the numbers matter: the lengths follow from the excess, and how many go in
    front is binomial.
    """
    first, second = plan["length"].astype("int64"), plan["second_length"].astype("int64")
    # Of two equally long ones BERT shortens the second.
    kept_first = np.minimum(first, np.maximum(room - room // 2, room - second))
    kept_second = np.minimum(second, room - kept_first)
    for name, kept, length in (("", kept_first, first), ("second_", kept_second, second)):
        plan[f"{name}first"] += rng.binomial(length - kept, 0.5)
        plan[f"{name}length"] = kept
