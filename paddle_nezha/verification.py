"""Everything that can be asked of a checkpoint, of whatever a person names: numbers, structure, record, behaviour."""

from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from paddle_nezha.checkpoint import weight_file
from paddle_nezha.checkpoint.errors import CheckpointError, PathLike
from paddle_nezha.checkpoint.verify import Check, Findings
from paddle_nezha.checkpoint.verify import verify as verify_file
from paddle_nezha.config import NeZhaConfig
from paddle_nezha.hub import check_pin, published, read_pin, resolve, sha256_of, unpin
from paddle_nezha.hub.registry import Entry
from paddle_nezha.tokenizer import NeZhaTokenizer
from paddle_nezha.tokenizer.files import VOCABULARY_FILE
from paddle_nezha.training.vocabulary import recorded_digest, vocabulary_digest


def verify(name_or_path: PathLike, *, cache_dir: Optional[PathLike] = None) -> Findings:
    """Verifies a published checkpoint (fetched if it is not here), a folder or a weight file.

    Of a published one the file is held to the sha256 that was published or recorded when it was first used, the count
    of parameters to the known one, and, where numbers were published and Paddle is installed, its outputs to those.

    Raises:
        FileNotFoundError: no such file, folder or name.
        FetchError: it could not be fetched.
    """
    path = Path(name_or_path)
    if path.exists() or path.with_name(path.name + ".index").exists():  # a TensorFlow prefix is no file
        findings = verify_file(path)
        if (path / VOCABULARY_FILE).is_file():
            findings.checks.append(_vocabulary(path))
        file = weight_file(path) if path.is_dir() else path
        if file.is_file():
            findings.checks.append(_recorded(file))
        return findings
    try:
        folder = resolve(name_or_path, cache_dir=cache_dir)
    except CheckpointError as error:  # what is in the cache, or came, is not what it should be
        return Findings(str(name_or_path), [Check("file", False, str(error))])
    return _verify_published(published(str(name_or_path)), folder)


def _verify_published(entry: Entry, folder: Path) -> Findings:
    weights = folder / entry.weights.name
    config = NeZhaConfig.from_dict(dict(entry.config)) if entry.config is not None else folder
    findings = verify_file(weights, config=config, parameters=entry.parameters)
    findings.path = entry.name
    findings.checks.append(_held(entry, weights))
    if findings.right and findings.head is not None:
        findings.checks += _behaviour(entry.name, folder, findings.head)
    if not findings.right and entry.weights.sha256 is None and unpin(weights):
        findings.checks.append(
            Check("record", None, f"removed: it was made at first use, of a file that is wrong. Delete {weights} too")
        )
    return findings


def _vocabulary(folder: Path) -> Check:
    try:
        tokenizer = NeZhaTokenizer.from_pretrained(folder)
        tokens, rows = len(tokenizer), NeZhaConfig.from_pretrained(folder).vocab_size
        tuned_with = recorded_digest(folder)
    except FileNotFoundError as error:
        return Check("vocabulary", None, f"not held to a config, since there is none: {error}")
    except (ValueError, OSError) as error:
        return Check("vocabulary", False, str(error))
    if tuned_with not in (None, vocabulary_digest(tokenizer)):
        return Check("vocabulary", False, "not the one that the model was fine-tuned with")
    told = f"{tokens:,} tokens for {rows:,} embeddings"
    if tokens < rows:
        told += f"; what is left over is padding, or {VOCABULARY_FILE} lost lines"
    return Check("vocabulary", None if tokens < rows else tokens == rows, told)


def _held(entry: Entry, weights: Path) -> Check:
    try:
        found = check_pin(weights, expected=entry.weights.sha256)
    except CheckpointError as error:
        return Check("file", False, str(error))
    return Check("file", True, f"sha256 {found}, {'as published' if entry.weights.sha256 else 'as first used'}")


def _recorded(file: Path) -> Check:
    """Of a file that is a person's own: what its record says, where it has one. Nothing is written beside it."""
    found = sha256_of(file)
    try:
        recorded = read_pin(file)
    except CheckpointError as error:
        return Check("file", False, str(error))
    if recorded is None:
        return Check("file", None, f"sha256 {found}; no record beside it to hold it to")
    if recorded != found:
        return Check("file", False, f"{file} has changed: its record says sha256 {recorded}, found {found}")
    return Check("file", True, f"sha256 {found}, as recorded")


def _behaviour(name: str, folder: Path, head: str) -> "list[Check]":
    if find_spec("paddle") is None:
        return [Check("behaviour", None, "not computed: PaddlePaddle is not installed")]
    from paddle_nezha.behaviour import check_behaviour

    return check_behaviour(name, folder, head) or [Check("behaviour", None, "no numbers of it were ever published")]
