"""Padded arrays: what they hold, what is refused, and the same through a DataLoader with and without workers."""

import pickle
import subprocess
import sys
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from pathlib import Path

import numpy as np
import pytest

import paddle_nezha.training as training
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training import (
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForQuestionAnswering,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    LengthBatchSampler,
    feature_lengths,
)

DEMO = Path(__file__).resolve().parents[2] / "weights" / "nezha-seeded-demo"


class Tokens:
    """What collators read of a tokenizer; odd numbers, so that none is taken for another."""

    pad_token_id, pad_token_type_id = 7, 5


@pytest.fixture(scope="module")
def tokenizer():
    return NeZhaTokenizer.from_pretrained(DEMO)


def rows(*lengths, first=100):
    return [{"input_ids": list(range(first, first + n)), "token_type_ids": [0, *[1] * (n - 1)]} for n in lengths]


def labelled(features, name, values):
    return [{**feature, name: value} for feature, value in zip(features, values)]


# ---- padding


def test_padding_to_the_longest():
    batch = DataCollatorWithPadding(Tokens())(labelled(rows(2, 4), "labels", [1, 0]))
    assert {name: array.tolist() for name, array in batch.items()} == {
        "input_ids": [[100, 101, 7, 7], [100, 101, 102, 103]],
        "token_type_ids": [[0, 1, 5, 5], [0, 1, 1, 1]],
        "attention_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
        "labels": [1, 0],
    }
    assert {array.dtype for array in batch.values()} == {np.dtype("int64")}


@pytest.mark.parametrize(
    "options, length",
    [
        ({}, 5),
        ({"padding": "longest"}, 5),
        ({"pad_to_multiple_of": 8}, 8),
        ({"pad_to_multiple_of": 5}, 5),
        ({"padding": "max_length", "max_length": 9}, 9),
        ({"padding": "max_length", "max_length": 9, "pad_to_multiple_of": 4}, 12),
    ],
)
@pytest.mark.parametrize("kind", ["Padding", "Token", "Answer", "Choice", "Language"])
def test_lengths(kind, options, length, tokenizer):
    features, collator = {
        "Padding": (rows(3, 5), DataCollatorWithPadding),
        "Token": (rows(3, 5), DataCollatorForTokenClassification),
        "Answer": (rows(3, 5), DataCollatorForQuestionAnswering),
        "Choice": ([{"input_ids": [[9, 8, 9], [9] * 5]}], DataCollatorForMultipleChoice),
        "Language": (rows(3, 5), DataCollatorForLanguageModeling),
    }[kind]
    batch = collator(tokenizer, **options)(features)
    shape = (1, 2, length) if kind == "Choice" else (2, length)
    assert all(array.shape == shape for array in batch.values())
    assert {"input_ids", "token_type_ids", "attention_mask"} <= set(batch)


def test_masks_and_segments_are_always_there_and_those_given_stay():
    collator = DataCollatorWithPadding(Tokens())
    batch = collator([{"input_ids": [9, 8]}, {"input_ids": [9]}])
    assert batch["token_type_ids"].tolist() == [[0, 0], [0, 5]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    batch = collator([{"input_ids": [9, 8], "attention_mask": [0, 1]}, {"input_ids": [9], "attention_mask": [1]}])
    assert batch["attention_mask"].tolist() == [[0, 1], [1, 0]]


def test_what_the_tokenizer_gives_is_taken_and_other_columns_stay_out(tokenizer):
    encoded = [tokenizer(text, return_length=True, return_offsets_mapping=True) for text in ("今天", "今天早上")]
    batch = DataCollatorWithPadding(tokenizer)(encoded)
    truth = tokenizer(["今天", "今天早上"], padding=True, return_attention_mask=True, return_tensors="np")
    assert set(batch) == set(truth) and all((batch[name] == truth[name]).all() for name in truth)


def test_padding_is_behind_whatever_the_tokenizer_says():
    tokenizer = NeZhaTokenizer.from_pretrained(DEMO, padding_side="left")
    assert DataCollatorWithPadding(tokenizer)(rows(1, 2))["attention_mask"].tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "values, dtype, shape",
    [
        ([1, 2], "int64", (2,)),
        ([True, False], "int64", (2,)),
        ([np.int32(1), np.int32(2)], "int64", (2,)),
        ([0.5, 2.0], "float32", (2,)),
        ([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], "float32", (2, 3)),
    ],
)
@pytest.mark.parametrize("name", ["labels", "label"])
def test_labels_of_texts(name, values, dtype, shape):
    labels = DataCollatorWithPadding(Tokens())(labelled(rows(2, 3), name, values))["labels"]
    assert labels.dtype == dtype and labels.shape == shape and (labels == np.array(values)).all()


