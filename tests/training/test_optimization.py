"""The optimizer by names: against the papers' formulas in float64, and its state under other names."""

import numpy as np
import pytest
import torch

from paddle_nezha import NeZhaForPretraining
from paddle_nezha._paddle import paddle
from paddle_nezha.training.optimization import (
    gradient_norm,
    is_decayed,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
)
from paddle_nezha.training.schedule import Schedule
from torch_ref.optim import LAMB, AdamW, clip_by_global_norm, scheduled_rate

REFERENCES = {"lamb": LAMB, "adamw": AdamW}


def named(model):
    return {name: parameter for name, parameter in model.named_parameters()}


def optimizer_of(kind, parameters, **changes):
    given = {"rate": 1e-3, "weight_decay": 0.01, "betas": (0.9, 0.999), "epsilon": 1e-6, "clip_norm": 1.0, **changes}
    return make_optimizer(kind, parameters, **given)


def give_gradients(parameters, rng):
    gradients = []
    for parameter in parameters.values():
        gradients.append(rng.normal(0, 0.1, parameter.shape))
        parameter.grad = paddle.to_tensor(gradients[-1].astype(str(parameter.dtype).rpartition(".")[2]))
    return gradients


# Rulings: 2e-6 of the largest weight is what 200 float32 updates of about 1e-3 may lose; float64 is the formula.
@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 2e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("kind", REFERENCES)
def test_200_steps_are_those_of_the_papers_formulas(kind, dtype, allowed, tiny, seeded):
    model = NeZhaForPretraining(tiny())
    model.to(dtype=dtype)
    parameters = named(model)
    mine = optimizer_of(kind, parameters)
    theirs = [torch.tensor(parameter.numpy().astype("float64")) for parameter in parameters.values()]
    decays = [is_decayed(name) for name in parameters]
    reference = REFERENCES[kind](theirs, decays, epsilon=1e-6)
    rng, schedule = np.random.default_rng(3), Schedule(1e-3, 200, 20)
    for step in range(200):
        gradients = give_gradients(parameters, rng)
        rounded = [torch.tensor(g.astype(dtype).astype("float64")) for g in gradients]
        mine.set_lr(schedule.rate(step))
        mine.step()
        mine.clear_grad(set_to_zero=False)
        reference.step(float(np.dtype(dtype).type(schedule.rate(step))), clip_by_global_norm(rounded, 1.0))
    largest = max(float(tensor.abs().max()) for tensor in theirs)
    apart = max(
        float(np.abs(parameter.numpy() - tensor.numpy()).max())
        for parameter, tensor in zip(parameters.values(), theirs)
    )
    assert apart / largest <= allowed


def test_decay_leaves_biases_and_layer_norm_alone(tiny):
    names = named(NeZhaForPretraining(tiny()))
    spared = {name for name in names if not is_decayed(name)}
    assert spared == {name for name, parameter in names.items() if parameter.ndim == 1}
    assert "cls.predictions.decoder_bias" in spared and "nezha.embeddings.word_embeddings.weight" not in spared


def test_the_schedule_is_the_references():
    schedule = Schedule(2e-3, 50, 7, 1e-4, 2.0)
    for step in range(50):
        assert schedule.rate(step) == pytest.approx(scheduled_rate(step, 2e-3, 7, 50, 1e-4, 2.0), rel=1e-12)
    assert Schedule(2e-3, 50, 0).rate(0) == 2e-3
    assert Schedule(2e-3, 5, 5).rate(4) == pytest.approx(2e-3 * 4 / 5)


@pytest.mark.parametrize("kind", REFERENCES)
def test_state_goes_to_a_model_whose_parameters_have_other_names(kind, tiny, seeded):
    first, second = NeZhaForPretraining(tiny()), NeZhaForPretraining(tiny())
    assert not {p.name for p in first.parameters()} & {p.name for p in second.parameters()}
    rng, ones, others = np.random.default_rng(4), named(first), named(second)
    optimizer = optimizer_of(kind, ones)
    give_gradients(ones, rng)
    optimizer.step()
    state = optimizer_state(optimizer, ones)
    assert set(state) == {
        f"{name}/{accumulator}_0"
        for name in ones
        for accumulator in ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    }
    again = optimizer_of(kind, others)
    restore_optimizer(again, {**state, "not.of.this.model/moment1_0": np.zeros(3, "float32")}, others)
    for name, parameter in others.items():
        parameter.set_value(ones[name].numpy())
    for parameters, one in ((ones, optimizer), (others, again)):
        give_gradients(parameters, np.random.default_rng(5))
        one.step()
    for name, parameter in others.items():
        assert (parameter.numpy() == ones[name].numpy()).all(), name


def test_the_norm_is_of_all_gradients_together(tiny, seeded):
    parameters = named(NeZhaForPretraining(tiny()))
    assert gradient_norm(parameters) == 0
    gradients = give_gradients(parameters, np.random.default_rng(6))
    expected = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    assert gradient_norm(parameters) == pytest.approx(expected, rel=1e-6)  # float32 sums of some thousand squares
    next(iter(parameters.values())).grad = paddle.full_like(next(iter(parameters.values())), float("nan"))
    assert not np.isfinite(gradient_norm(parameters))
