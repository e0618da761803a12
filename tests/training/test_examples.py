"""Examples against the text they come from: each token of the toy corpora has its own id, so that it is found again."""

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paddle_nezha.training.examples import SHARDS_PER_WINDOW, ExampleSettings, ExampleStream, _truncate
from paddle_nezha.training.masking import IGNORED

PAD, UNK, CLS, SEP, MASK = SPECIAL = range(5)
FIRST = 5  # the id of the corpus's first token


@dataclass(frozen=True)
class Shard:
    tokens: np.ndarray
    word_starts: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """A corpus in memory, and where each token of it stands: `document`, `sentence` and `word_start` by its id."""

    shards: "tuple[Shard, ...]"
    document: np.ndarray
    sentence: np.ndarray
    word_start: np.ndarray
    digest: str = "toy"
    folder: Path = Path("toy")
    split: str = "train"
    pad_id: int = PAD
    unk_id: int = UNK
    cls_id: int = CLS
    sep_id: int = SEP
    mask_id: int = MASK

    @property
    def vocab_size(self):
        return len(self.document)


def corpus_of(shards, word_rate=0.6, **changes):
    """A corpus of shards, lists of documents, lists of the lengths of sentences. Words are cut at random."""
    draw = np.random.default_rng(1)
    made, document, sentence, word_start = [], [-1] * FIRST, [-1] * FIRST, [True] * FIRST
    for documents in shards:
        lengths = np.array([length for sentences in documents for length in sentences], "int64")
        ends = np.concatenate([[0], lengths.cumsum()])
        starts = (draw.random(ends[-1]) < word_rate).astype("uint8")
        starts[ends[:-1]] = 1
        tokens = np.arange(len(document), len(document) + ends[-1]).astype("uint32")
        for sentences in documents:
            document += [document[-1] + 1] * sum(sentences)
            for length in sentences:
                sentence += [sentence[-1] + 1] * length
        word_start += starts.tolist()
        sizes = np.array([len(sentences) for sentences in documents], "int64")
        made.append(Shard(tokens, starts, ends, np.concatenate([[0], sizes.cumsum()])))
    return Corpus(tuple(made), *map(np.array, (document, sentence, word_start)), **changes)


def random_corpus(shards, documents, sentences=(1, 12), tokens=(1, 40), seed=3):
    draw = np.random.default_rng(seed)
    return corpus_of(
        [[draw.integers(*tokens, draw.integers(*sentences)).tolist() for _ in range(documents)] for _ in range(shards)]
    )


def originals(batch):
    """The examples before masking, each its sequences: two for pairs, else one."""
    types, visible, labels = batch["token_type_ids"], batch["attention_mask"], batch["masked_lm_labels"]
    ids = np.where(labels == IGNORED, batch["input_ids"], labels)
    column = np.arange(ids.shape[1])
    n = visible.sum(1)[:, None]
    n_sequences = 1 + ("next_sentence_label" in batch)
    assert np.array_equal(visible, column < n)
    assert np.array_equal(ids == PAD, column >= n)
    assert np.array_equal(ids == CLS, np.broadcast_to(column == 0, ids.shape))
    assert ((ids == SEP).sum(1) == n_sequences).all() and (np.take_along_axis(ids, n - 1, 1) == SEP).all()
    assert not np.isin(ids, [UNK, MASK]).any()
    assert np.array_equal(types == 1, (column > (ids == SEP).argmax(1)[:, None]) & (column < n))
    ends = np.nonzero(ids == SEP)[1].reshape(-1, n_sequences).tolist()
    return [[row[a + 1 : b] for a, b in zip([0, *places], places)] for row, places in zip(ids, ends)]


def first_of_epochs(stream, epochs):
    """The numbers of the first examples of epochs 0 .. epochs."""

    def is_before(number, epoch):
        return stream.position(number)["epoch"] < epoch

    starts = [0]
    for epoch in range(1, epochs + 1):
        step = 1
        while is_before(starts[-1] + step, epoch):
            step *= 2
        low, high = starts[-1] + step // 2, starts[-1] + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_before(middle, epoch) else (low, middle)
        starts.append(high)
    return starts


