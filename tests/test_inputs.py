"""What a forward accepts and refuses, with the words it refuses by."""

import numpy as np
import pytest
import torch

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
from paddle_nezha.inputs import visible_keys
from paddle_nezha.model import NeZhaModel

pytestmark = pytest.mark.usefixtures("seeded")

HEADS = [
    NeZhaModel,
    NeZhaForPretraining,
    NeZhaForMaskedLM,
    NeZhaForNextSentencePrediction,
    NeZhaForSequenceClassification,
    NeZhaForTokenClassification,
    NeZhaForQuestionAnswering,
]


def tensor(values, dtype="int64"):
    return paddle.to_tensor(np.asarray(values), dtype=dtype)


@pytest.fixture
def model(build):
    return build(NeZhaModel)


# ---- ids and segments


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_ids_and_segments_are_int32_or_int64(dtype, model, ids):
    tokens, segments = ids(2, 7), tensor(np.arange(14).reshape(2, 7) % 2)
    truth = model(tokens, segments)[0]
    assert (model(tokens.astype(dtype), segments.astype(dtype))[0] == truth).all().item()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int16"])
def test_ids_of_another_type_are_refused(dtype, model, ids):
    message = rf"must be int32 or int64, but got paddle.{dtype}: convert with .*astype\('int64'\)"
    with pytest.raises(TypeError, match="input_ids " + message):
        model(ids(2, 7).astype(dtype))
    with pytest.raises(TypeError, match="token_type_ids " + message):
        model(ids(2, 7), paddle.zeros([2, 7], dtype))


@pytest.mark.parametrize("bad", [-1, 99, 10**6])
def test_ids_out_of_range_are_refused(bad, model, ids):
    tokens = ids(2, 7)
    tokens[1, 3] = bad
    with pytest.raises(
        ValueError, match=rf"input_ids must lie in 0 .. 98 \(vocab_size is 99\), but got {bad}: check that"
    ):
        model(tokens)


@pytest.mark.parametrize("bad", [-1, 2])
def test_segment_ids_out_of_range_are_refused(bad, model, ids):
    segments = paddle.zeros([2, 7], "int64")
    segments[0, 6] = bad
    with pytest.raises(ValueError, match=rf"token_type_ids must lie in 0 .. 1 \(type_vocab_size is 2\), but got {bad}"):
        model(ids(2, 7), segments)


@pytest.mark.parametrize("shape", [[0, 7], [2, 0], [7], [2, 3, 7]])
def test_empty_batch_length_0_and_other_ranks_are_refused(shape, model):
    with pytest.raises(ValueError, match=r"input_ids must have shape \[batch, length\], neither of them 0, but got \["):
        model(paddle.ones(shape, "int64"))


def test_segments_of_another_shape_are_refused(model, ids):
    with pytest.raises(ValueError, match=r"token_type_ids must have shape \[2, 7\], but got \[2, 6\]"):
        model(ids(2, 7), paddle.zeros([2, 6], "int64"))


def test_arrays_and_torch_tensors_are_refused_with_the_remedy(model):
    with pytest.raises(
        TypeError, match=r"input_ids must be a paddle.Tensor, but got numpy.ndarray: pass paddle.to_tensor"
    ):
        model(np.ones([2, 7], "int64"))
    with pytest.raises(
        TypeError, match="input_ids must be a paddle.Tensor, but got torch.Tensor: tokenize with return_tensors='pd'"
    ):
        model(torch.ones(2, 7, dtype=torch.int64))
    with pytest.raises(TypeError, match="attention_mask must be a paddle.Tensor, but got builtins.list"):
        model(tensor([[1, 2]]), attention_mask=[[1, 1]])


# ---- embeddings


def test_q44_inputs_embeds_alone_equal_the_ids(model, ids):
    tokens = ids(2, 7)
    truth = model(tokens)
    got = model(inputs_embeds=model.get_input_embeddings()(tokens))
    assert all((one == other).all().item() for one, other in zip(got, truth))


def test_q44_both_or_neither_of_ids_and_embeddings_are_refused(model, ids):
    with pytest.raises(ValueError, match="Give either input_ids or inputs_embeds, but got both"):
        model(ids(2, 7), inputs_embeds=paddle.zeros([2, 7, 32]))
    with pytest.raises(ValueError, match="Give either input_ids or inputs_embeds, but got neither"):
        model()


