"""A checkpoint of any format and dialect, written anew: for this project and PaddleNLP, for transformers, for torch."""

import contextlib
import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from .._files import listing
from ..config import CONFIG_NAME, HUAWEI_CONFIG_NAME, LEGACY_CONFIG_NAME, NeZhaConfig
from . import pdparams, safetensors, torch_files
from .account import Account
from .compare import differences
from .configs import SCHEMAS, remarks, to_foreign
from .described import Described, by_our_names, described, untied
from .dialects import DIALECTS
from .errors import CheckpointError, PathLike
from .names import TIES, bare
from .opening import WEIGHT_NAMES, open_checkpoint

_VOCABULARY, _TOKENIZER_SETTINGS = "vocab.txt", "tokenizer_config.json"
_TOKENIZER_FILES = (_VOCABULARY, "special_tokens_map.json", "added_tokens.json")
_TASK = "task.json"  # what a fine-tuned model answers
_FAST_TOKENIZER = "tokenizer.json"  # of transformers alone
_OUR_TOKENIZER, _THEIR_TOKENIZER = "NeZhaTokenizer", "BertTokenizer"
# Where a tokenizer's folder came from: nothing that a copy of the folder should repeat.
_NOT_KEPT = ("init_class", "name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file")
_CONFIG_NAMES = (CONFIG_NAME, LEGACY_CONFIG_NAME, HUAWEI_CONFIG_NAME)


@dataclass(frozen=True)
class Target:
    """A kind of folder that `convert` writes.

    Args:
        weights: the name of its weight file.
        names: the dialects it may be written in, the first unless told otherwise.
        holds_ties: whether a tied weight stands in the file under its second name too.
        is_ours: whether the folder is this project's, with its config and its tokenizer.
    """

    weights: str
    names: "tuple[str, ...]"
    holds_ties: bool
    is_ours: bool

    def write(self, path: Path, arrays: "Mapping[str, np.ndarray]") -> None:
        if self.weights.endswith(".safetensors"):
            # transformers asks for "pt", PaddleNLP for "np".
            safetensors.write(path, arrays, {"format": "np" if self.is_ours else "pt"})
        else:
            (pdparams if self.is_ours else torch_files).write(path, arrays)


TARGETS: "Mapping[str, Target]" = {
    "paddle": Target("model.safetensors", ("paddlenlp",), holds_ties=False, is_ours=True),
    "pdparams": Target("model_state.pdparams", ("paddlenlp",), holds_ties=True, is_ours=True),
    "hf": Target("model.safetensors", ("hf",), holds_ties=False, is_ours=False),
    "torch": Target(
        "pytorch_model.bin", ("hf", "huawei", "nezha_chinese_pytorch", "bert4torch"), holds_ties=True, is_ours=False
    ),
}


@dataclass
class Report:
    """What a conversion read and wrote.

    Args:
        source: the weight file.
        target: the folder.
        form, dialect: of the source.
        head: which head was written.
        names: whose names the tensors bear now.
        parameters: how many numbers were written, a tied weight counted once.
        summary: the account of the source's tensors, in one line.
        files: what was written, by name.
        remarks: what a person should know.
    """

    source: str
    target: str
    form: str
    dialect: str
    head: str
    names: str
    parameters: int
    summary: str
    files: "list[str]" = field(default_factory=list)
    remarks: "list[str]" = field(default_factory=list)