def epoch_of(stream, epoch):
    start, end = first_of_epochs(stream, epoch + 1)[epoch:]
    return stream.batch(start, end - start)


def trimmed(batch):
    """The rows of a batch without their padding, to compare batches of different lengths."""
    rows = []
    for row in range(len(batch["input_ids"])):
        n = batch["attention_mask"][row].sum()
        assert (batch["masked_lm_labels"][row, n:] == IGNORED).all()
        names = ["input_ids", "token_type_ids", "attention_mask", "masked_lm_labels"]
        rows.append([batch[name][row, :n].tolist() for name in names])
        if "next_sentence_label" in batch:
            rows[-1].append(int(batch["next_sentence_label"][row]))
    return rows


def is_span(tokens):
    return len(tokens) > 0 and (np.diff(tokens) == 1).all()


@pytest.fixture(scope="module")
def ordinary():
    """As many shards as make three windows."""
    return random_corpus(2 * SHARDS_PER_WINDOW + 3, 12)


MODES = [True, False]


@pytest.mark.parametrize("next_sentence", MODES)
def test_arrays_of_a_batch(ordinary, next_sentence):
    stream = ExampleStream(ordinary, ExampleSettings(max_length=61, next_sentence=next_sentence), 1)
    lengths = set()
    for start in range(0, 200, 2):
        batch = stream.batch(start, 2)
        names = ["input_ids", "token_type_ids", "attention_mask", "masked_lm_labels"]
        assert list(batch) == names + ["next_sentence_label"] * next_sentence
        longest = batch["attention_mask"].sum(1).max()
        length = min(-(-longest // 8) * 8, 61)
        lengths.add(length)
        assert all(value.dtype == "int64" and value.flags.c_contiguous for value in batch.values())
        assert [value.shape for value in batch.values()] == [(2, length)] * 4 + [(2,)] * next_sentence
        originals(batch)
    assert 61 in lengths and len(lengths) > 3


@pytest.mark.parametrize("whole_word", [True, False])
@pytest.mark.parametrize("next_sentence", MODES)
def test_masks_follow_words_and_spare_special_tokens(ordinary, next_sentence, whole_word):
    stream = ExampleStream(ordinary, ExampleSettings(next_sentence=next_sentence, whole_word=whole_word), 1)
    batch = stream.batch(0, 2000)
    tokens = batch["attention_mask"].sum(1) - (3 if next_sentence else 2)
    labels = batch["masked_lm_labels"]
    predicted = labels != IGNORED
    assert (labels[predicted] >= FIRST).all()
    budgets = np.maximum(1, np.rint(0.15 * tokens))
    assert (predicted.sum(1) >= 1).all()
    if whole_word:
        # A budget is not used up where only longer words are left, and exceeded where all words are longer.
        assert predicted.sum() / budgets.sum() == pytest.approx(1, abs=0.02)
    else:
        assert (predicted.sum(1) == budgets).all()
    split = pieces = 0
    for before, chosen in zip(originals(batch), predicted):
        column = 1
        for part in before:
            starts = ordinary.word_start[part].copy()
            pieces += not starts[0] and chosen[column]
            starts[0] = True  # what a cut has left of a word is a word
            words = np.split(chosen[column : column + len(part)], np.flatnonzero(starts)[1:])
            split += sum(word.any() and not word.all() for word in words)
            column += len(part) + 1
    assert split == 0 if whole_word else split > 100
    assert pieces > 0 or not next_sentence  # toy sentences are short: full ones are never cut


def test_a_million_tokens_of_pairs():
    corpus = random_corpus(4, 330, sentences=(20, 40), tokens=(5, 48))
    stream = ExampleStream(corpus, ExampleSettings(short_sequence_probability=0.0), 1)
    tokens = predicted = random = masked = unchanged = 0
    for start in range(0, 8000, 500):
        batch = stream.batch(start, 500)
        places = batch["masked_lm_labels"] != IGNORED
        now = batch["input_ids"][places]
        tokens += (batch["attention_mask"].sum(1) - 3).sum()
        predicted += places.sum()
        masked += (now == MASK).sum()
        unchanged += (now == batch["masked_lm_labels"][places]).sum()
        random += batch["next_sentence_label"].sum()
    assert tokens > 950_000
    assert predicted / tokens == pytest.approx(0.15, abs=0.003)
    assert masked / predicted == pytest.approx(0.8, abs=0.01)
    assert unchanged / predicted == pytest.approx(0.1, abs=0.01)
    # Above one half: of a last sentence that is left alone the second sequence can only be random.
    assert 0.49 < random / 8000 < 0.55


def test_pairs_are_of_the_text(ordinary):
    stream = ExampleStream(ordinary, ExampleSettings(max_length=64), 1)
    batch = stream.batch(0, 3000)
    kinds = {"whole": 0, "cut in front": 0, "cut behind": 0, "random": 0, "from the middle": 0}
    for (first, second), label in zip(originals(batch), batch["next_sentence_label"]):
        assert is_span(first) and is_span(second)
        (of_first,), (of_second,) = (set(ordinary.document[part]) for part in (first, second))
        whole = len(first) + len(second) < 61
        if label == 1:
            assert of_first != of_second
            kinds["random"] += 1
            start = np.flatnonzero(ordinary.document == of_second)[0]
            kinds["from the middle"] += second[0] != start and ordinary.sentence[second[0]] != ordinary.sentence[start]
        else:
            assert of_first == of_second and first[-1] < second[0]
            assert ordinary.sentence[first[-1]] < ordinary.sentence[second[0]]
            kinds["whole"] += whole
            if whole:
                assert second[0] == first[-1] + 1
            else:
                assert len(first) + len(second) == 61
        for part in first, second:
            before, after = (
                ordinary.sentence[part[0] - 1],
                ordinary.sentence[min(part[-1] + 1, ordinary.vocab_size - 1)],
            )
            in_front = before == ordinary.sentence[part[0]]
            behind = after == ordinary.sentence[part[-1]] and part[-1] + 1 < ordinary.vocab_size
            kinds["cut in front"] += in_front
            kinds["cut behind"] += behind
            assert not (whole and (in_front or behind))
    assert min(kinds.values()) > 200, kinds
    assert kinds["cut in front"] == pytest.approx(kinds["cut behind"], rel=0.15)


def test_the_parts_of_a_chunk_are_cut_anywhere_and_unused_ones_are_put_back(ordinary):
    """Without truncation, first sequences and those that follow them are the whole text, each token once an epoch."""
    stream = ExampleStream(ordinary, ExampleSettings(max_length=2000, short_sequence_probability=0.5), 1)
    batch = epoch_of(stream, 1)
    seen, cuts = [], set()
    for (first, second), label in zip(originals(batch), batch["next_sentence_label"]):
        seen += [first] if label else [first, second]
        sizes = [len(set(ordinary.sentence[part])) for part in (first, second)]
        cuts.add(tuple(sizes))
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(FIRST, ordinary.vocab_size))
    assert {(1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (3, 1)} <= cuts


def test_chunks_end_where_the_target_is_reached_and_are_cut_behind_any_sentence():
    corpus = corpus_of([[[25] * 100] * 40])
    stream = ExampleStream(corpus, ExampleSettings(short_sequence_probability=0.0), 1)
    batch = epoch_of(stream, 0)
    cuts = []
    for (first, second), label in zip(originals(batch), batch["next_sentence_label"]):
        if label == 0 and corpus.document[min(second[-1] + 1, corpus.vocab_size - 1)] == corpus.document[first[0]]:
            assert second[0] == first[-1] + 1 and len(first) + len(second) == 125
            assert len(first) % 25 == 0
            cuts.append(len(first) // 25)
    counts = np.bincount(cuts, minlength=6)[1:]
    assert counts[4] == 0
    assert np.abs(counts[:4] - len(cuts) / 4).max() < 5 * (len(cuts) * 0.25 * 0.75) ** 0.5


def test_a_document_of_one_sentence_gets_a_random_second_sequence():
    corpus = corpus_of([[[30]] * 10 + [[30, 20]] * 10])
    stream = ExampleStream(corpus, ExampleSettings(short_sequence_probability=0.0), 1)
    batch = stream.batch(0, 400)
    labels_of = {}
    for (first, _), label in zip(originals(batch), batch["next_sentence_label"]):
        labels_of.setdefault(int(corpus.document[first[0]]), set()).add(int(label))
    assert [labels_of[document] for document in range(20)] == [{1}] * 10 + [{0, 1}] * 10


def test_random_sequences_come_from_the_same_shard_unless_it_has_one_document():
    corpus = corpus_of([[[5, 5]] * 4, [[5, 5]], [], [[5, 5]] * 3])
    shard_of = {
        document: shard for shard, documents in enumerate([range(4), [4], [], range(5, 8)]) for document in documents
    }
    stream = ExampleStream(corpus, ExampleSettings(), 1)
    batch = stream.batch(0, 1500)
    found = {}
    for (first, second), label in zip(originals(batch), batch["next_sentence_label"]):
        if label:
            own, other = int(corpus.document[first[0]]), int(corpus.document[second[0]])
            found.setdefault(own, set()).add(other)
    expected = {own: {o for o in shard_of if shard_of[o] == shard_of[own] and o != own} for own in shard_of}
    expected[4] = {0, 1, 2, 3, 5, 6, 7}
    assert found == expected


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 40))
def test_lengths_are_truncated_as_by_bert(first, second, room):
    plan = np.zeros(1, [("first", "i8"), ("length", "i8"), ("second_first", "i8"), ("second_length", "i8")])
    plan["first"], plan["length"], plan["second_first"], plan["second_length"] = 100, first, 500, second
    _truncate(np.random.default_rng(first), plan, room)
    left, right = first, second
    while left + right > room:
        left, right = (left - 1, right) if left > right else (left, right - 1)
    assert (plan["length"][0], plan["second_length"][0]) == (left, right)
    assert 100 <= plan["first"][0] <= 100 + first - left and 500 <= plan["second_first"][0] <= 500 + second - right


@pytest.mark.parametrize("short", [0.0, 0.3])
def test_full_sentences_show_each_token_once_an_epoch(short):
    corpus = random_corpus(3, 20, tokens=(1, 90))
    stream = ExampleStream(
        corpus, ExampleSettings(max_length=52, next_sentence=False, short_sequence_probability=short), 1
    )
    for epoch in range(2):
        examples = [sequences[0] for sequences in originals(epoch_of(stream, epoch))]
        assert np.array_equal(np.sort(np.concatenate(examples)), np.arange(FIRST, corpus.vocab_size))
        cuts = 0
        for example in examples:
            assert is_span(example) and len(example) <= 50 and len(set(corpus.document[example])) == 1
            following = example[-1] + 1
            if following == corpus.vocab_size or corpus.document[following] != corpus.document[example[0]]:
                continue
            sentence = corpus.sentence[following]
            if sentence == corpus.sentence[example[-1]]:
                cuts += 1
                assert (corpus.sentence == sentence).sum() > 50  # only a sentence too long for any example is cut
            elif not short:
                assert len(example) + min((corpus.sentence == sentence).sum(), 50) > 50  # the next did not fit
        assert cuts > 20


@pytest.mark.parametrize("next_sentence", MODES)
def test_short_sequences(next_sentence):
    corpus = corpus_of([[[1] * 3000] * 2])
    stream = ExampleStream(corpus, ExampleSettings(next_sentence=next_sentence), 1)
    lengths = stream.batch(0, first_of_epochs(stream, 1)[1])["attention_mask"].sum(1)
    short = lengths < 128
    # A tenth, of 60 examples and more; the ends of documents beside.
    assert 0.02 < short.mean() < 0.25
    always = ExampleStream(corpus, ExampleSettings(next_sentence=next_sentence, short_sequence_probability=1.0), 1)
    lengths = always.batch(0, 2000)["attention_mask"].sum(1)
    assert (lengths == (5 if next_sentence else 4)).sum() > 5  # two tokens, a 125th of all, are a target too
    assert np.histogram(lengths, 5, (4, 129))[0].min() > 300


@pytest.mark.parametrize("next_sentence", MODES)
def test_each_epoch_shows_each_document_in_another_order(ordinary, next_sentence):
    stream = ExampleStream(ordinary, ExampleSettings(max_length=64, next_sentence=next_sentence), 1)
    orders = []
    for epoch in range(3):
        orders.append([int(ordinary.document[sequences[0][0]]) for sequences in originals(epoch_of(stream, epoch))])
        assert set(orders[-1]) == set(range(ordinary.document.max() + 1))
        # Shards follow in windows, and within a window the documents of all of them are mixed.
        shards = np.array(orders[-1]) // 12
        assert len(set(shards[:60])) == SHARDS_PER_WINDOW
        assert (np.diff(shards) != 0).mean() > 0.5
    assert orders[0][:50] != orders[1][:50] != orders[2][:50]


def test_masks_and_pairs_are_made_anew_each_epoch_or_after_some(ordinary):
    def epochs(dupe_factor, count):
        stream = ExampleStream(ordinary, ExampleSettings(max_length=64, dupe_factor=dupe_factor), 1)
        return [trimmed(epoch_of(stream, epoch)) for epoch in range(count)]

    in_order, one, two, three, four = (lambda found: [found[0], *map(sorted, found)])(epochs(2, 4))
    assert one == three and two == four
    assert one != two
    assert in_order != epochs(2, 4)[2]
    dynamic = epochs(None, 2)
    shared = [row for row in dynamic[0] if row in dynamic[1]]
    assert len(shared) < len(dynamic[0]) / 20  # examples of one or two tokens may be alike


def test_the_seed_and_nothing_else_changes_everything(ordinary):
    def rows(seed, **changes):
        return trimmed(ExampleStream(ordinary, ExampleSettings(**changes), seed).batch(0, 100))

    assert rows(1) == rows(1)
    assert sum(row in rows(1) for row in rows(2)) < 5
    assert rows(2**70) != rows(2**70 + 1)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=8), st.integers(0, 3000), st.booleans())
