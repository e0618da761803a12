"""A name becomes a folder that `from_pretrained` opens."""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from filelock import FileLock, Timeout

from paddle_nezha.checkpoint.errors import CheckpointError, PathLike
from paddle_nezha.config import NeZhaConfig

from . import contents, places
from .download import Download
from .errors import FetchError
from .partial import START_LENGTH, require_room
from .pins import check_pin, is_fresh, pin, pin_path, read_pin
from .registry import CONFIG_NAME, ENTRIES, Entry, RemoteFile, published

# Looks into a weight file before it takes its place; raises CheckpointError to refuse it.
Check = Callable[[Entry, Path], None]

LOCK_NAME = ".fetch.lock"
_PIECE = 1 << 20
_PATIENT = 2.0  # seconds of waiting for another process before a log line says so

logger = logging.getLogger("paddle_nezha")


def fetch(
    name: str,
    *,
    to: Optional[PathLike] = None,
    cache_dir: Optional[PathLike] = None,
    mirror: Optional[str] = None,
    offline: Optional[bool] = None,
    progress: Optional[bool] = None,
    check: Optional[Check] = None,
    weights: bool = True,
) -> Path:
    """The folder of a published checkpoint: config, vocabulary and weights, each whole and checked.

    What is there already is used without a connection. Else PaddleNLP's cache is looked into, then the network.
    A checksum that was published decides; without one, the file's sha256 is recorded when it is first used, beside it
    and in the cache, and every later copy is held to it.

    Args:
        name: a name of `registry.ENTRIES`, such as "nezha-base-chinese" or "sijunhe/nezha-cn-base".
        to: the folder to fill, in place of one in the cache.
        cache_dir: the cache, in place of PADDLE_NEZHA_HOME, in place of the platform's cache folder.
        mirror: an address under which the source's files stand, in place of PADDLE_NEZHA_MIRROR.
        offline: open no connection, in place of PADDLE_NEZHA_OFFLINE.
        progress: a bar on stderr; None means only on a terminal.
        check: called with the entry and the path of new weights before they are trusted; raises to refuse them.
        weights: False leaves these out, 400 MB and more, and they come when they are asked for.

    Returns:
        The folder.

    Raises:
        ValueError: no such name.
        FetchError: a file is missing and did not come, or came wrong; the message says which and what to do.
        CheckpointError: a file that is there is not the one that was published or first used.
    """
    return _Fetch(published(name), to, cache_dir, mirror, check, weights).run(places.is_offline(offline), progress)


@dataclass(frozen=True)
class Status:
    """A published checkpoint, and what of it is here.

    `size` is that of all its files in bytes, None unless known or here; `sha256` that of the weights, as published.
    `folder` is where it is cached, None unless whole. `verified` says how its files are known to be right: "sha256" as
    published, "pinned" as first used, None when they are not here or were changed or not yet used.
    """

    name: str
    address: str
    size: Optional[int]
    sha256: Optional[str]
    parameters: int
    licence: str
    provenance: str
    folder: Optional[Path]
    verified: Optional[str]


def list_entries(cache_dir: Optional[PathLike] = None) -> "list[Status]":
    """Every published checkpoint. Opens no connection and reads no weights: pins are believed."""
    return [_status(entry, places.cache_home(cache_dir) / entry.name) for entry in ENTRIES.values()]


def _status(entry: Entry, folder: Path) -> Status:
    paths = [folder / file.name for file in entry.files]
    sizes = [path.stat().st_size if path.is_file() else file.size for path, file in zip(paths, entry.files)]
    is_here = all(path.is_file() for path in paths)
    return Status(
        name=entry.name,
        address=entry.address(entry.weights),
        size=None if None in sizes else sum(filter(None, sizes)),
        sha256=entry.weights.sha256,
        parameters=entry.parameters,
        licence=entry.licence,
        provenance=entry.provenance,
        folder=folder if is_here else None,
        verified=_how_verified(entry, folder) if is_here else None,
    )


def _how_verified(entry: Entry, folder: Path) -> Optional[str]:
    for file in entry.files:
        path = folder / file.name
        try:
            recorded = read_pin(path)
        except CheckpointError:
            return None
        if not recorded or not is_fresh(path) or file.sha256 not in (None, recorded):
            return None
    return "sha256" if entry.weights.sha256 else "pinned"


