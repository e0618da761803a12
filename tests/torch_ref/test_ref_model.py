"""torch_ref against the formula written as loops in NumPy, and against what the formula promises."""

import itertools
import math

import numpy as np
import pytest
import torch

import torch_ref
from paddle_nezha.config import NeZhaConfig
from torch_ref.model import ACTIVATIONS, LayerNorm, attention, masked_softmax, visible_keys

# Odd, unequal sizes, so that swapped axes cannot hide; lengths go beyond m and 2m.
SIZES = dict(
    vocab_size=29,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=17,
    max_relative_position=3,
    max_position_embeddings=16,
    initializer_range=0.4,
)
ENCODINGS = ("functional_relative", "parametric_relative", "absolute")
ROUNDING = 1e-12  # float64 on both sides and values near 1: a few hundred roundings of 1.1e-16


@pytest.fixture
def rng():
    torch.manual_seed(20)
    return np.random.default_rng(20)


def model(encoding="functional_relative", **changes):
    """A reference whose biases and LayerNorms are random too: none of them can be forgotten unseen."""
    ref = torch_ref.build(NeZhaConfig(**{**SIZES, "position_encoding": encoding, **changes}), "model")
    with torch.no_grad():
        for p in ref.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return ref


def norm_loop(x, w, name):
    mean, variance = x.mean(), ((x - x.mean()) ** 2).mean()
    eps = float(np.float32(1e-12))
    return (x - mean) / math.sqrt(variance + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu_loop(x):
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])


def layer_loop(x, w, name, mask, key_table, value_table, heads, m):
    """One layer for one text, x [L, N], one query, key and head at a time."""
    length, width = x.shape
    depth = width // heads
    q, k, v = ([row @ w[f"{name}.attention.{p}.weight"] + w[f"{name}.attention.{p}.bias"] for row in x]
               for p in ("query", "key", "value"))  # fmt: skip
    context = np.zeros((length, width))
    for h, f in itertools.product(range(heads), range(length)):
        at = slice(h * depth, (h + 1) * depth)
        weights = np.zeros(length)
        for t in range(length):
            row = min(max(t - f, -m), m) + m
            score = q[f][at] @ (k[t][at] + key_table[row]) / math.sqrt(depth)
            weights[t] = math.exp(score) if mask[f, t] else 0.0
        for t in range(length):
            row = min(max(t - f, -m), m) + m
            context[f, at] += weights[t] / weights.sum() * (v[t][at] + value_table[row])
    out = []
    for f in range(length):
        dense = context[f] @ w[f"{name}.attention.dense.weight"] + w[f"{name}.attention.dense.bias"]
        a = norm_loop(x[f] + dense, w, f"{name}.attention.layer_norm")
        inner = gelu_loop(a @ w[f"{name}.ffn.weight"] + w[f"{name}.ffn.bias"])
        outer = inner @ w[f"{name}.ffn_output.weight"] + w[f"{name}.ffn_output.bias"]
        out.append(norm_loop(a + outer, w, f"{name}.layer_norm"))
    return np.array(out)


