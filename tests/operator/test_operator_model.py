"""Models by the operator and by Paddle's own operations: the same numbers, and no weight that is out of date."""

import copy
import pickle
import types

import numpy as np
import pytest
from packing import off
from reference import Reference, error

from paddle_nezha import layers, operator
from paddle_nezha._paddle import paddle
from paddle_nezha.attention import FORM_VARIABLE, attention_form, using_form
from paddle_nezha.heads import NeZhaForMaskedLM
from paddle_nezha.model import NeZhaModel

pytestmark = pytest.mark.usefixtures("seeded")

ENCODINGS = ["functional_relative", "parametric_relative", "absolute"]
LIMIT = 1e-12  # float64 through two layers: some thousand roundings of 1.1e-16


@pytest.fixture
def calls(monkeypatch):
    """How often attention was computed by the operator."""
    made = []
    plain = operator.packed_attention
    monkeypatch.setattr(operator, "packed_attention", lambda *a, **k: (made.append(1), plain(*a, **k))[1])
    return made


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("masked", [False, True], ids=["all visible", "masked"])
def test_a_model_is_the_same_in_both_forms_and_right(encoding, masked, build, ids, calls):
    model, words = build(NeZhaModel, "float64", position_encoding=encoding), ids(3, 70)
    visible = np.arange(70) < np.array([70, 41, 5])[:, None]
    mask = paddle.to_tensor(visible.astype("int64")) if masked else None
    answers = {}
    for form in ("operator", "native"):
        with using_form(form):
            answers[form] = [x.numpy() for x in model(words, attention_mask=mask)]
        assert len(calls) == 2  # layers, of the first form alone
    for got, other in zip(*answers.values()):
        assert off(got, other) <= LIMIT
    seen = visible[:, None, None] if masked else True
    truth = Reference(model)(words.numpy(), visible=seen)
    assert error(answers["operator"][0], truth[0]) <= LIMIT and error(answers["operator"][1], truth[1]) <= LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_training_steps_are_the_same_in_both_forms(encoding, build, ids, rng, calls):
    words, labels = ids(2, 70), paddle.to_tensor(rng.integers(0, 99, [2, 70]))
    mask = paddle.to_tensor((np.arange(70) < np.array([70, 33])[:, None]).astype("int64"))
    results = {}
    for form in ("operator", "native"):
        paddle.seed(5)
        model = build(NeZhaForMaskedLM, "float64", position_encoding=encoding)
        model.train()
        optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
        with using_form(form):
            for _ in range(2):
                loss = model(words, attention_mask=mask, labels=labels)[0]
                loss.backward()
                grads = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
                optimizer.step()
                optimizer.clear_grad()
        results[form] = [float(loss), grads, {name: p.numpy() for name, p in model.named_parameters()}]
    assert len(calls) == 4
    one, other = results.values()
    assert one[0] == pytest.approx(other[0], rel=LIMIT)
    assert one[1].keys() == other[1].keys() and any("relative_key" in n for n in one[1]) == (encoding == ENCODINGS[1])
    # The key biases' gradient is 0 in exact arithmetic: it is judged on the scale of the largest gradient.
    scale = max(np.abs(grad).max() for grad in other[1].values())
    for name, grad in other[1].items():
        assert off(one[1][name], grad, max(np.abs(grad).max(), 1e-3 * scale)) <= 10 * LIMIT, name
    for name, value in other[2].items():
        assert off(one[2][name], value, 1.0) <= LIMIT, name


# ---- the choice


def test_the_form_by_name_and_by_environment(build, ids, calls, monkeypatch):
    model, words = build(NeZhaModel), ids(1, 7)
    for form, by_operator in (("operator", 2), ("blocked", 0), ("dense", 0), ("native", 0)):
        calls.clear()
        monkeypatch.setenv(FORM_VARIABLE, form)
        model(words)
        assert len(calls) == by_operator
        monkeypatch.delenv(FORM_VARIABLE)
        with using_form(form):
            model(words)
        assert len(calls) == 2 * by_operator
    calls.clear()
    monkeypatch.setenv(FORM_VARIABLE, "dense")
    with using_form("operator"):
        model(words)
        with using_form(None):  # leaves it to the environment again
            model(words)
    assert len(calls) == 2


def test_an_unknown_form_is_refused(build, ids, monkeypatch):
    said = r"must be one of operator, blocked, dense, native, but is 'flash': leave it out to let it be chosen\."
    with pytest.raises(ValueError, match="form " + said), using_form("flash"):
        pass
    monkeypatch.setenv(FORM_VARIABLE, "flash")
    with pytest.raises(ValueError, match=f"{FORM_VARIABLE} {said}"):
        build(NeZhaModel)(ids(1, 7))


