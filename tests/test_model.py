"""The base model against the definition, and what scripts rely on around it."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reference
from reference import Reference, error

from paddle_nezha import attention
from paddle_nezha._paddle import paddle
from paddle_nezha.config import ACTIVATIONS, NeZhaConfig
from paddle_nezha.heads import (
    NeZhaForMaskedLM,
    NeZhaForPretraining,
    NeZhaForSequenceClassification,
)
from paddle_nezha.layers import ACTIVATION_FUNCTIONS
from paddle_nezha.model import (
    NeZhaEmbeddings,
    NeZhaEncoder,
    NeZhaModel,
    NeZhaPooler,
    NeZhaPretrainedModel,
)

pytestmark = pytest.mark.usefixtures("seeded")

FORMULA = 1e-12  # float64 on both sides: a few hundred roundings of 1.1e-16
ROUNDING = 1e-5  # float32: dot products of up to 1024 terms in two layers, 6e-8 each


def layer_names(number):
    parts = ["query", "key", "value", "dense", "layer_norm"]
    names = [f"attention.{part}" for part in parts] + ["ffn", "ffn_output", "layer_norm"]
    return [f"encoder.layer.{number}.{name}.{kind}" for name in names for kind in ("weight", "bias")]


BASE_NAMES = {
    "embeddings.word_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.layer_norm.weight",
    "embeddings.layer_norm.bias",
    *layer_names(0),
    *layer_names(1),
    "pooler.dense.weight",
    "pooler.dense.bias",
}


# ---- the definition


@pytest.mark.parametrize("encoding", ["functional_relative", "parametric_relative", "absolute"])
@pytest.mark.parametrize("m, shape", [(5, (2, 7)), (64, (1, 1)), (64, (2, 66)), (127, (1, 130))])
def test_model_equals_the_definition_in_float64(encoding, m, shape, build, ids, rng):
    model = build(NeZhaModel, dtype="float64", position_encoding=encoding, max_relative_position=m)
    tokens, segments = ids(*shape), paddle.to_tensor(rng.integers(0, 2, shape))
    mask = rng.random(shape) < 0.8
    got = model(tokens, segments, paddle.to_tensor(mask), output_hidden_states=True, output_attentions=True)
    truth = Reference(model)(tokens.numpy(), segments.numpy(), mask[:, None, None, :])
    assert error(got[0].numpy(), truth[0]) <= FORMULA and error(got[1].numpy(), truth[1]) <= FORMULA
    for part, expected in zip(got[2:], truth[2:]):
        assert len(part) == len(expected)
        for one, other in zip(part, expected):
            assert error(one.numpy(), other) <= FORMULA
    # The form that returns no probabilities is another one.
    assert error(model(tokens, segments, paddle.to_tensor(mask))[0].numpy(), truth[0]) <= FORMULA


@pytest.mark.parametrize("length", [513, 600, 1024])
def test_q06_inputs_above_512_give_the_definition(length, build, ids):
    model, tokens = build(NeZhaModel), ids(1, length)
    sequence, _ = model(tokens)
    assert list(sequence.shape) == [1, length, 32]
    assert error(sequence.numpy(), Reference(model)(tokens.numpy())[0]) <= ROUNDING


def test_q10_a_causal_mask_gives_the_definition(build, ids):
    model, tokens = build(NeZhaModel, dtype="float64"), ids(2, 9)
    causal = np.tril(np.ones([2, 9, 9], "int64"))
    got = model(tokens, attention_mask=paddle.to_tensor(causal))[0]
    assert error(got.numpy(), Reference(model)(tokens.numpy(), visible=causal[:, None] == 1)[0]) <= FORMULA
    # Each position is what it would be if the text ended there.
    assert (
        error(model(tokens[:, :5], attention_mask=paddle.to_tensor(causal[:, :5, :5]))[0].numpy(), got[:, :5].numpy())
        <= FORMULA
    )


def test_q10_a_mask_of_each_head_gives_the_definition(build, ids, rng):
    model, tokens = build(NeZhaModel, dtype="float64"), ids(2, 9)
    mask = rng.integers(0, 2, [2, 4, 9, 9])
    got = model(tokens, attention_mask=paddle.to_tensor(mask))[0]
    assert error(got.numpy(), Reference(model)(tokens.numpy(), visible=mask == 1)[0]) <= FORMULA


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_on_visible_tokens(side, build, ids):
    model, tokens = build(NeZhaModel, dtype="float64"), ids(2, 70)
    pads, shown, hidden = paddle.zeros([2, 5], "int64"), paddle.ones([2, 70], "int64"), paddle.zeros([2, 5], "int64")
    order = slice(None, None, 1 if side == "left" else -1)
    padded, mask = paddle.concat([pads, tokens][order], 1), paddle.concat([hidden, shown][order], 1)
    got = (
        model(padded, attention_mask=mask)[0][:, 5:]
        if side == "left"
        else model(padded, attention_mask=mask)[0][:, :70]
    )
    assert error(got.numpy(), model(tokens)[0].numpy()) <= FORMULA


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_the_one_of_its_name(name):
    x = np.linspace(-30, 30, 601)
    got = ACTIVATION_FUNCTIONS[name](paddle.to_tensor(x)).numpy()
    # gelu_fast has always meant sqrt(2 / pi) to ten digits, 2.4e-11 from the exact one.
    assert error(got, reference.ACTIVATIONS[name](x)) <= (1e-11 if name == "gelu_fast" else 1e-14)


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "relu"])
def test_hidden_act_reaches_every_layer(name, build, ids):
    model, tokens = build(NeZhaModel, dtype="float64", hidden_act=name), ids(1, 7)
    assert error(model(tokens)[0].numpy(), Reference(model)(tokens.numpy())[0]) <= FORMULA


def test_deviates_layer_norm_eps_is_obeyed_everywhere(build, ids):
    model, tokens = build(NeZhaModel, dtype="float64", layer_norm_eps=1e-3), ids(1, 7)
    norms = [layer for layer in model.sublayers() if isinstance(layer, paddle.nn.LayerNorm)]
    assert len(norms) == 5 and {layer._epsilon for layer in norms} == {1e-3}
    assert error(model(tokens)[0].numpy(), Reference(model)(tokens.numpy())[0]) <= FORMULA


def test_segments_of_none_are_zeros_and_a_mask_of_none_is_all_visible(build, ids):
    model, tokens = build(NeZhaModel), ids(2, 7)
    truth = model(tokens, paddle.zeros([2, 7], "int64"), paddle.ones([2, 7], "int64"))[0]
    assert error(model(tokens)[0].numpy(), truth.numpy()) <= 1e-6  # one adds a mask of zeros, the other none


def test_without_relative_positions_there_is_no_relative_term(build, ids):
    model = build(NeZhaModel, use_relative_position=False)
    assert "embeddings.position_embeddings.weight" in model.state_dict()
    with paddle.no_grad():
        model.embeddings.position_embeddings.weight.set_value(paddle.zeros([512, 32]))
    tokens = ids(1, 9)
    order = paddle.to_tensor([3, 1, 2, 0, 8, 7, 6, 5, 4])
    # Blind to order then, as a BERT is without its positions.
    assert (
        error(model(tokens)[0].numpy()[:, order.numpy()], model(tokens.index_select(order, 1))[0].numpy()) <= ROUNDING
    )


def test_positions_matter_and_only_as_distances(build, ids):
    model, tokens = build(NeZhaModel), ids(1, 9)
    order = np.array([3, 1, 2, 0, 8, 7, 6, 5, 4])
    turned = model(paddle.to_tensor(tokens.numpy()[:, order]))[0].numpy()
    assert error(turned, model(tokens)[0].numpy()[:, order]) > 1e-2


# ---- outputs


def test_output_is_a_tuple_of_sequence_and_pooled(build, ids):
    answer = build(NeZhaModel)(ids(2, 7))
    assert isinstance(answer, tuple) and [list(x.shape) for x in answer] == [[2, 7, 32], [2, 32]]


def test_output_may_hold_hidden_states_and_attentions(build, ids):
    model, tokens = build(NeZhaModel), ids(2, 7)
    sequence, _, states, attentions = model(tokens, output_hidden_states=True, output_attentions=True)
    assert len(states) == 3 and (states[-1] == sequence).all().item()
    assert [list(x.shape) for x in attentions] == [[2, 4, 7, 7]] * 2
    assert len(model(tokens, output_hidden_states=True)) == len(model(tokens, output_attentions=True)) == 3


def test_deviates_attentions_are_probabilities(build, ids):
    for probs in build(NeZhaModel)(ids(2, 7), output_attentions=True)[2]:
        assert (probs >= 0).all().item()
        assert np.allclose(probs.numpy().sum(-1), 1, atol=1e-6)  # seven roundings of 6e-8


def test_return_dict_gives_named_outputs(build, ids):
    model, tokens = build(NeZhaModel), ids(2, 7)
    o = model(tokens, return_dict=True)
    assert type(o).__name__ == "BaseModelOutputWithPoolingAndCrossAttentions" and isinstance(o, dict)
    assert list(o) == ["last_hidden_state", "pooler_output"] and o.hidden_states is None
    assert o[0] is o.last_hidden_state is o["last_hidden_state"]
    assert [x is y for x, y in zip(o[:], o.values())] == [True, True]


def test_config_decides_what_a_call_leaves_open(build, ids):
    model, tokens = build(NeZhaModel, return_dict=True, output_attentions=True, output_hidden_states=True), ids(2, 7)
    assert list(model(tokens)) == ["last_hidden_state", "pooler_output", "hidden_states", "attentions"]
    assert len(model(tokens, return_dict=False, output_attentions=False, output_hidden_states=False)) == 2


# ---- names


def test_names_of_the_base_are_paddlenlps(build):
    assert set(build(NeZhaModel).state_dict()) == BASE_NAMES


def test_query_key_and_value_are_three_parameters(build):
    shapes = {name: list(p.shape) for name, p in build(NeZhaModel).named_parameters()}
    assert set(shapes) == BASE_NAMES
    for part in ("query", "key", "value"):
        assert shapes[f"encoder.layer.1.attention.{part}.weight"] == [32, 32]


def test_no_table_is_a_parameter_or_buffer(build):
    model = build(NeZhaModel)
    assert list(model.buffers()) == [] and set(model.state_dict()) == BASE_NAMES


def test_class_attributes_that_scripts_read():
    assert issubclass(NeZhaModel, NeZhaPretrainedModel) and issubclass(NeZhaForMaskedLM, NeZhaPretrainedModel)
    for kind in (NeZhaModel, NeZhaForMaskedLM):
        assert kind.base_model_prefix == "nezha" and kind.config_class is NeZhaConfig
        assert kind.model_config_file == "config.json"
        assert kind.resource_files_names == {"model_state": "model_state.pdparams"}
        assert "nezha-base-chinese" in kind.pretrained_init_configuration
        assert "nezha-base-chinese" in kind.pretrained_resource_files_map["model_state"]


def test_parts_and_their_names(build):
    head = build(NeZhaForMaskedLM)
    model = head.nezha
    assert isinstance(model, NeZhaModel) and head.base_model is model and model.base_model is model
    assert isinstance(model.embeddings, NeZhaEmbeddings) and isinstance(model.encoder, NeZhaEncoder)
    assert isinstance(model.pooler, NeZhaPooler) and head.config is model.config
    assert head.get_input_embeddings() is model.embeddings.word_embeddings


def test_a_model_is_built_from_a_config_alone():
    with pytest.raises(
        TypeError, match=r"NeZhaModel is built from a NeZhaConfig, but got dict: NeZhaModel\(NeZhaConfig\(...\)\), or"
    ):
        NeZhaModel({"hidden_size": 32})


def test_sizes_that_were_assigned_and_do_not_fit_are_refused_when_a_model_is_built(tiny):
    config = tiny()
    config.hidden_size = 33
    for kind in (NeZhaModel, attention.NeZhaAttention):
        with pytest.raises(ValueError, match=r"hidden_size \(33\) must be a multiple of num_attention_heads \(4\)"):
            kind(config)


# ---- initialisation


def test_initialisation_is_normal_with_the_stated_deviation(tiny):
    model = NeZhaForPretraining(tiny(vocab_size=3000, hidden_size=64, initializer_range=0.05))
    for name, parameter in model.named_parameters():
        values = parameter.numpy()
        if name.endswith("layer_norm.weight"):
            assert (values == 1).all(), name
        elif name.endswith("bias"):
            assert (values == 0).all(), name
        else:
            # Five deviations of the mean and of the deviation of so many draws.
            assert abs(values.mean()) < 5 * 0.05 / values.size**0.5, name
            assert abs(values.std() / 0.05 - 1) < 5 / (2 * values.size) ** 0.5, name
    words = model.get_input_embeddings().weight.numpy()
    assert np.abs(words).max() > 4 * 0.05  # not truncated at two deviations, as Huawei's were


def test_learned_position_tables_are_initialised_alike(tiny):
    model = NeZhaModel(tiny(position_encoding="parametric_relative", hidden_size=64, initializer_range=0.05))
    values = model.encoder.layer[0].attention.relative_value.weight.numpy()
    assert abs(values.std() / 0.05 - 1) < 5 / (2 * values.size) ** 0.5


def test_no_row_is_zeroed(tiny):
    model = NeZhaModel(tiny())
    assert (np.abs(model.get_input_embeddings().weight.numpy()).max(-1) > 0).all()
    # Neither is the look-up of the pad, which a padding_idx would zero.
    assert model.get_input_embeddings()(paddle.to_tensor([[0]])).abs().max().item() > 0


def test_initialisation_repeats_under_a_seed(tiny):
    weights = []
    for seed in (1, 1, 2):
        paddle.seed(seed)
        weights.append(NeZhaModel(tiny()).pooler.dense.weight.numpy())
    assert (weights[0] == weights[1]).all() and (weights[0] != weights[2]).any()


# ---- dropout


def test_dropout_is_where_the_contract_says_and_nowhere_else(tiny):
    model = NeZhaForSequenceClassification(
        tiny(hidden_dropout_prob=0.11, attention_probs_dropout_prob=0.22, classifier_dropout=0.33)
    )
    rates = {name: layer.p for name, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Dropout)}
    layers = [f"nezha.encoder.layer.{number}." for number in (0, 1)]
    assert rates == {
        "nezha.embeddings.dropout": 0.11,
        **{f"{layer}attention.output_dropout": 0.11 for layer in layers},
        **{f"{layer}dropout": 0.11 for layer in layers},
        "dropout": 0.33,
    }


@pytest.mark.parametrize("form, module, name", [
    ("native", "paddle_nezha.attention", "relative_attention"),
    ("operator", "paddle_nezha.operator", "packed_attention"),
])  # fmt: skip
def test_dropout_of_the_probabilities_follows_mode_and_config(form, module, name, build, ids, monkeypatch):
    seen = []
    real = getattr(sys.modules[module], name)
    monkeypatch.setattr(
        f"{module}.{name}", lambda *args, **named: seen.append(named["dropout"]) or real(*args, **named)
    )
    model, tokens = build(NeZhaModel, attention_probs_dropout_prob=0.2), ids(1, 7)
    with attention.using_form(form):
        model(tokens)
        model.train()
        model(tokens)
        model.config.attention_probs_dropout_prob = 0.4
        model(tokens)
    assert seen == [0.0, 0.0, 0.2, 0.2, 0.4, 0.4]


def test_embedding_dropout_comes_after_the_layer_norm(tiny):
    part = NeZhaEmbeddings(tiny(hidden_dropout_prob=0.5))
    part.train()
    words = paddle.randn([4, 9, 32])
    part.eval()
    truth = part(words).numpy()
    part.train()
    got = part(words).numpy()
    kept = got != 0
    assert 0.4 < kept.mean() < 0.6  # 1152 draws of 0.5: 0.1 is seven deviations
    assert np.allclose(got[kept], 2 * truth[kept], rtol=1e-6)  # two roundings


class _DropAll(paddle.nn.Layer):
    def forward(self, x):
        return paddle.zeros_like(x)


def test_layer_dropout_acts_on_dense_and_ffn_output_before_their_sums(build, rng):
    layer = build(NeZhaModel).encoder.layer[0]
    x = paddle.to_tensor(rng.standard_normal([1, 7, 32]), dtype="float32")
    layer.dropout = _DropAll()  # nothing but the attention's output is left of the layer
    assert (layer(x)[0] == layer.layer_norm(layer.attention(x)[0])).all().item()
    layer.attention.output_dropout = _DropAll()  # and nothing but the input of the attention
    assert (layer.attention(x)[0] == layer.attention.layer_norm(x)).all().item()


@pytest.mark.parametrize("which", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_q55_eval_repeats_and_train_drops(which, build, ids):
    model, tokens = build(NeZhaModel, **{which: 0.5}), ids(2, 7)
    assert (model(tokens)[0] == model(tokens)[0]).all().item()
    model.train()
    assert (model(tokens)[0] != model(tokens)[0]).any().item()


# ---- resizing the vocabulary


@pytest.mark.parametrize("kind", [NeZhaForMaskedLM, NeZhaForPretraining], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("new", [104, 60])
def test_q39_resizing_keeps_tie_bias_values_dtype_and_loss(kind, dtype, new, build, ids):
    model, tokens = build(kind, dtype=dtype), ids(2, 7, high=60)
    before = model(tokens)
    before = before if kind is NeZhaForMaskedLM else before[0]
    returned = model.resize_token_embeddings(new)
    after = model(tokens)
    after = after if kind is NeZhaForMaskedLM else after[0]
    kept = min(new, 99)
    assert list(after.shape) == [2, 7, new]
    # The same products; a wider matrix may be summed in another order.
    assert error(after[:, :, :kept].numpy(), before[:, :, :kept].numpy()) <= (1e-6 if dtype == "float32" else 1e-14)
    predictions = model.cls.predictions
    assert returned is model.get_input_embeddings() and predictions.decoder_weight is returned.weight
    assert returned.weight.dtype == predictions.decoder_bias.dtype == before.dtype
    assert model.config.vocab_size == new and list(predictions.decoder_bias.shape) == [new]
    assert (predictions.decoder_bias.numpy()[99:] == 0).all() and (predictions.decoder_bias.numpy()[:kept] != 0).all()
    model.train()
    labels = {"labels" if kind is NeZhaForMaskedLM else "masked_lm_labels": paddle.full([2, 7], new - 1, "int64")}
    loss = model(tokens, **labels)[0]
    loss.backward()
    assert np.isfinite(loss.item()) and predictions.decoder_bias.grad is not None
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == len(set(names)) == len(model.parameters())


def test_resizing_draws_new_rows_as_at_initialisation(tiny):
    model = NeZhaModel(tiny(initializer_range=0.05))
    old = model.get_input_embeddings().weight.numpy()
    new = model.resize_token_embeddings(1099).weight.numpy()
    assert (new[:99] == old).all()
    assert abs(new[99:].std() / 0.05 - 1) < 5 / (2 * 1000 * 32) ** 0.5  # five deviations


def test_resizing_keeps_a_frozen_table_frozen(build):
    model = build(NeZhaForMaskedLM)
    model.get_input_embeddings().weight.stop_gradient = True
    model.cls.predictions.decoder_bias.stop_gradient = True
    model.resize_token_embeddings(104)
    assert model.get_input_embeddings().weight.stop_gradient and model.cls.predictions.decoder_bias.stop_gradient


def test_resizing_one_model_leaves_another_of_the_same_config_right(tiny, seeded):
    config = tiny()
    one, other = NeZhaModel(config), NeZhaModel(config)
    one.resize_token_embeddings(104)
    with pytest.raises(ValueError, match=r"input_ids must lie in 0 .. 98 \(vocab_size is 99\), but got 103"):
        other(paddle.to_tensor([[103]]))
    assert list(other.resize_token_embeddings(104).weight.shape) == [104, 32]


def test_resizing_to_nothing_new_changes_nothing(build):
    model = build(NeZhaModel)
    old = model.get_input_embeddings()
    assert model.resize_token_embeddings() is old and model.resize_token_embeddings(99) is old


def test_resizing_below_the_pad_id_is_refused(build):
    with pytest.raises(ValueError, match=r"must keep pad_token_id \(5\), but got new_num_tokens=5"):
        build(NeZhaModel, pad_token_id=5).resize_token_embeddings(5)
    with pytest.raises(ValueError, match="new_num_tokens=0"):
        build(NeZhaModel).resize_token_embeddings(0)


def test_another_word_table_can_be_set(build, ids):
    model, tokens = build(NeZhaForMaskedLM), ids(1, 7)
    other = paddle.nn.Embedding(120, 32)
    model.set_input_embeddings(other)
    assert model.get_input_embeddings() is other and model.cls.predictions.decoder_weight is other.weight
    assert model.config.vocab_size == 120 and list(model(tokens).shape) == [1, 7, 120]
    with pytest.raises(ValueError, match=r"must be 32 wide \(hidden_size\), but got 31 columns: make "):
        model.set_input_embeddings(paddle.nn.Embedding(99, 31))
    with pytest.raises(TypeError, match="must be a paddle.nn.Embedding, but got Tensor"):
        model.set_input_embeddings(other.weight.detach())


@pytest.mark.parametrize("size", [3.5, True, "9"])
def test_a_new_size_that_is_no_integer_is_refused(size, build):
    with pytest.raises(TypeError, match=r"must be an integer, such as len\(tokenizer\), but got"):
        build(NeZhaModel).resize_token_embeddings(size)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("kind", [NeZhaModel, NeZhaForMaskedLM], ids=lambda kind: kind.__name__)
def test_the_gradient_of_any_parameter_can_be_asked_for_alone(kind, mode, build, ids):
    model, tokens = build(kind), ids(2, 7)
    getattr(model, mode)()

    def loss():
        first = model(tokens)
        return ((first[0] if isinstance(first, tuple) else first) ** 2).sum()

    loss().backward()
    for name, parameter in model.named_parameters():
        if "pooler" not in name:
            (gradient,) = paddle.grad(loss(), [parameter])
            assert error(gradient.numpy(), parameter.grad.numpy()) <= 2e-6 or "key.bias" in name, name


def test_the_gradient_of_word_embeddings_can_be_asked_for_alone(build, rng):
    model = build(NeZhaModel, dtype="float64")
    embeds = paddle.to_tensor(rng.standard_normal((2, 7, 32)), stop_gradient=False)
    weights = paddle.to_tensor(rng.standard_normal((2, 7, 32)))
    (alone,) = paddle.grad((model(inputs_embeds=embeds)[0] * weights).sum(), [embeds])
    (model(inputs_embeds=embeds)[0] * weights).sum().backward()
    assert error(alone.numpy(), embeds.grad.numpy()) <= 1e-12


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("frozen", ["layer_norm", "layer_norm.weight", "embeddings", "bias"])
def test_frozen_parameters_leave_the_gradients_of_the_others_as_they_are(frozen, mode, build, ids):
    # Paddle's own LayerNorm gives its input a wrong gradient when its weight is frozen.
    model, tokens = build(NeZhaForMaskedLM, dtype="float64"), ids(2, 7)
    getattr(model, mode)()
    parameters = dict(model.named_parameters())

    def gradients():
        model.clear_gradients()
        (model(tokens) ** 2).sum().backward()
        return {name: p.grad.numpy() for name, p in parameters.items() if p.grad is not None and frozen not in name}

    truth = gradients()
    for name, parameter in parameters.items():
        parameter.stop_gradient = frozen in name
    got = gradients()
    for name, gradient in truth.items():
        assert error(got[name], gradient) <= 1e-10, name


# ---- state


def test_state_survives_paddle_save_and_load(build, tiny, ids, tmp_path):
    model, tokens = build(NeZhaForPretraining), ids(1, 7)
    paddle.save(model.state_dict(), str(tmp_path / "model_state.pdparams"))
    other = NeZhaForPretraining(tiny())
    other.eval()
    missing, unexpected = other.set_state_dict(paddle.load(str(tmp_path / "model_state.pdparams")))
    assert (missing, unexpected) == ([], [])
    assert all((one == two).all().item() for one, two in zip(model(tokens), other(tokens)))
    assert other.cls.predictions.decoder_weight is other.get_input_embeddings().weight


def test_a_deep_copy_is_equal_tied_and_apart(build, ids):
    model, tokens = build(NeZhaForMaskedLM), ids(1, 7)
    other = copy.deepcopy(model)
    assert (other(tokens) == model(tokens)).all().item()
    assert other.cls.predictions.decoder_weight is other.get_input_embeddings().weight
    before = model(tokens).numpy()
    with paddle.no_grad():
        other.get_input_embeddings().weight.set_value(paddle.zeros([99, 32]))
    other.config.hidden_act = "relu"
    assert (model(tokens).numpy() == before).all() and model.config.hidden_act == "gelu"


def test_an_optimizer_step_is_seen_by_the_next_forward(build, ids):
    model, tokens = build(NeZhaModel), ids(1, 7)
    weight = model.encoder.layer[0].attention.value.weight
    optimizer = paddle.optimizer.SGD(0.1, parameters=[weight])
    before = model(tokens)[0]
    (before**2 * paddle.arange(32, dtype="float32")).sum().backward()
    optimizer.step()
    assert (model(tokens)[0] != before).any().item()
    assert error(model(tokens)[0].numpy(), Reference(model)(tokens.numpy())[0]) <= ROUNDING


def test_freezing_is_respected(build, ids):
    model = build(NeZhaModel)
    frozen = {name for name, _ in model.named_parameters() if "value" not in name and "pooler" not in name}
    for name, parameter in model.named_parameters():
        parameter.stop_gradient = name in frozen
    model.train()
    model(ids(2, 7))[1].sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == frozen


# ---- precision


def test_float64_by_to_and_by_default_dtype_is_float64_throughout(build, tiny, ids):
    tokens = ids(2, 70)
    cast = build(NeZhaForPretraining, dtype="float64")
    paddle.set_default_dtype("float64")
    born = NeZhaForPretraining(tiny())
    born.set_state_dict(cast.state_dict())
    born.eval()
    for model in (cast, born):
        assert {str(p.dtype) for p in model.parameters()} == {str(paddle.float64)}
        words, relation = model(tokens)
        assert words.dtype == relation.dtype == paddle.float64
        assert error(words.numpy(), Reference(model).masked_lm(Reference(model)(tokens.numpy())[0])) <= FORMULA


def test_q51_autocast_on_a_cpu_is_a_no_op_that_does_not_fail(build, ids):
    model, tokens = build(NeZhaForMaskedLM), ids(2, 7)
    model.train()
    plain = model(tokens, labels=tokens)[0]
    with pytest.warns(UserWarning, match="makes no effect"), paddle.amp.auto_cast():
        loss = model(tokens, labels=tokens)[0]
    loss.backward()
    assert loss.item() == plain.item()


def test_q66_the_table_follows_the_model(build, ids):
    model, tokens = build(NeZhaModel), ids(1, 70)
    before = model(tokens)[0]
    model.to(device="cpu", dtype="float64")
    model(tokens)
    model.to(dtype="float32")
    assert (model(tokens)[0] == before).all().item()


def test_q72_a_loss_is_a_python_float(build, ids):
    model, tokens = build(NeZhaForMaskedLM), ids(2, 7)
    model.train()
    loss = model(tokens, labels=tokens)[0]
    assert list(loss.shape) == [] and float(loss) == loss.item() > 0


# ---- recompute


@pytest.mark.parametrize("embeddings", ["trained", "frozen"])
@pytest.mark.parametrize("attentions", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recompute_gives_equal_loss_and_gradients(embeddings, attentions, dropout, build, ids):
    model, tokens = (
        build(NeZhaForMaskedLM, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout),
        ids(2, 7),
    )
    model.train()
    if embeddings == "frozen":
        for parameter in model.nezha.embeddings.parameters():
            parameter.stop_gradient = True
    answers = []
    for enabled in (False, True):
        model.nezha.encoder.enable_recompute = enabled
        paddle.seed(3)
        answer = model(tokens, attention_mask=paddle.ones([2, 7], "int64"), labels=tokens, output_attentions=attentions)
        answer[0].backward()
        grads = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
        answers.append((answer[0].item(), grads))
        model.clear_gradients()
    (loss, grads), (again, regrads) = answers
    assert loss == again and set(grads) == set(regrads)
    assert sum("encoder" in name for name in grads) == 32
    for name, grad in grads.items():
        assert (grad == regrads[name]).all(), name


# ---- memory

_BUILD = """
import gc, json, os
from paddle_nezha._paddle import paddle
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.heads import NeZhaForPretraining
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
small = dict(vocab_size=99, hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
with paddle.no_grad():
    NeZhaForPretraining(NeZhaConfig(**small))(paddle.ones([1, 16], "int64"))
    before = resident()
    model = NeZhaForPretraining(NeZhaConfig())
    built = resident()
count = sum(p.size if isinstance(p.size, int) else p.size.item() for p in model.parameters())
print(json.dumps([count, built - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_a_built_base_model_takes_less_than_5_percent_beyond_its_parameters():
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", _BUILD], cwd=root, capture_output=True, text=True, check=True)
    count, resident = json.loads(done.stdout.splitlines()[-1])
    assert count == 102_489_226  # the published model's
    assert resident < 1.05 * 4 * count
