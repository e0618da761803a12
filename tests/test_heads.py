"""The seven heads: what each reads, how wide it is, and its loss."""

import math

import numpy as np
import pytest
from reference import Reference, cross_entropy, error
from test_model import BASE_NAMES

from paddle_nezha import heads
from paddle_nezha._paddle import paddle
from paddle_nezha.heads import (
    NeZhaForMaskedLM,
    NeZhaForMultipleChoice,
    NeZhaForNextSentencePrediction,
    NeZhaForPretraining,
    NeZhaForQuestionAnswering,
    NeZhaForSequenceClassification,
    NeZhaForTokenClassification,
    _log_sum_exp,
)

pytestmark = pytest.mark.usefixtures("seeded")

FORMULA = 1e-12  # float64 on both sides

PREDICTIONS = {
    "cls.predictions.dense.weight",
    "cls.predictions.dense.bias",
    "cls.predictions.layer_norm.weight",
    "cls.predictions.layer_norm.bias",
    "cls.predictions.decoder_weight",
    "cls.predictions.decoder_bias",
}
RELATION = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
CLASSIFIER = {"classifier.weight", "classifier.bias"}
# kind, its own names, the output class, logits' shapes for ids [2, 7], labels by name
HEADS = {
    NeZhaForPretraining: (
        PREDICTIONS | RELATION,
        "NeZhaForPreTrainingOutput",
        [[2, 7, 99], [2, 2]],
        {"masked_lm_labels": [[5, -100, -1, 0, 98, 3, 4], [-100] * 7], "next_sentence_label": [1, 0]},
    ),
    NeZhaForMaskedLM: (
        PREDICTIONS,
        "MaskedLMOutput",
        [[2, 7, 99]],
        {"labels": [[5, -100, -1, 0, 98, 3, 4], [-100] * 7]},
    ),
    NeZhaForNextSentencePrediction: (
        RELATION,
        "NextSentencePredictorOutput",
        [[2, 2]],
        {"next_sentence_label": [1, 0]},
    ),
    NeZhaForSequenceClassification: (CLASSIFIER, "SequenceClassifierOutput", [[2, 3]], {"labels": [2, 0]}),
    NeZhaForTokenClassification: (
        CLASSIFIER,
        "TokenClassifierOutput",
        [[2, 7, 3]],
        {"labels": [[0, -100, -1, 1, 2, 0, 1], [2] * 7]},
    ),
    NeZhaForQuestionAnswering: (
        CLASSIFIER,
        "QuestionAnsweringModelOutput",
        [[2, 7], [2, 7]],
        {"start_positions": [1, 3], "end_positions": [2, 6]},
    ),
    NeZhaForMultipleChoice: (CLASSIFIER, "MultipleChoiceModelOutput", [[2, 3]], {"labels": [2, 0]}),
}
every_head = pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)


def tensor(values, dtype="int64"):
    return paddle.to_tensor(np.asarray(values), dtype=dtype)


def as_list(answer):
    return list(answer) if isinstance(answer, tuple) else [answer]


@pytest.fixture
def head(build, ids):
    """A factory: a head with 3 labels in train mode (no dropout), its ids, its labels."""

    def make(kind, dtype="float64", **changes):
        model = build(kind, dtype=dtype, **{"num_labels": 3, **changes})
        model.train()
        tokens = ids(2, 3, 7) if kind is NeZhaForMultipleChoice else ids(2, 7)
        return model, tokens, {name: tensor(values) for name, values in HEADS[kind][3].items()}

    return make


# ---- every head


@every_head
def test_names_are_paddlenlps(kind, head):
    assert set(head(kind)[0].state_dict()) == {f"nezha.{name}" for name in BASE_NAMES} | HEADS[kind][0]


@every_head
def test_without_labels_logits_alone_are_returned(kind, head):
    model, tokens, _ = head(kind)
    answer = model(tokens)
    shapes = HEADS[kind][2]
    assert isinstance(answer, tuple) == (len(shapes) > 1)  # the Tensor itself where a tuple would hold one item
    assert [list(x.shape) for x in as_list(answer)] == shapes


@every_head
def test_with_labels_the_loss_comes_first(kind, head):
    model, tokens, labels = head(kind)
    loss, *logits = model(tokens, **labels)
    assert list(loss.shape) == [] and loss.item() > 0
    assert [list(x.shape) for x in logits] == HEADS[kind][2]