def test_any_split_gives_the_same_examples(counts, start, next_sentence):
    corpus = random_corpus(SHARDS_PER_WINDOW + 2, 5)  # two windows, so that batches straddle them
    chosen = ExampleSettings(max_length=64, next_sentence=next_sentence)
    whole = trimmed(ExampleStream(corpus, chosen, 7).batch(start, sum(counts)))
    stream, split, number = ExampleStream(corpus, chosen, 7), [], start
    for count in counts:
        split += trimmed(stream.batch(number, count))
        number += count
    assert split == whole
    from_there = ExampleStream(corpus, chosen, 7, stream.position(number - 1))
    assert trimmed(from_there.batch(number - 1, 1)) == whole[-1:]


@pytest.mark.parametrize("next_sentence", MODES)
def test_a_stream_begins_at_any_position_without_walking(ordinary, next_sentence, monkeypatch):
    chosen = ExampleSettings(max_length=64, next_sentence=next_sentence)
    walked = ExampleStream(ordinary, chosen, 7)
    end = first_of_epochs(walked, 2)[2] + 40
    expected = trimmed(walked.batch(0, end))
    planned = []
    plan_shard = ExampleStream._shard_plan
    monkeypatch.setattr(
        ExampleStream, "_shard_plan", lambda self, *which: planned.append(which) or plan_shard(self, *which)
    )
    for number in [0, 1, end // 3, end // 2, end - 40, end - 39, end - 1]:
        position = json.loads(json.dumps(walked.position(number)))
        planned.clear()
        stream = ExampleStream(ordinary, chosen, 7, position)
        assert trimmed(stream.batch(number, 1)) == expected[number : number + 1]
        assert len(planned) <= SHARDS_PER_WINDOW
        assert stream.position(number) == position
        backwards = number // 2
        assert trimmed(stream.batch(backwards, 2)) == expected[backwards : backwards + 2]
        assert trimmed(stream.batch(number, 1)) == expected[number : number + 1]


def test_at_most_two_windows_are_held(ordinary):
    stream = ExampleStream(ordinary, ExampleSettings(), 1)
    stream.batch(0, 5000)
    assert len(stream._plans) == 2


def test_memory_maps_are_read_as_arrays_are(ordinary, tmp_path):
    mapped = []
    for number, shard in enumerate(ordinary.shards):
        parts = {}
        for name, dtype in [("tokens", "u2"), ("word_starts", "u1"), ("sentences", "i8"), ("documents", "i8")]:
            getattr(shard, name).astype(dtype).tofile(tmp_path / f"{number}.{name}")
            parts[name] = np.memmap(tmp_path / f"{number}.{name}", dtype, "r")
        mapped.append(Shard(**parts))
    for next_sentence in MODES:
        chosen = ExampleSettings(next_sentence=next_sentence)
        in_memory, on_disk = (
            ExampleStream(corpus, chosen, 1).batch(0, 600)
            for corpus in (ordinary, replace(ordinary, shards=tuple(mapped)))
        )
        assert all(np.array_equal(in_memory[name], on_disk[name]) for name in in_memory)
        assert not any(isinstance(value, np.memmap) for value in on_disk.values())


def test_a_stream_can_be_sent_to_another_process(ordinary):
    stream = ExampleStream(ordinary, ExampleSettings(), 1)
    assert trimmed(pickle.loads(pickle.dumps(stream)).batch(50, 9)) == trimmed(stream.batch(50, 9))


def test_a_position_of_another_stream_is_refused(ordinary):
    position = ExampleStream(ordinary, ExampleSettings(), 1).position(700)
    ExampleStream(ordinary, ExampleSettings(), 1, position)
    for corpus, chosen, seed in [
        (ordinary, ExampleSettings(), 2),
        (ordinary, ExampleSettings(max_length=127), 1),
        (replace(ordinary, digest="other"), ExampleSettings(), 1),
    ]:
        with pytest.raises(ValueError, match="taken from another stream.*begin without a position"):
            ExampleStream(corpus, chosen, seed, position)
    with pytest.raises(ValueError, match=r"must hold number, epoch, window, stream, but got \{'number': 3\}"):
        ExampleStream(ordinary, ExampleSettings(), 1, {"number": 3})
    with pytest.raises(ValueError, match="epoch must be an integer of at least 0, but got -1"):
        ExampleStream(ordinary, ExampleSettings(), 1, {**position, "epoch": -1})


def test_a_corpus_without_examples_is_refused():
    for shards in [], [[]], [[], []]:
        for next_sentence in MODES:
            with pytest.raises(ValueError, match=r"corpus toy \(train\) must hold at least one document.*more text"):
                ExampleStream(corpus_of(shards), ExampleSettings(next_sentence=next_sentence), 1)


def test_one_document_has_no_pairs():
    corpus = corpus_of([[[5, 6]], []])
    with pytest.raises(ValueError, match="at least two documents.*blank lines.*or set next_sentence to False"):
        ExampleStream(corpus, ExampleSettings(), 1)
    assert len(ExampleStream(corpus, ExampleSettings(next_sentence=False), 1).batch(0, 3)["input_ids"]) == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((-1, 2), "start must be an integer of at least 0, but got -1"),
        ((0, 0), "count must be .* at least 1, but got 0"),
    ],
)
def test_a_range_that_is_none_is_refused(ordinary, arguments, message):
    with pytest.raises(ValueError, match=message):
        ExampleStream(ordinary, ExampleSettings(), 1).batch(*arguments)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True])
