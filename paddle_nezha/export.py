"""A model as a folder for Paddle Inference: the graph with its weights, the tokenizer, and, if asked for, the operator.

    from paddle_nezha.export import export
    export("my-model", "served")            # plain operations: runs wherever this Paddle does
    export("my-model", "served", op=True)   # with the attention operator, whose library the folder carries

It is run like this, with the batch and length of each call:

    import paddle
    from paddle_nezha import NeZhaTokenizer, load_op

    load_op("served")                       # with op=True alone, and before the predictor is made
    config = paddle.inference.Config("served/model.json", "served/model.pdiparams")  # model.pdmodel on Paddle 2.6
    config.enable_new_ir()                  # these two on Paddle 3 alone
    config.enable_new_executor()
    config.enable_mkldnn()                  # oneDNN, in float32
    predictor = paddle.inference.create_predictor(config)
    encoded = NeZhaTokenizer.from_pretrained("served")(
        ["今天早上下雨", "好"], padding=True, return_attention_mask=True, return_tensors="np"
    )
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(encoded[name])
    predictor.run()
    outputs = [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]
"""

import copy
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from paddle_nezha import __version__, operator
from paddle_nezha._files import listing
from paddle_nezha._paddle import Tensor, nn, paddle
from paddle_nezha.attention import NeZhaAttention, using_form
from paddle_nezha.auto import MODEL_CLASSES, head_of
from paddle_nezha.checkpoint import HEADS, CheckpointError
from paddle_nezha.checkpoint.convert import staged
from paddle_nezha.checkpoint.described import described
from paddle_nezha.hub import resolve, sha256_of
from paddle_nezha.model import NeZhaPretrainedModel
from paddle_nezha.pretrained import Folder
from paddle_nezha.tokenizer import NeZhaTokenizer

__all__ = ["Exported", "export", "load_op"]

MODEL_NAME = "model"
LIBRARY_NAME = "nezha_attention.so"
RECORD_NAME = "export.json"
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
# Heads that do not read the pooled token: a checkpoint of theirs may lack the pooler.
_WITHOUT_POOLER = ("masked_lm", "token_classification", "question_answering")


@dataclass
class Exported:
    """What an export wrote.

    Args:
        folder: where.
        head: one of the heads' names.
        inputs: int64 each, in the predictor's order: [B, L], and for multiple choice [B, C, L].
        outputs: what the predictor's outputs are, in their order.
        operator: what `load_op` reads: of the library that the folder carries its name, sha256, Paddle release, kind of
            processor and source key. None: the graph has no operator.
        files: by name.
        remarks: what a person should know.
    """

    folder: str
    head: str
    inputs: "list[str]"
    outputs: "list[str]"
    operator: "Optional[dict[str, str]]"
    files: "list[str]" = field(default_factory=list)
    remarks: "list[str]" = field(default_factory=list)


def export(
    model_or_folder: "Union[NeZhaPretrainedModel, Folder]",
    to: Folder,
    op: bool = False,
    *,
    head: Optional[str] = None,
    tokenizer: "Union[NeZhaTokenizer, Folder, None]" = None,
    cache_dir: Optional[Folder] = None,
    force: bool = False,
) -> Exported:
    """Writes a folder for `paddle.inference` (or `paddle.jit.load`), for any batch and length.

    The folder holds the graph (`model.json`, on Paddle 2.6 `model.pdmodel`) and its weights (`model.pdiparams`), the
    config, the tokenizer, `export.json`, which says what is what, and with `op` the operator's library. It needs
    nothing from elsewhere and may be moved. It takes its place whole: until then there is nothing there, or what was.

    Args:
        model_or_folder: a model, which stays as it is; or the folder or published name of a checkpoint.
        to: the folder to write, made if need be.
        op: compute attention by the operator in C++. Faster, but the folder then runs only on the Paddle release and
            kind of processor it was made for, and after `load_op`. Without it the graph runs anywhere.
        head: of a checkpoint, which head to export, such as "masked_lm"; None takes the one that is there.
        tokenizer: one, or a folder with one, to lie beside the model; None takes the checkpoint's.
        cache_dir: where published checkpoints are kept, as for models.
        force: replace what an earlier export wrote to `to`.

    Raises:
        OperatorError: `op`, where the operator is not available or cannot compute this model.
        CheckpointError: the checkpoint lacks a part that the outputs come from, or is none.
        FileExistsError: `to` is a file, or holds something that `force` may not replace.
        FileNotFoundError, TypeError, ValueError: no such model, head or tokenizer.
    """
    place = Path(to)
    _refuse_place(place, force)
    if isinstance(model_or_folder, NeZhaPretrainedModel):
        if head is not None:
            raise ValueError(f"head={head!r} chooses from a checkpoint, but a model came, which is of one head.")
        model = copy.deepcopy(model_or_folder)  # tracing leaves marks on every layer
    elif isinstance(model_or_folder, nn.Layer):
        raise TypeError(
            f"Expected a NeZha model, a folder or a published name, but got a {type(model_or_folder).__name__}: "
            "paddle.jit.save exports other layers."
        )
    else:
        source = resolve(model_or_folder, cache_dir=cache_dir)
        model = _opened(source, head)
        tokenizer = source if tokenizer is None and (source / "vocab.txt").is_file() else tokenizer
    if tokenizer is not None and not isinstance(tokenizer, NeZhaTokenizer):
        tokenizer = NeZhaTokenizer.from_pretrained(tokenizer, cache_dir=cache_dir)
    library = _library_for(model) if op else None
    model.eval()
    served = _Served(model)
    report = Exported(str(place), served.head, list(INPUTS), served.outputs(), None)
    with staged(place) as stage:
        written = stage / "new"  # made here, with the permissions that folders have
        written.mkdir()
        _write_graph(served, written, "native" if library is None else "operator")
        config = copy.copy(model.config)
        config.architectures = [type(model).__name__]
        config.vocab_size = model.get_input_embeddings().weight.shape[0]
        config.save_pretrained(written)
        if tokenizer is None:
            report.remarks.append("no tokenizer beside the model: copy its vocab.txt and settings into the folder")
        else:
            tokenizer.save_pretrained(written)
        if library is not None:
            report.operator = _carry(library, written)
        report.files = sorted([*(entry.name for entry in written.iterdir()), RECORD_NAME])
        _write_record(report, written)
        _install(written, place, stage)
    return report


