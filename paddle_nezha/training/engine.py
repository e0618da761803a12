"""One optimizer step over any number of micro-batches and processes, whatever is trained.

Every loss is a sum over what is labelled in the whole global batch, divided by how much that is: so the gradients, and
a run's losses, do not depend on how a batch is cut into micro-batches and processes (arXiv 1909.00204 trains with
14,400 sequences a step; few machines hold them at once).
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from paddle_nezha._paddle import Tensor, nn, paddle
from paddle_nezha.training.optimization import gradient_norm
from paddle_nezha.training.processes import Processes

Batch = Mapping[str, np.ndarray]


class Objective(nn.Layer):
    """What is minimised: a model and its loss.

    `weigh` counts in a batch what its loss is divided by; `forward` computes a batch's share of the loss.
    """

    # What the sums that `forward` gives are called.
    statistics: "tuple[str, ...]" = ()

    def weigh(self, batch: Batch) -> np.ndarray:
        """float64 [W], of one micro-batch; the engine adds them up over the global batch."""
        raise NotImplementedError

    def forward(self, totals: "Sequence[float]", **batch: Tensor) -> "tuple[Tensor, Tensor]":
        """A loss to be minimised, already divided by the totals [W], and the statistics' sums [S] over the batch."""
        raise NotImplementedError


@dataclass(frozen=True)
class Precision:
    """Mixed precision on GPUs: `level` "none", "O1" or "O2", with `dtype` "bfloat16" or "float16"."""

    level: str = "none"
    dtype: str = "bfloat16"

    @property
    def is_mixed(self) -> bool:
        return self.level != "none"


@dataclass(frozen=True)
class Outcome:
    """What a step gave.

    Args:
        loss: of the global batch.
        sums: the statistics over it, by name.
        norm: of all gradients before clipping; None where each process holds a share of them alone.
        updated: False where the loss or a gradient was not finite, and no parameter was touched.
    """

    loss: float
    sums: "dict[str, float]"
    norm: Optional[float]
    updated: bool


class Engine:
    """Makes steps.

    Args:
        objective: with the model in it.
        parameters: what is trained, by name, each tensor once.
        make_optimizer: builds the optimizer, once the parameters have their final type; it is told whether they need
            float32 copies.
        precision: mixed precision, which Paddle has on GPUs alone.
        processes: those of the training.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: "dict[str, Tensor]",
        make_optimizer: "Callable[[bool], Any]",
        precision: Precision,
        processes: Processes,
    ):
        self.objective, self.parameters, self.precision, self.processes = objective, parameters, precision, processes
        if precision.level == "O2":
            paddle.amp.decorate(models=objective, level="O2", dtype=precision.dtype)
        self.optimizer = make_optimizer(precision.level == "O2")
        self._layer, self._stepper = processes.distribute(objective, self.optimizer)
        self._scaler = None
        if precision.is_mixed and precision.dtype == "float16":
            self._scaler = processes.distribute_scaler(paddle.amp.GradScaler(init_loss_scaling=2.0**15))

    def step(self, batches: "Sequence[Batch]", rate: float, seed: "Callable[[int], int]") -> Outcome:
        """One optimizer step.

        Args:
            batches: this process's micro-batches, at least one.
            rate: the learning rate.
            seed: from the number of a micro-batch to what its dropout is drawn from.
        """
        totals = self.processes.sum(np.sum([self.objective.weigh(batch) for batch in batches], 0))
        loss, sums = 0.0, np.zeros(len(self.objective.statistics))
        for number, batch in enumerate(batches):
            is_last = number == len(batches) - 1
            with contextlib.nullcontext() if is_last else self.processes.without_exchange(self._layer):
                paddle.seed(seed(number))
                with self._cast():
                    share, statistics = self._layer(totals.tolist(), **_tensors(batch))
                # Processes average their gradients, and these shares are to be added.
                scaled = share * float(self.processes.count)
                (scaled if self._scaler is None else self._scaler.scale(scaled)).backward()
            loss += share.item()
            sums += statistics.numpy().astype("float64")
        return self._update(loss, sums, rate)

    def measure(self, batches: "Sequence[Batch]") -> "dict[str, float]":
        """The statistics over batches without dropout and without gradients, summed over all processes."""
        with self._cast():
            sums = measured(self.objective, batches)
        return dict(zip(self.objective.statistics, self.processes.sum(sums).tolist()))

    def is_overflow(self, outcome: Outcome) -> bool:
        """Whether a step was not made since the loss scale was too large, which is how it is found."""
        return self._scaler is not None and not outcome.updated and math.isfinite(outcome.loss)

    def scaler_state(self) -> "dict[str, Any]":
        """Of the loss scaling, as JSON; empty without."""
        if self._scaler is None:
            return {}
        return {name: np.asarray(value).reshape(-1)[0].item() for name, value in self._scaler.state_dict().items()}

    def restore_scaler(self, state: "Mapping[str, Any]") -> None:
        if self._scaler is not None and state:
            scale = np.asarray([state["scale"]], "float32")
            self._scaler.load_state_dict({**state, "scale": scale})

    def _cast(self) -> Any:
        if not self.precision.is_mixed:
            return contextlib.nullcontext()
        return paddle.amp.auto_cast(level=self.precision.level, dtype=self.precision.dtype)

    def _update(self, loss: float, sums: np.ndarray, rate: float) -> Outcome:
        if self._scaler is not None:
            self._scaler.unscale_(self._stepper)
        norm = gradient_norm(self.parameters)
        # All skip a step, or none does, or their parameters would part.
        bad = not (math.isfinite(loss) and math.isfinite(norm))
        agreed = self.processes.sum(np.array([loss, float(bad), *sums]))
        updated = agreed[1] == 0
        if updated or self._scaler is not None:  # the scaler skips by itself, and takes a smaller scale
            self._stepper.set_lr(rate)
            if self._scaler is None:
                self._stepper.step()
            else:
                self._scaler.step(self._stepper)
                self._scaler.update()
        # Zeros would be gradients: an optimizer moves what has them.
        self._stepper.clear_grad(set_to_zero=False)
        shared = self.processes.sharding and self.processes.count > 1
        return Outcome(
            float(agreed[0]),
            dict(zip(self.objective.statistics, agreed[2:].tolist())),
            None if shared else norm,
            bool(updated),
        )


def measured(objective: Objective, batches: "Iterable[Batch]") -> np.ndarray:
    """The statistics' sums [S] over batches, without dropout and without gradients."""
    sums = np.zeros(len(objective.statistics))
    was_training = objective.training
    objective.eval()
    with paddle.no_grad():
        for batch in batches:
            totals = [1.0] * len(objective.weigh(batch))
            sums += objective(totals, **_tensors(batch))[1].numpy().astype("float64")
    if was_training:
        objective.train()
    return sums


def _tensors(batch: Batch) -> "dict[str, Tensor]":
    return {name: paddle.to_tensor(array) for name, array in batch.items()}