@every_head
def test_return_dict_gives_the_named_output(kind, head):
    model, tokens, labels = head(kind)
    plain = model(tokens, **labels, output_hidden_states=True, output_attentions=True)
    named = model(tokens, **labels, output_hidden_states=True, output_attentions=True, return_dict=True)
    assert type(named).__name__ == HEADS[kind][1] and isinstance(named, dict)
    assert len(plain) == len(named) and named[0] is named.loss is named["loss"]
    assert (plain[0] == named.loss).all().item()
    assert len(named.hidden_states) == 3 and len(named.attentions) == 2
    assert model(tokens, return_dict=True).loss is None


@every_head
def test_arguments_are_paddlenlps_in_paddlenlps_order(kind, head):
    import inspect

    parameters = list(inspect.signature(kind.forward).parameters)
    common = ["input_ids", "token_type_ids", "attention_mask", "inputs_embeds"]
    options = ["output_hidden_states", "output_attentions", "return_dict", "unpad", "loss_only", "unsupported"]
    assert parameters == ["self", *common, *HEADS[kind][3], *options]


@every_head
def test_arguments_by_position(kind, head):
    model, tokens, labels = head(kind)
    segments, mask = paddle.zeros_like(tokens), paddle.ones_like(tokens)
    by_name = model(input_ids=tokens, token_type_ids=segments, attention_mask=mask, **labels, return_dict=True)
    by_position = model(tokens, segments, mask, None, *labels.values(), True, True, True)
    assert (by_position.loss == by_name.loss).all().item() and len(by_position.hidden_states) == 3


@every_head
def test_every_parameter_that_is_read_gets_a_gradient(kind, head):
    model, tokens, labels = head(kind)
    model(tokens, **labels)[0].backward()
    unread = {name for name, p in model.named_parameters() if p.grad is None}
    reads_sequence = (NeZhaForMaskedLM, NeZhaForTokenClassification, NeZhaForQuestionAnswering)
    pooler = {"nezha.pooler.dense.weight", "nezha.pooler.dense.bias"}
    assert unread == (pooler if kind in reads_sequence else set())


@every_head
def test_loss_in_eval_mode_with_gradients_warns_once_to_train(kind, head):
    model, tokens, labels = head(kind)
    model.eval()
    with pytest.warns(
        UserWarning, match=r"while in eval mode, so without dropout .*call model.train\(\) to train"
    ) as caught:
        model(tokens, **labels)
    assert len(caught) == 1 and caught[0].filename == __file__
    with paddle.no_grad():
        model(tokens, **labels)  # warnings are errors: none here
    model(tokens)


@every_head
def test_a_trailing_axis_of_1_on_labels_is_accepted(kind, head):
    model, tokens, labels = head(kind)
    loss = model(tokens, **labels)[0]
    wide = {name: values.unsqueeze(-1).astype("int32") for name, values in labels.items()}
    assert (model(tokens, **wide)[0] == loss).all().item()


@every_head
def test_all_ignored_gives_0_and_no_nan_in_gradients(kind, head):
    for ignored in (-100, -1):
        model, tokens, labels = head(kind)
        loss = model(tokens, **{name: paddle.full_like(values, ignored) for name, values in labels.items()})[0]
        loss.backward()
        assert loss.item() == 0
        assert all((p.grad == 0).all().item() for p in model.parameters() if p.grad is not None)


# ---- each head's formula


def encoded(model, tokens):
    truth = Reference(model)
    sequence, pooled, _, _ = truth(tokens.numpy())
    return truth, sequence, pooled


def test_masked_lm_decodes_with_the_word_table(head):
    model, tokens, labels = head(NeZhaForMaskedLM)
    truth, sequence, _ = encoded(model, tokens)
    loss, logits = model(tokens, **labels)
    assert error(logits.numpy(), truth.masked_lm(sequence)) <= FORMULA
    assert abs(loss.item() - cross_entropy(truth.masked_lm(sequence), labels["labels"].numpy())) <= FORMULA
    assert model.cls.predictions.decoder_weight is model.get_input_embeddings().weight


def test_next_sentence_reads_the_pooled_token(head):
    model, tokens, labels = head(NeZhaForNextSentencePrediction)
    truth, _, pooled = encoded(model, tokens)
    loss, logits = model(tokens, **labels)
    expected = truth.linear(pooled, "cls.seq_relationship")
    assert error(logits.numpy(), expected) <= FORMULA
    assert abs(loss.item() - cross_entropy(expected, [1, 0])) <= FORMULA


