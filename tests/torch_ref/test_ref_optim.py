"""torch_ref.optim against paddle.optimizer, 100 steps in float64, and against the papers by hand."""

import zlib  # noqa: F401  before paddle: Paddle 2.6.2 breaks it otherwise

import numpy as np
import paddle
import pytest
import torch

import torch_ref

SHAPES = ((3, 4), (5,), (2, 3), (4,))
STEPS, WARMUP, PEAK = 100, 10, 3e-2
# Parameters and gradients near 1, 100 steps: each side rounds by 1.1e-16 a few times per step (found: 9e-15).
EQUAL = 1e-12
# LAMB's 1 - float32(0.999) is 1.3e-5 off 0.001: half of it enters the root, a tenth (the rate) the parameter.
LAMB_BETA2 = 1e-6


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def paddle_parameters(arrays):
    made = []
    for array in arrays:
        p = paddle.create_parameter(list(array.shape), "float64")
        p.set_value(array)
        made.append(p)
    return made


def paddle_optimizer(kind, parameters, decays, clip, **settings):
    decay = paddle.optimizer.lr.PolynomialDecay(PEAK, STEPS - WARMUP, end_lr=0.0)
    rate = paddle.optimizer.lr.LinearWarmup(decay, WARMUP, 0.0, PEAK)
    clip = paddle.nn.ClipGradByGlobalNorm(clip) if clip else None
    spared = {p.name for p, decays_it in zip(parameters, decays) if not decays_it}
    if kind == "adamw":
        settings["apply_decay_param_fun"] = lambda name: name not in spared
        return rate, paddle.optimizer.AdamW(rate, parameters=parameters, grad_clip=clip, **settings)
    settings["lamb_weight_decay"] = settings.pop("weight_decay")
    settings["exclude_from_weight_decay_fn"] = lambda p: p.name in spared
    return rate, paddle.optimizer.Lamb(rate, parameters=parameters, grad_clip=clip, **settings)


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize(
    "settings",
    [
        # a large epsilon and unround decimals: where each enters and to what it is rounded shows
        {"weight_decay": 0.1, "epsilon": 0.0123, "beta1": 0.83, "beta2": 0.97},
        {"weight_decay": 0.01, "epsilon": 1e-6},
        {"weight_decay": 0.0, "epsilon": 1e-8},
    ],
)
def test_equals_paddle_over_100_steps(kind, clip, settings, rng):
    arrays = [rng.normal(size=shape) for shape in SHAPES]
    arrays[3][:] = 0.0  # LAMB: a parameter of norm zero
    decays = [True, False, True, True]
    theirs = paddle_parameters(arrays)
    ours = [torch.tensor(array) for array in arrays]
    schedule, optimizer = paddle_optimizer(kind, theirs, decays, clip, **settings)
    reference = {"adamw": torch_ref.AdamW, "lamb": torch_ref.LAMB}[kind](ours, decays, **settings)
    for step in range(STEPS):
        gradients = [0.3 * rng.normal(size=shape) for shape in SHAPES]
        for p, g in zip(theirs, gradients):
            p.clear_gradient()
            (p * paddle.to_tensor(g)).sum().backward()
        rate = torch_ref.scheduled_rate(step, PEAK, WARMUP, STEPS)
        assert rate == pytest.approx(optimizer.get_lr(), rel=1e-15, abs=0)  # one division, in another order
        optimizer.step()
        schedule.step()
        gradients = [torch.tensor(g) for g in gradients]
        reference.step(rate, torch_ref.clip_by_global_norm(gradients, clip) if clip else gradients)
        for p, q in zip(theirs, ours):
            np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=0, atol=EQUAL)
    assert all(np.abs(q.numpy() - a).max() > 1e-4 for q, a in zip(ours, arrays))  # they did move


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_a_parameter_without_gradient_is_left_alone_as_in_paddle(kind, rng):
    arrays = [rng.normal(size=(3,)), rng.normal(size=(2,))]
    theirs, ours = paddle_parameters(arrays), [torch.tensor(array) for array in arrays]
    schedule, optimizer = paddle_optimizer(kind, theirs, [True, True], 0.7, weight_decay=0.1)
    reference = {"adamw": torch_ref.AdamW, "lamb": torch_ref.LAMB}[kind](ours, weight_decay=0.1)
    for step in range(6):
        optimizer.clear_grad(set_to_zero=False)  # by default Paddle leaves zeros, which count as a gradient
        absent = step % 2 == 1
        (theirs[0].sum() + (0.0 if absent else theirs[1].sum())).backward()
        optimizer.step()
        schedule.step()
        gradients = [
            torch.ones(3, dtype=torch.float64),
            None if absent else torch.ones(2, dtype=torch.float64),
        ]
        reference.step(
            torch_ref.scheduled_rate(step, PEAK, WARMUP, STEPS), torch_ref.clip_by_global_norm(gradients, 0.7)
        )
        for p, q in zip(theirs, ours):
            np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=0, atol=EQUAL)