def convert(
    src: PathLike,
    dst: PathLike,
    to: str = "paddle",
    *,
    dialect: Optional[str] = None,
    head: Optional[str] = None,
    names: Optional[str] = None,
    config: Optional[PathLike] = None,
    overrides: "Optional[Mapping[str, Any]]" = None,
    force: bool = False,
) -> Report:
    """Writes a checkpoint in another format, with another code base's names, config and tokenizer settings.

    Numbers are copied, never computed: before the folder is given out, it is opened and each tensor compared with the
    source's, byte for byte. `dst` becomes what it should be at the end and in one go as far as a file system allows;
    at no time does it hold a config beside weights that are not its own.

    Args:
        src: a folder or a weight file, as for `open_checkpoint`. Nothing is written there.
        dst: the folder to write, made if need be.
        to: one of `TARGETS`: "paddle" (safetensors, for this project and PaddleNLP), "pdparams" (the same as
            `paddle.save` writes it), "hf" (safetensors, for transformers) or "torch" (`pytorch_model.bin`).
        dialect: whose names the source has; None detects it.
        head: which head to write; None writes the one that is there.
        names: for "torch", whose names to write: "hf", "huawei", "nezha_chinese_pytorch" or "bert4torch".
        config: a config file, or a folder with one; None looks beside the weights.
        overrides: settings that win over the config's.
        force: write into a folder that holds something. An older checkpoint there is replaced, other files stay.

    Returns:
        What was read and written. Parts that the source lacks (a pooler) are not made up; a remark says so.

    Raises:
        CheckpointError: the source does not fit its config, or holds what the target has no place for.
        FileExistsError: `dst` holds something and `force` is not set.
        ValueError: a word for `to`, `head`, `dialect` or `names` that means nothing; `dst` in the source's folder.
        OSError: the source is not there, or `dst` cannot be written.
    """
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}, but got {to!r}.")
    target = TARGETS[to]
    names = names or target.names[0]
    if names not in target.names:
        raise ValueError(f"to={to!r} is written with the names of {' or '.join(target.names)}, but got {names!r}.")
    src, dst = Path(src), Path(dst)
    _refuse_place(src, dst, force)
    with described(src, dialect=dialect, head=head, config=config, overrides=overrides) as checkpoint:
        report = _report(checkpoint, dst, names)
        with staged(dst) as stage:
            _write_weights(checkpoint, stage, target, names)
            _compare(checkpoint.account, stage / target.weights, names)
            report.remarks += _write_tokenizer(src if src.is_dir() else src.parent, stage, target)
            report.remarks += _write_config(checkpoint, stage, target, names)
            report.files = sorted(entry.name for entry in stage.iterdir())
            _install(stage, dst)
    return report


def _report(checkpoint: Described, dst: Path, names: str) -> Report:
    account = checkpoint.account
    said = list(checkpoint.remarks)
    if account.new:
        said.append(f"not in the source, so not written: {', '.join(dict.fromkeys(account.new.values()))}")
    if account.widened:
        said.append(f"{len(account.widened)} bfloat16 tensors are written as float32")
    return Report(
        source=str(checkpoint.opened.file),
        target=str(dst),
        form=checkpoint.opened.form,
        dialect=account.dialect,
        head=checkpoint.head,
        names=names,
        parameters=sum(prod(tensor.shape) for tensor in untied(_bare(account)).values()),
        summary=account.summary(),
        remarks=said,
    )


def _bare(account: Account) -> "dict[str, Any]":
    return {bare(name): tensor for name, tensor in account.tensors.items()}


# ---- where to


def _refuse_place(src: Path, dst: Path, force: bool) -> None:
    source = (src if src.is_dir() else src.parent).resolve()
    place = dst.resolve()
    if place == source or (src.is_dir() and source in place.parents):
        raise ValueError(
            f"{dst} is the source's folder, or lies in it, and a source is never written to: name another."
        )
    if dst.exists() and not dst.is_dir():
        raise FileExistsError(f"{dst} is a file, but a folder is to be written there: name another place.")
    if not force and dst.is_dir() and any(dst.iterdir()):
        raise FileExistsError(
            f"{dst} holds {listing(dst)}: name a new folder, or say force=True (--force on the command line) to "
            "replace the checkpoint there."
        )


@contextlib.contextmanager
def staged(dst: Path) -> "Iterator[Path]":
    """A folder beside `dst`, on the same disk; gone afterwards."""
    parent = dst.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    for stale in parent.glob(f".{dst.name}.*.part"):  # of a conversion that was killed, not of one that runs
        owner = stale.name.rsplit(".", 3)[-3]
        if owner.isdigit() and not _is_running(int(owner)):
            shutil.rmtree(stale, ignore_errors=True)
    prefix = f".{dst.name}.{os.getpid()}."
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=".part", dir=parent) as stage:
        yield Path(stage)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # there, and somebody else's
    return True


def _install(stage: Path, dst: Path) -> None:
    """Moves everything to its place. Without a config nothing opens a folder, so that goes first and comes last."""
    dst.mkdir(parents=True, exist_ok=True)
    old = [*_CONFIG_NAMES, *WEIGHT_NAMES, *_TOKENIZER_FILES, _TOKENIZER_SETTINGS, _FAST_TOKENIZER, _TASK]
    shards = sorted(dst.glob("model-*-of-*.safetensors")) if (dst / "model.safetensors.index.json").is_file() else []
    for path in [*(dst / name for name in old), *shards]:
        path.unlink(missing_ok=True)
    for path in sorted(stage.iterdir(), key=lambda path: (path.name in _CONFIG_NAMES, path.name)):
        os.replace(path, dst / path.name)