def test_an_operator_asked_for_by_name_that_is_not_there(build, ids, monkeypatch):
    model, words = build(NeZhaModel), ids(1, 7)
    monkeypatch.setattr(operator, "unavailable", lambda: "there is none today")
    with (
        using_form("operator"),
        pytest.raises(
            operator.OperatorError, match="The attention operator was asked for, but cannot run: there is none today"
        ),
    ):
        model(words)
    with paddle.no_grad():
        model(words)  # not asked for, it is not missed
    with pytest.raises(operator.OperatorError, match="cannot run: there is none today"):
        operator.packed_attention(paddle.zeros([1, 4, 24]), heads=1)


@pytest.mark.parametrize("dtype, size, mask, probs, form", [
    ("float32", 64, None, False, "operator"), ("float64", 64, None, False, "operator"),
    ("float32", 64, [2, 1, 1, 5], False, "operator"), ("float32", 256, None, False, "operator"),
    ("float16", 64, None, False, "native"), ("float32", 7, None, False, "native"),
    ("float32", 258, None, False, "native"),
    ("float32", 64, [2, 1, 5, 5], False, "native"), ("float32", 64, [2, 3, 1, 5], False, "native"),
    ("float32", 64, None, True, "native"),
])  # fmt: skip
def test_what_the_operator_is_chosen_for(dtype, size, mask, probs, form):
    visible = None if mask is None else paddle.ones(mask, "bool")
    assert attention_form(paddle.zeros([2, 5, 8], dtype), size, visible, probs) == form


# ---- weights change, and models move


def native(model, words):
    with using_form("native"), paddle.no_grad():
        return model(words)[0].numpy()


def changes():
    """Ways to change a projection's weights that leave a packed copy of them, if there were one, out of date."""

    def set_value(layer, model):
        layer.weight.set_value(layer.weight * 2)

    def in_place(layer, model):
        with paddle.no_grad():
            layer.weight.scale_(2.0)

    def replaced(layer, model):
        new = layer.create_parameter(layer.weight.shape, dtype="float64")
        new.set_value(layer.weight * 2)
        layer.weight = new

    def layer_replaced(layer, model):
        new = paddle.nn.Linear(*layer.weight.shape)
        new.to(dtype="float64")
        attention = model.encoder.layer[0].attention
        name = next(name for name, one in attention.named_children() if one is layer)
        setattr(attention, name, new)

    def state(layer, model):
        model.set_state_dict({name: 2 * tensor for name, tensor in model.state_dict().items()})

    def step(layer, model):
        optimizer = paddle.optimizer.AdamW(0.1, parameters=model.parameters())
        model(paddle.to_tensor([[1, 2, 3]]))[0].sum().backward()
        optimizer.step()
        optimizer.clear_grad()

    def bias(layer, model):
        layer.bias.set_value(layer.bias + 1)

    return [set_value, in_place, replaced, layer_replaced, state, step, bias]


@pytest.mark.parametrize("part", ["query", "value"])
@pytest.mark.parametrize("change", changes(), ids=lambda change: change.__name__)
def test_the_next_forward_sees_changed_weights(change, part, build, ids, calls):
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    before = model(words)[0].numpy()
    change(getattr(model.encoder.layer[0].attention, part), model)
    after = model(words)[0].numpy()
    assert len(calls) >= 4 and off(after, before) > 1e-4
    assert off(after, native(model, words)) <= LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_copies_and_pickles_compute_on_their_own(encoding, build, ids):
    model, words = build(NeZhaModel, "float64", position_encoding=encoding), ids(2, 9)
    before = model(words)[0].numpy()
    copies = [copy.deepcopy(model)]
    try:
        copies.append(pickle.loads(pickle.dumps(model)))
    except Exception as error:  # Paddle's layers cannot be pickled in every release; that is not the operator's doing
        assert "nezha" not in str(error).lower(), error
    for one in copies:
        assert (one(words)[0].numpy() == before).all()
        one.encoder.layer[0].attention.value.weight.set_value(2 * one.encoder.layer[0].attention.value.weight)
        assert off(one(words)[0].numpy(), before) > 1e-4 and (model(words)[0].numpy() == before).all()


def test_layers_with_hooks_or_of_another_kind_are_asked_themselves(build, ids, calls):
    """Adapters wrap or watch projections: joining their weights behind their backs would leave them out."""
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    before = model(words)[0].numpy()
    attention = model.encoder.layer[0].attention
    hook = attention.value.register_forward_post_hook(lambda layer, inputs, output: output * 2)
    assert off(model(words)[0].numpy(), native(model, words)) <= LIMIT
    assert off(model(words)[0].numpy(), before) > 1e-4
    hook.remove()
    assert (model(words)[0].numpy() == before).all()

    class Adapted(paddle.nn.Layer):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 3

    attention.query = Adapted(attention.query)
    assert off(model(words)[0].numpy(), native(model, words)) <= LIMIT
    assert off(model(words)[0].numpy(), before) > 1e-4 and calls


