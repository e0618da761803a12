"""Dropout inside the operator: how much it drops, where, and that forward and backward drop the same."""

import children
import numpy as np
import pytest
from packing import Answer, Definition, drawn, factors_of, instruction_set, off, runnable_sets, starts_of, tensor

from paddle_nezha import operator
from paddle_nezha._paddle import paddle
from paddle_nezha.model import NeZhaModel

pytestmark = pytest.mark.usefixtures("seeded")

LIMIT = 1e-12  # float64: sums of some hundred products, each rounded by 1.1e-16


def seeded_answer(seed, *arguments, **settings):
    paddle.seed(seed)
    return Answer(*arguments, **settings)


# ---- how much


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_stated_share_is_dropped_and_the_mean_kept(p):
    kept = np.stack(factors_of(1, [256] * 4, 2, p)) > 0  # 524,288 of them
    # Five deviations of the mean of independent draws: sqrt(p (1 - p) / n).
    assert abs(kept.mean() - (1 - p)) < 5 * (p * (1 - p) / kept.size) ** 0.5
    # Each row's number of kept keys spreads as a binomial one does: variances of 2048 rows are within 5 x 3.1 %.
    assert kept.sum(-1).var() == pytest.approx(256 * p * (1 - p), rel=0.16)
    assert kept.sum(-2).var() == pytest.approx(256 * p * (1 - p), rel=0.16)


@pytest.mark.parametrize("dtype, limit", [("float64", 1e-12), ("float32", 1e-6)])
def test_what_remains_is_scaled_up(dtype, limit):
    """Equal scores, values of one: each context is (kept keys) / (L (1 - p)), p in float32, Paddle's own attribute."""
    length, p = 128, 0.3
    qkv = np.concatenate([np.zeros([length, 16]), np.ones([length, 8])], 1)
    context = seeded_answer(4, qkv, [length], 1, dropout=p, dtype=dtype).context
    kept = (factors_of(4, [length], 1, p)[0][0] > 0).sum(-1)
    assert off(context, np.repeat(kept[:, None] / length / (1 - float(np.float32(p))), 8, 1)) <= limit


def test_none_and_nearly_all(rng):
    qkv, grad = drawn(rng, 40, 2, 8)
    plain = Answer(qkv, [40], 2, 5)
    for tiny in (0.0, 1e-14):  # the second drops one in 2^32 at most: none of these 3200
        answer = Answer(qkv, [40], 2, 5, dropout=tiny)
        assert off(answer.context, plain.context) <= LIMIT
    kept = np.stack(factors_of(2, [256] * 2, 2, 0.999)) > 0
    assert 0 < kept.sum() and abs(kept.mean() - 0.001) < 5 * (0.001 / kept.size) ** 0.5
    everything = Answer(qkv, [40], 2, 5, dropout=1.0)
    slope = everything.gradients(grad)[0]
    assert (everything.context == 0).all() and (slope == 0).all()
    assert np.isfinite(everything.log_sum_exp).all()


# ---- where


def correlation(a, b):
    return np.mean((a - a.mean()) * (b - b.mean())) / (a.std() * b.std())


def test_the_mask_has_no_pattern():
    """Every pair of draws a hash of rows and keys could tie together: neighbours, rows, heads, sequences, calls.

    Correlations of n independent draws deviate by 1 / sqrt(n); the largest of some hundred stays below 4.5 deviations.
    """
    length, heads = 256, 4
    kept = np.stack(factors_of(3, [length] * 2, heads, 0.5)) > 0  # [sequence, head, query, key]
    kept = kept.astype("float64")
    other = np.stack(factors_of(4, [length] * 2, heads, 0.5)) > 0
    found = {"calls": correlation(kept, other)}
    for step in (*range(1, 18), 32, 64, 128):
        found[f"keys {step} apart"] = correlation(kept[..., step:], kept[..., :-step])
        found[f"queries {step} apart"] = correlation(kept[:, :, step:], kept[:, :, :-step])
        found[f"down the diagonal {step}"] = correlation(kept[:, :, step:, step:], kept[:, :, :-step, :-step])
        found[f"up the diagonal {step}"] = correlation(kept[:, :, step:, :-step], kept[:, :, :-step, step:])
    for step in range(1, heads):
        found[f"heads {step} apart"] = correlation(kept[:, step:], kept[:, :-step])
    found["sequences"] = correlation(kept[0], kept[1])
    found["transposed"] = correlation(kept, kept.swapaxes(2, 3))
    found["mirrored"] = correlation(kept, kept[..., ::-1])
    for name, value in found.items():
        n = kept.size / 2 if name == "sequences" else kept.size / 2.1
        assert abs(value) < 4.5 / n**0.5, f"{name}: {value:.4f}"


