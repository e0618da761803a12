"""What decides a learning rate; no Paddle."""

from dataclasses import dataclass

OPTIMIZERS = ("lamb", "adamw")


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `peak`, then polynomial decay to `end`, as BERT's.

    Args:
        peak: the largest learning rate.
        steps: of the whole training.
        warmup: steps before the first that takes `peak`; a training that has them begins at 0.
        end: what the decay leads to. It would be reached one step after the last.
        power: of the decay; 1 is linear, 0 stays at `peak`.
    """

    peak: float
    steps: int
    warmup: int
    end: float = 0.0
    power: float = 1.0

    def rate(self, step: int) -> float:
        """The learning rate of a step, the first of which is 0."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        left = 1 - (step - self.warmup) / max(1, self.steps - self.warmup)
        return float(self.end + (self.peak - self.end) * max(0.0, left) ** self.power)