PARTS = (
    "attention.query", "attention.key", "attention.value", "attention.dense", "attention.output_dropout",
    "attention.layer_norm", "ffn", "ffn_output", "dropout", "layer_norm",
)  # fmt: skip


def part_of(model, name):
    return dict(model.encoder.layer[0].named_sublayers())[name]


def interventions():
    """Ways in which others make a layer do something else, without a class of their own: each doubles what it gives."""

    def a_closure(layer, patch):
        plain = layer.forward
        layer.forward = lambda x: plain(x) * 2

    def a_method(layer, patch):
        layer.forward = types.MethodType(lambda self, x: type(self).forward(self, x) * 2, layer)

    def the_call_behind_it(layer, patch):
        plain = layer.forward
        layer._dygraph_call_func = lambda x: plain(x) * 2
        layer.register_forward_pre_hook(lambda layer, inputs: None)  # with which Paddle takes that way

    def the_class(layer, patch):
        kind, plain = type(layer), type(layer).forward
        patch.setattr(kind, "forward", lambda self, x: plain(self, x) * (2 if self is layer else 1))

    def a_pre_hook(layer, patch):
        # Each column by a factor of its own: LayerNorm would undo one for all.
        layer.register_forward_pre_hook(lambda layer, x: (x[0] * paddle.linspace(1, 2, x[0].shape[-1], x[0].dtype),))

    def a_post_hook(layer, patch):
        layer.register_forward_post_hook(lambda layer, inputs, output: output * 2)

    return [a_closure, a_method, the_call_behind_it, the_class, a_pre_hook, a_post_hook]


@pytest.mark.parametrize("change", interventions(), ids=lambda change: change.__name__)
@pytest.mark.parametrize("part", PARTS)
def test_a_layer_that_others_changed_is_called(part, change, build, ids, calls, monkeypatch):
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    before = model(words)[0].numpy()
    change(part_of(model, part), monkeypatch)
    after = model(words)[0].numpy()
    assert off(after, before) > 1e-4 and off(after, native(model, words)) <= LIMIT and len(calls) >= 4


@pytest.mark.parametrize("part", [part for part in PARTS if "dropout" not in part])
def test_a_layer_without_its_bias_is_called(part, build, ids):
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    before = model(words)[0].numpy()
    part_of(model, part).bias = None
    after = model(words)[0].numpy()
    # (A key's bias adds the same to all scores of a query, the relative part aside.)
    assert off(after, native(model, words)) <= LIMIT and (part == "attention.key" or off(after, before) > 1e-4)


@pytest.mark.parametrize("part", ["attention.value", "attention.dense", "ffn", "ffn_output"])
def test_a_weight_that_is_computed_is_used(part, build, ids):
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    before = model(words)[0].numpy()
    layer = part_of(model, part)
    paddle.nn.utils.weight_norm(layer)
    layer.weight_g.set_value(layer.weight_g * 2)
    after = model(words)[0].numpy()
    assert off(after, before) > 1e-4 and off(after, native(model, words)) <= LIMIT


@pytest.mark.parametrize("options", [{"mode": "downscale_in_infer"}, {"axis": 0}], ids=str)
def test_a_dropout_of_another_kind_is_called(options, build, ids):
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    layer = model.encoder.layer[0]
    layer.dropout = layer.attention.output_dropout = paddle.nn.Dropout(0.5, **options)
    layer.dropout.eval()
    assert not layers.is_plain(layer.dropout, paddle.nn.Dropout)
    assert off(model(words)[0].numpy(), native(model, words)) <= LIMIT


def test_which_layers_are_plain(build):
    model, x = build(NeZhaModel, "float64"), paddle.zeros([1, 32], "float64")
    whole = [part_of(model, part) for part in PARTS if "dropout" not in part]
    assert layers.are_plain(whole, x) and layers.is_plain(part_of(model, "dropout"), paddle.nn.Dropout)
    assert not layers.are_plain(whole, x.astype("float32"))  # what a product of two dtypes is, the layer says
    for broken in (None, "float32"):
        layer = copy.deepcopy(whole[0])
        if broken:
            layer.bias = layer.create_parameter([32], dtype=broken, is_bias=True)
        else:
            del layer.weight
        assert not layers.is_plain(layer, paddle.nn.Linear)


def test_projections_that_others_changed_are_not_joined(build, ids):
    """As an export with the operator joins them."""
    model, words = build(NeZhaModel, "float64"), ids(2, 9)
    one, other = (layer.attention for layer in model.encoder.layer)
    plain = one.key.forward
    one.key.forward = lambda x: plain(x) * 2
    expected = native(model, words)
    one.join_projections()
    other.join_projections()
    assert one.joined is None and other.joined is not None
    assert off(model(words)[0].numpy(), expected) <= LIMIT