# ---- the other tasks


def test_labels_of_tokens():
    features = labelled(rows(2, 4), "labels", [[-100, 1], [-100, 2, 0, -100]])
    batch = DataCollatorForTokenClassification(Tokens(), pad_to_multiple_of=3)(features)
    assert batch["labels"].tolist() == [[-100, 1, -100, -100, -100, -100], [-100, 2, 0, -100, -100, -100]]
    other = DataCollatorForTokenClassification(Tokens(), label_pad_token_id=-1)(features)
    assert other["labels"].tolist()[0] == [-100, 1, -1, -1]
    assert "labels" not in DataCollatorForTokenClassification(Tokens())(rows(2, 4))


def test_positions_of_answers():
    features = labelled(labelled(rows(2, 4), "start_positions", [1, 0]), "end_positions", [1, 3])
    features = [{**f, "offset_mapping": [None] * len(f["input_ids"]), "record": 0} for f in features]
    batch = DataCollatorForQuestionAnswering(Tokens())(features)
    assert list(batch) == ["input_ids", "token_type_ids", "attention_mask", "start_positions", "end_positions"]
    assert batch["start_positions"].tolist() == [1, 0] and batch["end_positions"].tolist() == [1, 3]
    assert batch["end_positions"].dtype == np.int64


def test_choices():
    features = [
        {"input_ids": [[11], [12, 13]], "token_type_ids": [[0], [0, 1]], "labels": 1},
        {"input_ids": [[21, 22, 23], [24]], "token_type_ids": [[0, 0, 1], [0]], "labels": 0},
    ]
    batch = DataCollatorForMultipleChoice(Tokens())(features)
    assert batch["input_ids"].tolist() == [[[11, 7, 7], [12, 13, 7]], [[21, 22, 23], [24, 7, 7]]]
    assert batch["token_type_ids"].tolist() == [[[0, 5, 5], [0, 1, 5]], [[0, 0, 1], [0, 5, 5]]]
    assert batch["attention_mask"].sum(-1).tolist() == [[1, 2], [3, 1]] and batch["labels"].tolist() == [1, 0]


# ---- masking


def texts(tokenizer, rng, count=64):
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    return [{"input_ids": [cls, *rng.choice(ordinary, rng.integers(5, 60)).tolist(), sep]} for _ in range(count)]


@pytest.mark.parametrize("whole_word", [True, False])
def test_masks_follow_from_the_example_alone(tokenizer, rng, whole_word):
    features = texts(tokenizer, rng)
    collator = DataCollatorForLanguageModeling(tokenizer, whole_word=whole_word, seed=3)
    batch = collator(features)
    for order in (rng.permutation(64), rng.permutation(64)[:10], [5]):
        part = collator([features[place] for place in order])
        length = part["input_ids"].shape[1]
        for name, array in part.items():
            assert (array == batch[name][order][:, :length]).all()
    labels, ids = batch["labels"], DataCollatorWithPadding(tokenizer)(features)["input_ids"]
    assert (labels[labels >= 0] == ids[labels >= 0]).all() and (batch["input_ids"] == ids)[labels < 0].all()
    share = (labels >= 0).sum() / (batch["attention_mask"].sum() - 2 * 64)
    assert 0.13 < share < 0.17  # each example rounds 15 % of its tokens
    assert not np.isin(labels, tokenizer.all_special_ids).any()
    other_seed = DataCollatorForLanguageModeling(tokenizer, whole_word=whole_word, seed=4)
    assert (other_seed(features)["labels"] != labels).any()
    collator.set_epoch(1)
    assert (collator(features)["labels"] != labels).any()
    collator.set_epoch(0)
    assert (collator(features)["labels"] == labels).all()


