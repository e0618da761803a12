"""The build of a corpus: streaming, parallel, and resumed where it was stopped, with the same bytes in the end.

One process reads. It gathers documents into blocks, one block a shard, by nothing but the order of the sources and the
settings; so shards do not depend on the number of workers. A document belongs to the held-out split by the hash of its
text, so that equal documents fall on one side. Workers cut sentences to tokens and write the shards.

A shard's own .json is written last, with the digest of the block it was made from. A build that was stopped reads its
sources again, which takes a small part of the time, and leaves out each shard whose block and settings are the same.
manifest.json comes when everything is there.

Memory: the reader holds a block for each split, each worker the one it is at.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Optional, Union

import filelock
import numpy as np
from tqdm import tqdm

from paddle_nezha._files import PathLike, listing, replaced
from paddle_nezha.tokenizer import NeZhaTokenizer

from . import stored
from .errors import CorpusError, TextError
from .stored import ARRAYS, FORMAT, MANIFEST, PLAN, SPLITS, TOKENIZER
from .texts import Problems, Source, find_sources, read_documents, refuse_other_encodings
from .words import Segmenter, WordTokenizer, one_thread
from .workers import Workers

SHARD_CHARACTERS = 8_000_000
_LOCK = ".lock"
_BATCH = 100_000  # characters tokenised at a time
# What a shard counts; a split has the sums.
COUNTS = (
    "documents", "sentences", "tokens", "words", "characters", "unknown_tokens", "one_sentence_documents",
    "empty_documents", "empty_sentences",
)  # fmt: skip


@dataclass(frozen=True)
class CorpusReport:
    """What a build did.

    `splits` has the counts of COUNTS for each split, `problems` what texts.PROBLEMS names, each with its `count` and
    first `examples`. `built` and `kept` are shards that were made now and that were there.
    """

    folder: str
    digest: str
    sources: int
    bytes: int
    splits: "dict[str, dict[str, int]]"
    problems: "dict[str, dict[str, Any]]"
    built: int
    kept: int


def build_corpus(
    sources: "Sequence[PathLike]",
    out: PathLike,
    tokenizer: "Union[NeZhaTokenizer, PathLike]",
    *,
    held_out: float = 0.01,
    workers: int = 1,
    segmenter: Optional[str] = None,
    text_field: str = "text",
    shard_characters: int = SHARD_CHARACTERS,
    force: bool = False,
    progress: Optional[bool] = None,
) -> CorpusReport:
    """Makes a corpus of text files, or goes on with one that was stopped.

    Args:
        sources: text and JSONL files and folders of them, as `texts` describes them.
        out: the folder to fill. One that holds another build is refused.
        tokenizer: a NeZhaTokenizer, its folder, or a published name.
        held_out: the share of documents kept for evaluation, in [0, 1).
        workers: processes that tokenise; 1 is this process alone. More need a script with a main guard.
        segmenter: whose words, "rjieba", "jieba" or "none"; None is the first of the first two that is installed.
        text_field: where JSONL objects have their text.
        shard_characters: characters of a shard. A longer document is cut between two sentences into several.
        force: replace the corpus that `out` holds.
        progress: a bar on stderr; None means only on a terminal.

    Raises:
        CorpusError: a setting that cannot be, a named source that is not there, a file that is not UTF-8, nothing
            usable in the sources, no document left to train on, another build in `out` or at work there, no segmenter,
            or a worker that died.
        OSError: `out` cannot be written.
    """
    if not 0 <= held_out < 1:
        raise CorpusError(f"expected held_out in [0, 1), a share of the documents such as 0.01, got {held_out!r}")
    for name, value in (("workers", workers), ("shard_characters", shard_characters)):
        if value < 1:
            raise CorpusError(f"expected {name} of at least 1, got {value!r}")
    words = Segmenter(segmenter)
    loaded = tokenizer if isinstance(tokenizer, NeZhaTokenizer) else NeZhaTokenizer.from_pretrained(tokenizer)
    folder = Path(out)
    _check_folder(folder)
    with _alone(folder):
        _remove(folder.glob(".*.tmp"))
        problems = Problems()
        files = find_sources(sources, problems, beside=folder)
        if not files:
            raise _nothing(sources, problems)
        refuse_other_encodings(files)
        with _tokenizer_files(loaded, folder) as (written, digest):
            plan: "dict[str, Any]" = {
                "format": FORMAT,
                "settings": {
                    "held_out": held_out,
                    "segmenter": {"name": words.name, "version": words.version},
                    "shard_characters": shard_characters,
                    "text_field": text_field,
                    "tokenizer": digest,
                },
                "sources": [{"name": file.name, "bytes": file.size} for file in files],
            }
            _agree(folder, plan, force)
            if not (folder / TOKENIZER).is_dir():
                os.replace(written, folder / TOKENIZER)
        build = _Build(folder, plan["settings"], words.name, problems)
        try:
            return build.run(files, workers, progress)
        except TextError:
            # Mended texts or other settings make another build, which finds the folder free. A finished corpus stays,
            # and so does the work on sources that may be readable again next time.
            if not (folder / MANIFEST).is_file() and "unreadable" not in problems.counts:
                for name in (PLAN, TOKENIZER, *(f"{split}-*" for split in SPLITS)):
                    _remove(folder.glob(name))
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CorpusError(
                    f"the disk of {folder} is full: make room and run the same command again, it goes on from there"
                ) from None
            raise
        finally:
            _remove(folder.glob(".*.tmp"))


# ---- the folder


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CorpusError(f"expected a folder to fill, {folder} is a file: name another --out")
    folder.mkdir(parents=True, exist_ok=True)
    others = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    if others and not (folder / PLAN).is_file():
        raise CorpusError(
            f"expected an empty folder or one with a corpus, {folder} holds {listing(folder)}: name another --out"
        )


@contextmanager
def _alone(folder: Path) -> "Iterator[None]":
    try:
        with filelock.FileLock(folder / _LOCK, timeout=0):
            yield
    except filelock.Timeout:
        raise CorpusError(
            f"another build is at work in {folder}: wait until it has ended, or name another --out"
        ) from None


@contextmanager
def _tokenizer_files(tokenizer: NeZhaTokenizer, folder: Path) -> "Iterator[tuple[Path, str]]":
    """The tokenizer's files in a temporary folder, and their digest."""
    temporary = Path(tempfile.mkdtemp(prefix=".tokenizer.", suffix=".tmp", dir=folder))
    try:
        temporary.chmod(folder.stat().st_mode & 0o777)
        tokenizer.save_pretrained(temporary)
        yield temporary, stored.tokenizer_digest(temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _agree(folder: Path, plan: "dict[str, Any]", force: bool) -> None:
    """Makes sure that what `folder` holds is this build's, if it holds anything."""
    path = folder / PLAN
    if path.is_file():
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            there = {}
        differences = _differences(there if isinstance(there, dict) else {}, plan)
        if not differences:
            return
        if not force:
            raise CorpusError(
                f"{folder} holds another build: {'; '.join(differences)}. Name another --out, or replace what is there "
                "with --force"
            )
        for name in (MANIFEST, *(f"{split}-*.json" for split in SPLITS)):
            _remove(folder.glob(name))
        _remove(folder.glob(TOKENIZER))
    _write_json(path, plan)


def _differences(there: "dict[str, Any]", here: "dict[str, Any]") -> "list[str]":
    """What tells one plan from another, in words."""
    found = [f"format {there.get('format')!r} there, {here['format']!r} now"] * (there.get("format") != here["format"])
    settings = there.get("settings") or {}
    for name, value in here["settings"].items():
        if settings.get(name) != value:
            found.append(f"{name} {settings.get(name)!r} there, {value!r} now")
    before, now = there.get("sources") or [], here["sources"]
    if before != now:
        parted = next((pair for pair in zip(before, now) if pair[0] != pair[1]), None)
        told = f", first {parted[0]} and {parted[1]}" if parted else ""
        found.append(f"{len(before)} sources there, {len(now)} now{told}")
    return found


def _remove(paths: "Iterator[Path]") -> None:
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write_json(path: Path, content: Any) -> None:
    with replaced(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1, sort_keys=True)
        file.write("\n")


def _write_array(path: Path, array: np.ndarray) -> None:
    """As np.save, but written by the file: NumPy's `tofile` fails without the system's reason, a full disk for one."""
    with replaced(path) as temporary, open(temporary, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def _nothing(sources: "Sequence[PathLike]", problems: Problems) -> TextError:
    told = "; ".join(
        f"{kind} {content['count']} ({', '.join(content['examples'])})"
        for kind, content in problems.described().items()
    )
    return TextError(
        f"expected text in {', '.join(map(str, sources)) or 'no source at all'}, found no document"
        f"{f' ({told})' if told else ''}: name .txt files with one sentence a line and blank lines between documents, "
        ".jsonl files with a text in each object (--text-field), or folders of them"
    )


# ---- the build


@dataclass
class _Block:
    """Documents of one shard, each its sentences joined by line ends."""

    name: str
    documents: "list[str]"
    characters: int
    digest: str


class _Gathering:
    """The block of a split that is being filled."""

    def __init__(self, split: str, most: int) -> None:
        self.split, self.most, self.number = split, most, 0
        self._empty()

    def _empty(self) -> None:
        self.documents: "list[str]" = []
        self.characters, self.digest = 0, sha256()

    def add(self, text: str, digest: bytes, characters: int) -> "Optional[_Block]":
        """The block that was full before this document, if it was."""
        full = self.take() if self.documents and self.characters + characters > self.most else None
        self.documents.append(text)
        self.characters += characters
        self.digest.update(digest)
        return full

    def take(self) -> "Optional[_Block]":
        if not self.documents:
            return None
        name = f"{self.split}-{self.number:05d}"
        block = _Block(name, self.documents, self.characters, self.digest.hexdigest())
        self.number += 1
        self._empty()
        return block


class _Build:
    def __init__(self, folder: Path, settings: "dict[str, Any]", segmenter: str, problems: Problems) -> None:
        self.folder, self.settings, self.segmenter, self.problems = folder, settings, segmenter, problems
        self.settings_digest = sha256(json.dumps([FORMAT, settings], sort_keys=True).encode()).hexdigest()
        self.shards: "list[dict[str, Any]]" = []
        self.built = self.kept = 0

    def run(self, files: "list[Source]", workers: int, progress: Optional[bool]) -> CorpusReport:
        disable = None if progress is None else not progress
        total = sum(file.size for file in files)
        bar = tqdm(total=total, unit="B", unit_scale=True, desc="corpus", disable=disable)
        pool = Workers(workers, _prepared, self.folder, self.segmenter, self.settings_digest)
        with bar, pool:
            for block in self._blocks(files, bar):
                there = self._finished(block)
                if there is not None:
                    self.kept += 1
                    self.shards.append(there)
                    continue
                (self.folder / MANIFEST).unlink(missing_ok=True)  # no reader may see old and new together
                self.built += 1
                self.shards += pool.do(block)
            self.shards += pool.finish()
        if not any(shard["documents"] for shard in self.shards):
            raise _nothing([file.name for file in files], self.problems)
        if not any(shard["documents"] for shard in self.shards if shard["name"].startswith("train-")):
            count = sum(shard["documents"] for shard in self.shards)
            raise TextError(
                f"all documents were held out ({count:,}, with --held-out {self.settings['held_out']:.4%}) and none is "
                "left to train on: lower --held-out (0 holds out none), or name more text"
            )
        return self._finish(files)

    def _blocks(self, files: "list[Source]", bar: Any) -> "Iterator[_Block]":
        most = self.settings["shard_characters"]
        gathering = {split: _Gathering(split, most) for split in SPLITS}
        limit = int(self.settings["held_out"] * 2.0**64)
        contents: "dict[str, str]" = {}
        for file in files:
            read = read_documents(
                file, self.problems, longest=most, text_field=self.settings["text_field"], advance=bar.update
            )
            for document in read:
                text = "\n".join(document)
                digest = sha256(text.encode()).digest()
                split = "held_out" if int.from_bytes(digest[:8], "big") < limit else "train"
                full = gathering[split].add(text, digest, len(text) - len(document) + 1)
                if full is not None:
                    yield full
            if file.bytes and contents.setdefault(file.sha256, file.name) != file.name:
                self.problems.add("same_content", f"{file.name}: as {contents[file.sha256]}")
        for one in gathering.values():
            last = one.take()
            if last is not None:
                yield last

    def _finished(self, block: _Block) -> "Optional[dict[str, Any]]":
        """What is known of a shard that was made before, of the same text and settings."""
        try:
            there = json.loads((self.folder / f"{block.name}.json").read_text(encoding="utf-8"))
            if (there["block"], there["settings"]) != (block.digest, self.settings_digest):
                return None
            for name, stated in there["files"].items():
                if (self.folder / name).stat().st_size != stated["bytes"]:
                    return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return dict(there)

    def _finish(self, files: "list[Source]") -> CorpusReport:
        """Removes what is of no shard, and writes the manifest."""
        shards = sorted(self.shards, key=lambda shard: str(shard["name"]))
        owned = {f"{shard['name']}.json" for shard in shards} | {name for shard in shards for name in shard["files"]}
        for split in SPLITS:
            _remove(path for path in self.folder.glob(f"{split}-*") if path.name not in owned)
        tokenizer = NeZhaTokenizer.from_pretrained(self.folder / TOKENIZER)
        splits = {split: _summed([one for one in shards if one["name"].startswith(f"{split}-")]) for split in SPLITS}
        problems = self.problems.described()
        manifest = {
            "format": FORMAT,
            "settings": self.settings,
            "tokenizer": {
                "digest": self.settings["tokenizer"],
                "vocab_size": len(tokenizer),
                "ids": {name: getattr(tokenizer, f"{name}_token_id") for name in ("pad", "unk", "cls", "sep", "mask")},
            },
            "sources": [
                {
                    "name": file.name, "kind": file.kind, "bytes": file.bytes, "sha256": file.sha256,
                    "documents": file.documents,
                }
                for file in files
            ],
            "problems": problems,
            "splits": splits,
        }  # fmt: skip
        path = self.folder / MANIFEST
        if not path.is_file() or _read(path) != manifest:
            _write_json(path, manifest)
        return CorpusReport(
            folder=str(self.folder),
            digest=stored.corpus_digest(manifest),
            sources=len(files),
            bytes=sum(file.bytes for file in files),
            splits={split: {name: part[name] for name in COUNTS} for split, part in splits.items()},
            problems=problems,
            built=self.built,
            kept=self.kept,
        )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _summed(shards: "list[dict[str, Any]]") -> "dict[str, Any]":
    counts = {name: sum(shard[name] for shard in shards) for name in COUNTS}
    kept = [shard for shard in shards if shard["documents"]]
    told = [{name: shard[name] for name in (*COUNTS, "name", "digest", "files")} for shard in kept]
    return {**counts, "shards": told}


# ---- in the workers


class _prepared:
    """Writes the shard of a block: what a worker process does.

    Args:
        folder: of the corpus, with the tokenizer's files in it.
        segmenter: its name.
        settings: their digest, for the shard's own .json.
    """

    def __init__(self, folder: Path, segmenter: str, settings: str) -> None:
        one_thread()
        tokenizer = NeZhaTokenizer.from_pretrained(folder / TOKENIZER)
        self.folder, self.settings = folder, settings
        self.unknown = tokenizer.unk_token_id
        self.words = WordTokenizer(tokenizer, Segmenter(segmenter))

    def __call__(self, block: _Block) -> "dict[str, Any]":
        tokens, starts, lengths, sizes = self._tokenised(block)
        kept = lengths > 0
        # Sentences of each document that are left, by the running count of those that are.
        ends = np.cumsum(sizes)
        running = np.concatenate([[0], np.cumsum(kept)])
        left = running[ends] - running[ends - sizes]
        arrays = {
            "tokens": tokens,
            "word_starts": starts,
            "sentences": np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64),
            "documents": np.concatenate([[0], np.cumsum(left[left > 0])]).astype(np.int64),
        }
        counts = {
            "documents": int((left > 0).sum()),
            "sentences": int(kept.sum()),
            "tokens": len(tokens),
            "words": int(starts.sum(dtype=np.int64)),
            "characters": block.characters,
            "unknown_tokens": int((tokens == self.unknown).sum()),
            "one_sentence_documents": int((left == 1).sum()),
            "empty_documents": int((left == 0).sum()),
            "empty_sentences": int((~kept).sum()),
        }
        files = {}
        for name in ARRAYS if counts["documents"] else ():
            path = self.folder / f"{block.name}.{name}.npy"
            _write_array(path, arrays[name])
            files[path.name] = {"bytes": path.stat().st_size, "sha256": stored.digest_of(path)}
        shard = {
            "name": block.name,
            "block": block.digest,
            "settings": self.settings,
            "digest": stored.shard_digest(files),
            "files": files,
            **counts,
        }
        _write_json(self.folder / f"{block.name}.json", shard)
        return shard

    def _tokenised(self, block: _Block) -> "tuple[np.ndarray, ...]":
        """Tokens, word starts, tokens of each sentence, sentences of each document."""
        parts, sizes = [], []
        batch: "list[str]" = []
        characters = 0
        for document in block.documents:
            sentences = document.split("\n")
            sizes.append(len(sentences))
            for sentence in sentences:
                batch.append(sentence)
                characters += len(sentence)
                if characters >= _BATCH:
                    parts.append(self.words(batch))
                    batch, characters = [], 0
        if batch:
            parts.append(self.words(batch))
        return (*(np.concatenate(one) for one in zip(*parts)), np.array(sizes, np.int64))