@pytest.mark.parametrize(
    "embeds, kind, message",
    [
        (
            lambda: paddle.zeros([2, 7, 31]),
            ValueError,
            r"inputs_embeds must have shape \[any, any, 32\], but got \[2, 7, 31\]",
        ),
        (lambda: paddle.zeros([7, 32]), ValueError, r"inputs_embeds must have shape \[any, any, 32\]"),
        (lambda: paddle.zeros([2, 0, 32]), ValueError, "inputs_embeds must not be empty"),
        (
            lambda: paddle.zeros([2, 7, 32], "int64"),
            TypeError,
            "must have the model's dtype paddle.float32, but got paddle.int64",
        ),
        (
            lambda: paddle.zeros([2, 7, 32], "float64"),
            TypeError,
            "paddle.float32, but got paddle.float64: convert with",
        ),
        (lambda: paddle.zeros([2, 7, 32]).astype("float16"), TypeError, "no CPU kernels"),
    ],
)
def test_bad_embeddings_are_refused(embeds, kind, message, model):
    with pytest.raises(kind, match=message):
        model(inputs_embeds=embeds())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_q51_half_precision_on_a_cpu_is_refused_with_the_reason(dtype, model, ids):
    model.to(dtype=dtype)
    with pytest.raises(
        TypeError, match=f"compute in paddle.{dtype}, but Paddle has no CPU kernels for it: convert with"
    ):
        model(ids(2, 7))


# ---- masks


def all_shapes(mask, heads=4):
    """[B, L] as every other shape that means the same."""
    batch, length = mask.shape
    square = np.broadcast_to(mask[:, None, :], [batch, length, length])
    return [mask, square, square[:, None], np.broadcast_to(square[:, None], [batch, heads, length, length])]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64"])
def test_q10_masks_that_mean_the_same_give_the_same(dtype, model, ids):
    tokens = ids(2, 7)
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    for form in ("operator", "native"):  # a mask of pairs is not the operator's, and floats are summed in another order
        with using_form(form):
            truth = model(tokens, attention_mask=tensor(mask))[0]
            for same in all_shapes(mask):
                got = model(tokens, attention_mask=tensor(same, dtype))[0]
                if form == "native" or same.ndim == 2:
                    assert (got == truth).all().item()
                else:
                    assert np.abs((got - truth).numpy()).max() < 1e-5  # numbers of about 1, two float32 layers
            assert np.abs((model(tokens)[0] - truth).numpy()).max() > 1e-3


@pytest.mark.parametrize(
    "shape", [[7], [2, 6], [3, 7], [2, 7, 6], [2, 1, 1, 7], [2, 3, 7, 7], [2, 1, 7, 6], [1, 1, 2, 7, 7]], ids=str
)
def test_q10_masks_of_another_rank_or_shape_are_refused(shape, model, ids):
    with pytest.raises(ValueError) as caught:
        model(ids(2, 7), attention_mask=paddle.ones(shape, "int64"))
    text = str(caught.value)
    assert "attention_mask must have shape [B, L], [B, L, L], [B, 1, L, L] or [B, 4, L, L] with B = 2 and L = 7" in text
    assert f"but got {shape}" in text
    assert ("Squeeze axes 1 and 2" in text) == (shape == [2, 1, 1, 7])


@pytest.mark.parametrize(
    "values, line",
    [
        ([0.0, -1e4], r"\(mask > -1\)"),
        ([0.0, float("-inf")], r"\(mask > -1\)"),
        ([1, -1], r"\(mask > -1\)"),
        # For these the line for additive masks would show every pad.
        ([255, 0], r"\(mask != 0\)"),
        ([2.0, 0.0], r"\(mask != 0\)"),
        ([1.0, 0.5], r"\(input_ids != pad_token_id\)"),
        ([1.0, float("nan")], r"\(input_ids != pad_token_id\)"),
    ],
)
def test_masks_of_other_values_are_refused_with_the_line_that_converts_them(values, line, model, ids):
    dtype = "float32" if isinstance(values[0], float) else "int64"
    with pytest.raises(ValueError, match=r"must hold 1 \(attends\) and 0 .*" + line + r"\.astype\('int64'\)"):
        model(ids(1, 2), attention_mask=tensor([values], dtype))


