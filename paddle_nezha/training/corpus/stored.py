"""A corpus on the disk: tokens of sentences of documents in shards, read by memory map.

manifest.json         settings, sources, counts, and of each shard the files with sizes and sha256
build.json            what the build was asked for, written before anything else; it tells one build from another
tokenizer/            the tokenizer's files
train-00000.tokens.npy, .word_starts.npy, .sentences.npy, .documents.npy, .json; and so on
held_out-00000...     the same for the documents that are kept for evaluation
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from paddle_nezha._files import PathLike

from .errors import CorpusError

FORMAT = 1
MANIFEST, PLAN, TOKENIZER = "manifest.json", "build.json", "tokenizer"
SPLITS = ("train", "held_out")
ARRAYS = ("tokens", "word_starts", "sentences", "documents")
_PIECE = 1 << 20


@dataclass(frozen=True)
class Shard:
    """A part of a corpus. Arrays are opened by memory map where they are first asked for, read-only.

    They are looked through then, so that damage which leaves a file its size is told of and not trained on; all of it
    is found by `verify` alone. CorpusError says which file is damaged.

    Pickling takes the path alone, so that workers open it for themselves.
    """

    folder: Path
    name: str
    n_documents: int
    n_sentences: int
    n_tokens: int
    vocab_size: int

    @cached_property
    def tokens(self) -> np.ndarray:
        """uint16 or uint32 [n_tokens]: sentences one after another, without special tokens."""
        tokens = self._array("tokens", self.n_tokens)
        if tokens.max() >= self.vocab_size:
            raise self._damaged("tokens", f"token {tokens.max()} of a vocabulary of {self.vocab_size}")
        return tokens

    @cached_property
    def word_starts(self) -> np.ndarray:
        """uint8 [n_tokens]: 1 where a token begins a word; the first of a sentence always does."""
        return self._array("word_starts", self.n_tokens)

    @cached_property
    def sentences(self) -> np.ndarray:
        """int64 [n_sentences + 1]: sentence s is tokens[sentences[s]:sentences[s + 1]], never empty."""
        return self._bounds("sentences", self.n_sentences, self.n_tokens)

    @cached_property
    def documents(self) -> np.ndarray:
        """int64 [n_documents + 1]: document d is the sentences documents[d] .. documents[d + 1] - 1, never empty."""
        return self._bounds("documents", self.n_documents, self.n_sentences)

    def _array(self, name: str, length: int) -> np.ndarray:
        try:
            array: np.ndarray = np.lib.format.open_memmap(self._path(name), mode="r")
        except (ValueError, SyntaxError, TokenError) as error:  # what NumPy makes of a damaged header
            raise self._damaged(name, str(error)) from None
        if array.shape != (length,) or array.dtype.kind not in "iu":
            raise self._damaged(name, f"{array.dtype} {list(array.shape)}, expected {length} integers")
        return array

    def _bounds(self, name: str, count: int, end: int) -> np.ndarray:
        """Where each of `count` parts begins, none empty, and the end of the last."""
        bounds = self._array(name, count + 1)
        if bounds[0] != 0 or bounds[-1] != end or (bounds[1:] <= bounds[:-1]).any():
            raise self._damaged(name, f"expected places that rise from 0 to {end}")
        return bounds

    def _path(self, name: str) -> Path:
        return self.folder / f"{self.name}.{name}.npy"

    def _damaged(self, name: str, told: str) -> CorpusError:
        return CorpusError(
            f"{self._path(name)} is damaged ({told}): `paddle-nezha corpus show --verify {self.folder}` names every "
            "file that is not as built. Restore these from where the corpus was copied, or remove them and run its "
            "`paddle-nezha corpus build` again, which makes only what is missing"
        )

    def __getstate__(self) -> "dict[str, Any]":
        return {name: value for name, value in self.__dict__.items() if name not in ARRAYS}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class Corpus:
    """One split of a corpus folder.

    `manifest` is what manifest.json says. `digest` names the content of the split: sha256 over the digests of its
    shards and of the tokenizer. `vocab_size` counts added tokens too; it is how many rows a model's embedding needs.
    """

    folder: Path
    split: str
    manifest: "dict[str, Any]"
    digest: str
    shards: "tuple[Shard, ...]"
    n_documents: int
    n_sentences: int
    n_tokens: int
    vocab_size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @property
    def tokenizer_folder(self) -> Path:
        """The tokenizer's files, which a model trained on the corpus gets."""
        return self.folder / TOKENIZER

    @classmethod
    def open(cls, folder: PathLike, split: str = "train") -> "Corpus":
        """Opens a split, "train" or "held_out", after a look at the manifest and at every file's size.

        Raises:
            CorpusError: no corpus, an unfinished or damaged one, another format, or a split without a document.
        """
        place = Path(folder)
        manifest = read_manifest(place)
        if split not in SPLITS:
            raise CorpusError(f"expected split to be one of {', '.join(SPLITS)}, got {split!r}")
        wrong = [f"{name} is {told}" for name, told in _other_sizes(place, manifest)]
        if wrong:
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise CorpusError(
                f"the corpus {place} is damaged: {'; '.join(wrong[:3])}{more}. Restore it from where it was copied, or "
                "run its `paddle-nezha corpus build` again, which makes only what is missing"
            )
        part = manifest["splits"][split]
        if not part["shards"]:
            held_out = manifest["settings"]["held_out"]
            raise CorpusError(
                f"the corpus {place} has no document in its split {split!r} ({held_out:.3%} were to be held out): "
                "build it with another --held-out, or from more text"
            )
        tokenizer = manifest["tokenizer"]
        shards = tuple(
            Shard(place, one["name"], one["documents"], one["sentences"], one["tokens"], tokenizer["vocab_size"])
            for one in part["shards"]
        )
        return cls(
            folder=place,
            split=split,
            manifest=manifest,
            digest=corpus_digest(manifest, split),
            shards=shards,
            n_documents=part["documents"],
            n_sentences=part["sentences"],
            n_tokens=part["tokens"],
            vocab_size=tokenizer["vocab_size"],
            **{f"{name}_id": tokenizer["ids"][name] for name in ("pad", "unk", "cls", "sep", "mask")},
        )


