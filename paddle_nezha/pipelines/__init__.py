"""Models at work on texts: one at a time, a list, or a file of any size.

from paddle_nezha import pipeline
fill = pipeline("fill-mask", model="nezha-base-chinese")
fill("今天天气很[MASK]。")[0][0].token
judge = pipeline("sentence", model="run/model")  # what `paddle-nezha finetune sentence` left
judge("房间很干净")["prediction"]
"""

import os
from typing import Any, Optional

from paddle_nezha._files import PathLike

__all__ = ["pipeline"]

_FINETUNED = ("sentence", "pair", "token", "span", "choice")
TASKS = ("fill-mask", "encode", *_FINETUNED)


def pipeline(task: Optional[str] = None, model: Optional[PathLike] = None, **options: Any) -> Any:
    """A callable on a text or a list of texts.

    Args:
        task: "fill-mask" (`FillMask`: what stands at each [MASK]), "encode" (`Encoder`: a vector for each text), or
            "sentence", "pair", "token", "span", "choice" (`Predictor`: what a fine-tuned model answers). None is the
            one that `model` was fine-tuned for.
        model: a folder or a published name. None is the small model that comes with a checkout; a fine-tuned one must
            be named.
        options: those of the class: `top_k`, `max_length`; `pooling`, `max_length`; `n_best`; and for all
            `tokens_per_batch`.

    Raises:
        ValueError: another task; a checkpoint that lacks what the task reads; no model where none comes with the
            package.
    """
    if task is None or task in _FINETUNED:
        if model is None:
            raise ValueError(
                "No model was named: give the folder of a fine-tuned one (model=), which `paddle-nezha finetune` "
                "leaves."
            )
        from paddle_nezha.pipelines.predict import Predictor

        return Predictor.open(model, task, **options)
    if task not in TASKS:
        folder = f" Name a folder so: pipeline(model={task!r})." if os.path.isdir(task) else ""
        raise ValueError(f"expected a task out of {', '.join(TASKS)}, but got {task!r}.{folder}")
    # These need Paddle, and reading files does not.
    if task == "fill-mask":
        from paddle_nezha.pipelines.fill_mask import FillMask

        return FillMask.open(model, **options)
    from paddle_nezha.pipelines.encode import Encoder

    return Encoder.open(model, **options)