def test_pretraining_loss_is_the_sum_and_either_label_alone_gives_its_own(head):
    model, tokens, labels = head(NeZhaForPretraining)
    truth, sequence, pooled = encoded(model, tokens)
    loss, words, relation = model(tokens, **labels)
    assert error(words.numpy(), truth.masked_lm(sequence)) <= FORMULA
    assert error(relation.numpy(), truth.linear(pooled, "cls.seq_relationship")) <= FORMULA
    mlm = cross_entropy(words.numpy(), labels["masked_lm_labels"].numpy())
    nsp = cross_entropy(relation.numpy(), [1, 0])
    assert abs(loss.item() - (mlm + nsp)) <= FORMULA
    for name, alone in (("masked_lm_labels", mlm), ("next_sentence_label", nsp)):
        assert abs(model(tokens, **{name: labels[name]})[0].item() - alone) <= FORMULA


def test_sequence_classification_reads_the_pooled_token(head):
    model, tokens, labels = head(NeZhaForSequenceClassification)
    truth, _, pooled = encoded(model, tokens)
    loss, logits = model(tokens, **labels)
    assert error(logits.numpy(), truth.linear(pooled, "classifier")) <= FORMULA
    assert abs(loss.item() - cross_entropy(logits.numpy(), [2, 0])) <= FORMULA


def test_token_classification_reads_the_sequence(head):
    model, tokens, labels = head(NeZhaForTokenClassification)
    truth, sequence, _ = encoded(model, tokens)
    loss, logits = model(tokens, **labels)
    assert error(logits.numpy(), truth.linear(sequence, "classifier")) <= FORMULA
    assert abs(loss.item() - cross_entropy(logits.numpy(), labels["labels"].numpy())) <= FORMULA


def test_question_answering_has_start_in_column_0_and_end_in_column_1(head):
    model, tokens, labels = head(NeZhaForQuestionAnswering)
    truth, sequence, _ = encoded(model, tokens)
    loss, start, end = model(tokens, **labels)
    expected = truth.linear(sequence, "classifier")
    assert error(start.numpy(), expected[..., 0]) <= FORMULA and error(end.numpy(), expected[..., 1]) <= FORMULA
    mean = (cross_entropy(start.numpy(), [1, 3]) + cross_entropy(end.numpy(), [2, 6])) / 2
    assert abs(loss.item() - mean) <= FORMULA


@pytest.mark.parametrize("outside", [-1, -100, -7, 7, 10**6])
def test_answer_positions_outside_the_text_are_ignored(outside, head):
    model, tokens, _ = head(NeZhaForQuestionAnswering)
    loss, start, end = model(tokens, start_positions=tensor([outside, 3]), end_positions=tensor([2, outside]))
    mean = (cross_entropy(start.numpy()[1:], [3]) + cross_entropy(end.numpy()[:1], [2])) / 2
    assert abs(loss.item() - mean) <= FORMULA


def test_multiple_choice_counts_the_choices_from_the_input(head):
    model, tokens, labels = head(NeZhaForMultipleChoice)
    assert model.config.num_choices == 2 and tokens.shape[1] == 3
    truth, _, pooled = encoded(model, tokens.reshape([6, 7]))
    loss, logits = model(tokens, **labels)
    assert error(logits.numpy(), truth.linear(pooled, "classifier").reshape(2, 3)) <= FORMULA
    assert abs(loss.item() - cross_entropy(logits.numpy(), [2, 0])) <= FORMULA


def test_q41_multiple_choice_takes_masks_and_segments(head, rng):
    model, tokens, _ = head(NeZhaForMultipleChoice)
    segments, mask = tensor(rng.integers(0, 2, [2, 3, 7])), tensor(np.ones([2, 3, 7]))
    mask[0, 1, 4:] = 0
    got = model(tokens, segments, mask)
    assert list(got.shape) == list(model(tokens).shape) == [2, 3]
    alone = model(tokens[:, 1:2, :4], segments[:, 1:2, :4])
    assert abs(got[0, 1].item() - alone[0, 0].item()) <= FORMULA
    square = mask.unsqueeze(2).expand([2, 3, 7, 7])
    assert error(model(tokens, segments, square).numpy(), got.numpy()) <= FORMULA
    embeds = model.get_input_embeddings()(tokens)
    assert (model(inputs_embeds=embeds) == model(tokens)).all().item()


# ---- problem types


