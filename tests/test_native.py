"""Attention in both forms against the definition in NumPy float64, forward and backward."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import Attention, Reference, error, table

from paddle_nezha import native
from paddle_nezha._paddle import paddle
from paddle_nezha.attention import FORM_VARIABLE, NeZhaAttention
from paddle_nezha.inputs import visible_keys
from paddle_nezha.model import NeZhaLayer, NeZhaModel
from paddle_nezha.native import masked_softmax, relative_attention

pytestmark = pytest.mark.usefixtures("seeded")

FORMULA = 1e-12  # float64: sums of at most 200 products, each rounded by 1.1e-16
FORMS = ["dense", "blocked"]


@pytest.fixture
def form(request, monkeypatch):
    """Forces a form, whatever the sizes would choose."""
    monkeypatch.setattr(native, "native_form", lambda *_: request.param)
    return request.param


@pytest.fixture
def many_blocks(monkeypatch):
    monkeypatch.setattr(native, "_BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(native, "_SMALLEST_BLOCK", 3)


def leaf(array, dtype="float64"):
    tensor = paddle.to_tensor(np.asarray(array, dtype))
    tensor.stop_gradient = False
    return tensor


def draw(rng, length, head_size, batch=2, heads=3):
    return [rng.standard_normal([batch, heads, length, head_size]) for _ in range(4)]  # q, k, v, the context's gradient


def run(arrays, tables=(None, None), visible=None, dropout=0.0):
    """Context and the gradients of q, k, v, given the context's."""
    *inputs, grad = arrays
    q, k, v = (leaf(x) for x in inputs)
    context, probs = relative_attention(q, k, v, *tables, visible=visible, dropout=dropout)
    assert probs is None
    (context * paddle.to_tensor(grad)).sum().backward()
    return [context.numpy(), q.grad.numpy(), k.grad.numpy(), v.grad.numpy()]


def assert_equal(got, truth):
    for name, one, other in zip(("context", "query", "key", "value"), got, truth):
        if np.abs(other).max() < 1e-15 * np.abs(truth[0]).max():  # L = 1: no query or key gradient at all
            assert np.abs(one).max() <= FORMULA, name
        else:
            assert error(one, other) <= FORMULA, name


def shared_table(m, head_size):
    tensor = paddle.to_tensor(table(m, head_size))
    return tensor, tensor


