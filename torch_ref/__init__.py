"""The second opinion on NeZha: the whole model in plain PyTorch, written from the formula.

ref = torch_ref.build(config, "masked_lm")            # float64
torch_ref.load_paddle(ref, arrays)                    # or torch_ref.load_file(ref, path)
out = ref(ids, labels=labels, record=stages)
out.loss.backward()
torch_ref.gradients(ref)                              # by PaddleNLP name, in Paddle's layout
"""

from torch_ref.heads import HEADS, Outputs, Reference, build
from torch_ref.model import position_table, relative_rows
from torch_ref.optim import LAMB, AdamW, clip_by_global_norm, scheduled_rate
from torch_ref.weights import Name, gradients, load_file, load_paddle, names, parameters

__all__ = [
    "HEADS", "LAMB", "AdamW", "Name", "Outputs", "Reference", "build", "clip_by_global_norm", "gradients",
    "load_file", "load_paddle", "names", "parameters", "position_table", "relative_rows", "scheduled_rate",
]  # fmt: skip