def test_a_seed_that_is_none_is_refused(ordinary, seed):
    with pytest.raises(ValueError, match=f"seed must be an integer of at least 0, but got {seed!r}"):
        ExampleStream(ordinary, ExampleSettings(), seed)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_length": 4}, "max_length must be an integer of at least 5, but got 4"),
        ({"max_length": 2, "next_sentence": False}, "max_length must be an integer of at least 3, but got 2"),
        ({"max_length": "128"}, "max_length must be an integer of at least 5, but got '128'"),
        ({"next_sentence": 1}, "next_sentence must be True or False, but got 1"),
        ({"whole_word": "yes"}, "whole_word must be True or False, but got 'yes'"),
        ({"short_sequence_probability": 1.1}, "short_sequence_probability must be a number from 0 to 1, but got 1.1"),
        ({"short_sequence_probability": float("nan")}, "short_sequence_probability must be a number from 0 to 1"),
        ({"mask_probability": -0.1}, "mask_probability must be a number from 0 to 1, but got -0.1"),
        ({"mask_probability": 0}, "mask_probability must be above 0, but got 0"),
        ({"mask_probability": True}, "mask_probability must be a number from 0 to 1, but got True"),
        ({"max_predictions": 0}, "max_predictions must be an integer of at least 1 or None, but got 0"),
        ({"dupe_factor": 0}, "dupe_factor must be an integer of at least 1 or None, but got 0"),
        ({"dupe_factor": 2.0}, "dupe_factor must be an integer of at least 1 or None, but got 2.0"),
        ({"replacement": (0.8, 0.2)}, r"replacement must be three shares.*but got \(0.8, 0.2\)"),
        ({"replacement": 0.8}, "replacement must be three shares.*but got 0.8"),
        ({"replacement": (0.8, 0.3, -0.1)}, "replacement must be a number from 0 to 1, but got -0.1"),
        ({"replacement": (0.8, 0.1, 0.2)}, r"replacement must add up to 1, but got \(0.8, 0.1, 0.2\)"),
        ({"draw_per": "words"}, "draw_per must be one of token, word, but got 'words'"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ExampleSettings(**changes)


def test_settings_from_a_file():
    assert ExampleSettings(replacement=[0.8, 0.1, 0.1]) == ExampleSettings()
    assert hash(ExampleSettings(replacement=[1, 0, 0])) == hash(ExampleSettings(replacement=(1, 0, 0)))


lengths = st.one_of(st.just(1), st.integers(1, 60), st.just(10_000))
tiny_corpora = st.lists(st.lists(st.lists(lengths, min_size=1, max_size=3), max_size=3), min_size=1, max_size=3)


@settings(deadline=None, max_examples=100)
@given(tiny_corpora, st.booleans(), st.integers(5, 40), st.integers(0, 5))
def test_tiny_corpora(shards, next_sentence, max_length, seed):
    documents = sum(map(len, shards))
    assume(1 <= documents <= 3 and (documents > 1 or not next_sentence))
    corpus = corpus_of(shards)
    chosen = ExampleSettings(max_length=max_length, next_sentence=next_sentence, max_predictions=3)
    stream = ExampleStream(corpus, chosen, seed)
    batch = epoch_of(stream, 1)
    predicted = (batch["masked_lm_labels"] != IGNORED).sum(1)
    assert (predicted <= 3).all()
    examples = originals(batch)
    assert {int(corpus.document[sequences[0][0]]) for sequences in examples} == set(range(documents))
    for row, sequences in enumerate(examples):
        assert len(sequences) == 1 + next_sentence and all(map(is_span, sequences))
        assert sum(map(len, sequences)) <= max_length - (3 if next_sentence else 2)
        of = [set(corpus.document[part]) for part in sequences]
        assert all(len(documents) == 1 for documents in of)
        if next_sentence:
            assert (of[0] != of[1]) == batch["next_sentence_label"][row]