# Pairs of length, m and D, so that every value of each meets several of the others.
SIZES = [
    (1, 64, 8), (1, 1, 64), (2, 5, 32), (2, 127, 8), (7, 1, 8), (7, 64, 64), (64, 64, 32), (64, 127, 8), (65, 5, 8),
    (65, 64, 64), (66, 64, 8), (66, 1, 32), (127, 127, 8), (128, 127, 32), (129, 64, 8), (130, 127, 8), (200, 64, 8),
    (200, 5, 64),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize("length, m, head_size", SIZES)
def test_form_equals_the_definition_forward_and_backward(form, length, m, head_size, rng):
    q, k, v, grad = draw(rng, length, head_size, heads=2)
    truth = Attention(q, k, v, table(m, head_size), table(m, head_size))
    assert_equal(run([q, k, v, grad], shared_table(m, head_size)), [truth.context, *truth.gradients(grad)[:3]])


@pytest.mark.parametrize("form", ["blocked"], indirect=True)
@pytest.mark.parametrize("keep", [0, 1 << 22], ids=["computed again", "kept"])
@pytest.mark.parametrize("length, m, head_size", [(1, 5, 8), (2, 1, 8), (3, 1, 32), (65, 64, 8), (130, 5, 64)])
def test_many_blocks_equal_the_definition(form, keep, length, m, head_size, rng, many_blocks, monkeypatch):
    monkeypatch.setattr(native, "_KEPT_ELEMENTS", keep)
    visible = rng.random([2, 1, length, length]) < 0.7
    q, k, v, grad = draw(rng, length, head_size)
    truth = Attention(q, k, v, table(m, head_size), table(m, head_size), visible)
    got = run([q, k, v, grad], shared_table(m, head_size), paddle.to_tensor(visible))
    assert_equal(got, [truth.context, *truth.gradients(grad)[:3]])


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_without_a_table_it_is_plain_attention(form, rng):
    q, k, v, grad = draw(rng, 70, 8)
    truth = Attention(q, k, v)
    assert_equal(run([q, k, v, grad]), [truth.context, *truth.gradients(grad)[:3]])


@pytest.mark.parametrize("length", [1, 7, 130])
def test_learned_tables_get_their_gradients(length, rng):
    q, k, v, grad = draw(rng, length, 8)
    key_table, value_table = rng.standard_normal([11, 8]), rng.standard_normal([11, 8])
    truth = Attention(q, k, v, key_table, value_table)
    tables = leaf(key_table), leaf(value_table)
    got = run([q, k, v, grad], tables)
    gradients = truth.gradients(grad)
    assert_equal(got, [truth.context, *gradients[:3]])
    for tensor, expected in zip(tables, gradients[3:]):
        assert np.abs(tensor.grad.numpy() - expected).max() <= FORMULA * max(1.0, np.abs(expected).max())


# ---- masks

MASKS = {
    "padding [B, 1, 1, L]": lambda rng, n: (
        np.arange(n)[None, None, None, :] < np.array([n, n - 3])[:, None, None, None]
    ),
    "causal [B, 1, L, L]": lambda rng, n: np.tril(np.ones([2, 1, n, n], bool)),
    "of each head [B, H, L, L]": lambda rng, n: rng.random([2, 3, n, n]) < 0.5,
    "rows that see nothing": lambda rng, n: (rng.random([2, 3, n, n]) < 0.5) & (np.arange(n)[:, None] % 3 > 0),
    "nothing at all": lambda rng, n: np.zeros([2, 1, 1, n], bool),
}


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize("name", MASKS)
def test_masked_positions_are_invisible(form, name, rng, many_blocks):
    visible = MASKS[name](rng, 9)
    q, k, v, grad = draw(rng, 9, 8)
    truth = Attention(q, k, v, table(5, 8), table(5, 8), visible)
    got = run([q, k, v, grad], shared_table(5, 8), paddle.to_tensor(visible))
    assert_equal(got, [truth.context, *truth.gradients(grad)[:3]])
    # Exactly nothing, not nearly: what cannot be seen cannot be read back, and gives no gradient.
    seen_by_some = np.broadcast_to(visible, [2, 3, 9, 9]).any(2)
    sees_some = np.broadcast_to(visible, [2, 3, 9, 9]).any(3)
    assert (got[0][~sees_some] == 0).all() and (got[1][~sees_some] == 0).all()
    assert (got[3][~seen_by_some] == 0).all()
    # Autograd runs through Paddle's softmax, which leaves a hidden key exp(-64) = 1.6e-28; the blocked form does not.
    leak = 1e-26 if form == "dense" else 0.0
    assert (np.abs(got[2][~seen_by_some]) <= leak).all()


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_hidden_values_cannot_be_read_even_if_huge(form, rng):
    q, k, v, grad = draw(rng, 9, 8)
    visible = MASKS["padding [B, 1, 1, L]"](rng, 9)
    before = run([q, k, v, grad], shared_table(5, 8), paddle.to_tensor(visible))[0]
    k[1, :, 6:], v[1, :, 6:] = 1e12, -1e12
    after = run([q, k, v, grad], shared_table(5, 8), paddle.to_tensor(visible))[0]
    assert (before == after).all()


def test_masked_probabilities_are_exactly_zero_and_rows_sum_to_one(rng):
    scores = paddle.to_tensor(50 * rng.standard_normal([2, 3, 9, 9]))
    visible = MASKS["rows that see nothing"](rng, 9)
    probs = masked_softmax(scores, paddle.to_tensor(visible)).numpy()
    assert (probs[~visible] == 0).all()
    assert np.allclose(probs.sum(-1), visible.any(-1), rtol=1e-14, atol=0)  # nine roundings of 1.1e-16


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_scores_200_apart_do_not_overflow(form, rng):
    q, k, v, grad = draw(rng, 7, 8)
    q, k = 20 * q, 20 * k
    truth = Attention(q, k, v, table(5, 8), table(5, 8))
    assert np.ptp(truth.scores) > 200
    got = run([q, k, v, grad], shared_table(5, 8))
    # Paddle's softmax lets nothing fall below exp(-64) = 1.6e-28: far below float64's own rounding.
    assert_equal(got, [truth.context, *truth.gradients(grad)[:3]])


# ---- dropout


def with_known_dropout(monkeypatch, factor, dropout):
    """Makes both forms draw this factor (rows of it, block by block)."""
    drawn = iter(np.split(factor, range(3, factor.shape[2], 3), axis=2))
    monkeypatch.setattr(native.F, "dropout", lambda probs, p: probs * paddle.to_tensor(factor), raising=True)
    monkeypatch.setattr(native.paddle, "rand", lambda shape, dtype: paddle.to_tensor((next(drawn) > 0).astype(dtype)))


@pytest.mark.parametrize("form", FORMS, indirect=True)
@pytest.mark.parametrize("keep", [0, 1 << 22], ids=["computed again", "kept"])
def test_one_dropout_mask_hits_values_and_table_and_its_gradients(form, keep, rng, many_blocks, monkeypatch):
    monkeypatch.setattr(native, "_KEPT_ELEMENTS", keep)
    q, k, v, grad = draw(rng, 10, 8)
    factor = (rng.random([2, 3, 10, 10]) >= 0.25) / 0.75
    truth = Attention(q, k, v, table(5, 8), table(5, 8), factor=factor)
    with monkeypatch.context() as patch:
        with_known_dropout(patch, factor, 0.25)
        got = run([q, k, v, grad], shared_table(5, 8), dropout=0.25)
    assert_equal(got, [truth.context, *truth.gradients(grad)[:3]])


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_dropout_drops_the_stated_share_and_keeps_the_mean(form):
    # Equal scores and values of one: each context is (kept keys) / (L (1 - p)).
    length, p = 256, 0.3
    zero, one = paddle.zeros([2, 4, length, 8]), paddle.ones([2, 4, length, 8])
    context, _ = relative_attention(zero, zero, one, dropout=p)
    kept = context.numpy()[..., 0] * (1 - p)
    # 524,288 draws: the mean's deviation is 0.46 / 724 = 6.3e-4, five of them allowed; the rows' own is 0.0286.
    assert abs(kept.mean() - (1 - p)) < 3.2e-3
    assert kept.std() == pytest.approx((p * (1 - p) / length) ** 0.5, rel=0.1)


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_dropout_repeats_under_a_seed(form, rng):
    arrays = draw(rng, 40, 8)
    answers = []
    for seed in (1, 1, 2):
        paddle.seed(seed)
        answers.append(run(arrays, shared_table(5, 8), dropout=0.5))
    for first, second, other in zip(*answers):
        assert (first == second).all() and (first != other).any()


# ---- what a caller relies on


@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_inputs_are_untouched(form, rng, many_blocks):
    arrays = draw(rng, 10, 8)
    q, k, v = (leaf(x) for x in arrays[:3])
    visible = paddle.to_tensor(rng.random([2, 1, 10, 10]) < 0.5)
    one = shared_table(5, 8)
    before = [x.numpy().copy() for x in (q, k, v, visible, one[0])]
    relative_attention(q, k, v, *one, visible=visible)[0].sum().backward()
    assert all((x.numpy() == old).all() for x, old in zip((q, k, v, visible, one[0]), before))


@pytest.mark.parametrize("frozen", ["query", "key", "value"])
@pytest.mark.parametrize("form", FORMS, indirect=True)
def test_a_frozen_input_gets_no_gradient_and_changes_no_other(form, frozen, rng):
    q, k, v, grad = draw(rng, 10, 8)
    truth = dict(zip(("query", "key", "value"), run([q, k, v, grad], shared_table(5, 8))[1:]))
    leaves = dict(zip(("query", "key", "value"), (leaf(x) for x in (q, k, v))))
    leaves[frozen].stop_gradient = True
    context, _ = relative_attention(*leaves.values(), *shared_table(5, 8))
    (context * paddle.to_tensor(grad)).sum().backward()
    for name, tensor in leaves.items():
        assert tensor.grad is None if name == frozen else (tensor.grad.numpy() == truth[name]).all()


def test_whoever_asks_for_probabilities_gets_them_before_dropout(rng):
    q, k, v, _ = draw(rng, 10, 8)
    _, probs = relative_attention(
        *(paddle.to_tensor(x) for x in (q, k, v)), *shared_table(5, 8), dropout=0.5, want_probs=True
    )
    assert error(probs.numpy(), Attention(q, k, v, table(5, 8), table(5, 8)).probs) <= FORMULA


def test_the_dense_form_allows_a_second_backward(rng):
    q, k, v = (leaf(x) for x in draw(rng, 6, 8)[:3])
    context, _ = relative_attention(q, k, v, *shared_table(5, 8), want_probs=True)
    loss = (context**2).sum()
    loss.backward(retain_graph=True)
    once = q.grad.numpy().copy()
    loss.backward()
    assert (q.grad.numpy() == 2 * once).all()


def test_a_second_backward_in_the_blocked_form_is_an_error_and_no_crash(build, ids, monkeypatch):
    monkeypatch.setenv(FORM_VARIABLE, "blocked")
    model = build(NeZhaModel)
    loss = model(ids(1, 7))[1].sum()
    loss.backward(retain_graph=True)
    with pytest.raises(
        OSError, match="A second backward .*add the losses up .*or call the model with output_attentions=True"
    ):
        loss.backward()
    model(ids(1, 7))[1].sum().backward()  # a forward of its own


def test_the_form_is_chosen_in_one_place():
    fixed, learned = paddle.zeros([3, 8]), leaf(np.zeros([3, 8]))
    assert native.native_form(fixed, want_probs=False) == "blocked"
    assert native.native_form(None, want_probs=False) == "blocked"
    assert native.native_form(fixed, want_probs=True) == "dense"
    assert native.native_form(learned, want_probs=False) == "dense"


def test_float32_forms_agree_within_rounding(rng):
    arrays = [x.astype("float32") for x in draw(rng, 130, 32)[:3]]
    truth = Attention(*(x.astype("float64") for x in arrays), table(64, 32), table(64, 32)).context
    one = paddle.to_tensor(table(64, 32).astype("float32"))
    for want_probs in (False, True):
        got, _ = relative_attention(*(paddle.to_tensor(x) for x in arrays), one, one, want_probs=want_probs)
        assert error(got.numpy(), truth) <= 3e-6  # scores up to 20 carry an error of 2e-6 into the exponent


@pytest.mark.parametrize("encoding", ["functional_relative", "parametric_relative", "absolute"])
def test_attention_layer_equals_the_definition(encoding, build, rng):
    model = build(NeZhaModel, dtype="float64", position_encoding=encoding)
    x = rng.standard_normal([2, 70, 32])
    visible = np.arange(70) < np.array([70, 41])[:, None, None, None]
    layer = model.encoder.layer[1]
    assert isinstance(layer, NeZhaLayer) and isinstance(layer.attention, NeZhaAttention)
    got, probs = layer(paddle.to_tensor(x), paddle.to_tensor(visible), output_attentions=True)
    truth, true_probs = Reference(model).layer(x, 1, visible)
    assert error(got.numpy(), truth) <= FORMULA and error(probs.numpy(), true_probs) <= FORMULA
    assert error(layer(paddle.to_tensor(x), paddle.to_tensor(visible))[0].numpy(), truth) <= FORMULA


def test_parametric_tables_belong_to_each_layer_and_bear_their_names(build):
    model = build(NeZhaModel, position_encoding="parametric_relative", max_relative_position=5)
    shapes = {name: list(p.shape) for name, p in model.named_parameters() if "relative" in name}
    assert shapes == {
        f"encoder.layer.{number}.attention.relative_{side}.weight": [11, 8]
        for number in (0, 1)
        for side in ("key", "value")
    }


@pytest.mark.parametrize("shape", [(2, 9), (2, 9, 9), (2, 1, 9, 9), (2, 3, 9, 9)])
def test_mask_of_any_shape_reaches_the_scores(shape, rng):
    mask = rng.integers(0, 2, shape)
    q, k, v, _ = draw(rng, 9, 8)
    visible = visible_keys(paddle.to_tensor(mask), 2, 9, 3)
    wide = mask.reshape({2: (2, 1, 1, 9), 3: (2, 1, 9, 9), 4: shape}[len(shape)])
    got, _ = relative_attention(*(paddle.to_tensor(x) for x in (q, k, v)), *shared_table(5, 8), visible=visible)
    assert error(got.numpy(), Attention(q, k, v, table(5, 8), table(5, 8), wide == 1).context) <= FORMULA


# ---- memory

_PEAK = """
import json, resource, sys
from paddle_nezha._paddle import paddle
from paddle_nezha.native import relative_attention
length, = map(int, sys.argv[1:])
q, k, v = (paddle.randn([1, 2, length, 64]) for _ in range(3))
for x in (q, k, v): x.stop_gradient = False
one = paddle.zeros([129, 64])
relative_attention(q[:, :, :64], k[:, :, :64], v[:, :, :64], one, one)[0].sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
relative_attention(q, k, v, one, one)[0].sum().backward()
print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))
"""


def in_child(script, *arguments):
    """Runs a script in a process of its own, whose peak memory is its own too; the JSON on its last line."""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], cwd=root, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_memory_of_a_long_input_grows_with_its_length():
    # At L = 4096 one [L, L, D] would take 4096 MiB and the probabilities [H, L, L] 128 MiB, of which forward and
    # backward together hold several. Blocks of 2 MiB, and q, k, v with their gradients (2 MiB each), stay near 40.
    assert in_child(_PEAK, 4096) < 96


@pytest.mark.slow
def test_length_4096_at_base_width_is_right_on_64_rows(tiny, rng, capsys):
    config = tiny(vocab_size=1000, hidden_size=768, num_hidden_layers=1, num_attention_heads=12, intermediate_size=3072)
    model = NeZhaModel(config)
    model.eval()
    ids = rng.integers(1, 1000, [1, 4096])
    with paddle.no_grad():
        got = model(paddle.to_tensor(ids))[0].numpy()
    asked = sorted(rng.choice(4096, 64, replace=False).tolist())
    truth = Reference(model)
    x = truth.embed(truth.weights["embeddings.word_embeddings.weight"][ids], np.zeros_like(ids))
    rows, _ = truth.layer(x, 0, queries=asked)
    with capsys.disabled():
        print(f"\nlength 4096: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB, "
              f"error {error(got[:, asked], rows):.1e}")  # fmt: skip
    assert error(got[:, asked], rows) <= 1e-5  # float32: dot products of 3072 terms against their float64 truth