def test_whole_words(tokenizer):
    """Words told by the features are hidden whole; where none are told, pieces go with what they continue."""
    vocabulary = tokenizer.get_vocab()
    piece = next(number for token, number in vocabulary.items() if token.startswith("##"))
    word = next(n for t, n in vocabulary.items() if n not in tokenizer.all_special_ids and not t.startswith("##"))
    row = [tokenizer.cls_token_id, *[word, piece, piece] * 15, tokenizer.sep_token_id]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4)
    hidden = (collator([{"input_ids": row}])["labels"] >= 0)[0, 1:-1].reshape(15, 3)
    assert set(hidden.sum(1)) == {0, 3}
    starts = [1, 1, *[0, 1, 0, 0, 0] * 8 + [0, 1, 0, 0], 1]
    features = [{"input_ids": row, "word_starts": starts}, {"input_ids": row[:9], "word_starts": [1] * 9}]
    hidden = (collator(features)["labels"] >= 0)[0, 1:-1]
    words = np.split(hidden, np.flatnonzero(starts[1:-1])[1:])
    assert {bool(part.all()) for part in words} == {True, False} and all(part.all() or not part.any() for part in words)
    single = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4, whole_word=False)
    assert not set((single([{"input_ids": row}])["labels"] >= 0)[0, 1:-1].reshape(15, 3).sum(1)) <= {0, 3}


def test_a_piece_behind_a_special_token_is_a_word(tokenizer):
    piece = next(number for token, number in tokenizer.get_vocab().items() if token.startswith("##"))
    row = [tokenizer.cls_token_id, piece, tokenizer.sep_token_id]
    assert DataCollatorForLanguageModeling(tokenizer)([{"input_ids": row}])["labels"].tolist() == [[-100, piece, -100]]


# ---- mistakes