# ---- weights


def _write_weights(checkpoint: Described, stage: Path, target: Target, names: str) -> None:
    tongue, head = DIALECTS[names], checkpoint.head
    arrays: "dict[str, np.ndarray]" = {}
    nameless = []
    for name, array in checkpoint.account.read():
        weights = tongue.to_file(name, head)
        if not weights:
            nameless.append(name)
        for weight in weights[:1]:
            # Its own memory, so that what it was turned from can go.
            arrays[weight.theirs] = np.ascontiguousarray(array.T if weight.turned else array).reshape(
                array.shape[::-1] if weight.turned else array.shape
            )
        for second in weights[1:]:
            arrays[second.theirs] = arrays[weights[0].theirs]
    if nameless:
        raise CheckpointError(
            f"{names} has no names for {', '.join(nameless)}, so they would be lost: write the checkpoint with other "
            "names, or the encoder alone with head='model' (--head model on the command line)."
        )
    if target.holds_ties:
        for tied, partner in TIES.items():
            if any(bare(name) == tied for name in checkpoint.account.tensors):
                (shared, *_) = tongue.to_file(partner, head)
                arrays.update({weight.theirs: arrays[shared.theirs] for weight in tongue.to_file(tied, head)})
    target.write(stage / target.weights, arrays)


def _compare(account: Account, written: Path, names: str) -> None:
    """Opens what was written as anybody would, and finds every number of the source in it."""
    with open_checkpoint(written) as opened:
        found = by_our_names(opened, names).tensors
        wrong = [difference.told for _, difference in differences(untied(_bare(account)), found) if difference]
    if wrong:
        raise CheckpointError(
            f"The conversion is wrong, so nothing was written: {'; '.join(wrong)}. Please report it with these lines."
        )


# ---- the config


def _write_config(checkpoint: Described, stage: Path, target: Target, names: str) -> "list[str]":
    config, head = checkpoint.config, checkpoint.head
    if target.is_ours:
        ours: NeZhaConfig = copy.copy(config)
        # Class names alone: any config has them.
        ours.architectures = to_foreign(NeZhaConfig(), "paddlenlp", head)["architectures"]
        ours.save_pretrained(stage)
        return []
    content = to_foreign(config, names, head)
    _write_json(stage / SCHEMAS[names].file, content)
    return remarks(config, names, head)


# ---- the tokenizer


def _write_tokenizer(source: Path, stage: Path, target: Target) -> "list[str]":
    """Carries the tokenizer along, so that both this project's and transformers' give the ids they gave before; and
    what fine-tuning noted."""
    names = _TOKENIZER_FILES if target.is_ours else (*_TOKENIZER_FILES, _FAST_TOKENIZER)
    for name in (*names, _TASK):
        if (source / name).is_file():
            shutil.copyfile(source / name, stage / name)
    if not (source / _VOCABULARY).is_file():
        return [f"no {_VOCABULARY} beside the source: put it into the new folder too"]
    settings = _tokenizer_settings(source / _TOKENIZER_SETTINGS)
    splits = _splits_symbols(settings)
    kept = {key: value for key, value in settings.items() if key not in _NOT_KEPT}
    kind = _OUR_TOKENIZER if target.is_ours else _THEIR_TOKENIZER
    content = {"do_lower_case": True, **kept, "split_symbols": splits, "tokenizer_class": kind}
    _write_json(stage / _TOKENIZER_SETTINGS, content)
    if splits and not target.is_ours:
        return [f"{_THEIR_TOKENIZER} keeps symbols (emoji, ℃) within words, which {_OUR_TOKENIZER} here splits off"]
    return []


def _tokenizer_settings(file: Path) -> "dict[str, Any]":
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not a JSON file ({error}): restore it from its source.") from None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{file} holds a JSON {type(settings).__name__}, but expected an object: restore it.")
    return settings


def _splits_symbols(settings: "Mapping[str, Any]") -> bool:
    """What the folder meant, said by the class that wrote it, before another class is named there."""
    said = settings.get("split_symbols")
    if said is not None:
        return bool(said)
    writer: Union[str, None] = settings.get("tokenizer_class") or settings.get("init_class")
    return writer == _OUR_TOKENIZER if writer else not settings.get("do_lower_case", True)


def _write_json(path: Path, content: "Mapping[str, Any]") -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    path.write_bytes(text.encode("utf-8", "backslashreplace"))
