"""Faults of training alone: forward, loss and the gradients of a single step are right, what is made of them is not.

A plant is given the `parity.training.PaddleTrainer`. Its rate is 0 in the first step, so what an optimizer does
wrongly shows after the second; and at that step no gradient has yet seen a wrong weight, so the parameters that part
are the very ones the mistake is about. `place` names step and parameters, and so does the `stage` of a fault.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Callable, Optional
from unittest import mock

import numpy as np

from paddle_nezha._paddle import paddle
from parity.cases import Sample
from parity.faults.base import Fault, Finding
from parity.result import Row
from parity.training import (
    HEAD,
    STEPS,
    TIED,
    WORDS,
    PaddleTrainer,
    Recipe,
    Trajectory,
    follow,
    follow_truth,
    is_decayed,
    make_batches,
    moved_by_noise,
    trajectory_rows,
)

Plant = Callable[[Any], "AbstractContextManager[Any]"]

FAULT_STEPS = 4


# ---- running one


def run_training_fault(fault: Fault) -> Finding:
    """A few steps with the fault, in float64, against a reference without."""
    rows = faulty_rows(fault.case, fault.plant, fault.form)
    where = place(rows)
    return Finding(fault, where, rows[0].error if where else max(row.error for row in rows))


def faulty_rows(optimizer: str, plant: Plant, form: str = "dense") -> "list[Row]":
    batches, truth = _right(optimizer)
    trainer = PaddleTrainer(batches[0], Recipe(optimizer, STEPS), "float64", form)
    with plant(trainer):
        ours = follow(trainer, batches)
    return trajectory_rows(optimizer, form, ours, truth)


@lru_cache(maxsize=2)
def _right(optimizer: str) -> "tuple[list[Sample], Trajectory]":
    batches = make_batches(FAULT_STEPS, seed=0)
    return batches, follow_truth(Recipe(optimizer, STEPS), batches)


def place(rows: "list[Row]") -> str:
    """Where a training run parts: the first step, and the kinds of parameters that part after it.

    Returns:
        "parameter:LayerNorms after step 2", "loss of step 1", or "" where nothing parts. A kind is named where all its
        members part; a parameter by itself where others of its kind do not.
    """
    failed = [(row.worst.index[0], row.stage) for row in rows if not row.passed and row.worst]
    if not failed:
        return ""
    step, first = failed[0]
    if first == "loss":
        return f"loss of step {step}"
    return f"parameter:{_kinds({stage for at, stage in failed if at == step}, rows)} after step {step}"


def _kinds(parted: "set[str]", rows: "list[Row]") -> str:
    members: "dict[str, set[str]]" = {}
    for stage in (row.stage for row in rows if row.stage.startswith("parameter:")):
        # Noise moves some, and the tied decoder is the word table.
        if not moved_by_noise(stage) and not stage.endswith(TIED):
            members.setdefault(_kind(stage), set()).add(stage)
    whole = [kind for kind, stages in members.items() if stages <= parted]
    rest = set().union(*(stages & parted for kind, stages in members.items() if kind not in whole))
    single = [stage.partition(":")[2] for stage in rest]
    return "all" if len(whole) == len(members) else ", ".join(sorted(whole) + sorted(single))


def _kind(stage: str) -> str:
    if "layer_norm" in stage:
        return "LayerNorms"
    return "biases" if stage.endswith("bias") else "words" if stage.endswith(WORDS) else "matrices"


# ---- planting: settings


def _settings(decays: "Optional[Callable[[str], bool]]" = None, **changes: Any) -> Plant:
    """Other settings, or other parameters that decay."""

    @contextmanager
    def plant(trainer: PaddleTrainer) -> Iterator[None]:
        trainer.prepare(replace(trainer.recipe, **changes), decays)
        yield

    return plant


def _decay_also(wanted: "Callable[[str], bool]") -> Plant:
    return _settings(lambda name: is_decayed(name) or wanted(name))


def _clipping(make: "Callable[[float], Any]") -> Plant:
    """Another way to clip: `make(norm)`."""

    @contextmanager
    def plant(trainer: PaddleTrainer) -> Iterator[None]:
        trainer.optimizer = trainer.make_optimizer(_tensors(trainer), make(trainer.recipe.clip))
        yield

    return plant


def _tensors(trainer: PaddleTrainer) -> "list[Any]":
    return list(trainer.named.values())


# ---- planting: the course of a step


@contextmanager
def _schedule_ahead(trainer: PaddleTrainer) -> Iterator[None]:
    trainer.schedule.step()
    yield


@contextmanager
def _schedule_behind(trainer: PaddleTrainer) -> Iterator[None]:
    late = mock.Mock(side_effect=[None, *[mock.DEFAULT] * FAULT_STEPS], wraps=trainer.schedule.step)
    with mock.patch.object(trainer.schedule, "step", late):
        yield


@contextmanager
def _adapt_always(trainer: PaddleTrainer) -> Iterator[None]:
    trainer.optimizer.always_adapt = True
    yield


def _keep_gradients(trainer: PaddleTrainer) -> "AbstractContextManager[Any]":
    return mock.patch.object(trainer.side.model, "clear_gradients")


@contextmanager
def _coupled_decay(trainer: PaddleTrainer) -> Iterator[None]:
    """The decay as part of the gradient, after clipping."""
    decay = trainer.recipe.decay
    trainer.prepare(replace(trainer.recipe, decay=0.0))
    for name, tensor in trainer.named.items():
        if is_decayed(name):
            tensor.regularizer = paddle.regularizer.L2Decay(decay)
    yield


def _stepping(make: "Callable[[PaddleTrainer, Callable[[], None]], Callable[[], None]]") -> Plant:
    """The optimizer's step replaced by `make(trainer, step)`."""

    @contextmanager
    def plant(trainer: PaddleTrainer) -> Iterator[None]:
        with mock.patch.object(trainer.optimizer, "step", make(trainer, trainer.optimizer.step)):
            yield

    return plant