def read_manifest(folder: Path) -> "dict[str, Any]":
    """What manifest.json of a finished corpus says.

    Raises:
        CorpusError: there is none, it is of an unfinished build, or of another format.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / PLAN).is_file():
            raise CorpusError(
                f"the corpus {folder} is unfinished: run the `paddle-nezha corpus build` that began it again, it goes "
                "on where it stopped"
            ) from None
        raise CorpusError(
            f"expected a corpus in {folder}, found no {MANIFEST} there: make one with `paddle-nezha corpus build TEXTS "
            f"--tokenizer FOLDER --out {folder}`"
        ) from None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be read ({error}): remove it and build the corpus again") from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise CorpusError(
            f"expected {path} in format {FORMAT}, found {found!r}: build the corpus again with this release"
        )
    return dict(manifest)


def files_of(manifest: "dict[str, Any]") -> "Iterator[tuple[str, dict[str, Any]]]":
    """Every array file that a manifest speaks of, with its `bytes` and `sha256`."""
    for split in SPLITS:
        for shard in manifest["splits"][split]["shards"]:
            yield from shard["files"].items()


def verify(folder: PathLike) -> "Iterator[tuple[str, str]]":
    """Reads every file of a corpus and gives the names of those that are not as built, with what is wrong.

    Raises:
        CorpusError: no finished corpus.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    other = dict(_other_sizes(place, manifest))
    yield from other.items()
    for name, stated in files_of(manifest):
        if name not in other and digest_of(place / name) != stated["sha256"]:
            yield name, f"not of sha256 {stated['sha256']}"
    digest = tokenizer_digest(place / TOKENIZER)
    if digest != manifest["tokenizer"]["digest"]:
        yield TOKENIZER, f"expected with digest {manifest['tokenizer']['digest']}, found {digest}"


def _other_sizes(folder: Path, manifest: "dict[str, Any]") -> "Iterator[tuple[str, str]]":
    for name, stated in files_of(manifest):
        try:
            size = (folder / name).stat().st_size
        except OSError:
            yield name, "missing"
            continue
        if size != stated["bytes"]:
            yield name, f"{size:,} bytes long, expected {stated['bytes']:,}"
    if not (folder / TOKENIZER / "vocab.txt").is_file():
        yield f"{TOKENIZER}/vocab.txt", "missing"


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    digest = sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def tokenizer_digest(folder: Path) -> str:
    """The sha256 over names and contents of a tokenizer's files."""
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return _digest([part for name in names for part in (name, digest_of(folder / name))])


def shard_digest(files: "dict[str, dict[str, Any]]") -> str:
    """The sha256 over the arrays of a shard."""
    return _digest([files[name]["sha256"] for name in sorted(files)])


def corpus_digest(manifest: "dict[str, Any]", split: str = "train") -> str:
    """The digest of a split: sha256 over those of its shards and of the tokenizer."""
    shards = manifest["splits"][split]["shards"]
    return _digest([split, manifest["tokenizer"]["digest"], *(shard["digest"] for shard in shards)])


def _digest(parts: "list[str]") -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