def load_op(folder: Optional[Folder] = None) -> Path:
    """Makes the operator known to Paddle, as `paddle.inference.create_predictor` needs it for a graph that holds it.

    A library is a program: load one only from a folder that you trust.

    Args:
        folder: an exported folder, which carries the library; None takes the installed package's own, compiled if need
            be, which serves folders that were exported with the same release of the package.

    Returns:
        The library that is loaded.

    Raises:
        OperatorError: the folder carries none; it is for another Paddle or another machine, or not as it was written;
            this process has already loaded another one.
        FileNotFoundError: no exported folder.
    """
    if folder is None:
        return operator.load()
    place = Path(folder)
    carried = _read_record(place).get("operator")
    if carried is None:
        raise operator.OperatorError(
            f"{place} carries no operator and needs none: give it to paddle.inference.create_predictor as it is. "
            "export(..., op=True), or paddle-nezha export --op, makes one that carries it."
        )
    path = place / LIBRARY_NAME
    if not path.is_file():
        raise operator.OperatorError(
            f"{place} was exported with {LIBRARY_NAME}, which is not there any more: copy the whole folder again."
        )
    try:
        wanted = {key: str(carried[key]) for key in (*_here(), "sha256", "key")}
    except (KeyError, TypeError):
        raise operator.OperatorError(
            f"{place / RECORD_NAME} does not say what its operator is for: export again."
        ) from None
    for what, here in _here().items():
        if wanted[what] != here:
            raise operator.OperatorError(
                f"The operator in {place} was made for {what} {wanted[what]}, but this is {here}: export again here "
                "with op=True (--op), or without it for a graph that runs anywhere."
            )
    if sha256_of(path) != wanted["sha256"]:
        raise operator.OperatorError(
            f"{path} is not the library that was exported (its sha256 is another): copy the whole folder again."
        )
    loaded = operator.load(path)
    if loaded != path and loaded.stem != wanted["key"] and sha256_of(loaded) != wanted["sha256"]:
        raise operator.OperatorError(
            f"This process already runs another build of the operator, {loaded}: call load_op({str(place)!r}) before "
            "any model is run, or serve in a process of its own."
        )
    return loaded


# ---- the model


def _opened(folder: Path, head: Optional[str]) -> NeZhaPretrainedModel:
    """The model of a checkpoint, of which every part that reaches an output is in the file."""
    if head is not None and head not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, but got {head!r}.")
    head = head or head_of(folder)
    with described(folder, head=head) as checkpoint:
        lacking = set(checkpoint.account.new.values())
        there = checkpoint.opened.file
    if head in _WITHOUT_POOLER:
        lacking.discard("pooler")
    if lacking:
        raise CheckpointError(
            f"{there} lacks {', '.join(sorted(lacking))}, without which {head} would give random answers: export "
            "another head (head=, --head on the command line), or train this one first."
        )
    model: NeZhaPretrainedModel = MODEL_CLASSES[head].from_pretrained(folder)
    return model