def _forgetful(trainer: PaddleTrainer, _: "Callable[[], None]") -> "Callable[[], None]":
    clip = paddle.nn.ClipGradByGlobalNorm(trainer.recipe.clip)
    return lambda: trainer.make_optimizer(_tensors(trainer), clip).step()


def _words_twice(trainer: PaddleTrainer, inner: "Callable[[], None]") -> "Callable[[], None]":
    clip = paddle.nn.ClipGradByGlobalNorm(trainer.recipe.clip)
    head = trainer.make_optimizer([trainer.named[WORDS]], clip)

    def step() -> None:
        inner()
        head.step()

    return step


def _after(change: "Callable[[PaddleTrainer, Any, np.ndarray], np.ndarray]") -> Plant:
    """Each parameter, once it has moved, replaced by `change(trainer, tensor, value before)`."""

    def make(trainer: PaddleTrainer, inner: "Callable[[], None]") -> "Callable[[], None]":
        def step() -> None:
            before = [tensor.numpy().copy() for tensor in _tensors(trainer)]
            inner()
            moved = [change(trainer, tensor, old) for tensor, old in zip(_tensors(trainer), before)]
            for tensor, new in zip(_tensors(trainer), moved):
                tensor.set_value(new)

        return step

    return _stepping(make)


def _rounded(_: PaddleTrainer, tensor: Any, before: np.ndarray) -> np.ndarray:
    return tensor.numpy().astype(np.float32).astype(np.float64)


def _clipped_late(trainer: PaddleTrainer, tensor: Any, before: np.ndarray) -> np.ndarray:
    norm = float(np.sqrt(sum((other.grad.numpy() ** 2).sum() for other in _tensors(trainer))))
    return before + (tensor.numpy() - before) * min(1.0, trainer.recipe.clip / norm)


def _clip_values(norm: float) -> Any:
    return paddle.nn.ClipGradByValue(norm / 16)  # a size that single numbers do reach


def _each_clipped(trainer: PaddleTrainer, inner: "Callable[[], None]") -> "Callable[[], None]":
    def step() -> None:
        for tensor in _tensors(trainer):
            gradient = tensor.grad.numpy().copy()
            tensor.grad.set_value(gradient * min(1.0, trainer.recipe.clip / float(np.linalg.norm(gradient))))
        inner()

    return step


