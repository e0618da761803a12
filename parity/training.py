"""After the optimizer: many steps from equal weights on equal data, every parameter followed at every step.

Paddle's model under `paddle.optimizer` is held against torch_ref under `torch_ref.optim`, with what pre-training uses:
AdamW or LAMB, clipping by the global norm, a warm-up followed by a linear decay of the rate, and no weight decay on
biases and LayerNorms. There is no dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Optional, Protocol

import numpy as np

import torch_ref
from paddle_nezha._paddle import paddle
from parity.cases import Case, Sample, make_sample
from parity.compare import scale_of, worst_of
from parity.result import TRAINING, Row
from parity.sides import PaddleSide, TorchSide
from parity.stages import RATIO_LIMIT, ULP

Step = Callable[[], None]
Progress = Callable[[int, int], None]

OPTIMIZERS = ("adamw", "lamb")
HEAD = "pretraining"
TIED, WORDS = "cls.predictions.decoder_weight", "nezha.embeddings.word_embeddings.weight"
# New ids, labels and padding in every step; about a third of the labels are ignored.
BATCH = Case("training", "what steps add up to", batch=4, length=13, padding="ragged", mask="2d", segments=True)

STEPS, SEEDS = 100, tuple(range(5))
QUICK_STEPS, QUICK_SEEDS = 20, (0, 1)
# Reached on parameters near 1: 2e-13 by the keys' biases (see Recipe), 5e-15 by all others. The smallest mistake
# that `parity.faults` plants, a rate rounded to float32, moves a parameter by 5e-11.
TRAINING_LIMIT = 1e-12


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run, the same for both sides.

    Args:
        optimizer: "adamw" or "lamb".
        total: steps until the rate is 0 again.
        peak: the rate at the end of the warm-up, which takes a tenth of `total` (2 steps at least).
        clip: largest global norm of the gradients. Steps differ in it, so that some are clipped and some are not.
        epsilon: far above rounding noise, which over epsilon is how far the keys' biases move (`moved_by_noise`).
    """

    optimizer: str
    total: int
    peak: float = 3e-3
    clip: float = 24.0
    decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-5

    @property
    def warmup(self) -> int:
        return max(2, self.total // 10)


@dataclass(frozen=True)
class Trajectory:
    """What a run went through.

    Args:
        losses: [S], before each step.
        parameters: by PaddleNLP's name [S, ...], after each step; the tied decoder under both its names.
    """

    losses: np.ndarray
    parameters: "dict[str, np.ndarray]"

    def named(self) -> "dict[str, np.ndarray]":
        return {"loss": self.losses, **{f"parameter:{name}": values for name, values in self.parameters.items()}}


def is_decayed(name: str) -> bool:
    """Weight decay spares biases and LayerNorms."""
    return not name.endswith("bias") and "layer_norm" not in name


def moved_by_noise(name: str) -> bool:
    """Softmax does not see a shift of all scores, so the keys' biases have a gradient of zero, but for rounding."""
    return name.endswith("attention.key.bias")


class Trainer(Protocol):
    """A model with its optimizer."""

    def step(self, sample: Sample) -> float:
        """Trains on one batch; returns the loss before it."""

    def parameters(self) -> "dict[str, np.ndarray]":
        """Copies of the present values by PaddleNLP's name, float64."""


class PaddleTrainer:
    """paddle_nezha under Paddle's own optimizer, schedule and clipping."""

    def __init__(self, sample: Sample, recipe: Recipe, dtype: str, form: str = "blocked"):
        self.side, self.form = PaddleSide(sample.config, HEAD, dtype), form
        self.side.load(sample.arrays)
        # The tied table comes once, under the name it has in the embeddings.
        self.named = dict(self.side.model.named_parameters())
        self.prepare(recipe)

    def prepare(self, recipe: Recipe, decays: "Optional[Callable[[str], bool]]" = None) -> None:
        """A new optimizer and schedule.

        Args:
            decays: whether weight decay applies to the parameter of this (PaddleNLP's) name.
        """
        self.recipe, self.decays = recipe, decays or is_decayed
        falling = paddle.optimizer.lr.PolynomialDecay(recipe.peak, recipe.total - recipe.warmup, end_lr=0.0)
        self.schedule = paddle.optimizer.lr.LinearWarmup(falling, recipe.warmup, 0.0, recipe.peak)
        self.optimizer = self.make_optimizer(list(self.named.values()), paddle.nn.ClipGradByGlobalNorm(recipe.clip))

    def make_optimizer(self, parameters: "list[Any]", clip: Any) -> Any:
        """Paddle's optimizer for these parameters, under the schedule; `clip` is a `paddle.nn.ClipGradBy…` or None."""
        recipe = self.recipe
        spared = {tensor.name for name, tensor in self.named.items() if not self.decays(name)}
        settings = {"beta1": recipe.beta1, "beta2": recipe.beta2, "epsilon": recipe.epsilon, "grad_clip": clip}
        if recipe.optimizer == "adamw":
            settings |= {"weight_decay": recipe.decay, "apply_decay_param_fun": lambda name: name not in spared}
            return paddle.optimizer.AdamW(self.schedule, parameters=parameters, **settings)
        settings |= {"lamb_weight_decay": recipe.decay, "exclude_from_weight_decay_fn": lambda p: p.name in spared}
        return paddle.optimizer.Lamb(self.schedule, parameters=parameters, **settings)

    def step(self, sample: Sample) -> float:
        loss = float(self.side.observe(sample, self.form, small_blocks=self.form == "blocked").stages["loss"])
        self.optimizer.step()
        self.schedule.step()
        return loss

    def parameters(self) -> "dict[str, np.ndarray]":
        return {name: np.array(tensor.numpy(), np.float64) for name, tensor in self.side.model.state_dict().items()}


class TorchTrainer:
    """The reference under the optimizers of torch_ref; `clipped` tells of each step whether clipping acted."""

    def __init__(self, sample: Sample, recipe: Recipe, dtype: str):
        self.side, self.recipe = TorchSide(sample.config, HEAD, dtype), recipe
        self.side.load(sample.arrays)
        self.clipped: "list[bool]" = []
        tensors = list(self.side.model.parameters())
        kind = {"adamw": torch_ref.AdamW, "lamb": torch_ref.LAMB}[recipe.optimizer]
        # What is no vector is a matrix or a table: the rule by shape, where Paddle's side goes by name.
        decays = [tensor.ndim > 1 for tensor in tensors]
        self.optimizer = kind(tensors, decays, recipe.beta1, recipe.beta2, recipe.epsilon, recipe.decay)

    def step(self, sample: Sample) -> float:
        loss = float(self.side.observe(sample).stages["loss"])
        gradients: "list[Any]" = [tensor.grad for tensor in self.optimizer.parameters]
        clipped: "list[Any]" = torch_ref.clip_by_global_norm(gradients, self.recipe.clip)
        rate = torch_ref.scheduled_rate(len(self.clipped), self.recipe.peak, self.recipe.warmup, self.recipe.total)
        self.clipped.append(any(not a.equal(b) for a, b in zip(gradients, clipped)))
        self.optimizer.step(rate, clipped)
        return loss

    def parameters(self) -> "dict[str, np.ndarray]":
        found = {name: np.array(values, np.float64) for name, values in torch_ref.parameters(self.side.model).items()}
        return {**found, TIED: found[WORDS]}


def judge_training(
    optimizer: str,
    dtype: str,
    quick: bool = False,
    steps: Optional[int] = None,
    forms: "tuple[str, ...]" = ("blocked", "operator"),
    progress: Optional[Progress] = None,
) -> "list[Row]":
    """Trains both sides.

    Args:
        optimizer: one of OPTIMIZERS.
        dtype: "float64" follows the first seed and judges every loss and parameter; "float32" judges, over all seeds,
            how far Paddle and PyTorch end from the float64 run.
        quick: QUICK_STEPS and QUICK_SEEDS in place of STEPS and SEEDS.
        steps: this many instead.
        forms: the forms to train with; "operator" is what users run, "blocked" where it cannot.
        progress: called after each optimizer step with (steps done, steps in all).

    Returns:
        Failed rows first, the one that parts earliest at the front; then in the order of the parameters.

    Raises:
        ValueError: an unknown optimizer or dtype, or a run in which clipping never or always acted.
    """
    if optimizer not in OPTIMIZERS or dtype not in ULP:
        wanted = f"optimizer {' or '.join(OPTIMIZERS)} and dtype {' or '.join(ULP)}"
        raise ValueError(f"expected {wanted}, got {optimizer!r} and {dtype!r}; choose one of each")
    steps, seeds = steps or (QUICK_STEPS if quick else STEPS), QUICK_SEEDS if quick else SEEDS
    recipe = Recipe(optimizer, steps)
    runs = 1 + len(forms) if dtype == "float64" else (2 + len(forms)) * len(seeds)
    count = _Count(steps * runs, progress)
    if dtype == "float64":
        return _same_trajectory(recipe, seeds[0], forms, count)
    return _as_near_the_truth(recipe, seeds, forms, count)


def _same_trajectory(recipe: Recipe, seed: int, forms: "tuple[str, ...]", count: Step) -> "list[Row]":
    batches = make_batches(recipe.total, seed)
    truth = follow_truth(recipe, batches, count)
    runs = {form: follow(PaddleTrainer(batches[0], recipe, "float64", form), batches, count) for form in forms}
    return [row for form, ours in runs.items() for row in trajectory_rows(recipe.optimizer, form, ours, truth)]


def _as_near_the_truth(recipe: Recipe, seeds: "tuple[int, ...]", forms: "tuple[str, ...]", count: Step) -> "list[Row]":
    gaps: "dict[str, list[dict[str, float]]]" = {side: [] for side in ("torch", *forms)}
    for seed in seeds:
        batches = [batch.rounded() for batch in make_batches(recipe.total, seed)]
        truth = follow_truth(recipe, batches, count)
        gaps["torch"].append(_gaps(follow(TorchTrainer(batches[0], recipe, "float32"), batches, count), truth))
        for form in forms:
            trainer = PaddleTrainer(batches[0], recipe, "float32", form)
            gaps[form].append(_gaps(follow(trainer, batches, count), truth))
    return [row for form in forms for row in distance_rows(recipe.optimizer, form, gaps[form], gaps["torch"])]


def make_batches(steps: int, seed: int) -> "list[Sample]":
    """A new batch for every step; the first one's parameters are those to start from."""
    return [make_sample(BATCH, HEAD, seed * 10_000 + step) for step in range(steps)]


def follow(trainer: Trainer, batches: "list[Sample]", after_step: Step = lambda: None) -> Trajectory:
    """Trains on each batch in turn."""
    losses, parameters = [], []
    for batch in batches:
        losses.append(trainer.step(batch))
        parameters.append(trainer.parameters())
        after_step()
    stacked = {name: np.stack([found[name] for found in parameters]) for name in parameters[0]}
    return Trajectory(np.array(losses), stacked)


def follow_truth(recipe: Recipe, batches: "list[Sample]", after_step: Step = lambda: None) -> Trajectory:
    """The float64 reference's run.

    Raises:
        ValueError: clipping acted in every step or in none, so that the run would not see it done wrongly.
    """
    trainer = TorchTrainer(batches[0], recipe, "float64")
    truth = follow(trainer, batches, after_step)
    if len(set(trainer.clipped)) != 2:
        raise ValueError(
            f"expected clipping at a norm of {recipe.clip:g} to act in some of {len(batches)} steps and not in others, "
            f"it acted in {sum(trainer.clipped)}; run more steps, or choose Recipe.clip among the norms that occur"
        )
    return truth


@dataclass
class _Count:
    total: int
    progress: Optional[Progress]
    done: int = 0

    def __call__(self) -> None:
        self.done += 1
        if self.progress:
            self.progress(self.done, self.total)


# ---- float64: the same trajectory


def trajectory_rows(case: str, form: str, ours: Trajectory, truth: Trajectory) -> "list[Row]":
    """One row for the loss and one for each parameter, over all steps; those that part first come first.

    `Row.worst.index` begins with the step, counted from 1: the first beyond the limit, or else the worst.
    """
    mine, right = ours.named(), truth.named()
    rows = [(parting_step(stage, mine, right), stage) for stage in right]
    rows.sort(key=lambda item: (item[0] is None, item[0] or 0))
    return [_trajectory_row(case, form, stage, step, mine, right) for step, stage in rows]


def parting_step(stage: str, ours: "dict[str, np.ndarray]", truth: "dict[str, np.ndarray]") -> Optional[int]:
    """The first step, from 0, at which a stage is beyond TRAINING_LIMIT; None if it never is."""
    beyond = ~(_errors(stage, ours, truth) <= TRAINING_LIMIT)  # so that NaN is beyond
    return int(beyond.argmax()) if beyond.any() else None


def _errors(stage: str, ours: "dict[str, np.ndarray]", truth: "dict[str, np.ndarray]") -> np.ndarray:
    """[S]: max|ours - truth| / scale at each step, the scale that of the whole run."""
    with np.errstate(invalid="ignore"):
        gaps = np.abs(ours[stage] - truth[stage]).reshape(len(truth[stage]), -1).max(axis=1)
    return gaps / scale_of(stage, truth, np.ones(0, bool))


def _trajectory_row(
    case: str, form: str, stage: str, step: Optional[int], ours: "dict[str, np.ndarray]", truth: "dict[str, np.ndarray]"
) -> Row:
    errors = _errors(stage, ours, truth)
    shown = int(errors.argmax()) if step is None else step
    gap = np.abs(ours[stage][shown] - truth[stage][shown])
    within = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape))
    worst = replace(worst_of((shown, *within), ours[stage], truth[stage]), index=(shown + 1, *within))
    return Row(
        TRAINING, case, HEAD, "float64", form, stage, float(errors.max()), TRAINING_LIMIT, step is None,
        samples=len(errors), worst=worst, why="" if step is None else f"parts at step {step + 1}",
    )  # fmt: skip


