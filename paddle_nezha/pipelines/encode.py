"""Sentence vectors."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from paddle_nezha._files import PathLike
from paddle_nezha._paddle import paddle
from paddle_nezha.model import NeZhaModel
from paddle_nezha.padding import padding_goes_by_itself
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.training.vocabulary import check_vocabulary

from . import models
from .batches import TOKENS_PER_BATCH, batches, padded, windows
from .lines import Line, Source, given_lines
from .running import Done, Job, run_file, run_stream

POOLINGS = ("mean", "cls", "pooled")
DTYPES = ("float32", "float16")


class Encoder:
    """A vector [N] for each text.

    Args:
        pooling: "mean" of the last hidden states of all tokens, [CLS] and [SEP] among them and padding not, as
            sentence-transformers takes it; "cls", the last hidden state of [CLS]; "pooled", the pooler's output, made
            for the next-sentence task.
        max_length: tokens of a text, [CLS] and [SEP] included; what is longer is cut behind. None is 512, though a
            model with relative positions reads any length.
        tokens_per_batch: rows of a batch times the longest of them.

    A vector differs by float32 rounding alone with the texts it is computed beside. A list gives the same bits as a
    file of the same lines.
    """

    def __init__(
        self,
        model: NeZhaModel,
        tokenizer: NeZhaTokenizer,
        *,
        pooling: str = "mean",
        max_length: Optional[int] = None,
        tokens_per_batch: int = TOKENS_PER_BATCH,
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, but got {pooling!r}.")
        check_vocabulary(model.config, tokenizer)
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        self.max_length = models.checked_length(model.config, max_length)
        self.tokens_per_batch = models.checked_budget(tokens_per_batch)
        self.cut = 0  # texts that were longer than max_length, since this was made
        model.eval()

    @classmethod
    def open(cls, model: Optional[PathLike] = None, *, pooling: str = "mean", **options: Any) -> "Encoder":
        """From a folder or published name, of any head.

        Raises:
            ValueError: no such pooling; "pooled" of a checkpoint without a pooler, which would be random.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, but got {pooling!r}.")
        needs = "pooler." if pooling == "pooled" else ""
        parts = models.open_model(NeZhaModel, models.model_folder(model), needs, "take pooling mean or cls")
        return cls(*parts, pooling=pooling, **options)

    @property
    def width(self) -> int:
        """N."""
        return int(self.model.config.hidden_size)

    def __call__(self, texts: "Union[str, Sequence[str]]") -> np.ndarray:
        """
        Args:
            texts: one text, or a list of them.

        Returns:
            float32 [N] of one text, [texts, N] of a list.

        Raises:
            ValueError: something else than texts.
        """
        if isinstance(texts, str):
            return self._window([texts])[0]
        found = [
            self._window([line.text for line in window])
            for window in windows(given_lines(texts), self.tokens_per_batch)
        ]
        return np.concatenate(found) if found else np.zeros([0, self.width], "float32")

    def run(
        self,
        source: Source,
        output: PathLike,
        *,
        dtype: str = "float32",
        force: bool = False,
        progress: bool = True,
    ) -> Done:
        """A vector for every line of a file.

        Args:
            output: a file ending in .npy gets an array [lines, N]; one ending in .jsonl an object with "line" (from 1)
                and "vector" a line; "-" the same on standard output.
            dtype: "float32" or "float16", of what is written; computed is in float32.
            force: begin anew where a part has other settings, and replace an output that is there.

        Raises:
            ValueError: another ending or dtype; else as `run_file`.
        """
        streams, ending = str(output) == "-", Path(output).suffix.lower()
        if not streams and ending not in (".npy", ".jsonl"):
            raise ValueError(f"The output's name must end in .npy or .jsonl, but is {str(output)!r}.")
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, but got {dtype!r}.")
        if streams:
            return run_stream(self._job(dtype, False), source)
        return run_file(self._job(dtype, ending == ".npy"), source, output, force=force, progress=progress)

    def _job(self, dtype: str, is_array: bool) -> Job:
        def answer(lines: "list[Line]") -> bytes:
            vectors = _narrowed(self._window([line.text for line in lines]), dtype)
            return vectors.tobytes() if is_array else _objects(lines, vectors)

        settings = {
            "task": "encode",
            "model, sha256": models.identity(self.model, self.tokenizer),
            "pooling": self.pooling,
            "max length": self.max_length,
            "dtype": dtype,
            "form": "npy" if is_array else "jsonl",
        }
        header = (lambda lines: _header([lines, self.width], dtype)) if is_array else (lambda lines: b"")
        return Job(answer, settings, models.surroundings(), self.tokens_per_batch, header)

    def _window(self, texts: "list[str]") -> np.ndarray:
        """float32 [texts, N]."""
        rows = self.tokenizer(texts, return_token_type_ids=False)["input_ids"]
        for place, row in enumerate(rows):
            if len(row) > self.max_length:
                self.cut += 1
                rows[place] = [*row[: self.max_length - 1], self.tokenizer.sep_token_id]
        vectors = np.empty([len(rows), self.width], "float32")
        for batch in batches([len(row) for row in rows], self.tokens_per_batch):
            vectors[batch] = self._batch([rows[place] for place in batch])
        return vectors

    def _batch(self, rows: "list[list[int]]") -> np.ndarray:
        ids, mask = (paddle.to_tensor(array) for array in padded(rows, self.tokenizer.pad_token_id))
        with paddle.no_grad():
            unpad = padding_goes_by_itself(mask, True, None)
            hidden, pooled = self.model(ids, attention_mask=mask, return_dict=False, unpad=unpad)[:2]
            if self.pooling == "pooled":
                read = pooled
            elif self.pooling == "cls":
                read = hidden[:, 0]
            else:
                shown = mask.astype(hidden.dtype).unsqueeze(-1)
                read = (hidden * shown).sum(1) / shown.sum(1)
            vectors: np.ndarray = read.astype("float32").numpy()
            return vectors


def _narrowed(vectors: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float16" and np.abs(vectors).max() > np.finfo(np.float16).max:
        raise ValueError("float16 cannot hold these vectors, which exceed 65504: write them as float32.")
    return vectors.astype(np.dtype(dtype).newbyteorder("<"))


def _objects(lines: "Iterable[Line]", vectors: np.ndarray) -> bytes:
    """JSONL. The numbers are the shortest that read as the same float32 or float16."""
    rows = (
        f'{{"line": {line.number}, "vector": [{", ".join(map(str, vector))}]}}\n'
        for line, vector in zip(lines, vectors)
    )
    return "".join(rows).encode()


def _header(shape: "list[int]", dtype: str) -> bytes:
    """The first bytes of a .npy file of this shape."""
    file = io.BytesIO()
    description = np.lib.format.dtype_to_descr(np.dtype(dtype).newbyteorder("<"))
    np.lib.format.write_array_header_1_0(file, {"descr": description, "fortran_order": False, "shape": tuple(shape)})
    return file.getvalue()