def test_the_line_that_converts_an_additive_mask_works(model, ids):
    tokens = ids(2, 7)
    keep = tensor([[1] * 7, [1] * 4 + [0] * 3])
    additive = (1.0 - keep.astype("float32")) * -1e4
    assert (
        (model(tokens, attention_mask=(additive > -1).astype("int64"))[0] == model(tokens, attention_mask=keep)[0])
        .all()
        .item()
    )


def test_deviates_float_mask_of_zeros_only_is_refused(model, ids):
    with pytest.raises(ValueError, match="floating point and all zeros: .*Leave it out to show all, or convert"):
        model(ids(2, 7), attention_mask=paddle.zeros([2, 7]))


def test_integer_mask_of_zeros_hides_everything(model, ids):
    out = model(ids(2, 7), attention_mask=paddle.zeros([2, 7], "int64"), output_attentions=True, return_dict=True)
    assert all((probs == 0).all().item() for probs in out.attentions)


def test_complex_masks_are_refused():
    with pytest.raises(
        TypeError, match="attention_mask must be bool, integer or floating point, but got paddle.complex64"
    ):
        visible_keys(paddle.ones([2, 7]).astype("complex64"), 2, 7, 4)


def test_nothing_infers_a_mask_and_one_warning_says_so(model, ids):
    tokens = ids(2, 7)
    tokens[0, 5:] = 0
    with pytest.warns(
        UserWarning, match=r"hold pad_token_id \(0\) but no attention_mask .*pads are read as text"
    ) as caught:
        got = model(tokens)[0]
    assert len(caught) == 1
    assert (got == model(tokens, attention_mask=paddle.ones([2, 7], "int64"))[0]).all().item()


def test_the_pad_warning_points_at_the_caller(model, ids):
    with pytest.warns(UserWarning) as caught:
        model(paddle.zeros([1, 3], "int64"))
    assert caught[0].filename == __file__


# ---- arguments that do not exist


@pytest.mark.parametrize(
    "name", ["cache", "past_key_values", "use_cache", "encoder_hidden_states", "encoder_attention_mask"]
)
@pytest.mark.parametrize("kind", [NeZhaModel, NeZhaForMaskedLM], ids=lambda kind: kind.__name__)
def test_q46_a_cache_argument_raises_with_a_reason(name, kind, build, ids):
    model, tokens = build(kind), ids(1, 7)
    with pytest.raises(
        NotImplementedError, match=rf"{name} is not supported: NeZha is an encoder .*Pass the full sequence"
    ):
        model(tokens, **{name: True})
    model(tokens, **{name: None})


@pytest.mark.parametrize("kind", [*HEADS, NeZhaForMultipleChoice], ids=lambda kind: kind.__name__)
def test_an_unknown_argument_is_refused_with_the_nearest_name(kind, build, ids):
    with pytest.raises(TypeError, match="no argument 'atention_mask'. Did you mean 'attention_mask'"):
        build(kind)(ids(1, 2, 7), atention_mask=1)


def test_an_unknown_argument_of_a_head_may_be_near_its_labels(build, ids):
    with pytest.raises(
        TypeError, match="no argument 'label'. Did you mean 'labels'.* It takes: input_ids, .*, labels, "
    ):
        build(NeZhaForMaskedLM)(ids(1, 7), label=ids(1, 7))


# ---- labels

BAD_LABELS = [
    (NeZhaForMaskedLM, "labels", [2, 7], 99),
    (NeZhaForPretraining, "masked_lm_labels", [2, 7], 99),
    (NeZhaForPretraining, "next_sentence_label", [2], 2),
    (NeZhaForNextSentencePrediction, "next_sentence_label", [2], 2),
    (NeZhaForSequenceClassification, "labels", [2], 3),
    (NeZhaForTokenClassification, "labels", [2, 7], 3),
]


