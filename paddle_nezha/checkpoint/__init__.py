"""Weight files, read and written with NumPy alone: neither Paddle nor torch is imported.

`pdparams` and `safetensors` each read a path into arrays by name and write them back; `parameter_shapes` says
what a head expects; `reconcile` brings the two together, whoever's names the file carries, and accounts for
every tensor. No pickle is ever executed.
"""

from . import configs, pdparams, safetensors, tensorflow, torch_files
from .account import Account, reconcile
from .dialects import DIALECTS, Dialect, Evidence, detect, explain
from .errors import CheckpointError
from .heads import head_of_class, head_of_tensors
from .names import HEADS, TIES, parameter_shapes
from .opening import Opened, form_of, open_checkpoint, weight_file
from .stored import Stored

__all__ = [
    "DIALECTS",
    "HEADS",
    "TIES",
    "Account",
    "CheckpointError",
    "Dialect",
    "Evidence",
    "Opened",
    "Stored",
    "configs",
    "detect",
    "explain",
    "form_of",
    "head_of_class",
    "head_of_tensors",
    "open_checkpoint",
    "parameter_shapes",
    "pdparams",
    "reconcile",
    "safetensors",
    "tensorflow",
    "torch_files",
    "weight_file",
]
