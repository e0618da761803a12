"""Heads and losses of torch_ref, against sums written out by hand."""

import math

import numpy as np
import pytest
import torch

import torch_ref
from paddle_nezha.config import NeZhaConfig

SIZES = dict(
    vocab_size=29,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=17,
    max_relative_position=3,
    num_labels=3,
    initializer_range=0.4,
)
ROUNDING = 1e-12  # float64 on both sides and values near 1


@pytest.fixture
def rng():
    torch.manual_seed(21)
    return np.random.default_rng(21)


def head(name, **changes):
    return torch_ref.build(NeZhaConfig(**{**SIZES, **changes}), name)


def cross_entropy_loop(logits, labels):
    """Mean over labelled rows of -log softmax(row)[label]."""
    rows = np.asarray(logits.detach()).reshape(-1, logits.shape[-1])
    losses = [
        -math.log(math.exp(row[label]) / sum(math.exp(z) for z in row))
        for row, label in zip(rows, np.ravel(labels))
        if label not in (-1, -100)
    ]
    return sum(losses) / len(losses) if losses else 0.0


def test_masked_lm_reads_the_tied_table(rng):
    ref, ids = head("masked_lm"), rng.integers(0, 29, (2, 5))
    labels = np.array([[4, -100, 7, -1, 0], [-100] * 4 + [28]])
    record = {}
    out = ref(ids, labels=labels, record=record)
    w = torch_ref.parameters(ref)
    logits = record["mlm.transform"].detach().numpy() @ w["nezha.embeddings.word_embeddings.weight"].T
    logits += w["cls.predictions.decoder_bias"]
    np.testing.assert_allclose(out.logits.detach(), logits, rtol=0, atol=ROUNDING)
    assert out.loss.item() == pytest.approx(cross_entropy_loop(out.logits, labels), rel=ROUNDING)
    assert torch.equal(ref(ids, masked_lm_labels=labels).loss, out.loss)
    assert torch.equal(ref(ids, labels=labels[..., None]).loss, out.loss)


def test_pretraining_is_the_sum_and_either_label_gives_its_own(rng):
    ref, ids = head("pretraining"), rng.integers(0, 29, (2, 5))
    words, order = rng.integers(0, 29, (2, 5)), np.array([1, 0])
    both = ref(ids, labels=words, next_sentence_label=order)
    assert both.prediction_logits.shape == (2, 5, 29) and both.seq_relationship_logits.shape == (2, 2)
    one, other = (
        cross_entropy_loop(both.prediction_logits, words),
        cross_entropy_loop(both.seq_relationship_logits, order),
    )
    assert both.loss.item() == pytest.approx(one + other, rel=ROUNDING)
    assert ref(ids, masked_lm_labels=words).loss.item() == pytest.approx(one, rel=ROUNDING)
    assert ref(ids, next_sentence_label=order).loss.item() == pytest.approx(other, rel=ROUNDING)
    assert ref(ids).loss is None


@pytest.mark.parametrize("keyword", ["next_sentence_label", "labels"])
def test_next_sentence(keyword, rng):
    out = head("next_sentence")(rng.integers(0, 29, (3, 5)), **{keyword: np.array([[1], [-100], [0]])})
    assert out.logits.shape == (3, 2)
    assert out.loss.item() == pytest.approx(cross_entropy_loop(out.logits, [1, -100, 0]), rel=ROUNDING)


def test_sequence_classification_decides_by_label(rng):
    ids = rng.integers(0, 29, (4, 5))
    ref = head("sequence_classification")
    chosen = np.array([0, 2, 1, -1])
    out = ref(ids, labels=chosen)
    assert out.loss.item() == pytest.approx(cross_entropy_loop(out.logits, chosen), rel=ROUNDING)

    marks = rng.integers(0, 2, (4, 3)).astype("float32")
    z = out.logits.detach().numpy()
    binary = -np.mean(marks * np.log(1 / (1 + np.exp(-z))) + (1 - marks) * np.log(1 - 1 / (1 + np.exp(-z))))
    assert ref(ids, labels=marks).loss.item() == pytest.approx(binary, rel=ROUNDING)
    assert ref.config.problem_type is None  # decided anew at each call

    single = head("sequence_classification", num_labels=1)
    target = rng.normal(size=4)
    out = single(ids, labels=target)
    assert out.loss.item() == pytest.approx(np.mean((out.logits.detach().numpy()[:, 0] - target) ** 2), rel=ROUNDING)