def test_one_label_is_regression(head):
    model, tokens, _ = head(NeZhaForSequenceClassification, num_labels=1)
    for labels in (tensor([0.5, -2.0], "float32"), tensor([[0.5], [-2.0]], "float64")):
        loss, logits = model(tokens, labels=labels)
        assert list(logits.shape) == [2, 1]
        assert abs(loss.item() - ((logits.numpy()[:, 0] - [0.5, -2.0]) ** 2).mean()) <= FORMULA
    loss, logits = model(tokens, labels=tensor([3, 1]))
    assert abs(loss.item() - ((logits.numpy()[:, 0] - [3, 1]) ** 2).mean()) <= FORMULA


def test_regression_of_several_numbers(head):
    model, tokens, _ = head(NeZhaForSequenceClassification, problem_type="regression")
    labels = np.arange(6.0).reshape(2, 3)
    loss, logits = model(tokens, labels=tensor(labels, "float64"))
    assert abs(loss.item() - ((logits.numpy() - labels) ** 2).mean()) <= FORMULA


@pytest.mark.parametrize("given", ["float labels", "problem_type"])
def test_several_labels_at_once_are_binary_cross_entropy(given, head):
    problem, dtype = (None, "float32") if given == "float labels" else ("multi_label_classification", "int64")
    model, tokens, _ = head(NeZhaForSequenceClassification, problem_type=problem)
    labels = np.array([[1, 0, 1], [0, 0, 1]])
    loss, logits = model(tokens, labels=tensor(labels, dtype))
    p = 1 / (1 + np.exp(-logits.numpy()))
    assert abs(loss.item() + (labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean()) <= FORMULA
    with pytest.raises(ValueError, match=r"labels must have shape \[2, 3\], but got \[2\]"):
        model(tokens, labels=tensor([1, 0], "float32"))


@pytest.mark.parametrize("bad", [2.0, -1.0, -100.0, float("nan")])
def test_several_labels_at_once_out_of_range_are_refused(bad, head):
    model, tokens, _ = head(NeZhaForSequenceClassification)
    with pytest.raises(
        ValueError, match=rf"labels must lie in 0 .. 1 where several can be right at once, but got {bad:g}"
    ):
        model(tokens, labels=tensor([[1, 0, 1], [0, bad, 0.5]], "float32"))


def test_deviates_problem_type_is_decided_anew_at_each_call_and_written_nowhere(head):
    model, tokens, _ = head(NeZhaForSequenceClassification)
    single = model(tokens, labels=tensor([2, 0]))[0].item()
    several = model(tokens, labels=tensor([[1, 0, 1], [0, 0, 1]], "float32"))[0].item()
    assert model(tokens, labels=tensor([2, 0]))[0].item() == single != several
    assert model.config.problem_type is None


def test_a_set_problem_type_wins_over_the_labels(head):
    model, tokens, _ = head(NeZhaForSequenceClassification, problem_type="single_label_classification")
    with pytest.raises(TypeError, match="labels must be int32 or int64 class indices, but got paddle.float32"):
        model(tokens, labels=tensor([1.0, 0.0], "float32"))


# ---- losses


def test_ignored_labels_do_not_count_in_the_mean(head):
    logits = tensor(np.random.default_rng(1).standard_normal([9, 5]), "float64")
    labels = tensor([0, 1, -100, 4, -1, 2, 2, 3, -100])
    loss = heads.cross_entropy(logits, labels)
    kept = (labels >= 0).numpy()
    assert abs(loss.item() - cross_entropy(logits.numpy()[kept], labels.numpy()[kept])) <= FORMULA


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loss_is_right_for_logits_far_apart(dtype):
    # Paddle's own cross-entropy stops at 64 on a processor.
    assert heads.cross_entropy(tensor([[0, 200]], dtype), tensor([0])).item() == 200
    assert heads.binary_cross_entropy(tensor([[-200, 200]], dtype), tensor([[1, 1]], dtype)).item() == 100


def test_gradient_of_the_cross_entropy_is_softmax_minus_label(rng):
    values = rng.standard_normal([4, 5])
    logits = tensor(values, "float64")
    logits.stop_gradient = False
    heads.cross_entropy(logits, tensor([0, 4, -100, 2])).backward()
    p = np.exp(values) / np.exp(values).sum(-1, keepdims=True)
    expected = (p - np.eye(5)[[0, 4, 0, 2]]) / 3
    expected[2] = 0
    assert error(logits.grad.numpy(), expected) <= FORMULA


@pytest.mark.parametrize("kind", [NeZhaForMaskedLM, NeZhaForSequenceClassification], ids=lambda kind: kind.__name__)
def test_gradients_equal_finite_differences(kind, head):
    model, tokens, labels = head(kind)
    loss = model(tokens, **labels)[0]
    loss.backward()
    draw = np.random.default_rng(3)
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        start, way = parameter.numpy(), draw.standard_normal(parameter.shape)
        sides = []
        with paddle.no_grad():
            for step in (1e-5, -1e-5):
                parameter.set_value(start + step * way)
                sides.append(model(tokens, **labels)[0].item())
            parameter.set_value(start)
        slope = (sides[0] - sides[1]) / 2e-5
        # Central differences: the cubic term times 1e-10, and 1e-16 of rounding over 1e-5.
        assert slope == pytest.approx((parameter.grad.numpy() * way).sum(), rel=1e-5, abs=1e-8), name


# ---- dropout before a classifier


@pytest.mark.parametrize(
    "kind",
    [NeZhaForSequenceClassification, NeZhaForTokenClassification, NeZhaForMultipleChoice],
    ids=lambda k: k.__name__,
)
def test_classifier_dropout_acts_and_none_means_the_hidden_one(kind, head):
    model, tokens, _ = head(kind, classifier_dropout=0.5)
    assert model.dropout.p == 0.5
    assert (model(tokens) != model(tokens)).any().item()
    assert head(kind, classifier_dropout=None, hidden_dropout_prob=0.2)[0].dropout.p == 0.2


def test_question_answering_has_no_dropout_before_its_classifier(head):
    model, tokens, _ = head(NeZhaForQuestionAnswering, classifier_dropout=0.5)
    assert (model(tokens)[0] == model(tokens)[0]).all().item()


def test_the_common_idiom_with_a_criterion_works(head):
    model, tokens, labels = head(NeZhaForSequenceClassification, dtype="float32")
    criterion = paddle.nn.CrossEntropyLoss()
    loss = criterion(model(tokens, paddle.zeros_like(tokens)), labels["labels"])
    assert loss.item() == pytest.approx(model(tokens, **labels)[0].item(), rel=1e-5)  # float32, another formula


@pytest.mark.parametrize(
    "given",
    [
        {"attention_mask": [3, 2, 7]},
        {"token_type_ids": [3, 2, 7]},
        {"attention_mask": [6, 1, 7]},
        {"attention_mask": [2, 3, 6]},
        {"attention_mask": [2, 3]},
    ],
    ids=str,
)
def test_choices_paired_with_other_masks_or_segments_are_refused(given, build, ids):
    model = build(NeZhaForMultipleChoice)
    ((name, shape),) = given.items()
    with pytest.raises(ValueError, match=name if shape[-1] == 7 or len(shape) == 2 else "attention_mask"):
        model(ids(2, 3, 7), **{name: paddle.ones(shape, "int64") * (name == "attention_mask")})


def test_no_choices_at_all_are_refused_in_the_callers_words(build):
    with pytest.raises(ValueError, match=r"\[batch, choices, length, …\], none of them 0, but got shape \[2, 0, 7\]"):
        build(NeZhaForMultipleChoice)(paddle.zeros([2, 0, 7], "int64"))


@pytest.mark.parametrize("size", [255, 256, 257, 8000, 21128])
def test_log_sum_exp_over_many_words_is_as_exact_as_pairwise_sums(size, rng):
    """Paddle's own adds one term after another, 20 times as far from the truth at 21,128."""
    logits = (2.5 * rng.standard_normal([40, size])).astype("float32")
    wide = logits.astype("float64")
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    truth = np.log(powers.sum(-1)) + wide.max(-1)
    given = paddle.to_tensor(logits, stop_gradient=False)
    found = _log_sum_exp(given)
    found.sum().backward()
    # Half a unit in the last place of the answer, about 9 to 13, and what two sums of sqrt(size) terms lose.
    limit = 2.0**-24 * (16 + 2 * math.sqrt(2 * math.sqrt(size)))
    assert np.abs(found.numpy() - truth).max() <= limit
    shares = powers / powers.sum(-1, keepdims=True)
    assert np.abs(given.grad.numpy() / shares - 1).max() <= 2 * limit
    assert found.shape == [40]


def test_log_sum_exp_of_far_and_of_double_logits():
    logits = np.zeros([2, 1000])
    logits[0, 3], logits[1] = 500.0, -1e30
    found = _log_sum_exp(paddle.to_tensor(logits)).numpy()
    assert found.dtype == np.float64 and found[0] == 500.0 and math.isclose(found[1], -1e30 + math.log(1000))