@contextmanager
def _clip_each(trainer: PaddleTrainer) -> Iterator[None]:
    with _clipping(lambda norm: None)(trainer), _stepping(_each_clipped)(trainer):
        yield


@contextmanager
def _clip_the_move(trainer: PaddleTrainer) -> Iterator[None]:
    with _clipping(lambda norm: None)(trainer), _after(_clipped_late)(trainer):
        yield


# ---- planting: the rule by which a parameter moves


@dataclass(frozen=True)
class Move:
    """What an optimizer knows of one parameter when it moves it.

    Args:
        weight: its value before. first, second: the moments as Paddle has just made them, not yet corrected.
        power1, power2: the betas to the power of the step.
        decay: 0 where there is none.
    """

    weight: np.ndarray
    first: np.ndarray
    second: np.ndarray
    power1: float
    power2: float
    rate: float
    peak: float
    decay: float
    epsilon: float

    @property
    def direction(self) -> np.ndarray:
        return self.first / (1 - self.power1) / (np.sqrt(self.second / (1 - self.power2)) + self.epsilon)


def moved_by(rule: "Callable[[Move], np.ndarray]") -> Plant:
    """The parameter's new value is `rule(move)`, from Paddle's own moments."""

    def change(trainer: PaddleTrainer, tensor: Any, before: np.ndarray) -> np.ndarray:
        recipe, state = trainer.recipe, trainer.optimizer.state_dict()
        parts = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
        first, second, power1, power2 = (state[f"{tensor.name}_{part}_0"].numpy() for part in parts)
        # Paddle has already multiplied the powers for the next step; LAMB does so in float32's 0.9.
        kept = np.float32 if recipe.optimizer == "lamb" else np.float64
        powers = float(power1[0]) / float(kept(recipe.beta1)), float(power2[0]) / float(kept(recipe.beta2))
        decayed = next(trainer.decays(name) for name, other in trainer.named.items() if other is tensor)
        decay = float(np.float32(recipe.decay)) if decayed else 0.0
        rate = trainer.optimizer.get_lr()
        return rule(Move(before, first, second, *powers, rate, recipe.peak, decay, float(kept(recipe.epsilon))))

    return _after(change)


def adamw(move: Move) -> np.ndarray:
    """The right rule: a plant of it changes nothing, which shows that a fault is the fault and not the planting."""
    return move.weight * (1 - move.rate * move.decay) - move.rate * move.direction


def lamb(move: Move) -> np.ndarray:
    """The right rule, as `adamw`."""
    update = move.direction + move.decay * move.weight
    return move.weight - move.rate * (_trust(move.weight, update) if move.decay else 1.0) * update


def _trust(weight: np.ndarray, update: np.ndarray) -> float:
    return float(np.linalg.norm(weight) / np.linalg.norm(update))


def _uncorrected(rule: "Callable[[Move], np.ndarray]") -> Plant:
    return moved_by(lambda move: rule(replace(move, power1=0.0, power2=0.0)))


def _epsilon_inside(move: Move) -> np.ndarray:
    second = move.second / (1 - move.power2)
    direction = move.first / (1 - move.power1) / np.sqrt(second + move.epsilon)
    return move.weight * (1 - move.rate * move.decay) - move.rate * direction


def _decay_last(move: Move) -> np.ndarray:
    return (move.weight - move.rate * move.direction) * (1 - move.rate * move.decay)


def _decay_unscheduled(move: Move) -> np.ndarray:
    return move.weight * (1 - move.peak * move.decay) - move.rate * move.direction


def _decay_outside_trust(move: Move) -> np.ndarray:
    trust = _trust(move.weight, move.direction) if move.decay else 1.0
    return move.weight - move.rate * (trust * move.direction + move.decay * move.weight)


def _no_trust(move: Move) -> np.ndarray:
    return move.weight - move.rate * (move.direction + move.decay * move.weight)


def _trust_inverted(move: Move) -> np.ndarray:
    update = move.direction + move.decay * move.weight
    return move.weight - move.rate * (1 / _trust(move.weight, update) if move.decay else 1.0) * update


