"""A folder becomes a model, and a model a folder. Knows no model class: each of them is one of these."""

import copy
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._paddle import nn, paddle
from paddle_nezha.checkpoint import (
    TIES,
    CheckpointError,
    open_checkpoint,
    pdparams,
    reconcile,
    safetensors,
    weight_file,
)
from paddle_nezha.checkpoint.stored import Stored
from paddle_nezha.config import NEZHA_PRETRAINED_RESOURCE_FILES_MAP, NeZhaConfig

Folder = Union[str, os.PathLike]

PDPARAMS_NAME = "model_state.pdparams"
SAFETENSORS_NAME = "model.safetensors"
# Parts of a model that a checkpoint may lack as a whole: a fine-tuning begins without its classifier, and a
# checkpoint of a masked LM alone has no pooler.
_MAY_BE_NEW = ("classifier.", "cls.predictions.", "cls.seq_relationship.", "pooler.")

logger = logging.getLogger("paddle_nezha")


class PretrainedLayer(nn.Layer):
    """`from_pretrained` and `save_pretrained` for the base model and every head."""

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: Folder,
        *,
        train: bool = False,
        dtype: Optional[str] = None,
        ignore_mismatched_sizes: bool = False,
        **config_overrides: Any,
    ) -> Any:
        """A model with the weights of a folder.

        Args:
            name_or_folder: a folder with a config (`config.json`, `model_config.json` or `bert_config.json`) and
                weights
                (`model.safetensors`, one file or sharded, or `model_state.pdparams`).
            train: leave the model in train mode, with dropout; by default it is in eval mode.
            dtype: "float32" (what Paddle builds unless told otherwise), "float64", "float16" or "bfloat16".
            ignore_mismatched_sizes: draw at random, and report, what has another shape in the file; else it is refused.
            config_overrides: settings that win over the config's, such as ``num_labels=5``.

        Returns:
            The model, every parameter from the file. A part that the file lacks as a whole (the classifier of a model
            yet to be fine-tuned) is drawn at random, and a log line says so.

        Raises:
            FileNotFoundError: no config or no weights there; the message lists what was looked for and what is there.
            CheckpointError: a tensor missing, unexpected, mis-shaped or not finite; the message lists all of them.
        """
        folder = Path(name_or_folder)
        _refuse_bare_name(folder)
        config = cls.config_class.from_pretrained(folder, **config_overrides)
        weight_file(folder)  # before a model is built
        model = cls(config)
        if dtype is not None:
            model.to(dtype=dtype)
        with open_checkpoint(folder) as opened:
            model._fill(opened.tensors, str(opened.file), ignore_mismatched_sizes)
        model.train() if train else model.eval()
        return model

    def load_arrays(self, arrays: "dict[str, np.ndarray]", source: str = "the arrays") -> None:
        """Sets every parameter from arrays under the names of any dialect.

        Raises:
            CheckpointError: what does not fit, all of it. Nothing is set then.
        """
        self._fill(arrays, source, check_first=True)

    def _fill(
        self,
        tensors: "Mapping[str, Union[np.ndarray, Stored]]",
        source: str,
        ignore_mismatched_sizes: bool = False,
        check_first: bool = False,
    ) -> None:
        """Sets the parameters, one tensor in memory at a time.

        Args:
            check_first: read everything before anything is set. Without it numbers that are not finite are found while
                the model is filled, which is then of no use.
        """
        parameters: "dict[str, Any]" = self.state_dict()
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        try:
            account = reconcile(
                shapes,
                tensors,
                new_allowed=_MAY_BE_NEW,
                ignore_mismatched_sizes=ignore_mismatched_sizes,
                check_values=check_first,
            )
            for name, array in account.read():
                _set(parameters[name], array)
        except CheckpointError as error:
            raise CheckpointError(f"{source}: {error}", error.account) from None
        if account.new:
            logger.warning("%s: %s", source, account.summary())

    def save_pretrained(self, folder: Folder, *, weights: str = "safetensors") -> None:
        """Writes `config.json` and the weights into a folder, which is made if need be.

        Args:
            weights: "safetensors" (`model.safetensors`) or "pdparams" (`model_state.pdparams`, which `paddle.load`
                opens).

        Raises:
            ValueError: another word for `weights`.
        """
        if weights not in ("safetensors", "pdparams"):
            raise ValueError(f"weights must be 'safetensors' or 'pdparams', but got {weights!r}.")
        Path(folder).mkdir(parents=True, exist_ok=True)
        config: NeZhaConfig = copy.copy(self.config)
        config.architectures = [type(self).__name__]
        config.save_pretrained(folder)
        arrays = _arrays(self.state_dict())
        if weights == "pdparams":
            pdparams.write(Path(folder) / PDPARAMS_NAME, arrays)
        else:
            # A tied weight goes into the file once, under the name of what it is tied to.
            untied = {name: array for name, array in arrays.items() if name not in TIES}
            safetensors.write(Path(folder) / SAFETENSORS_NAME, untied)


def _set(parameter: Any, array: np.ndarray) -> None:
    if str(parameter.dtype).endswith(array.dtype.name):
        parameter.set_value(array)
    else:
        parameter.set_value(paddle.to_tensor(array).astype(parameter.dtype))


def _arrays(parameters: "dict[str, Any]") -> "dict[str, np.ndarray]":
    """NumPy arrays of parameters; one that bears two names gives one array. bfloat16, which NumPy lacks, as float32."""
    once: "dict[int, np.ndarray]" = {}
    for parameter in parameters.values():
        if id(parameter) not in once:
            plain = parameter.astype("float32") if parameter.dtype == paddle.bfloat16 else parameter
            once[id(parameter)] = plain.numpy()
    return {name: once[id(parameter)] for name, parameter in parameters.items()}


def _refuse_bare_name(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.exists():
        raise FileNotFoundError(f"{folder} is a file: give the folder that holds the config and the weights.")
    address = NEZHA_PRETRAINED_RESOURCE_FILES_MAP["model_state"].get(str(folder))
    if address is None:
        raise FileNotFoundError(
            f"There is no folder {str(folder)!r}. Give the folder that holds the config and the weights."
        )
    raise FileNotFoundError(
        f"{str(folder)!r} is a published checkpoint, and there is no such folder here. Download {address} into a "
        f"folder as {PDPARAMS_NAME}, write its config there with NeZhaConfig.from_pretrained({str(folder)!r})"
        ".save_pretrained(folder), and give that folder."
    )
