"""AdamW, LAMB, clipping and the schedule, written out from the papers' formulas on lists of tensors.

Sources: AdamW, arXiv 1711.05101, algorithm 2; LAMB, arXiv 1904.00962, algorithm 2 with phi the identity;
global-norm clipping, arXiv 1211.5063.

What the papers leave open follows Paddle. Each point was found by running paddlepaddle 3.3.1 (2.6.2 agrees)
in float64 beside this file; together they bring 100 steps to within 1e-14:

- LAMB keeps beta1, beta2, epsilon and the decay as float32, so that 0.9 enters float64 work as float32(0.9).
  AdamW rounds the decay alone. The learning rate has the dtype of the parameters in both.
- Powers of the betas are accumulated by multiplication in the dtype of the parameters. They start from the
  beta as given, unrounded: LAMB's beta1 power at step t is 0.9 * float32(0.9)^(t-1).
- AdamW: epsilon stands beside the bias-corrected root sqrt(v / (1 - beta2^t)). The decay comes first and
  multiplies the parameter by 1 - rate * decay, with the scheduled rate.
- LAMB: both moments are bias-corrected, epsilon stands beside sqrt(v_hat). A parameter with decay 0, excluded
  or by setting, takes trust ratio 1; so does one whose norm, or whose update's norm, is zero.
- Clipping scales by max_norm / max(norm, max_norm), without an epsilon in the denominator.
- A parameter without a gradient is left alone, its moments and powers too. A gradient of zeros is a gradient:
  it is what Paddle's `clear_grad()` leaves unless called with `set_to_zero=False`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

Tensors = Sequence[torch.Tensor]


def _float32(value: float) -> float:
    """The value that Paddle computes with when it is given `value`."""
    return float(np.float32(value))


class _Optimizer:
    """First and second moments of the gradients, and their bias corrections, for each parameter."""

    def __init__(
        self,
        parameters: Tensors,
        decays: Sequence[bool] | None,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
    ) -> None:
        self.parameters = list(parameters)
        self.decays = [True] * len(self.parameters) if decays is None else list(decays)
        if len(self.decays) != len(self.parameters):
            raise ValueError(
                f"expected one entry of `decays` for each of the {len(self.parameters)} parameters, "
                f"got {len(self.decays)}; give True for each parameter that weight decay applies to"
            )
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.weight_decay = _float32(weight_decay)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.powers = [
            (torch.tensor(beta1, dtype=p.dtype), torch.tensor(beta2, dtype=p.dtype)) for p in self.parameters
        ]

    @torch.no_grad()
    def step(self, learning_rate: float, gradients: Sequence[torch.Tensor | None] | None = None) -> None:
        """Change every parameter in place.

        Args:
            learning_rate: the rate of this step, after any schedule.
            gradients: one for each parameter, in order, or None where there is none; by default each `.grad`.
        """
        if gradients is None:
            gradients = [p.grad for p in self.parameters]
        for n, (parameter, gradient) in enumerate(zip(self.parameters, gradients)):
            if gradient is None:
                continue
            self.first[n] = self.beta1 * self.first[n] + (1 - self.beta1) * gradient
            self.second[n] = self.beta2 * self.second[n] + (1 - self.beta2) * gradient * gradient
            power1, power2 = self.powers[n]
            self.powers[n] = (power1 * self.beta1, power2 * self.beta2)
            first = self.first[n] / (1 - power1)
            second = self.second[n] / (1 - power2)
            direction = first / (second.sqrt() + self.epsilon)
            decay = self.weight_decay if self.decays[n] else 0.0
            parameter.copy_(self._moved(parameter, direction, learning_rate, decay))

    def _moved(self, parameter: torch.Tensor, direction: torch.Tensor, rate: float, decay: float) -> torch.Tensor:
        raise NotImplementedError


class AdamW(_Optimizer):
    """Adam with decoupled weight decay; the defaults are those of `paddle.optimizer.AdamW`."""

    def __init__(
        self,
        parameters: Tensors,
        decays: Sequence[bool] | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        """Args: see LAMB; `decays[n]` false leaves parameter n without decay."""
        super().__init__(parameters, decays, beta1, beta2, epsilon, weight_decay)

    def _moved(self, parameter: torch.Tensor, direction: torch.Tensor, rate: float, decay: float) -> torch.Tensor:
        return parameter * (1 - rate * decay) - rate * direction


class LAMB(_Optimizer):
    """Layer-wise adaptive moments; the defaults are those of `paddle.optimizer.Lamb`."""

    def __init__(
        self,
        parameters: Tensors,
        decays: Sequence[bool] | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        """
        Args:
            parameters: tensors, changed in place by `step`.
            decays: one bool for each parameter; false excludes it from decay and from the trust ratio.
            beta1, beta2: decay rates of the two moments.
            epsilon: added to the root of the second moment.
            weight_decay: added to the direction as `weight_decay * parameter`.
        """
        super().__init__(parameters, decays, beta1, beta2, epsilon, weight_decay)
        self.beta1, self.beta2, self.epsilon = _float32(beta1), _float32(beta2), _float32(epsilon)

    def _moved(self, parameter: torch.Tensor, direction: torch.Tensor, rate: float, decay: float) -> torch.Tensor:
        update = direction + decay * parameter
        trust = 1.0
        if decay > 0:
            size, change = parameter.norm().item(), update.norm().item()
            trust = size / change if size > 0 and change > 0 else 1.0
        return parameter - rate * trust * update


def clip_by_global_norm(gradients: Sequence[torch.Tensor | None], max_norm: float) -> list[torch.Tensor | None]:
    """New gradients whose common 2-norm is at most `max_norm`; None stays None."""
    present = [g for g in gradients if g is not None]
    if not present:
        return list(gradients)
    norm = torch.stack([(g * g).sum() for g in present]).sum().sqrt()
    limit = torch.full_like(norm, max_norm)
    scale = limit / torch.maximum(norm, limit)
    return [None if g is None else g * scale for g in gradients]


def scheduled_rate(
    step: int, peak: float, warmup_steps: int, total_steps: int, end: float = 0.0, power: float = 1.0
) -> float:
    """Learning rate of a step: linear from 0 to `peak`, then polynomial down to `end`.

    Args:
        step: steps already made; the first has 0, and rate 0 if there is a warm-up.
        peak: the rate at the end of the warm-up.
        warmup_steps: length of the warm-up.
        total_steps: the step at which `end` is reached, and kept.
        end, power: of the decay; 1.0 is linear.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    left = 1 - min(step - warmup_steps, total_steps - warmup_steps) / (total_steps - warmup_steps)
    return (peak - end) * left**power + end