def test_first_steps_by_hand():
    # One step from zero moments: the bias-corrected direction is the sign of the gradient.
    p = torch.tensor([2.0, -4.0], dtype=torch.float64)
    torch_ref.AdamW([p], epsilon=0.0, weight_decay=0.5).step(0.1, [torch.tensor([3.0, -7.0], dtype=torch.float64)])
    torch.testing.assert_close(p, torch.tensor([1.8, -3.7], dtype=torch.float64), rtol=1e-15, atol=0)
    # LAMB without decay: direction (1, 1), trust ratio 1. With decay 0.5 the ratio is |p| / |(1, 1) + p / 2|.
    p = torch.tensor([3.0, 4.0], dtype=torch.float64)
    torch_ref.LAMB([p], [False], epsilon=0.0).step(0.1, [torch.ones(2, dtype=torch.float64)])
    torch.testing.assert_close(p, torch.tensor([2.9, 3.9], dtype=torch.float64), rtol=LAMB_BETA2, atol=0)
    p = torch.tensor([3.0, 4.0], dtype=torch.float64)
    torch_ref.LAMB([p], epsilon=0.0, weight_decay=0.5).step(0.1, [torch.ones(2, dtype=torch.float64)])
    trust = 5 / (2.5**2 + 3**2) ** 0.5
    expected = torch.tensor([3 - 0.1 * trust * 2.5, 4 - 0.1 * trust * 3], dtype=torch.float64)
    torch.testing.assert_close(p, expected, rtol=LAMB_BETA2, atol=0)


def test_parameters_grad_is_the_default():
    one, other = (torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    (one * one).sum().backward()
    torch_ref.AdamW([one]).step(0.1)
    torch_ref.AdamW([other]).step(0.1, [torch.tensor([2.0, 4.0], dtype=torch.float64)])
    assert torch.equal(one, other)


def test_clipping_leaves_short_gradients_and_absent_ones():
    short = [torch.tensor([0.3, 0.4], dtype=torch.float64), None]
    clipped = torch_ref.clip_by_global_norm(short, 1.0)
    assert torch.equal(clipped[0], short[0]) and clipped[1] is None
    assert torch_ref.clip_by_global_norm([None], 1.0) == [None]
    long = [torch.tensor([3.0], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)]
    first, second = torch_ref.clip_by_global_norm(long, 1.0)
    assert (first.item(), second.item()) == pytest.approx((0.6, 0.8), rel=1e-15)


def test_schedule():
    rates = [torch_ref.scheduled_rate(step, 1.0, 4, 12, end=0.2) for step in range(15)]
    assert rates[:5] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert rates[8] == pytest.approx(0.6) and rates[12] == rates[14] == pytest.approx(0.2)
    assert torch_ref.scheduled_rate(8, 1.0, 4, 12, power=2.0) == pytest.approx(0.25)
    assert torch_ref.scheduled_rate(0, 1.0, 0, 12) == 1.0


def test_wrong_number_of_decays():
    with pytest.raises(ValueError, match="one entry of `decays` for each of the 1 parameters, got 2; give True"):
        torch_ref.AdamW([torch.zeros(1)], [True, False])
