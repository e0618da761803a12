"""Keeps evaluation texts out of the training text.

Sentences are compared as `cleaning.key` gives them: letters and digits alone, NFKC, lower case. The evaluation sets
may not be passed on, so the recipe carries digests of the sentences of ours that were found in them: anyone can build
the same text, and whoever has the sets can check it.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from . import cleaning

LEAKED = Path(__file__).with_name("leaked.txt")
LEAST = 12  # characters of a key: shorter sentences are what anyone says
_EVALUATION = ("dev", "test", "trial")


def digest(key: str) -> str:
    """The first 64 bits of the key's sha256, as 16 hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8")).hexdigest()[:16]


def known() -> "frozenset[str]":
    """Digests of the sentences this recipe leaves out."""
    lines = LEAKED.read_text(encoding="ascii").split("\n")
    return frozenset(line for line in lines if line and not line.startswith("#"))


class Leaks(NamedTuple):
    """What was found: keys of our sentences for each evaluation set, and how many keys of it were compared."""

    found: "dict[str, frozenset[str]]"
    compared: "dict[str, int]"

    @property
    def digests(self) -> "list[str]":
        """Digests of all of them, sorted."""
        return sorted({digest(key) for keys in self.found.values() for key in keys})


def find(texts: "Iterable[Path]", data: Path) -> Leaks:
    """Sentences of ours that are in an evaluation set, or have one of its sentences in them.

    Args:
        texts: files of one sentence a line.
        data: a folder with a folder for each data set; files named dev*, test* and trial* in it are read (TSV with a
            header, JSON, JSON lines, or a character and its tag a line; also with .gz).
    """
    ours = {key for path in texts for key in map(cleaning.key, path.read_text(encoding="utf-8").split("\n"))}
    ours = {key for key in ours if len(key) >= LEAST}
    found, compared = {}, {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        theirs = _Theirs(text for path in sorted(folder.iterdir()) for text in evaluation_texts(path))
        if theirs.whole:
            found[folder.name] = frozenset(key for key in ours if theirs.share(key))
            compared[folder.name] = len(theirs.sentences)
    return Leaks(found, compared)


class _Theirs:
    """The keys of an evaluation set's texts and sentences, looked up by their runs of `LEAST` characters."""

    def __init__(self, texts: "Iterable[str]") -> None:
        self.whole: "set[str]" = set()
        self.sentences: "set[str]" = set()
        for text in texts:
            self.whole.add(cleaning.key(text))
            self.sentences.update(map(cleaning.key, (text, *cleaning.sentences(text))))
        self.sentences = {key for key in self.sentences if len(key) >= LEAST}
        self._beginning: "dict[str, list[str]]" = {}
        for key in self.sentences:
            self._beginning.setdefault(key[:LEAST], []).append(key)
        self._runs = {key[at : at + LEAST] for key in self.whole for at in range(len(key) - LEAST + 1)}
        self._joined = "\n".join(sorted(self.whole))

    def share(self, key: str) -> bool:
        """Whether the key is in one of the texts, or one of the sentences is in the key."""
        if key[:LEAST] in self._runs and key[-LEAST:] in self._runs and key in self._joined:
            return True
        runs = (key[at : at + LEAST] for at in range(len(key) - LEAST + 1))
        return any(sentence in key for run in runs for sentence in self._beginning.get(run, ()))


def evaluation_texts(path: Path) -> "Iterator[str]":
    """Every text field of an evaluation file; nothing of other files."""
    if not path.name.startswith(_EVALUATION):
        return
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    kind = path.name[: -len(".gz")] if path.suffix == ".gz" else path.name
    if kind.endswith(".tsv"):
        yield from (field for line in text.split("\n")[1:] for field in line.split("\t"))
    elif kind.endswith(".json"):
        try:
            yield from _strings(json.loads(text))
        except json.JSONDecodeError:  # an object a line
            yield from (string for line in text.split("\n") if line for string in _strings(json.loads(line)))
    else:
        for sentence in text.split("\n\n"):
            yield "".join(line.split(" ")[0] for line in sentence.split("\n"))


def _strings(value: "Any") -> "Iterator[str]":
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def write(digests: "list[str]", path: Path = LEAKED) -> None:
    """Writes the recipe's list."""
    head = "# The first 64 bits of sha256 of each sentence left out (weights/tiny/leaks.py)\n"
    path.write_text(head + "".join(f"{line}\n" for line in digests), encoding="ascii", newline="\n")
