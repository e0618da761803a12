"""Padding removed and put back, by itself and on request, and losses computed where there are labels alone."""

import numpy as np
import pytest
from reference import error
from test_heads import HEADS, every_head

from paddle_nezha._paddle import paddle
from paddle_nezha.attention import using_form
from paddle_nezha.heads import (
    NeZhaForMaskedLM,
    NeZhaForMultipleChoice,
    NeZhaForNextSentencePrediction,
    NeZhaForPretraining,
    NeZhaForQuestionAnswering,
    NeZhaForSequenceClassification,
    NeZhaForTokenClassification,
)
from paddle_nezha.model import NeZhaModel
from paddle_nezha.padding import Sequences

pytestmark = [
    pytest.mark.usefixtures("seeded"),
    # Paddle warns of its own tracing, as in test_static.py.
    pytest.mark.filterwarnings(r"ignore:The Attr\(force_cpu\) of Op\(fill_constant\)"),
    pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface"),
]

FORMULA = 1e-12  # float64, and the same sums in another order
LENGTH = 9
# First token and end of each row.
ROWS = {
    "right": [(0, 9), (0, 4), (0, 1)],
    "left": [(0, 9), (5, 9), (8, 9)],
    "both": [(1, 7), (0, 9), (3, 5)],
}
ENCODINGS = ["functional_relative", "parametric_relative", "absolute"]
POOLED = [NeZhaForNextSentencePrediction, NeZhaForSequenceClassification, NeZhaForMultipleChoice]
TOKENWISE = [NeZhaForMaskedLM, NeZhaForTokenClassification, NeZhaForPretraining]


def by_name(kind):
    return kind.__name__


def shown(rows, length=LENGTH):
    real = np.zeros([len(rows), length], bool)
    for row, (first, end) in zip(real, rows):
        row[first:end] = True
    return real


def tensor(values, dtype="int64"):
    return paddle.to_tensor(np.asarray(values), dtype=dtype)


class Watch:
    """How many positions each call of a model's first layer saw: [B * L], or the tokens alone."""

    def __init__(self, model):
        self.seen = []
        layer = model.base_model.encoder.layer[0]
        layer.register_forward_pre_hook(lambda _, inputs: self.seen.append(tuple(inputs[0].shape[:-1])))

    def was_packed(self):
        return len(self.seen.pop()) == 1


@pytest.fixture
def make(build, rng):
    """A factory: a float64 head in train mode without dropout, its inputs under a mask, its labels on tokens alone."""

    def build_head(kind, real, **changes):
        model = build(kind, dtype="float64", num_labels=3, **changes)
        model.train()
        batch, length = real.shape
        inputs = {
            "input_ids": rng.integers(1, 99, real.shape) * real,
            "token_type_ids": rng.integers(0, 2, real.shape),
            "attention_mask": real.astype("int64"),
        }
        words = np.where(real & (rng.random(real.shape) < 0.6), rng.integers(0, 3, real.shape), -100)
        labels = {
            "next_sentence_label": rng.integers(0, 2, batch),
            "start_positions": rng.integers(0, length, batch),
            "end_positions": rng.integers(0, length, batch),
            "labels": words if kind in TOKENWISE else rng.integers(0, 3, batch),
            "masked_lm_labels": words,
        }
        if kind is NeZhaForMultipleChoice:
            inputs = {name: value[None] for name, value in inputs.items()}
            labels["labels"] = rng.integers(0, batch, 1)
        names = HEADS[kind][3] if kind in HEADS else ()
        return (
            model,
            {name: tensor(value) for name, value in inputs.items()},
            {name: tensor(labels[name]) for name in names},
        )

    return build_head


def gradients(model, loss):
    model.clear_gradients()
    loss.backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def assert_close(got, truth):
    assert set(got) == set(truth)
    scale = max(np.abs(value).max() for value in truth.values())  # the key bias has no gradient to scale by
    for name, value in truth.items():
        assert np.abs(got[name] - value).max() <= FORMULA * max(scale, 1.0), name


def items(answer):
    return list(answer) if isinstance(answer, tuple) else [answer]


