"""Published behaviour: numbers that the original weights are known to give, computed again. Needs Paddle.

No checksum of the official files was ever published, but a few of their outputs were, in the tests of transformers'
NeZha: who computes those has the weights, the layout and the arithmetic right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paddle_nezha._paddle import paddle
from paddle_nezha.auto import MODEL_CLASSES
from paddle_nezha.checkpoint.verify import Check

# The published numbers have four decimals, and their publisher compares to this.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Behaviour:
    """What a model gives for ids [1, L] under a mask [1, L], at batch row 0, tokens 1 to 3, features 1 to 3.

    `heads` are those whose files hold what is needed, the first of them the class to build.
    """

    what: str
    heads: "tuple[str, ...]"
    ids: "tuple[int, ...]"
    mask: "tuple[int, ...]"
    values: "tuple[tuple[float, float, float], ...]"


_IDS = (0, 1, 2, 3, 4, 5)
_BASE = (
    Behaviour(
        "last hidden state",
        ("model", "pretraining", "masked_lm"),
        _IDS,
        (0, 1, 1, 1, 1, 1),
        ((0.0685, 0.2441, 0.1102), (0.0600, 0.1906, 0.1349), (0.0221, 0.0819, 0.0586)),
    ),
    Behaviour(
        "masked-LM logits",
        ("masked_lm", "pretraining"),
        _IDS,
        (1, 1, 1, 1, 1, 1),
        ((-2.7939, -1.7902, -2.2189), (-2.8585, -1.8908, -2.3723), (-2.6499, -1.7750, -2.2558)),
    ),
)
# Two files of one release.
PUBLISHED: "Mapping[str, tuple[Behaviour, ...]]" = {"nezha-base-chinese": _BASE, "sijunhe/nezha-cn-base": _BASE}


def check_behaviour(name: str, folder: Path, head: str) -> "list[Check]":
    """Computes what was published of a checkpoint, of which nothing may have been.

    Args:
        name: its published name.
        folder: where it is.
        head: which head its file holds; a part that is not there cannot be asked.
    """
    return [_check(behaviour, folder, head) for behaviour in PUBLISHED.get(name, ())]


def _check(behaviour: Behaviour, folder: Path, head: str) -> Check:
    title = f"published {behaviour.what}"
    if head not in behaviour.heads:
        return Check(title, None, f"not computed: the file holds a {head}")
    model = MODEL_CLASSES[behaviour.heads[0]].from_pretrained(folder)
    with paddle.no_grad():
        given = model(paddle.to_tensor([behaviour.ids]), attention_mask=paddle.to_tensor([behaviour.mask]))
    output = given[0] if isinstance(given, tuple) else given
    found = output.numpy()[0, 1:4, 1:4].astype(np.float64)
    error = float(np.abs(found - np.array(behaviour.values)).max())
    if error <= _TOLERANCE:
        return Check(title, True, f"as published, within {error:.1e}")
    told = f"expected {[list(row) for row in behaviour.values]} within {_TOLERANCE}, found {found.round(4).tolist()}"
    return Check(title, False, f"the {behaviour.what} is another: {told}")