def _rate_rounded(move: Move) -> np.ndarray:
    return adamw(replace(move, rate=float(np.float32(move.rate))))


# ---- the faults


def _is_decayed_matrix(name: str) -> bool:
    return is_decayed(name) and name != WORDS


def _is_layer_norm(name: str) -> bool:
    return "layer_norm" in name


def _is_bias(name: str) -> bool:
    return name.endswith("bias") and not _is_layer_norm(name)


def _fault(optimizer: str, name: str, what: str, parameters: str, plant: Plant, step: int = 2) -> Fault:
    return Fault(name, "training", what, optimizer, HEAD, f"parameter:{parameters} after step {step}", plant)


_adamw, _lamb = partial(_fault, "adamw"), partial(_fault, "lamb")
_DECAYED = "matrices, words"

TRAINING_FAULTS: "list[Fault]" = [
    _adamw("adamw-uncorrected", "moments are not corrected for their start at zero", "all", _uncorrected(adamw)),
    _lamb("lamb-uncorrected", "moments are not corrected for their start at zero", "all", _uncorrected(lamb)),
    _adamw("beta1", "the first moment forgets faster", "all", _settings(beta1=0.8)),
    _lamb("beta2", "the second moment forgets slower", "all", _settings(beta2=0.999)),
    _adamw("epsilon-inside", "epsilon stands under the root", "all", moved_by(_epsilon_inside)),
    _adamw("moments-forgotten", "every step has a new optimizer", "all", _stepping(_forgetful)),
    _lamb("gradients-kept", "gradients are never cleared", "all", _keep_gradients),
    _adamw("words-twice", "the tied table is moved again for the decoder", "words", _stepping(_words_twice)),
    _adamw("weights-rounded", "parameters are kept in float32", "all", _after(_rounded), step=1),
    # weight decay
    _adamw("decay-on-layer-norm", "LayerNorms decay", "LayerNorms", _decay_also(_is_layer_norm)),
    _adamw("decay-on-biases", "biases decay", "biases", _decay_also(_is_bias)),
    _lamb("lamb-decay-on-layer-norm", "LayerNorms decay and adapt", "LayerNorms", _decay_also(_is_layer_norm)),
    _lamb("lamb-decay-on-biases", "biases decay and adapt", "biases", _decay_also(_is_bias)),
    _adamw("decay-not-on-words", "the word table does not decay", "words", _settings(_is_decayed_matrix)),
    _lamb("decay-missing", "nothing decays, so nothing adapts", _DECAYED, _settings(lambda name: False)),
    _adamw("decay-coupled", "the decay is part of the gradient (L2)", _DECAYED, _coupled_decay),
    _adamw("decay-last", "the decay acts on what has moved", _DECAYED, moved_by(_decay_last)),
    _adamw("decay-unscheduled", "the decay goes by the peak rate", _DECAYED, moved_by(_decay_unscheduled), step=1),
    # LAMB's trust ratio
    _lamb("decay-outside-trust", "the trust ratio leaves the decay out", _DECAYED, moved_by(_decay_outside_trust)),
    _lamb("trust-missing", "the trust ratio is always 1", _DECAYED, moved_by(_no_trust)),
    _lamb("trust-inverted", "the trust ratio is upside down", _DECAYED, moved_by(_trust_inverted)),
    _lamb("trust-for-excluded", "what does not decay adapts all the same", "LayerNorms, biases", _adapt_always),
    # clipping and the rate
    _adamw("clip-missing", "gradients are not clipped", "all", _clipping(lambda norm: None)),
    _lamb("clip-each", "each gradient is clipped by its own norm", "all", _clip_each),
    _adamw("clip-values", "numbers are clipped, not norms", "all", _clipping(_clip_values)),
    _adamw("clip-last", "the move is clipped, not the gradient", "all", _clip_the_move),
    _adamw("schedule-ahead", "the schedule is one step ahead", "all", _schedule_ahead, step=1),
    _lamb("schedule-behind", "the schedule is one step behind", "all", _schedule_behind),
    _adamw("rate-rounded", "the rate is a float32", "all", moved_by(_rate_rounded)),
]