class _Fetch:
    def __init__(
        self,
        entry: Entry,
        to: Optional[PathLike],
        cache_dir: Optional[PathLike],
        mirror: Optional[str],
        check: Optional[Check],
        weights: bool,
    ) -> None:
        self.entry, self.mirror = entry, mirror
        self.files = [file for file in entry.files if weights or not file.is_weights]
        self.check: Check = check or (lambda entry, path: None)
        self.shelf = places.cache_home(cache_dir) / entry.name
        self.folder = Path(to).expanduser() if to else self.shelf

    def run(self, offline: bool, progress: Optional[bool]) -> Path:
        lacking = self._lacking()
        if not lacking and not self._lacks_config():
            return self.folder
        to_download = [file for file in lacking if not self._copies(file)]
        if to_download and offline:
            raise FetchError(f"offline, and {self.entry.name} is not here. {self._by_hand(to_download)}")
        with _locked(self.folder):
            for file in self._lacking():  # another process may have been at work meanwhile
                if not self._copy(file):
                    if offline:
                        raise FetchError(
                            f"offline, and no copy of {file.name} can be used. {self._by_hand(self._absent())}"
                        )
                    self._download(file, progress)
            if self._lacks_config():
                NeZhaConfig.from_dict(dict(self.entry.config or {})).save_pretrained(self.folder)
        return self.folder

    # ---- what is here

    def _lacking(self) -> "list[RemoteFile]":
        """The files that are not in the folder; those that are there are held to what they must be."""
        lacking = []
        for file in self.files:
            if (self.folder / file.name).is_file():
                self._hold(file)
            else:
                lacking.append(file)
        return lacking

    def _lacks_config(self) -> bool:
        return self.entry.config is not None and not (self.folder / CONFIG_NAME).is_file()

    def _hold(self, file: RemoteFile) -> None:
        path = self.folder / file.name
        if read_pin(path) is None:  # placed here by hand
            wrong = self._wrong_with(file, path)
            if wrong:
                raise CheckpointError(
                    f"{path} is not {file.name} of {self.entry.name}: {wrong}. Delete it or replace it."
                )
            self._look_into(file, path)
            expected, _ = self._expected(file)
        else:
            expected = file.sha256
        check_pin(path, expected=expected, thorough=False)

    def _expected(self, file: RemoteFile) -> "tuple[Optional[str], str]":
        """The sha256 that a file must have, and who says so: the publisher, or the record of its first use."""
        if file.sha256:
            return file.sha256, "as published"
        for path in (self.folder / file.name, self.shelf / file.name):
            recorded = read_pin(path)
            if recorded:
                return recorded, f"as first used; delete {pin_path(path)} to accept another"
        return None, ""

    def _wrong_with(self, file: RemoteFile, path: Path) -> Optional[str]:
        with open(path, "rb") as content:
            what = contents.impostor(file, content.read(START_LENGTH))
        return f"it is {what}" if what else contents.incomplete(self.entry, file, path)

    def _look_into(self, file: RemoteFile, path: Path) -> None:
        if file.is_weights:
            self.check(self.entry, path)

    # ---- what comes

    def _copies(self, file: RemoteFile) -> "list[Path]":
        """Where on this machine the file may stand already."""
        ours = [self.shelf / file.name] if self.folder != self.shelf else []
        return [path for path in ours if path.is_file()] + places.paddlenlp_copies(self.entry, file)

    def _copy(self, file: RemoteFile) -> bool:
        """Whether a copy on this machine was good, and now stands in the folder too."""
        part = self.folder / f"{file.name}.copy.part"
        for source in self._copies(file):
            try:
                wrong = self._wrong_with(file, source)
                if wrong:
                    raise CheckpointError(wrong)
                digest = _copied(source, part)
                expected, origin = self._expected(file)
                if expected not in (None, digest):
                    raise CheckpointError(f"expected sha256 {expected} ({origin}), found {digest}")
                self._look_into(file, part)
            except (CheckpointError, OSError) as error:
                part.unlink(missing_ok=True)
                logger.warning("%s is not used in place of a download: %s", source, error)
                continue
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            logger.info("%s is used in place of a download", source)
            self._settle(file, part, digest)
            return True
        return False

    def _download(self, file: RemoteFile, progress: Optional[bool]) -> None:
        part = self.folder / f"{file.name}.part"
        expected, origin = self._expected(file)
        try:
            download = Download(
                self.entry.address(file, self.mirror),
                part,
                sha256=expected,
                size=file.size,
                origin=origin,
                impostor=lambda start: contents.impostor(file, start),
                progress=progress,
            )
            digest = download.run()
            wrong = contents.incomplete(self.entry, file, part)
            if wrong:
                download.partial.discard()
                raise FetchError(f"{download.url} is not {file.name} of {self.entry.name}: {wrong}. Nothing was kept.")
        except FetchError as error:
            raise FetchError(f"{error} {self._by_hand(self._absent())}") from None
        try:
            self._look_into(file, part)
        except CheckpointError:
            download.partial.discard()
            raise
        self._settle(file, part, digest)
        download.partial.discard()

    def _settle(self, file: RemoteFile, part: Path, digest: str) -> None:
        """The last step of a file that was checked: on the disk, then at its place, then recorded."""
        path = self.folder / file.name
        _sync(part)
        os.replace(part, path)
        _sync(self.folder)
        pin(path, digest)
        if self.folder != self.shelf and read_pin(self.shelf / file.name) is None:
            with contextlib.suppress(OSError):  # where there is no cache, the record beside the file has to do
                self.shelf.mkdir(parents=True, exist_ok=True)
                pin(self.shelf / file.name, digest)
        if file.sha256 is None:
            logger.info("%s: no checksum was published; sha256 %s is recorded in %s", path, digest, pin_path(path).name)

    def _absent(self) -> "list[RemoteFile]":
        return [file for file in self.files if not (self.folder / file.name).is_file()]

    def _by_hand(self, files: "list[RemoteFile]") -> str:
        lines = [
            f"\n  {self.folder / file.name}  from  {self.entry.address(file, self.mirror)}{_facts(file)}"
            for file in files
        ]
        return f"To place it by hand, put{''.join(lines)}"


def _facts(file: RemoteFile) -> str:
    facts = [f"{file.size:,} bytes"] if file.size else []
    facts += [f"sha256 {file.sha256}"] if file.sha256 else []
    return f"  ({', '.join(facts)})" if facts else ""


def _copied(source: Path, part: Path) -> str:
    """Copies a file and gives the sha256 of what was copied."""
    require_room(part.parent, source.stat().st_size)
    digest = hashlib.sha256()
    with open(source, "rb") as content, open(part, "wb") as target:
        while piece := content.read(_PIECE):
            target.write(piece)
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time works in a folder; the system frees the lock of one that was killed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(folder / LOCK_NAME))
        try:
            lock.acquire(timeout=_PATIENT)
        except Timeout:
            logger.info("waiting for another process that is fetching into %s", folder)
            lock.acquire()
    except OSError as error:
        raise FetchError(
            f"{folder} cannot be written ({error.strerror or error}): choose another place with PADDLE_NEZHA_HOME, "
            "cache_dir= or to=."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folder
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
