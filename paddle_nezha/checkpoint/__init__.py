"""Weight files, read and written with NumPy alone: neither Paddle nor torch is imported.

`pdparams` and `safetensors` each read a path into arrays by name and write them back; `parameter_shapes` says
what a head expects; `reconcile` brings the two together, whoever's names the file carries, and accounts for
every tensor. No pickle is ever executed.
"""

from . import pdparams, safetensors
from .account import Account, reconcile
from .dialects import DIALECTS, Dialect, detect
from .errors import CheckpointError
from .names import HEADS, TIES, parameter_shapes

__all__ = [
    "DIALECTS",
    "HEADS",
    "TIES",
    "Account",
    "CheckpointError",
    "Dialect",
    "detect",
    "parameter_shapes",
    "pdparams",
    "reconcile",
    "safetensors",
]