# ---- there and back


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_packing_and_padding_are_each_others_way_back(rows, rng):
    real = shown(rows)
    sequences = Sequences.of(real)
    values = rng.standard_normal([*real.shape, 5])
    packed = sequences.packed(paddle.to_tensor(values))
    assert (packed.numpy() == values[real]).all()
    assert (sequences.padded(packed).numpy() == values * real[..., None]).all()
    assert (sequences.columns.numpy() == np.nonzero(real)[1]).all()
    assert [packed.numpy()[at].tolist() for at in sequences.starts.numpy()[:-1]] == [
        values[row, first].tolist() for row, (first, _) in enumerate(rows)
    ]


# ---- by itself


@pytest.mark.parametrize("form", ["operator", "native"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", POOLED, ids=by_name)
def test_heads_of_the_pooled_output_lose_their_padding_and_nothing_else(kind, encoding, form, make):
    real = shown(ROWS["right"])
    model, inputs, labels = make(kind, real, position_encoding=encoding)
    watch = Watch(model)
    with using_form(form):
        truth = items(model(**inputs, **labels, unpad=False))
        assert not watch.was_packed()
        expected = gradients(model, truth[0])
        got = items(model(**inputs, **labels))
        assert watch.was_packed()
        assert_close(gradients(model, got[0]), expected)
    for one, other in zip(got, truth):
        assert error(one.numpy(), other.numpy()) <= FORMULA


@pytest.mark.parametrize("form", ["operator", "native"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", TOKENWISE, ids=by_name)
def test_losses_over_labelled_tokens_lose_their_padding_and_nothing_else(kind, encoding, rows, form, make):
    real = shown(rows)
    model, inputs, labels = make(kind, real, position_encoding=encoding)
    watch = Watch(model)
    with using_form(form):
        truth = model(**inputs, **labels)[0]
        assert not watch.was_packed()  # its logits at pads are there to be read
        expected = gradients(model, truth)
        loss = model(**inputs, **labels, loss_only=True)
        # The next sentence is read at position 0, which is padding in some row unless all begin at the left.
        assert watch.was_packed() == (kind is not NeZhaForPretraining or bool(real[:, 0].all()))
        assert abs(loss.item() - truth.item()) <= FORMULA
        assert_close(gradients(model, loss), expected)


def test_word_embeddings_get_the_gradients_they_had(make):
    real = shown(ROWS["right"])
    model, inputs, labels = make(NeZhaForSequenceClassification, real)
    found = []
    for unpad in (False, None):
        embeds = model.get_input_embeddings()(inputs["input_ids"]).detach()
        embeds.stop_gradient = False
        watch = Watch(model)
        model(inputs_embeds=embeds, attention_mask=inputs["attention_mask"], **labels, unpad=unpad)[0].backward()
        assert watch.was_packed() == (unpad is None)
        found.append(embeds.grad.numpy())
    assert error(found[1], found[0]) <= FORMULA and (found[1][~real] == 0).all()


def test_without_segments_and_with_recompute_it_is_the_same(make):
    model, inputs, labels = make(NeZhaForSequenceClassification, shown(ROWS["right"]))
    del inputs["token_type_ids"]
    truth = gradients(model, model(**inputs, **labels, unpad=False)[0])
    for recompute in (False, True):
        model.nezha.encoder.enable_recompute = recompute
        watch = Watch(model)
        loss = model(**inputs, **labels)[0]
        assert watch.was_packed()
        assert_close(gradients(model, loss), truth)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_any_2_d_mask_is_read(dtype, make):
    model, inputs, _ = make(NeZhaForSequenceClassification, shown(ROWS["right"]))
    inputs["attention_mask"] = inputs["attention_mask"].astype(dtype)
    watch = Watch(model)
    got = model(**inputs)
    assert watch.was_packed()
    assert error(got.numpy(), model(**inputs, unpad=False).numpy()) <= FORMULA


def whether_packed(make, kind, real, loss_only=False, mask=None, **options):
    model, inputs, labels = make(kind, real)
    if mask is not None:
        inputs["attention_mask"] = tensor(mask)
    watch = Watch(model)
    model(**inputs, **(labels if loss_only else {}), loss_only=loss_only, **options)
    return watch.was_packed()


def test_the_control_of_the_tests_below(make):
    # Each of them changes one thing of a call that does lose its padding.
    assert whether_packed(make, NeZhaForSequenceClassification, shown(ROWS["right"]))
    assert whether_packed(make, NeZhaForMaskedLM, shown(ROWS["right"]), loss_only=True)


def test_padding_stays_where_the_pooled_position_is_padding(make):
    assert not whether_packed(make, NeZhaForSequenceClassification, shown(ROWS["left"]))


def test_padding_stays_around_gaps(make):
    real = shown(ROWS["right"])
    real[0, 4] = False
    assert not whether_packed(make, NeZhaForSequenceClassification, real)


def test_padding_stays_with_a_row_that_is_nothing_else(make):
    real = shown([(0, 9), (0, 4), (0, 0)])
    model, inputs, labels = make(NeZhaForMaskedLM, real)
    watch = Watch(model)
    model(**inputs, **labels, loss_only=True)
    assert not watch.was_packed()


def test_padding_stays_under_masks_of_pairs(make):
    real = shown(ROWS["right"])
    pairs = np.broadcast_to(real[:, None], [3, 9, 9])
    assert not whether_packed(make, NeZhaForSequenceClassification, real, mask=pairs)
    assert not whether_packed(make, NeZhaForSequenceClassification, real, mask=pairs[:, None])
    causal = np.tril(np.ones([3, 9, 9], "int64"))  # each key is hidden from one run of queries, as if padded
    assert not whether_packed(make, NeZhaForMaskedLM, real, loss_only=True, mask=causal)


@pytest.mark.parametrize("asked", ["output_hidden_states", "output_attentions"])
def test_padding_stays_where_each_position_is_shown(asked, make):
    assert not whether_packed(make, NeZhaForSequenceClassification, shown(ROWS["right"]), **{asked: True})
    model, inputs, labels = make(NeZhaForSequenceClassification, shown(ROWS["right"]), **{asked: True})
    watch = Watch(model)
    model(**inputs)
    assert not watch.was_packed()
    model(**inputs, **labels, loss_only=True)  # which shows nothing, whatever the config says
    assert watch.was_packed()


def test_padding_stays_where_logits_of_each_token_are_returned(make):
    for kind in (*TOKENWISE, NeZhaForQuestionAnswering, NeZhaModel):
        model, inputs, labels = make(kind, shown(ROWS["right"]))
        watch = Watch(model)
        model(**inputs, **labels)
        assert not watch.was_packed(), kind


def test_padding_stays_where_it_is_labelled(make):
    real = shown(ROWS["right"])
    model, inputs, labels = make(NeZhaForMaskedLM, real)
    labels["labels"][1, 8] = 5
    watch = Watch(model)
    truth, loss = model(**inputs, **labels)[0], model(**inputs, **labels, loss_only=True)
    assert not watch.was_packed()
    assert abs(loss.item() - truth.item()) <= FORMULA
    labels["labels"][1, 8] = -1  # which is no label
    assert model(**inputs, **labels, loss_only=True).item() > 0 and watch.was_packed()


def test_the_loss_of_a_question_reads_all_positions_and_keeps_its_padding(make):
    model, inputs, labels = make(NeZhaForQuestionAnswering, shown(ROWS["right"]))
    watch = Watch(model)
    truth, loss = model(**inputs, **labels)[0], model(**inputs, **labels, loss_only=True)
    assert not watch.was_packed() and loss.item() == truth.item()


def test_a_small_share_of_padding_stays(make):
    # One pad is a sixteenth of 16 positions, and less of 18.
    for length, goes in ((8, True), (9, False)):
        real = shown([(0, length), (0, length - 1)], length)
        assert whether_packed(make, NeZhaForSequenceClassification, real) == goes


def test_no_mask_and_a_mask_that_hides_nothing_have_no_padding(make):
    real = shown([(0, 9)] * 3)
    model, inputs, _ = make(NeZhaForSequenceClassification, real)
    watch = Watch(model)
    for unpad in (None, True):
        truth = model(**inputs, unpad=unpad)
        assert not watch.was_packed()
        got = model(inputs["input_ids"], inputs["token_type_ids"], unpad=unpad)
        assert not watch.was_packed() and error(got.numpy(), truth.numpy()) <= FORMULA


def test_false_never_removes_padding(make):
    real = shown(ROWS["right"])
    assert not whether_packed(make, NeZhaForSequenceClassification, real, unpad=False)
    assert not whether_packed(make, NeZhaForMaskedLM, real, loss_only=True, unpad=False)


def test_dropout_drops_without_padding_too(make):
    model, inputs, labels = make(NeZhaForSequenceClassification, shown(ROWS["right"]), hidden_dropout_prob=0.5)
    assert model(**inputs, **labels)[0].item() != model(**inputs, **labels)[0].item()
    model.eval()
    assert (model(**inputs) == model(**inputs)).all().item()


# ---- on request


@pytest.mark.parametrize("form", ["operator", "native"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_on_request_tokens_are_as_they_were_and_padding_is_0(encoding, rows, form, make):
    real = shown(rows)
    model, inputs, _ = make(NeZhaModel, real, position_encoding=encoding)
    watch = Watch(model)
    options = {"output_hidden_states": True, "output_attentions": form == "native", "return_dict": True}
    with using_form(form):
        truth = model(**inputs, **options)
        got = model(**inputs, **options, unpad=True)
    assert watch.was_packed()
    for one, other in zip(got.hidden_states, truth.hidden_states):
        assert error(one.numpy()[real], other.numpy()[real]) <= FORMULA
        assert (one.numpy()[~real] == 0).all()
    assert (got.last_hidden_state == got.hidden_states[-1]).all().item()
    begins = real[:, 0]
    assert error(got.pooler_output.numpy()[begins], truth.pooler_output.numpy()[begins]) <= FORMULA
    bias = np.tanh(model.pooler.dense.bias.numpy())
    assert np.abs(got.pooler_output.numpy()[~begins] - bias).max(initial=0) <= FORMULA
    for one, other in zip(got.attentions or (), truth.attentions or ()):
        kept = np.broadcast_to(real[:, None, :, None], one.shape)
        assert np.abs(one.numpy() - other.numpy() * kept).max() <= FORMULA


def test_gradients_on_request_are_those_of_the_tokens(make, rng):
    real = shown(ROWS["both"])
    model, inputs, _ = make(NeZhaModel, real)
    weights = paddle.to_tensor(rng.standard_normal([*real.shape, 32]) * real[..., None])
    expected, got = (gradients(model, (model(**inputs, unpad=unpad)[0] * weights).sum()) for unpad in (None, True))
    assert_close(got, expected)


@every_head
def test_every_head_takes_the_request(kind, make):
    real = shown(ROWS["right"])
    model, inputs, labels = make(kind, real)
    watch = Watch(model)
    truth = items(model(**inputs, **labels, unpad=False))
    got = items(model(**inputs, **labels, unpad=True))
    assert watch.was_packed()
    for one, other in zip(got, truth):
        one, other = one.numpy(), other.numpy()
        if one.shape[:2] == real.shape:
            one, other = one[real], other[real]
        elif one.shape == () and kind is NeZhaForQuestionAnswering:
            continue  # its loss reads what is 0 now
        assert error(one, other) <= FORMULA


def test_a_row_without_any_token_is_0_on_request(make):
    real = shown([(0, 9), (0, 0), (2, 5)])
    model, inputs, _ = make(NeZhaModel, real)
    for form in ("operator", "native"):
        with using_form(form):
            truth, got = model(**inputs)[0], model(**inputs, unpad=True)[0]
            assert error(got.numpy(), truth.numpy() * real[..., None]) <= FORMULA
            assert all(np.isfinite(grad).all() for grad in gradients(model, got.sum()).values())


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda real: real[:, None] & real[:, :, None], r"needs an attention_mask \[B, L\].*pass the \[B, L\] mask"),
        (lambda real: real & (np.arange(9) != 2), "side by side.*but row 0 of the attention_mask has hidden ones in b"),
        (lambda real: real & False, "the attention_mask hides every token. 1 attends, 0 does not"),
    ],
    ids=["pairs", "gaps", "nothing"],
)
def test_a_request_that_cannot_be_met_is_refused(change, message, make):
    real = shown(ROWS["right"])
    model, inputs, _ = make(NeZhaModel, real)
    inputs["attention_mask"] = tensor(change(real))
    with pytest.raises(ValueError, match=f"unpad=True.*{message}"):
        model(**inputs, unpad=True)


@pytest.mark.parametrize("full_graph", [True, False])
def test_a_traced_graph_keeps_its_padding_and_refuses_the_request(full_graph, make):
    if not full_graph and paddle.__version__.startswith("2."):
        pytest.skip("Paddle 2.6's default tracer fails")
    model, inputs, _ = make(NeZhaForSequenceClassification, shown(ROWS["right"]))
    model.eval()
    truth = model(**inputs).numpy()
    traced = paddle.jit.to_static(model, full_graph=full_graph)
    assert error(traced(**inputs).numpy(), truth) <= FORMULA
    with pytest.raises(ValueError, match="a graph is being traced"):
        traced(**inputs, unpad=True)


def test_a_request_to_remove_what_is_read_is_refused(make):
    real = shown(ROWS["left"])
    for kind in (NeZhaForSequenceClassification, NeZhaForPretraining):
        model, inputs, _ = make(kind, real)
        with pytest.raises(ValueError, match="made of position 0, which is padding in row 1; pad behind the texts"):
            model(**inputs, unpad=True)
    model, inputs, labels = make(NeZhaForTokenClassification, real)
    labels["labels"][1, 3] = 1
    with pytest.raises(ValueError, match="position 3 of row 1 is padding and has a label; label padding with -100"):
        model(**inputs, **labels, unpad=True)
    model(**inputs, unpad=True)  # no label, nothing read


def test_mistakes_keep_their_own_messages(make):
    model, inputs, labels = make(NeZhaForTokenClassification, shown(ROWS["right"]))
    for unpad in (None, True):
        with pytest.raises(ValueError, match="attention_mask must hold 1"):
            model(**{**inputs, "attention_mask": inputs["attention_mask"] * 2}, **labels, unpad=unpad, loss_only=True)
        with pytest.raises(ValueError, match="attention_mask must have shape"):
            model(**{**inputs, "attention_mask": inputs["attention_mask"][:, :5]}, unpad=unpad)
        with pytest.raises(TypeError, match="attention_mask must be a paddle.Tensor, but got numpy.ndarray"):
            model(**{**inputs, "attention_mask": inputs["attention_mask"].numpy()}, unpad=unpad)
        with pytest.raises(ValueError, match=r"labels must have shape \[3, 9\], but got \[3, 8\]"):
            model(**inputs, labels=labels["labels"][:, :8], unpad=unpad, loss_only=True)
        with pytest.raises(ValueError, match="labels must lie in 0 .. 2, or be -100 or -1"):
            model(**inputs, labels=labels["labels"] * 0 + 3, unpad=False, loss_only=True)
        with pytest.raises(TypeError, match="labels must be a paddle.Tensor, but got builtins.list"):
            model(**inputs, labels=[1, 2], unpad=unpad, loss_only=True)


# ---- the loss alone


@every_head
def test_the_loss_alone_is_the_loss(kind, make):
    model, inputs, labels = make(kind, shown([(0, 9)] * 3))
    truth = model(**inputs, **labels)[0]
    expected = gradients(model, truth)
    loss = model(**inputs, **labels, loss_only=True)
    assert isinstance(loss, paddle.Tensor) and list(loss.shape) == []
    assert abs(loss.item() - truth.item()) <= FORMULA
    assert_close(gradients(model, loss), expected)
    named = model(**inputs, **labels, loss_only=True, return_dict=True)
    assert type(named).__name__ == HEADS[kind][1] and list(named) == ["loss"]
    assert abs(named.loss.item() - truth.item()) <= FORMULA


@every_head
def test_the_loss_alone_needs_labels(kind, make):
    model, inputs, labels = make(kind, shown([(0, 9)] * 3))
    with pytest.raises(ValueError, match=f"no labels came to make it of: give {' or '.join(labels)}, or leave loss_on"):
        model(**inputs, loss_only=True)
    with pytest.raises(ValueError, match="loss alone, but output_attentions=True came with it: ask for one"):
        model(**inputs, **labels, loss_only=True, output_attentions=True)


@pytest.mark.parametrize("name", ["masked_lm_labels", "next_sentence_label"])
def test_the_loss_alone_of_one_label_of_two(name, make):
    model, inputs, labels = make(NeZhaForPretraining, shown(ROWS["right"]))
    truth = model(**inputs, **{name: labels[name]})[0]
    expected = gradients(model, truth)
    watch = Watch(model)
    loss = model(**inputs, **{name: labels[name]}, loss_only=True)
    assert watch.was_packed() and abs(loss.item() - truth.item()) <= FORMULA
    assert_close(gradients(model, loss), expected)


@pytest.mark.parametrize("kind", TOKENWISE, ids=by_name)
def test_only_labelled_positions_are_decoded(kind, make):
    model, inputs, labels = make(kind, shown([(0, 9)] * 3))
    part = model.classifier if kind is NeZhaForTokenClassification else model.cls.predictions
    read = []
    part.register_forward_pre_hook(lambda _, inputs: read.append(list(inputs[0].shape)))
    model(**inputs, **labels, loss_only=True)
    model(**inputs, **labels)
    count = int((next(iter(labels.values())).numpy() >= 0).sum())
    assert 0 < count < 27 and read == [[count, 32], [3, 9, 32]]


@pytest.mark.parametrize("rows", [[(0, 9)] * 3, ROWS["right"], ROWS["left"]], ids=["full", "right", "left"])
@pytest.mark.parametrize("kind", [NeZhaForMaskedLM, NeZhaForTokenClassification], ids=by_name)
def test_nothing_labelled_is_a_loss_of_0_with_gradients_of_0(kind, rows, make):
    for ignored in (-100, -1):
        model, inputs, labels = make(kind, shown(rows))
        labels = {name: paddle.full_like(value, ignored) for name, value in labels.items()}
        expected = gradients(model, model(**inputs, **labels)[0])
        loss = model(**inputs, **labels, loss_only=True)
        assert loss.item() == 0
        got = gradients(model, loss)
        assert set(got) == set(expected) and all((grad == 0).all() for grad in got.values())


@every_head
def test_labels_with_a_trailing_axis_of_1_give_the_loss_alone_too(kind, make):
    model, inputs, labels = make(kind, shown(ROWS["right"]))
    wide = {name: value.unsqueeze(-1).astype("int32") for name, value in labels.items()}
    truth = model(**inputs, **labels, loss_only=True).item()
    assert model(**inputs, **wide, loss_only=True).item() == truth


@pytest.mark.parametrize("full_graph", [True, False])
@every_head
def test_a_traced_head_gives_the_loss_alone(kind, full_graph, make):
    if not full_graph and (paddle.__version__.startswith("2.") or kind is not NeZhaForMaskedLM):
        pytest.skip("Paddle 2.6's default tracer fails; and one head tells of it")
    model, inputs, labels = make(kind, shown(ROWS["right"]))
    truth = model(**inputs, **labels, unpad=False)[0]
    expected = gradients(model, truth)
    traced = paddle.jit.to_static(model, full_graph=full_graph)
    loss = traced(**inputs, **labels, loss_only=True)
    assert abs(loss.item() - truth.item()) <= FORMULA
    got = gradients(model, loss)
    assert set(expected) <= set(got)  # a graph gives the pooler, unread, gradients of 0
    assert_close({name: got[name] for name in expected}, expected)


def test_the_loss_alone_warns_of_eval_mode_too(make):
    model, inputs, labels = make(NeZhaForMaskedLM, shown(ROWS["right"]))
    model.eval()
    with pytest.warns(UserWarning, match="NeZhaForMaskedLM computes a loss with gradients while in eval") as caught:
        model(**inputs, **labels, loss_only=True)
    assert len(caught) == 1 and caught[0].filename == __file__


# ---- options


@pytest.mark.parametrize("kind", [NeZhaModel, *HEADS], ids=by_name)
def test_options_are_named_last_and_listed(kind, make):
    import inspect

    options = {"unpad": None} if kind is NeZhaModel else {"unpad": None, "loss_only": False}
    parameters = list(inspect.signature(kind.forward).parameters.values())
    last = parameters[-1 - len(options) : -1]
    assert {item.name: item.default for item in last} == options
    assert {item.kind for item in last} == {inspect.Parameter.KEYWORD_ONLY}
    model, inputs, _ = make(kind, shown(ROWS["right"]))
    with pytest.raises(TypeError, match=rf"Did you mean 'unpad'\? It takes: input_ids, .*, {', '.join(options)}\."):
        model(**inputs, unpadd=True)
