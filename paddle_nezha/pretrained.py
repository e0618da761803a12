"""A folder becomes a model, and a model a folder. Knows no model class: each of them is one of these."""

import copy
import logging
import os
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._files import alone_in
from paddle_nezha._paddle import nn, paddle
from paddle_nezha.checkpoint import (
    TIES,
    CheckpointError,
    Opened,
    form_of,
    head_of_class,
    open_checkpoint,
    parameter_shapes,
    pdparams,
    reconcile,
    safetensors,
    weight_file,
)
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.hub import resolve

Folder = Union[str, os.PathLike]

PDPARAMS_NAME = "model_state.pdparams"
SAFETENSORS_NAME = "model.safetensors"
SAFETENSORS_INDEX_NAME = "model.safetensors.index.json"
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
        cache_dir: Optional[Folder] = None,
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
            cache_dir: where published checkpoints are kept; else `PADDLE_NEZHA_HOME`, else the platform's cache.
            ignore_mismatched_sizes: draw at random, and report, what has another shape in the file; else it is refused.
            config_overrides: settings that win over the config's, such as ``num_labels=5``.

        Returns:
            The model, every parameter from the file. A part that the file lacks as a whole (the classifier of a model
            yet to be fine-tuned) is drawn at random, and a log line says so.

        Raises:
            FileNotFoundError: no config or no weights there; the message lists what was looked for and what is there.
            CheckpointError: a tensor missing, unexpected, mis-shaped or not finite; the message lists all of them.
        """
        folder = resolve(name_or_folder, cache_dir=cache_dir)
        config = cls.config_class.from_pretrained(folder, **config_overrides)
        file = weight_file(folder)
        if form_of(file) == "tensorflow" and config.hidden_act == "gelu" and "hidden_act" not in config_overrides:
            # As `convert` does: what these weights were trained with, whatever its name says.
            config.hidden_act = "gelu_new"
            logger.warning(
                "%s: Huawei's TensorFlow code computes the tanh form under the name gelu, so hidden_act is gelu_new; "
                "pass hidden_act='gelu' for the erf form of its ports.",
                folder,
            )
        model = cls(config)
        if dtype is not None:
            model.to(dtype=dtype)
        with open_checkpoint(folder) as opened:
            model._fill(opened, ignore_mismatched_sizes)
        model.train() if train else model.eval()
        return model

    def load_arrays(self, arrays: "dict[str, np.ndarray]", source: str = "the arrays") -> None:
        """Sets every parameter from arrays under the names of any dialect.

        Raises:
            CheckpointError: what does not fit, all of it. Nothing is set then.
        """
        self._fill(Opened(Path(source), "memory", arrays), check_first=True)

    def _fill(self, opened: Opened, ignore_mismatched_sizes: bool = False, check_first: bool = False) -> None:
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
                opened.tensors,
                new_allowed=_MAY_BE_NEW,
                ignore_mismatched_sizes=ignore_mismatched_sizes,
                check_values=check_first,
                bfloat16_bits=opened.form == "pdparams",
                skipped=opened.skipped,
            )
            for name, start, rows in account.read_pieces():
                _set(name, parameters[name], start, rows)
        except CheckpointError as error:
            raise CheckpointError(f"{opened.file}: {error}", error.account) from None
        if account.new:
            logger.warning("%s: %s", opened.file, account.summary())

    def save_pretrained(self, folder: Folder, *, weights: str = "safetensors") -> None:
        """Writes `config.json` and the weights into a folder, which is made if need be.

        Args:
            weights: "safetensors" (`model.safetensors`) or "pdparams" (`model_state.pdparams`, which `paddle.load`
                opens).

        The folder then holds one model: weights in another format that an earlier save left there are removed.

        Raises:
            ValueError: another word for `weights`; a config that no longer describes the model; a torch file in the
                folder that would be opened in place of a `.pdparams`.
        """
        if weights not in ("safetensors", "pdparams"):
            raise ValueError(f"weights must be 'safetensors' or 'pdparams', but got {weights!r}.")
        folder = Path(folder)
        if weights == "pdparams" and (folder / "pytorch_model.bin").exists():
            raise ValueError(
                f"{folder} holds a pytorch_model.bin, which would be opened in place of the new weights: save into "
                "another folder, or as safetensors."
            )
        arrays = _arrays(self.state_dict())
        config = self._config_to_save({name: array.shape for name, array in arrays.items()})
        config.to_json_string()  # a note that cannot be written is said before anything is
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):
            if weights == "pdparams":
                pdparams.write(folder / PDPARAMS_NAME, arrays)
            else:
                # A tied weight goes into the file once, under the name of what it is tied to.
                untied = {name: array for name, array in arrays.items() if name not in TIES}
                safetensors.write(folder / SAFETENSORS_NAME, untied)
            config.save_pretrained(folder)
            _remove_others(folder, PDPARAMS_NAME if weights == "pdparams" else SAFETENSORS_NAME)

    def _config_to_save(self, shapes: "dict[str, tuple[int, ...]]") -> NeZhaConfig:
        """The config as the parameters are.

        Raises:
            ValueError: a setting was changed after the model was built, so that the two no longer fit.
        """
        config: NeZhaConfig = copy.copy(self.config)
        config.architectures = [type(self).__name__]
        # Another model built from this config may have been resized since.
        config.vocab_size = next(shape[0] for name, shape in shapes.items() if name.endswith("word_embeddings.weight"))
        wanted = parameter_shapes(config, head_of_class(type(self).__name__) or "model")
        misfits = [name for name in {**wanted, **shapes} if wanted.get(name) != tuple(shapes.get(name, ()))]
        if misfits:
            raise ValueError(
                f"The config no longer describes this model, so what would be saved could not be opened: {misfits[0]} "
                f"has shape {list(shapes.get(misfits[0], ()))}, and by the config it is "
                f"{list(wanted.get(misfits[0], ()))} ({len(misfits)} parameters "
                "differ). Set the config back to what the model was built with."
            )
        return config


def _set(name: str, parameter: Any, start: int, array: np.ndarray) -> None:
    """Sets the rows of a parameter from `start` on, often all of them."""
    value: Any = array
    if not str(parameter.dtype).endswith(array.dtype.name):
        value = _cast(name, parameter, array)
    if tuple(array.shape) == tuple(parameter.shape):
        parameter.set_value(value)
    else:
        with paddle.no_grad():
            parameter[start : start + len(array)] = paddle.to_tensor(value) if value is array else value


def _cast(name: str, parameter: Any, array: np.ndarray) -> Any:
    value = paddle.to_tensor(array).astype(parameter.dtype)
    if not bool(paddle.isfinite(value.astype("float32")).all()):
        raise CheckpointError(
            f"{name} holds numbers up to {np.abs(array).max():g}, which {parameter.dtype} cannot: open it with "
            f"dtype={array.dtype.name!r}."
        )
    return value


def _remove_others(folder: Path, written: str) -> None:
    """Takes away an older save in another format, which might be opened in place of the new one."""
    names = {SAFETENSORS_NAME, SAFETENSORS_INDEX_NAME, PDPARAMS_NAME} - {written}
    index = folder / SAFETENSORS_INDEX_NAME
    if index.is_file():
        names |= {file.name for file in folder.glob("model-*-of-*.safetensors")}
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _arrays(parameters: "dict[str, Any]") -> "dict[str, np.ndarray]":
    """NumPy arrays of parameters; one that bears two names gives one array. bfloat16, which NumPy lacks, as float32."""
    once: "dict[int, np.ndarray]" = {}
    for parameter in parameters.values():
        if id(parameter) not in once:
            plain = parameter.astype("float32") if parameter.dtype == paddle.bfloat16 else parameter
            once[id(parameter)] = plain.numpy()
    return {name: once[id(parameter)] for name, parameter in parameters.items()}