def tables_loop(w, name, encoding, m, depth):
    rows = 2 * m + 1
    if encoding == "absolute":
        return np.zeros((2, rows, depth))
    if encoding == "parametric_relative":
        return w[f"{name}.attention.relative_key.weight"], w[f"{name}.attention.relative_value.weight"]
    table = np.zeros((rows, depth))
    for r, i in itertools.product(range(rows), range(depth // 2)):
        table[r, 2 * i] = np.sin(r / np.power(10000.0, 2 * i / depth))
        table[r, 2 * i + 1] = np.cos(r / np.power(10000.0, 2 * i / depth))
    return table, table


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_equals_the_formula_in_loops(encoding, rng):
    ref, m = model(encoding), SIZES["max_relative_position"]
    w = torch_ref.parameters(ref)
    ids, types = rng.integers(0, 29, (2, 9)), rng.integers(0, 2, (2, 9))
    mask = rng.integers(0, 2, (2, 9, 9))
    mask[:, :, 0] = 1  # each query sees something: the loops know no empty softmax
    out = ref(ids, types, mask)
    for b in range(2):
        x = w["embeddings.word_embeddings.weight"][ids[b]] + w["embeddings.token_type_embeddings.weight"][types[b]]
        if encoding == "absolute":
            x = x + w["embeddings.position_embeddings.weight"][:9]
        x = np.array([norm_loop(row, w, "embeddings.layer_norm") for row in x])
        for n in range(2):
            tables = tables_loop(w, f"encoder.layer.{n}", encoding, m, 6)
            x = layer_loop(x, w, f"encoder.layer.{n}", mask[b], *tables, heads=2, m=m)
        pooled = np.tanh(x[0] @ w["pooler.dense.weight"] + w["pooler.dense.bias"])
        np.testing.assert_allclose(out.last_hidden_state[b].detach(), x, rtol=0, atol=ROUNDING)
        np.testing.assert_allclose(out.pooler_output[b].detach(), pooled, rtol=0, atol=ROUNDING)


def test_table_and_rows_at_known_places():
    table, rows = torch_ref.position_table(64, 64), torch_ref.relative_rows(200, 64)
    assert table.shape == (129, 64) and table.dtype == torch.float64
    assert table[0].tolist() == [0.0, 1.0] * 32
    assert table[5, 2].item() == math.sin(5 / 10000 ** (2 / 64))
    assert table[128, 63].item() == math.cos(128 / 10000 ** (62 / 64))
    assert rows[0, 0] == 64 and rows[3, 4] == 65 and rows[4, 3] == 63  # the key before the query is the lower row
    assert rows[0, 199] == 128 and rows[199, 0] == 0
    single = torch_ref.position_table(64, 64, torch.float32)
    assert torch.equal(single, table.to(torch.float32))


def test_record_has_every_stage_with_its_shape(rng):
    record = {}
    model()(rng.integers(0, 29, (2, 7)), attention_mask=np.ones((2, 7), dtype=bool), record=record)
    layer = {
        "query": (2, 7, 12), "key": (2, 7, 12), "value": (2, 7, 12),
        "scores": (2, 2, 7, 7), "probs": (2, 2, 7, 7),
        "context": (2, 7, 12), "attention_output": (2, 7, 12), "ffn": (2, 7, 17), "output": (2, 7, 12),
    }  # fmt: skip
    expected = {
        "table": (7, 6),
        "rows": (7, 7),
        "mask": (2, 1, 7, 7),
        "embeddings": (2, 7, 12),
        "pooler": (2, 12),
    }
    expected.update({f"layer.{n}.{stage}": shape for n in range(2) for stage, shape in layer.items()})
    assert {name: tuple(t.shape) for name, t in record.items()} == expected
    assert record["mask"].dtype == torch.bool and record["rows"].dtype == torch.int64


@pytest.mark.parametrize(
    "encoding, left",
    [  # left padding moves absolute positions
        ("functional_relative", False),
        ("functional_relative", True),
        ("parametric_relative", False),
        ("parametric_relative", True),
        ("absolute", False),
    ],
)
def test_padding_is_invisible(encoding, left, rng):
    ref, ids = model(encoding), rng.integers(1, 29, (1, 7))
    pad = np.zeros((1, 4), dtype=int)
    padded = np.concatenate([pad, ids] if left else [ids, pad], axis=1)
    real = slice(4, None) if left else slice(7)
    mask = np.zeros((1, 11), dtype=int)
    mask[:, real] = 1
    alone, among = ref(ids).last_hidden_state, ref(padded, attention_mask=mask).last_hidden_state[:, real]
    torch.testing.assert_close(among, alone, rtol=0, atol=ROUNDING)


def test_pad_content_is_not_read_and_gets_no_gradient(rng):
    ref, ids = model(), rng.integers(1, 29, (1, 9))
    mask = np.array([[1] * 6 + [0] * 3])
    embeds = ref.base.word(torch.tensor(ids)).detach().requires_grad_()
    ref(inputs_embeds=embeds, attention_mask=mask).last_hidden_state[:, :6].square().sum().backward()
    assert torch.all(embeds.grad[:, 6:] == 0) and torch.all(embeds.grad[:, :6] != 0)


def test_mask_forms_agree(rng):
    ref, ids = model(), rng.integers(0, 29, (2, 7))
    flat = np.array([[1] * 7, [1] * 4 + [0] * 3])
    square = np.repeat(flat[:, None, :], 7, axis=1)
    forms = [flat, flat.astype(bool), square, square[:, None], np.repeat(square[:, None], 2, axis=1)]
    first, *others = [ref(ids, attention_mask=mask).last_hidden_state for mask in forms]
    assert all(torch.equal(first, other) for other in others)
    with pytest.raises(ValueError, match=r"attention_mask: expected \[B, L\].*got shape \(2,\)"):
        ref(ids, attention_mask=np.ones(2))


def test_masks_of_single_heads_and_queries_act_there_alone(rng):
    mask = np.ones((1, 2, 7, 7), dtype=int)
    mask[0, 1, 3, 5] = 0
    probs = model()(rng.integers(0, 29, (1, 7)), attention_mask=mask).attentions[0]
    assert torch.equal(probs == 0, torch.tensor(mask == 0))


def test_query_without_visible_key_is_zero_forward_and_backward(rng):
    ref, ids = model(), rng.integers(0, 29, (2, 7))
    mask = np.ones((2, 7, 7), dtype=int)
    mask[0, 2] = 0
    mask[1] = 0
    embeds = ref.base.word(torch.tensor(ids)).detach().requires_grad_()
    record = {}
    out = ref(inputs_embeds=embeds, attention_mask=mask, record=record)
    for n in range(2):
        assert torch.all(record[f"layer.{n}.probs"][0, :, 2] == 0) and torch.all(record[f"layer.{n}.probs"][1] == 0)
        assert torch.all(record[f"layer.{n}.context"][0, 2] == 0)
    scores = record["layer.0.scores"]
    scores.retain_grad()
    out.last_hidden_state.square().sum().backward()
    assert torch.isfinite(embeds.grad).all()
    assert torch.all(scores.grad[0, :, 2] == 0) and torch.all(scores.grad[1] == 0)
    assert torch.any(scores.grad[0, :, 3] != 0)
    assert all(np.isfinite(g).all() for g in torch_ref.gradients(ref).values())


@pytest.mark.parametrize("encoding", ["functional_relative", "parametric_relative"])
def test_shifting_all_positions_changes_nothing_under_relative(encoding, rng):
    ref, ids = model(encoding), rng.integers(0, 29, (1, 6))
    before = np.concatenate([rng.integers(0, 29, (1, 5)), ids], axis=1)
    mask = np.array([[0] * 5 + [1] * 6])
    shifted = ref(before, attention_mask=mask).last_hidden_state[:, 5:]
    torch.testing.assert_close(shifted, ref(ids).last_hidden_state, rtol=0, atol=ROUNDING)


def test_word_order_is_seen(rng):
    ids = np.array([[3, 5, 7, 9]])
    for encoding in ENCODINGS:
        ref = model(encoding)
        turned = ref(ids[:, ::-1].copy()).last_hidden_state.flip(1)
        assert (ref(ids).last_hidden_state - turned).abs().max() > 1e-3, encoding


def test_absolute_stops_at_its_table_and_relative_does_not(rng):
    ids = rng.integers(0, 29, (1, 17))
    with pytest.raises(ValueError, match="at most max_position_embeddings = 16 .* got 17; shorten"):
        model("absolute")(ids)
    assert model()(ids).last_hidden_state.shape == (1, 17, 12)


def test_inputs_embeds_stand_for_ids(rng):
    ref, ids = model(), rng.integers(0, 29, (2, 7))
    embeds = ref.base.word(torch.tensor(ids))
    assert torch.equal(ref(inputs_embeds=embeds).last_hidden_state, ref(ids).last_hidden_state)
    with pytest.raises(ValueError, match="got both"):
        ref(ids, inputs_embeds=embeds)
    with pytest.raises(ValueError, match="got neither"):
        ref(token_type_ids=ids)


def test_gradcheck_of_attention(rng):
    query, key, value = (torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True) for _ in range(3))
    tables = [torch.randn(4, 4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    seen = torch.tensor(rng.integers(0, 2, (1, 1, 4, 4)).astype(bool))
    seen[0, 0, 1], seen[0, 0, 2] = False, True
    assert torch.autograd.gradcheck(
        lambda *x: attention(*x[:3], seen, *x[3:])[1:], (query, key, value, *tables), atol=1e-7, rtol=1e-6
    )  # finite differences of step 1e-6 in float64 are good to about 1e-9


def test_softmax_is_exact_far_apart():
    scores = torch.tensor([[0.0, 200.0, 1e5]], dtype=torch.float64)
    probs = masked_softmax(scores, torch.tensor([[True, True, False]]))
    assert probs[0, 1] == 1 and probs[0, 2] == 0
    assert probs[0, 0].item() == pytest.approx(math.exp(-200), rel=1e-12)  # one exp and one division


def test_visible_keys_defaults_to_all():
    assert torch.equal(visible_keys(None, 2, 3), torch.ones(2, 1, 3, 3, dtype=torch.bool))


def test_layer_norm_obeys_its_epsilon_as_float32():
    norm = LayerNorm(2, 1e-5).double()
    x = torch.tensor([[1e-3, -1e-3]], dtype=torch.float64)
    expected = 1e-3 / math.sqrt(1e-6 + float(np.float32(1e-5)))
    assert norm(x)[0, 0].item() == pytest.approx(expected, rel=1e-15)  # float64(1e-5) is 2e-9 away


@pytest.mark.parametrize(
    "names, outside",
    [
        (("gelu", "gelu_python"), torch.nn.functional.gelu),
        (("gelu_10",), lambda x: torch.nn.functional.gelu(x).clip(-10, 10)),
        (("gelu_new", "gelu_tanh"), lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        (("linear",), lambda x: x),
        (("mish",), torch.nn.functional.mish),
        (("quick_gelu",), lambda x: x / (1 + torch.exp(-1.702 * x))),
        (("relu",), lambda x: x.clamp(min=0)),
        (("relu6",), lambda x: x.clamp(0, 6)),
        (("sigmoid",), torch.nn.functional.sigmoid),
        (("silu", "swish"), torch.nn.functional.silu),
        (("tanh",), torch.nn.functional.tanh),
    ],
)
def test_activations(names, outside):
    x = torch.linspace(-15, 15, 301, dtype=torch.float64)
    for name in names:
        torch.testing.assert_close(ACTIVATIONS[name](x), outside(x), rtol=1e-13, atol=1e-14)  # other order of sums


def test_gelu_fast_is_the_tanh_form_to_ten_digits():
    x = torch.linspace(-15, 15, 301, dtype=torch.float64)
    # sqrt(2/pi) cut to ten digits is 3.6e-12 off, relatively
    torch.testing.assert_close(ACTIVATIONS["gelu_fast"](x), ACTIVATIONS["gelu_tanh"](x), rtol=0, atol=1e-10)
    assert not torch.equal(ACTIVATIONS["gelu_fast"](x), ACTIVATIONS["gelu_tanh"](x))


def test_every_activation_of_the_config_exists():
    from paddle_nezha.config import ACTIVATIONS as NAMES

    assert set(ACTIVATIONS) == set(NAMES)


def test_float32_and_no_change_of_inputs(rng):
    ref = model().to(torch.float32)
    ids, mask = rng.integers(0, 29, (2, 7)), np.ones((2, 7), dtype=np.int64)
    copies = ids.copy(), mask.copy()
    out = ref(ids, attention_mask=mask)
    assert out.last_hidden_state.dtype == torch.float32
    assert np.array_equal(ids, copies[0]) and np.array_equal(mask, copies[1])
    truth = ref.to(torch.float64)(ids).last_hidden_state
    difference = (out.last_hidden_state - truth).abs().max()
    assert 0 < difference < 1e-4  # float32 rounding 6e-8 through 2 layers of random weights