@pytest.mark.parametrize(
    "kind, name, shape, classes", BAD_LABELS, ids=lambda item: getattr(item, "__name__", str(item))
)
def test_labels_out_of_range_or_of_the_wrong_kind_are_refused(kind, name, shape, classes, build, ids):
    model, tokens = build(kind, num_labels=3), ids(2, 7)
    model.train()
    for bad in (classes, -2, -99):
        labels = paddle.zeros(shape, "int64")
        labels[-1] = bad
        with pytest.raises(
            ValueError,
            match=rf"{name} must lie in 0 .. {classes - 1}, or be -100 or -1 where there is no label, but got {bad}",
        ):
            model(tokens, **{name: labels})
    with pytest.raises(ValueError, match=rf"{name} must have shape \[2"):
        model(tokens, **{name: paddle.zeros([*shape, 2], "int64")})
    with pytest.raises(ValueError, match=rf"{name} must have shape \[2"):
        model(tokens, **{name: paddle.zeros([3, *shape[1:]], "int64")})
    with pytest.raises(TypeError, match=f"{name} must be a paddle.Tensor, but got numpy.ndarray"):
        model(tokens, **{name: np.zeros(shape, "int64")})
    if kind is not NeZhaForSequenceClassification:  # there floats mean several labels at once
        with pytest.raises(TypeError, match=f"{name} must be int32 or int64 class indices, but got paddle.float32"):
            model(tokens, **{name: paddle.zeros(shape)})


def test_choice_labels_out_of_range_are_refused(build, ids):
    model = build(NeZhaForMultipleChoice)
    model.train()
    with pytest.raises(ValueError, match="labels must lie in 0 .. 2, .*but got 3"):
        model(ids(2, 3, 7), labels=tensor([0, 3]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_ids": [7]},
        {"input_ids": [2, 7]},
        {"input_ids": [2, 3, 7], "attention_mask": [2, 7]},
        {"inputs_embeds": [2, 7, 32]},
    ],
    ids=str,
)
def test_multiple_choice_without_an_axis_of_choices_is_refused(arguments, build):
    tensors = {
        name: paddle.ones(shape, "float32" if name == "inputs_embeds" else "int64") for name, shape in arguments.items()
    }
    with pytest.raises(
        ValueError, match=r"with the axes \[batch, choices, length, .*stack the choices of each example along axis 1"
    ):
        build(NeZhaForMultipleChoice)(**tensors)


def test_one_position_without_the_other_is_refused(build, ids):
    model = build(NeZhaForQuestionAnswering)
    model.train()
    with pytest.raises(ValueError, match="Give start_positions and end_positions together"):
        model(ids(2, 7), start_positions=tensor([1, 2]))


# ---- absolute positions


def test_input_longer_than_max_position_embeddings_under_absolute_positions_is_refused(build, ids):
    model = build(NeZhaModel, use_relative_position=False, max_position_embeddings=9)
    model(ids(1, 9))
    with pytest.raises(
        ValueError, match="Absolute positions end at max_position_embeddings = 9, but the input is 10 long: truncate"
    ):
        model(ids(1, 10))


def test_relative_positions_read_beyond_max_position_embeddings(build, ids):
    assert list(build(NeZhaModel, max_position_embeddings=9)(ids(1, 10))[0].shape) == [1, 10, 32]


# ---- nothing of the caller's is changed


@pytest.mark.parametrize("kind", HEADS, ids=lambda kind: kind.__name__)
def test_a_forward_changes_no_input_and_no_config(kind, build, ids):
    model = build(kind, num_labels=3)
    given = [ids(2, 7), tensor(np.ones([2, 7])), tensor([[1] * 7, [1] * 3 + [0] * 4])]
    labels = {
        NeZhaForPretraining: {
            "masked_lm_labels": tensor([[5, -100, -1, 1, 2, 3, 4]] * 2),
            "next_sentence_label": tensor([[1], [0]]),
        },
        NeZhaForMaskedLM: {"labels": tensor([[5, -100, -1, 1, 2, 3, 4]] * 2)},
        NeZhaForNextSentencePrediction: {"next_sentence_label": tensor([1, -1])},
        NeZhaForSequenceClassification: {"labels": tensor([2, -100])},
        NeZhaForTokenClassification: {"labels": tensor([[0, -100, -1, 1, 2, 0, 1]] * 2)},
        NeZhaForQuestionAnswering: {"start_positions": tensor([1, 9]), "end_positions": tensor([2, -1])},
    }.get(kind, {})
    before = [x.numpy().copy() for x in (*given, *labels.values())]
    config = model.config.to_dict()
    model.train()
    model(*given, **labels)
    for old, now in zip(before, (*given, *labels.values())):
        assert list(old.shape) == list(now.shape) and (old == now.numpy()).all()
    assert model.config.to_dict() == config
