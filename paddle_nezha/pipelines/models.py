"""A model and its tokenizer, opened to be used: nothing a task reads may be random, and each has an identity."""

import os
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Optional

import numpy as np

from paddle_nezha import operator
from paddle_nezha._files import PathLike, name_file
from paddle_nezha._paddle import paddle
from paddle_nezha.checkpoint import open_checkpoint
from paddle_nezha.checkpoint.dialects import detect
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.forms import forced_form
from paddle_nezha.hub import resolve
from paddle_nezha.model import NeZhaPretrainedModel
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.run_folders import model_in

_SHELF = Path(__file__).resolve().parents[2] / "weights" / "nezha-tiny-chinese"
# The tokenizer's own default. Relative positions read any length, at a cost that grows faster than it.
DEFAULT_LENGTH = 512


def model_folder(name_or_folder: Optional[PathLike]) -> Path:
    """The folder of a model; None is the small one of a checkout, and of a run it is the one that the run left.

    Raises:
        ValueError: None, and there is no checkout, or none with that model; a run that is not finished, or several.
        FileNotFoundError: neither a folder nor a published name.
    """
    if name_or_folder is not None:
        return model_in(resolve(name_or_folder))
    if not _SHELF.is_dir():
        raise ValueError(
            "No model was named, and none comes with this installation: give --model (in Python model=) a folder or a "
            "published name, such as nezha-base-chinese (`paddle-nezha list` gives them)."
        )
    return _SHELF


def open_model(
    kind: "type[NeZhaPretrainedModel]", folder: Path, needs: str, remedy: str
) -> "tuple[Any, NeZhaTokenizer]":
    """The model of a folder and its tokenizer.

    Args:
        needs: how the names of the parameters begin that the task reads beside the encoder; "" for none.
        remedy: what to do where the checkpoint has none of them.

    Raises:
        ValueError: it has none of them, or tokens whose ids the model does not have.
    """
    if needs:
        with open_checkpoint(folder) as opened:
            dialect = detect(list(opened.tensors))
            ours = [weight.ours for weight in map(dialect.to_ours, opened.tensors) if weight is not None]
        if not any(name.startswith(needs) for name in ours):
            raise ValueError(f"{folder} holds no {needs.rstrip('.')}, which would be random: {remedy}.")
    tokenizer = NeZhaTokenizer.from_pretrained(folder)
    return kind.from_pretrained(folder), tokenizer


def checked_length(config: NeZhaConfig, max_length: Optional[int]) -> int:
    """The most tokens of a row, [CLS] and [SEP] included; None is `DEFAULT_LENGTH`, or what absolute positions allow.

    Raises:
        ValueError: no room for a token, or more than absolute positions allow.
    """
    most = None if config.use_relative_position else config.max_position_embeddings
    if max_length is None:
        return DEFAULT_LENGTH if most is None else min(DEFAULT_LENGTH, most)
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3 ([CLS], one token, [SEP]), but got {max_length}.")
    if most is not None and max_length > most:
        raise ValueError(
            f"max_length must be at most {most}, but got {max_length}: this model has absolute positions, and only "
            "relative ones read any length."
        )
    return max_length


def checked_budget(tokens_per_batch: int) -> int:
    if tokens_per_batch < 1:
        raise ValueError(f"tokens_per_batch must be at least 1, but got {tokens_per_batch}.")
    return tokens_per_batch


def identity(model: NeZhaPretrainedModel, tokenizer: NeZhaTokenizer) -> str:
    """sha256 of all that decides what a model makes of a text: config, weights, tokenizer.

    Raises:
        OSError: the folder for temporary files, where the tokenizer's are put for a moment, is full.
    """
    digest = sha256(model.config.to_json_string().encode())
    for name, parameter in sorted(model.state_dict().items()):
        values = parameter.astype("float32") if parameter.dtype == paddle.bfloat16 else parameter
        digest.update(f"{name} {parameter.dtype} {list(parameter.shape)}".encode())
        digest.update(np.ascontiguousarray(values.numpy()).data)
    with TemporaryDirectory() as folder:
        try:
            files = tokenizer.save_pretrained(folder)
        except OSError as error:
            name_file(error, gettempdir())
            raise
        for file in sorted(files):
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def surroundings() -> "dict[str, Any]":
    """What decides the last bits of a result beside the model: release, device, threads, operators."""
    device = paddle.device.get_device()
    native = device != "cpu" or forced_form() not in (None, "operator") or operator.unavailable() is not None
    return {
        "paddle": paddle.__version__,
        "device": device,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "operators": "none" if native else operator.instruction_set(),
    }