@pytest.mark.parametrize(
    "options, message",
    [
        ({"padding": False}, "padding must be True, 'longest' or 'max_length', but got False"),
        ({"padding": "max_length"}, "go together, but got padding='max_length' and max_length=None: give both"),
        ({"max_length": 8}, "go together, but got padding=True and max_length=8: give both or neither"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of must be a whole number of at least 1, but got 0"),
    ],
)
def test_settings(options, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorWithPadding(Tokens(), **options)


def test_settings_of_masking(tokenizer):
    with pytest.raises(ValueError, match="mlm must be True, but got False"):
        DataCollatorForLanguageModeling(tokenizer, mlm=False)
    with pytest.raises(ValueError, match="mlm_probability must be above 0 and at most 1, but got 0"):
        DataCollatorForLanguageModeling(tokenizer, mlm_probability=0)


@pytest.mark.parametrize(
    "kind, features, message",
    [
        (DataCollatorWithPadding, [], "needs at least one feature"),
        (DataCollatorWithPadding, [3], "Features must be dicts with 'input_ids', but got int"),
        (DataCollatorWithPadding, [{"text": "a"}], r"with 'input_ids', but got \['text'\]"),
        (DataCollatorWithPadding, labelled(rows(2), "labels", [1]) + rows(2), "Some features of the batch have labels"),
        (DataCollatorWithPadding, labelled(rows(2), "labels", [[1, 2]]), "labels of tokens need DataCollatorForToken"),
        (DataCollatorWithPadding, labelled(rows(1, 2), "labels", [[1], [1, 2]]), "labels of tokens need"),
        (DataCollatorWithPadding, labelled(rows(1), "labels", ["good"]), "Labels must be one int or float.*'good'"),
        (DataCollatorWithPadding, labelled(rows(2), "token_type_ids", [[0]]), "Feature 0 must have as many token_type"),
        (
            DataCollatorForTokenClassification,
            labelled(rows(3), "labels", [[1]]),
            "label for each of its 3 tokens.*has 1",
        ),
        (DataCollatorForTokenClassification, labelled(rows(3), "labels", [1]), "label for each of its 3 tokens"),
        (DataCollatorForQuestionAnswering, labelled(rows(2), "start_positions", [0]) + rows(2), "feature 1 has not"),
        (
            DataCollatorForMultipleChoice,
            [{"input_ids": [[1]]}, {"input_ids": [[1], [2]]}],
            "feature 1 has 2 and feature 0",
        ),
    ],
)
def test_features_that_do_not_go_together(kind, features, message):
    with pytest.raises(ValueError, match=message):
        kind(Tokens())(features)


def test_a_feature_longer_than_max_length():
    with pytest.raises(ValueError, match="max_length=3 must hold every feature, but one has 4 tokens"):
        DataCollatorWithPadding(Tokens(), padding="max_length", max_length=3)(rows(2, 4))


def test_names():
    assert set(training.__all__) <= set(dir(training)) and all(hasattr(training, name) for name in training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'DataCollator'"):
        training.DataCollator  # noqa: B018


def test_nothing_here_imports_paddle():
    code = """
import sys
import paddle_nezha.training as training
assert "numpy" not in sys.modules
[getattr(training, name) for name in training.__all__]
print("numpy" in sys.modules, "paddle" in sys.modules)
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


# ---- data workers


def features_of(kind, tokenizer, rng):
    features = texts(tokenizer, rng, 30)
    if kind is DataCollatorForMultipleChoice:
        return [{"input_ids": [a["input_ids"], b["input_ids"]], "labels": 1} for a, b in zip(features, features[::-1])]
    if kind is DataCollatorForTokenClassification:
        return [{**f, "labels": [*range(len(f["input_ids"]))], "record": 0, "word_ids": [None]} for f in features]
    if kind is DataCollatorForQuestionAnswering:
        return [{**f, "start_positions": n, "end_positions": n, "record": n} for n, f in enumerate(features)]
    return [{**f, "labels": n} for n, f in enumerate(features)]


@pytest.mark.parametrize(
    "kind",
    [
        DataCollatorWithPadding,
        DataCollatorForTokenClassification,
        DataCollatorForQuestionAnswering,
        DataCollatorForMultipleChoice,
        DataCollatorForLanguageModeling,
    ],
)
def test_a_data_loader_gives_the_same_with_workers(kind, tokenizer, rng):
    from paddle_nezha._paddle import paddle

    features = features_of(kind, tokenizer, rng)
    collator = pickle.loads(pickle.dumps(kind(tokenizer, pad_to_multiple_of=8)))
    assert len(pickle.dumps(collator)) < 50_000

    def planned(epoch):
        sampler = LengthBatchSampler(feature_lengths(features), batch_size=4, seed=5)
        sampler.set_epoch(epoch)
        if kind is DataCollatorForLanguageModeling:
            collator.set_epoch(epoch)
        return sampler

    def loaded(workers, epoch):
        # Without Paddle's reading thread: a worker that is forked while it counts memory inherits its lock, and hangs.
        loader = paddle.io.DataLoader(
            features, batch_sampler=planned(epoch), collate_fn=collator, num_workers=workers, use_buffer_reader=False
        )
        assert len(loader) == 8
        return list(loader)

    # By workers first, for the same reason: a loader without them leaves a thread.
    all_by_workers = [loaded(2, epoch) for epoch in (0, 1)]
    for epoch, by_workers in enumerate(all_by_workers):
        plain = loaded(0, epoch)
        truth = [collator([features[place] for place in rows]) for rows in planned(epoch).batches(epoch)]
        assert len(plain) == len(by_workers) == len(truth) == 8
        for expected, *others in zip(truth, plain, by_workers):
            for batch in others:
                assert set(batch) == set(expected)
                for name, tensor in batch.items():
                    assert isinstance(tensor, paddle.Tensor) and tensor.dtype == paddle.int64
                    assert (tensor.numpy() == expected[name]).all()