class _Served(nn.Layer):
    """A model as it is exported: three inputs, its logits (the base model's two outputs), nothing optional."""

    def __init__(self, model: NeZhaPretrainedModel):
        super().__init__()
        self.model = model
        self.head = next((head for head, kind in MODEL_CLASSES.items() if isinstance(model, kind)), "")
        self.axes = 3 if self.head == "multiple_choice" else 2

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> "list[Tensor]":
        return list(self._answer(input_ids, token_type_ids, attention_mask).to_tuple())

    def _answer(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.model(
            input_ids,
            token_type_ids,
            attention_mask,
            output_hidden_states=False,
            output_attentions=False,
            return_dict=True,
        )

    def outputs(self) -> "list[str]":
        """The names of the outputs, told by a call."""
        token = paddle.zeros([1] * self.axes, "int64")
        with paddle.no_grad(), using_form("native"):
            return list(self._answer(token, token, token + 1))


def _write_graph(served: _Served, folder: Path, form: str) -> None:
    specs = [paddle.static.InputSpec([None] * served.axes, "int64", name) for name in INPUTS]
    if form == "operator":
        for layer in served.sublayers():
            if isinstance(layer, NeZhaAttention):
                layer.join_projections()
    with using_form(form):
        paddle.jit.save(served, str(folder / MODEL_NAME), input_spec=specs)


# ---- the operator


def _library_for(model: NeZhaPretrainedModel) -> Path:
    """The operator's library.

    Raises:
        OperatorError: it is not to be had, or not for this model.
    """
    dtype, head_size = model.get_input_embeddings().weight.dtype, model.config.head_size
    if not operator.fits(dtype, head_size):
        raise operator.OperatorError(
            "The operator computes in float32 and float64 with an even head size of at most 256, but this model is in "
            f"{dtype} with {head_size}: leave op (--op) out for a graph of plain operations."
        )
    reason = operator.unavailable()
    if reason is not None:
        raise operator.OperatorError(
            f"An export with the operator needs it here, where it cannot run: {reason}. Leave op (--op) out for a "
            "graph of plain operations, which runs anywhere."
        )
    return operator.load()


def _here() -> "dict[str, str]":
    """What a library must have been made for to be loaded here, in the words of a message."""
    return {"Paddle": paddle.__version__, "system": platform.system(), "processor": platform.machine()}


def _carry(library: Path, folder: Path) -> "dict[str, str]":
    """Copies the library and gives its record. Its file's name is the key of what it was compiled from."""
    shutil.copyfile(library, folder / LIBRARY_NAME)
    digest = sha256_of(folder / LIBRARY_NAME)
    return {"library": LIBRARY_NAME, "sha256": digest, **_here(), "key": library.stem}


# ---- the folder


def _write_record(report: Exported, folder: Path) -> None:
    content = {
        "head": report.head,
        "inputs": report.inputs,
        "outputs": report.outputs,
        "paddle": paddle.__version__,
        "paddle_nezha": __version__,
        "operator": report.operator,
        "files": report.files,
    }
    if report.operator is not None:
        content["to run"] = (
            "paddle_nezha.load_op(this folder) before the predictor is made. Without it Paddle 2.6 says 'Operator "
            "(nezha_attention) is not registered', and Paddle 3 'op [] kernel output args (0) defs should equal op "
            "outputs (2)'."
        )
    text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    (folder / RECORD_NAME).write_text(text, encoding="utf-8")


def _read_record(folder: Path) -> "Mapping[str, Any]":
    file = folder / RECORD_NAME
    if not file.is_file():
        held = f"which holds {listing(folder)}" if folder.is_dir() else "which is no folder"
        raise FileNotFoundError(
            f"Expected a folder that an export wrote, with {RECORD_NAME}, but got {folder}, {held}."
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or "operator" not in content:
        raise operator.OperatorError(f"{file} is no record of an export: export again.")
    return content


def _refuse_place(place: Path, force: bool) -> None:
    if place.exists() and not place.is_dir():
        raise FileExistsError(f"{place} is a file, but a folder is to be written there: name another place.")
    if not place.is_dir() or not any(place.iterdir()):
        return
    if not force:
        raise FileExistsError(
            f"{place} holds {listing(place)}: name a new folder, or say force=True (--force on the command line) to "
            "replace an earlier export."
        )
    try:
        ours = _read_record(place).get("files")
    except (OSError, operator.OperatorError):
        ours = None
    others = sorted({entry.name for entry in place.iterdir()} - set(ours if isinstance(ours, list) else ()))
    if others:
        raise FileExistsError(
            f"{place} holds what no export wrote there ({', '.join(others[:5])}), and force replaces exports alone: "
            "name a new folder."
        )


def _install(written: Path, place: Path, stage: Path) -> None:
    """Puts a finished folder in its place; an older one goes with the stage."""
    for file in written.iterdir():
        with open(file, "rb+") as opened:
            os.fsync(opened.fileno())
    place = place.resolve()
    older = stage / "older"
    if place.is_dir():
        os.rename(place, older)
    try:
        os.rename(written, place)
    except OSError:
        if older.is_dir():
            os.rename(older, place)
        raise