def test_any_two_rows_and_any_two_keys_are_strangers():
    """1024 rows of 256 draws, every pair: a hash whose rows are shifts or copies of each other would show here."""
    rows = np.concatenate([x.reshape(-1, 256) for x in factors_of(5, [256] * 2, 2, 0.5)])
    for signs in (rows > 0, (rows > 0).T):
        signs = np.where(signs, 1.0, -1.0)
        signs -= signs.mean()
        products = signs @ signs.T / signs.shape[1]
        largest = np.abs(products - np.diag(np.diag(products))).max()
        # The largest of half a million normal deviates is 4.9 of them, and of 33,000 below 4.4; never beyond 6.5.
        assert largest < 6.5 / signs.shape[1] ** 0.5
    # And rows against other rows moved along by up to 64 keys, which sequences of one multiplication would be.
    signs = np.where(rows > 0, 1.0, -1.0)
    for shift in (*range(1, 17), 32, 64):
        products = signs[:, shift:] @ signs[:, :-shift].T / (256 - shift)
        assert np.abs(products).max() < 6.5 / (256 - shift) ** 0.5


def test_groups_of_eight_keys_take_all_patterns_alike():
    kept = np.concatenate([x.reshape(-1) for x in factors_of(6, [256] * 4, 2, 0.5)]) > 0
    patterns = np.bincount(np.packbits(kept), minlength=256)  # 65,536 of them, 256 expected of each
    chi_square = ((patterns - 256) ** 2 / 256).sum()
    assert abs(chi_square - 255) < 5 * (2 * 255) ** 0.5  # 255 degrees of freedom deviate by sqrt(510)


# ---- one mask for everything


@pytest.mark.parametrize("m, learned", [(0, False), (5, False), (64, False), (5, True)])
@pytest.mark.parametrize("lengths", [[10], [130], [66, 1, 40]], ids=str)
def test_one_mask_weighs_values_and_relative_rows_and_all_gradients(lengths, m, learned, rng):
    qkv, grad = drawn(rng, sum(lengths), 2, 8)
    tables = rng.standard_normal([2, 2 * m + 1, 8]) if learned else None
    visible = rng.random(sum(lengths)) < 0.8
    reach = 0 if learned else m
    truth = Definition(qkv, lengths, 2, reach, tables, visible, factors_of(9, lengths, 2, 0.25))
    slope, slopes = truth.gradients(grad)
    for isa in runnable_sets():
        with instruction_set(isa):
            answer = seeded_answer(9, qkv, lengths, 2, reach, tables, visible, dropout=0.25)
            got, table_slope = answer.gradients(grad)
        assert off(answer.context, truth.context) <= LIMIT
        assert off(answer.log_sum_exp, truth.log_sum_exp) <= LIMIT  # of the probabilities before dropout
        assert off(got, slope) <= LIMIT
        if learned:
            assert off(table_slope, slopes) <= LIMIT


def test_the_gradient_is_that_of_the_forward_with_the_same_seed(rng):
    """By finite differences, which know no definition: the mask of the backward is the forward's."""
    qkv, grad = drawn(rng, 20, 2, 8)
    tables = rng.standard_normal([2, 11, 8])
    slope, slopes = seeded_answer(8, qkv, [20], 2, tables=tables, dropout=0.4).gradients(grad)

    def loss(qkv, tables):
        return (seeded_answer(8, qkv, [20], 2, tables=tables, dropout=0.4).context * grad).sum()

    # Central differences of step h are off by h^2 and by 1e-16 / h of the loss: 1e-10 and 1e-11 of it here.
    step = 1e-5
    for _ in range(4):
        one, two = rng.standard_normal(qkv.shape), rng.standard_normal(tables.shape)
        by_steps = (loss(qkv + step * one, tables + step * two) - loss(qkv - step * one, tables - step * two)) / (
            2 * step
        )
        assert by_steps == pytest.approx((slope * one).sum() + (slopes * two).sum(), rel=1e-6)