# ---- float32: no further from the float64 run than PyTorch

# Limit and remark by stage; single parameters ("weights:<name>") are a few numbers, whose ratio is noise.
_DISTANCES = {
    "weights": (RATIO_LIMIT, "all but the keys' biases, whose gradient is zero and which rounding alone moves"),
    "loss_curve": (RATIO_LIMIT, ""),
}


def _gaps(run: Trajectory, truth: Trajectory) -> "dict[str, float]":
    """How far a run ends from the truth, in 2-norms relative to the truth's."""
    ends = {name: (run.parameters[name][-1], values[-1]) for name, values in truth.parameters.items() if name != TIED}
    judged = [pair for name, pair in ends.items() if not moved_by_noise(name)]
    all_weights = [np.concatenate([values.ravel() for values in side]) for side in zip(*judged)]
    pairs = {"weights": all_weights, "loss_curve": (run.losses, truth.losses)}
    pairs.update({f"weights:{name}": pair for name, pair in ends.items()})
    return {stage: float(np.linalg.norm(a - b) / np.linalg.norm(b)) for stage, (a, b) in pairs.items()}


def distance_rows(
    case: str, form: str, ours: "list[dict[str, float]]", theirs: "list[dict[str, float]]"
) -> "list[Row]":
    """One row for all weights and one for the losses, which are judged, and one for each parameter, which is not.

    Args:
        ours, theirs: for each seed, how far Paddle and PyTorch end from the float64 run, by stage.
    """
    rows = []
    for stage in ours[0]:
        errors, torch_errors = ([found[stage] for found in side] for side in (ours, theirs))
        ratio = float(np.exp(np.mean(np.log(errors) - np.log(torch_errors))))
        limit, why = _DISTANCES.get(stage, (float("inf"), "reported, not judged"))
        row = Row(
            TRAINING, case, HEAD, "float32", form, stage, max(errors), limit, ratio <= limit,
            len(errors), max(torch_errors), ratio, why=why,
        )  # fmt: skip
        rows.append(row)
    return sorted(rows, key=lambda row: row.passed)
