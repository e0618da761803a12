"""What a model answers to features, on any number of processes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_nezha._paddle import paddle
from paddle_nezha.training.finetuning.objective import TaskObjective
from paddle_nezha.training.finetuning.tasks import Task
from paddle_nezha.training.processes import Processes
from paddle_nezha.training.sampling import LengthBatchSampler, feature_lengths

_LABELS = ("labels", "start_positions", "end_positions")


def answers(
    task: Task, objective: TaskObjective, made: "Sequence[dict[str, Any]]", tokens: int, processes: Processes
) -> "list[np.ndarray]":
    """What the task keeps of the model's answer to each feature, in their order.

    Batches are of features of like lengths, at most `tokens` tokens with their padding.
    """
    shapes = [task.output_shape(feature) for feature in made]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    found = np.zeros(ends[-1] if len(ends) else 0)
    batches = LengthBatchSampler(feature_lengths(made), tokens_per_batch=tokens, shuffle=False).batches(0)
    was_training = objective.training
    objective.eval()
    with paddle.no_grad():
        for batch in batches[processes.rank :: processes.count]:
            plain = [{key: value for key, value in made[i].items() if key not in _LABELS} for i in batch]
            arrays = task.collate(plain)
            kept = task.kept(objective.logits({name: paddle.to_tensor(array) for name, array in arrays.items()}))
            for i, output in zip(batch, kept):
                shape = shapes[i]
                cut = output[tuple(slice(0, size) for size in shape)]
                found[ends[i] - cut.size : ends[i]] = cut.ravel()
    if was_training:
        objective.train()
    found = processes.sum(found)  # each filled in its own, and zeros elsewhere
    return [found[end - int(np.prod(shape)) : end].reshape(shape) for end, shape in zip(ends, shapes)]