def test_instruction_set_dtype_and_packing_do_not_change_the_mask():
    lengths = [70, 70]
    masks = [factors_of(7, lengths, 2, 0.3), factors_of(7, lengths, 2, 0.3, batch=True)]
    for isa in runnable_sets():
        with instruction_set(isa):
            masks += [factors_of(7, lengths, 2, 0.3), factors_of(7, lengths, 2, 0.3, dtype="float32")]
    for other in masks[1:]:
        assert all((a == b).all() for a, b in zip(masks[0], other))


def test_a_token_keeps_its_mask_whatever_stands_behind_it():
    """A row's draws follow from the seed, the token's place and the head: a longer batch changes none before it."""
    alone, followed = factors_of(7, [70], 2, 0.3), factors_of(7, [70, 90], 2, 0.3)
    assert (alone[0] == followed[0]).all() and (alone[0] != followed[1][:, :70, :70]).any()


_MASK = """
import sys
import numpy as np
from packing import factors_of
sys.stdout.buffer.write(np.packbits(np.stack(factors_of(7, [300] * 2, 1, 0.3)) > 0).tobytes().hex().encode())
"""


def test_the_number_of_threads_does_not_change_the_mask():
    masks = [children.run(_MASK, changes={"OMP_NUM_THREADS": threads})[0] for threads in (1, 3)]
    assert masks[0] and masks[0] == masks[1]


# ---- from call to call


def test_calls_differ_and_a_seed_repeats_them(rng):
    qkv, grad = drawn(rng, 40, 2, 8)
    first, second = seeded_answer(1, qkv, [40], 2, 5, dropout=0.5), Answer(qkv, [40], 2, 5, dropout=0.5)
    again, other = seeded_answer(1, qkv, [40], 2, 5, dropout=0.5), seeded_answer(2, qkv, [40], 2, 5, dropout=0.5)
    assert (first.context == again.context).all() and (first.gradients(grad)[0] == again.gradients(grad)[0]).all()
    assert (first.context != second.context).any() and (first.context != other.context).any()


def test_without_dropout_no_random_number_is_drawn(rng):
    qkv, _ = drawn(rng, 4, 2, 8)
    paddle.seed(1)
    expected = paddle.rand([4]).numpy()
    paddle.seed(1)
    Answer(qkv, [4], 2, 5)
    assert (paddle.rand([4]).numpy() == expected).all()


def test_each_layer_draws_its_own_mask_and_evaluation_none(build, ids, monkeypatch):
    model = build(NeZhaModel, attention_probs_dropout_prob=0.5)
    drawn_seeds = []
    plain = operator.run_operator

    def watched(name, given, settings, outputs):
        if name.startswith("nezha_attention"):
            drawn_seeds.append((settings["dropout"], given["Seed@OPTIONAL"]))
        return plain(name, given, settings, outputs)

    monkeypatch.setattr(operator, "run_operator", watched)
    model(ids(1, 7))
    assert [p for p, _ in drawn_seeds] == [0.0, 0.0] and all(seed is None for _, seed in drawn_seeds)
    drawn_seeds.clear()
    model.train()
    for _ in range(2):
        model(ids(1, 7))
    assert [p for p, _ in drawn_seeds] == [0.5] * 4
    assert len({tuple(seed.numpy().tolist()) for _, seed in drawn_seeds}) == 4


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_seeds_use_all_their_bits(p):
    """Calls whose drawn halves differ in one bit only have unrelated masks."""
    tokens, size = 64, 64
    qkv = np.zeros([tokens, 3, size])
    qkv[np.arange(tokens), 2, np.arange(tokens)] = 1.0
    given = {"QKV": tensor(qkv.reshape(tokens, -1)), "Bias": paddle.zeros([3 * size], "float64")}
    masks = []
    halves = [(0, 0)] + [(1 << bit, 0) for bit in range(0, 32, 5)] + [(0, 1 << bit) for bit in range(0, 32, 5)]
    for half in halves:
        inputs = {**given, "Visible@OPTIONAL": None, "Starts@OPTIONAL": paddle.to_tensor(starts_of([tokens])),
                  "Seed@OPTIONAL": paddle.to_tensor(np.array(half, "int64"))}  # fmt: skip
        settings = {"heads": 1, "max_relative_position": 0, "dropout": p}
        out = operator.run_operator("nezha_attention", inputs, settings, ("Out", "LogSumExp"))[0]
        masks.append((out.numpy() > 0).astype("float64"))
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert abs(correlation(one, other)) < 5 / one.size**0.5  # 105 pairs of 4096 draws
