"""Models at work on texts: one at a time, a list, or a file of any size.

from paddle_nezha import pipeline
fill = pipeline("fill-mask", model="nezha-base-chinese")
fill("今天天气很[MASK]。")[0][0].token
"""

from typing import Any, Optional

from paddle_nezha._files import PathLike

__all__ = ["pipeline"]

TASKS = ("fill-mask", "encode")


def pipeline(task: str, model: Optional[PathLike] = None, **options: Any) -> Any:
    """A callable on a text or a list of texts.

    Args:
        task: "fill-mask" (`FillMask`: what stands at each [MASK]) or "encode" (`Encoder`: a vector for each text).
        model: a folder or a published name. None is the small model that comes with a checkout.
        options: those of the class: `top_k`, `max_length`; `pooling`, `max_length`; and for both `tokens_per_batch`.

    Raises:
        ValueError: another task; a checkpoint that lacks what the task reads; no model where none comes with the
            package.
    """
    if task not in TASKS:
        raise ValueError(f"expected a task out of {', '.join(TASKS)}, but got {task!r}.")
    # These need Paddle, and reading files does not.
    if task == "fill-mask":
        from paddle_nezha.pipelines.fill_mask import FillMask

        return FillMask.open(model, **options)
    from paddle_nezha.pipelines.encode import Encoder

    return Encoder.open(model, **options)