def test_problem_type_wins(rng):
    ids, marks = rng.integers(0, 29, (2, 5)), np.array([[0, 1, 1], [1, 0, 0]])
    regression = head("sequence_classification", problem_type="regression")
    z = regression(ids).logits.detach().numpy()
    assert regression(ids, labels=marks).loss.item() == pytest.approx(np.mean((z - marks) ** 2), rel=ROUNDING)
    binary = head("sequence_classification", problem_type="multi_label_classification")
    assert torch.equal(binary(ids, labels=marks).loss, binary(ids, labels=marks.astype("float64")).loss)


def test_token_classification(rng):
    labels = np.array([[0, 2, -100, 1, -1], [-100] * 5])
    out = head("token_classification")(rng.integers(0, 29, (2, 5)), labels=labels)
    assert out.logits.shape == (2, 5, 3)
    assert out.loss.item() == pytest.approx(cross_entropy_loop(out.logits, labels), rel=ROUNDING)


def test_question_answering_averages_each_end_over_its_own_rows(rng):
    ref, ids = head("question_answering"), rng.integers(0, 29, (3, 5))
    start, end = np.array([0, 5, -1]), np.array([4, 3, -100])  # 5 is L: outside
    record = {}
    out = ref(ids, start_positions=start, end_positions=end, record=record)
    assert torch.equal(out.start_logits, record["classifier.logits"][..., 0])
    assert torch.equal(out.end_logits, record["classifier.logits"][..., 1])
    first = cross_entropy_loop(out.start_logits, [0, -1, -1])
    second = cross_entropy_loop(out.end_logits, [4, 3, -1])
    assert out.loss.item() == pytest.approx((first + second) / 2, rel=ROUNDING)
    assert ref(ids, start_positions=start).loss is None


def test_multiple_choice_counts_choices_from_the_input(rng):
    ref = head("multiple_choice", num_choices=2)
    ids, types = rng.integers(0, 29, (2, 3, 5)), rng.integers(0, 2, (2, 3, 5))
    mask = np.ones((2, 3, 5), dtype=int)
    mask[1, 2, 3:] = 0
    out = ref(ids, types, mask, labels=np.array([2, 0]))
    assert out.logits.shape == (2, 3)
    assert out.loss.item() == pytest.approx(cross_entropy_loop(out.logits, [2, 0]), rel=ROUNDING)
    alone = ref(ids[1:, 2:], types[1:, 2:], mask[1:, 2:]).logits
    torch.testing.assert_close(alone[0, 0], out.logits[1, 2], rtol=0, atol=ROUNDING)
    square = np.repeat(mask[:, :, None], 5, axis=2)
    assert torch.equal(ref(ids, types, square).logits, out.logits)


@pytest.mark.parametrize("name", ["masked_lm", "pretraining", "token_classification", "question_answering"])
def test_nothing_labelled_gives_zero_loss_and_zero_gradients(name, rng):
    ref = head(name)
    labels = {"labels": np.full((2, 5), -100)}
    if name == "question_answering":
        labels = {"start_positions": np.array([-1, 9]), "end_positions": np.array([-100, 5])}
    out = ref(rng.integers(0, 29, (2, 5)), **labels)
    out.loss.backward()
    assert out.loss.item() == 0.0
    assert all(np.all(g == 0) for g in torch_ref.gradients(ref).values())


def test_loss_of_logits_200_apart():
    from torch_ref.heads import cross_entropy

    logits = torch.tensor([[0.0, 200.0]], dtype=torch.float64)
    assert cross_entropy(logits, torch.tensor([0])).item() == 200.0  # log(1 + e^-200) is below half an ulp


def test_unknown_head_and_label_are_refused(rng):
    with pytest.raises(ValueError, match="head: expected one of model, pretraining, .* got 'mlm'; choose"):
        head("mlm")
    with pytest.raises(TypeError, match="head token_classification: unexpected label start_positions"):
        head("token_classification")(rng.integers(0, 29, (1, 5)), start_positions=np.array([1]))


def test_outputs_as_arrays(rng):
    arrays = head("question_answering")(rng.integers(0, 29, (2, 5))).arrays()
    assert set(arrays) == {
        "last_hidden_state", "pooler_output", "hidden_states", "attentions", "start_logits", "end_logits",
    }  # fmt: skip
    assert len(arrays["hidden_states"]) == 2 and arrays["attentions"][0].shape == (2, 2, 5, 5)
    assert np.array_equal(arrays["hidden_states"][-1], arrays["last_hidden_state"])
