"""Documents from text files, in a memory that does not grow with them.

What is wrong inside a file is counted and never fatal, but for one thing: a file in another encoding, of which nothing
would be left but characters that are unknown.

A text file holds one sentence a line, and blank lines between documents. A JSONL file (`.jsonl`, `.ndjson`) holds a
document a line, in a field of a JSON object; its text is split at line ends and behind 。！？；… with the closing
quotes and brackets that follow. Both may be compressed by gzip, which is told by the content. Text is UTF-8, or UTF-16
or UTF-32 with a byte order mark. The end of a file ends its last document.

A sentence is stripped of blanks and freed of NUL. Bytes that are no UTF-8 become U+FFFD, which a tokenizer drops. "\\r"
ends a sentence as "\\n" does, but never a document. A line of text longer than LONGEST_LINE characters is cut there, a
JSONL line longer than LONGEST_RECORD is left out, and a document longer than is asked for is cut between two sentences.
"""

import codecs
import io
import itertools
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Optional

from paddle_nezha._files import PathLike

from .errors import CorpusError, TextError

LONGEST_LINE = 1 << 20
LONGEST_RECORD = 1 << 24
TEXT, JSONL = "text", "jsonl"
_KINDS = {".txt": TEXT, ".text": TEXT, ".jsonl": JSONL, ".ndjson": JSONL}
_PIECE = 1 << 18
# A file with this many lines that are not UTF-8, and over half of those with text among them, is in another encoding.
_FOREIGN = 10
# What is read of every file to find those in another encoding before anything is built.
_SAMPLE_BYTES, _SAMPLE_LINES = 1 << 16, 1000
_GZIP = b"\x1f\x8b"
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_SURROGATES = re.compile("[\ud800-\udfff]+")
_LONE = "paddle_nezha.lone_surrogate"
_ENDS = "。！？；…"
_CLOSING = "”’」』）》】〉〕\"')\\]"
_SENTENCE = re.compile(f"[^{_ENDS}]*[{_ENDS}]+[{_CLOSING}]*|[^{_ENDS}]+")


def _as_lone_surrogate(error: UnicodeError) -> "tuple[str, int]":
    """What cannot be decoded becomes a lone surrogate, which no decoded text holds otherwise."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(_LONE, _as_lone_surrogate)

# What is counted of sources, with the words for it.
PROBLEMS = {
    "unreadable": "sources that could not be read, or not to their end",
    "duplicate_sources": "sources named twice, read once",
    "same_content": "sources with the content of an earlier one, read all the same",
    "folders_without_texts": f"folders without any {', '.join(_KINDS)} file",
    "other_files": "files of other kinds in folders, left out",
    "empty_files": "empty files",
    "damaged_gzip": "gzip files cut short or damaged, read up to there",
    "wide_files": "files in UTF-16 or UTF-32",
    "byte_order_marks": "files with a UTF-8 byte order mark",
    "windows_line_ends": "files with Windows line ends",
    "invalid_lines": "lines with bytes that are no text, which were replaced",
    "nul_lines": "lines with NUL, which was removed",
    "cut_lines": f"lines longer than {LONGEST_LINE:,} characters, cut",
    "long_records": f"JSONL lines longer than {LONGEST_RECORD:,} characters, left out",
    "not_json": "JSONL lines that are no JSON object, left out",
    "no_text": "JSONL lines without the text field, or with something else in it, left out",
    "empty_records": "JSONL lines with an empty text",
    "cut_documents": "documents longer than a shard, cut between sentences",
}
_EXAMPLES = 3
_NO_FILE = "not a regular file"  # a pipe could not be read a second time


class Problems:
    """How often each of PROBLEMS was met, and where first."""

    def __init__(self) -> None:
        self.counts: "dict[str, int]" = {}
        self.examples: "dict[str, list[str]]" = {}

    def add(self, kind: str, where: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(where)

    def described(self) -> "dict[str, Any]":
        """{kind: {"count": n, "examples": ["file:line", ...]}} for JSON, in the order of PROBLEMS."""
        return {
            kind: {"count": self.counts[kind], "examples": self.examples[kind]}
            for kind in PROBLEMS
            if kind in self.counts
        }


@dataclass
class Source:
    """A file of texts. `name` is the path as it was given; `bytes` and `sha256` are those of the file as it lies on the
    disk, known when it has been read."""

    name: str
    kind: str
    size: int
    bytes: int = 0
    sha256: str = ""
    documents: int = 0


def find_sources(
    given: "Iterable[PathLike]", problems: Problems, beside: "Optional[PathLike]" = None
) -> "list[Source]":
    """The files that `given` names, folders with all inside them in sorted order; each file once.

    A file named by itself is text whatever its ending, unless that is one of JSONL. Hidden files and folders inside
    folders are passed over, and so is the folder `beside`. What cannot be read inside a folder is counted.

    Raises:
        CorpusError: something named by itself cannot be read.
    """
    found: "dict[tuple[int, int], Source]" = {}
    paths = [os.fspath(name) for name in given]
    wrong = [f"{path}: {why}" for path in paths if (why := _why_unreadable(path))]
    if wrong:
        raise CorpusError(
            f"expected sources that can be read, got {_listed(wrong)}. Name files and folders that are there, or leave "
            "these out"
        )
    for path in paths:
        inside = list(_inside(path, problems, beside)) if os.path.isdir(path) else [path]
        if os.path.isdir(path) and not inside:
            problems.add("folders_without_texts", path)
        for file in inside:
            try:
                status = os.stat(file)
            except OSError as error:
                problems.add("unreadable", f"{file}: {error.strerror}")
                continue
            if not stat.S_ISREG(status.st_mode):
                problems.add("unreadable", f"{file}: {_NO_FILE}")
                continue
            identity = (status.st_dev, status.st_ino)
            if identity in found:
                problems.add("duplicate_sources", file)
            else:
                found[identity] = Source(file, kind_of(file) or TEXT, status.st_size)
    return list(found.values())


def _why_unreadable(path: str) -> "Optional[str]":
    """What the system says against reading a file or folder, if anything."""
    try:
        if os.path.isdir(path):
            os.scandir(path).close()
        elif not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            return _NO_FILE
        else:
            open(path, "rb").close()
    except OSError as error:
        return error.strerror
    return None


def _listed(told: "list[str]") -> str:
    more = f" and {len(told) - _EXAMPLES} more" if len(told) > _EXAMPLES else ""
    return f"{', '.join(told[:_EXAMPLES])}{more}"


def kind_of(path: str) -> "Optional[str]":
    """TEXT, JSONL or, for another ending, None."""
    plain = path[:-3] if path.lower().endswith(".gz") else path
    return _KINDS.get(os.path.splitext(plain)[1].lower())


def _inside(folder: str, problems: Problems, beside: "Optional[PathLike]") -> "Iterator[str]":
    passed = None if beside is None else Path(beside).resolve()

    def unreadable(error: OSError) -> None:
        problems.add("unreadable", f"{error.filename}: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and Path(place, name).resolve() != passed
        )
        for name in sorted(files):
            if name.startswith("."):
                continue
            file = os.path.join(place, name)
            if kind_of(name) is None:
                problems.add("other_files", file)
            else:
                yield file


def refuse_other_encodings(sources: "Iterable[Source]") -> None:
    """Looks into the beginning of every file, so that one in another encoding is told of before hours of work.

    Raises:
        TextError: such files, by name, and how to convert them.
    """
    found: "dict[str, list[str]]" = {}
    for source in sources:
        texts = _Texts(replace(source), Problems(), lambda count: None, most=_SAMPLE_BYTES)
        for _ in itertools.islice(texts.lines(LONGEST_LINE), _SAMPLE_LINES):
            pass
        remedy = texts.other_encoding()
        if remedy is not None:
            told = f"{source.name} ({texts.foreign:,} of its first {texts.filled:,} lines are not)"
            found.setdefault(remedy, []).append(told)
    if found:
        raise TextError("; ".join(f"expected UTF-8 in {_listed(names)}. {remedy}" for remedy, names in found.items()))


def read_documents(
    source: Source,
    problems: Problems,
    *,
    longest: int,
    text_field: str = "text",
    advance: "Callable[[int], Any]" = lambda count: None,
) -> "Iterator[list[str]]":
    """The documents of a file, each a list of sentences, never empty.

    Args:
        source: gets its `bytes`, `sha256` and `documents` when the last document has been taken.
        longest: characters of a document, beyond which it is cut between sentences.
        text_field: where a JSONL object has its text.
        advance: called with the count of bytes each time some were read.

    Raises:
        TextError: at its end, where most lines of the file are not UTF-8.
    """
    texts = _Texts(source, problems, advance)
    read = _records(texts, problems, text_field) if source.kind == JSONL else _paragraphs(texts, problems)
    characters, is_cut = 0, False
    document: "list[str]" = []
    for sentence in read:
        if sentence is None:  # the end of a document
            if document:
                source.documents += 1
                yield document
            characters, document, is_cut = 0, [], False
            continue
        if document and characters + len(sentence) > longest:
            if not is_cut:
                problems.add("cut_documents", texts.here)
            source.documents += 1
            yield document
            characters, document, is_cut = 0, [], True
        document.append(sentence)
        characters += len(sentence)
    texts.finish()


class _Texts:
    """Lines of a file, decompressed and decoded, with the number of the line it is at.

    `most` is for a look into its beginning: how many bytes of the file are read, None for all.
    """

    def __init__(
        self, source: Source, problems: Problems, advance: "Callable[[int], Any]", most: "Optional[int]" = None
    ) -> None:
        self.source, self.problems, self.advance, self.most = source, problems, advance, most
        self.digest = sha256()
        self.number = 1
        self.notes: "set[str]" = set()
        # Lines with anything in them, those that are not UTF-8, and of these the ones with NUL.
        self.filled = self.foreign = self.foreign_with_nul = 0

    @property
    def here(self) -> str:
        return f"{self.source.name}:{self.number}"

    def finish(self) -> None:
        """What is known of a file once all of it was read."""
        self.source.sha256 = self.digest.hexdigest()
        if not self.source.bytes and "unreadable" not in self.notes:
            self._note("empty_files")
        remedy = self.other_encoding()
        if remedy is not None:
            told = f"{self.source.name} ({self.foreign:,} of its {self.filled:,} lines are not)"
            raise TextError(f"expected UTF-8 in {told}. {remedy}")

    def other_encoding(self) -> "Optional[str]":
        """How to convert the file, where the lines read so far are in another encoding."""
        if "wide_files" in self.notes or self.foreign < _FOREIGN or self.foreign <= self.filled / 2:
            return None
        if self.foreign_with_nul > self.foreign / 2:
            return (
                "It seems to be UTF-16 without a byte order mark. Convert it: iconv -f UTF-16LE -t UTF-8 FILE > NEW "
                "(or -f UTF-16BE, if no text comes of that)"
            )
        return "If it is GBK or GB18030, convert it: iconv -f GB18030 -t UTF-8 FILE > NEW"

    def _note(self, kind: str, told: str = "") -> None:
        """Counts something of the file as a whole, once."""
        if kind not in self.notes:
            self.notes.add(kind)
            self.problems.add(kind, f"{self.source.name}{told}")

    def lines(self, longest: int) -> "Iterator[tuple[str, bool]]":
        """Lines without their ends, in parts of at most `longest` characters; True with the last part of a line.

        What is no text is told of and made good here.
        """
        held: "list[str]" = []  # the beginning of a line, joined once its end or too much of it is there
        size = 0
        for piece in self._decoded():
            held.append(piece)
            size += len(piece)
            if "\n" not in piece and size <= longest:
                continue
            text = "".join(held)
            if "\r\n" in text:
                self._note("windows_line_ends")
            lines = text.split("\n")
            rest = lines.pop()
            for line in lines:
                yield from self._parts(line, longest, True)
                self.number += 1
            if len(rest) > longest:
                whole = (len(rest) - 1) // longest * longest
                yield from self._parts(rest[:whole], longest, False)
                rest = rest[whole:]
            held, size = [rest], len(rest)
        rest = "".join(held)
        if rest:
            yield from self._parts(rest, longest, True)

    def _parts(self, line: str, longest: int, ends: bool) -> "Iterator[tuple[str, bool]]":
        last = max(len(line) - 1, 0) // longest * longest
        for first in range(0, last + 1, longest):
            yield self._cared(line[first : first + longest]), ends and first == last

    def _cared(self, line: str) -> str:
        if not line or line.isspace():
            return line
        self.filled += 1
        nuls = line.count("\0")
        is_foreign = nuls * 3 >= len(
            line
        )  # half of ASCII in UTF-16 is NUL; where Chinese has NUL, it has bad bytes too
        if nuls:
            self.problems.add("nul_lines", self.here)
            line = line.replace("\0", "")
        if not line.isascii() and _SURROGATES.search(line):
            self.problems.add("invalid_lines", self.here)
            line = _SURROGATES.sub("\ufffd", line)
            is_foreign = True
        self.foreign += is_foreign
        self.foreign_with_nul += is_foreign and nuls > 0
        return line

    def _decoded(self) -> "Iterator[str]":
        pieces = self._plain()
        start = b""
        for piece in pieces:
            start += piece
            if len(start) >= 4:
                break
        mark, encoding = next(((mark, name) for mark, name in _MARKS if start.startswith(mark)), (b"", "utf-8"))
        if encoding != "utf-8":
            self._note("wide_files")
        elif mark:
            self._note("byte_order_marks")
        decoder = codecs.getincrementaldecoder(encoding)(_LONE)
        yield decoder.decode(start[len(mark) :])
        for piece in pieces:
            yield decoder.decode(piece)
        if self.most is None:  # else it ends where it was cut
            yield decoder.decode(b"", True)

    def _plain(self) -> "Iterator[bytes]":
        pieces = self._raw()
        first = next(pieces, b"")
        if not first.startswith(_GZIP):
            yield first
            yield from pieces
            return
        try:
            yield from _inflated(first, pieces)
        except (zlib.error, EOFError) as error:
            self._note("damaged_gzip", f": {error}")
            for _ in pieces:  # to the end, for the digest
                pass

    def _raw(self) -> "Iterator[bytes]":
        try:
            with io.FileIO(self.source.name) as file:
                while piece := file.read(_PIECE if self.most is None else min(_PIECE, self.most - self.source.bytes)):
                    self.digest.update(piece)
                    self.source.bytes += len(piece)
                    self.advance(len(piece))
                    yield piece
        except OSError as error:
            self._note("unreadable", f": {error.strerror}")


def _inflated(first: bytes, pieces: "Iterator[bytes]") -> "Iterator[bytes]":
    """The content of a gzip file of one or more members, some _PIECE bytes at a time, however well compressed."""
    member: Any = None
    left: bytes = first
    while left or (left := next(pieces, b"")):
        if member is None:
            left = left.lstrip(b"\0")  # padding between members, as tape archives have it
            if not left:
                continue
            member = zlib.decompressobj(31)
        yield member.decompress(left, _PIECE)
        left = member.unused_data if member.eof else member.unconsumed_tail
        member = None if member.eof else member
    if member is not None:
        raise EOFError("it ends before its end mark")


def _paragraphs(texts: _Texts, problems: Problems) -> "Iterator[Optional[str]]":
    """Sentences of a text file, None behind each document."""
    begins = True
    for line, ends in texts.lines(LONGEST_LINE):
        if begins and not ends:
            problems.add("cut_lines", texts.here)
        is_blank = True
        for part in line.split("\r"):
            sentence = part.strip()
            if sentence:
                is_blank = False
                yield sentence
        if begins and ends and is_blank:
            yield None
        begins = ends
    yield None


def _records(texts: _Texts, problems: Problems, text_field: str) -> "Iterator[Optional[str]]":
    """Sentences of a JSONL file, None behind each document."""
    begins = True
    for line, ends in texts.lines(LONGEST_RECORD):
        if begins and not ends:
            problems.add("long_records", texts.here)
        if begins and ends and line and not line.isspace():
            yield from _sentences_of(line, texts, problems, text_field)
            yield None
        begins = ends


def _sentences_of(line: str, texts: _Texts, problems: Problems, text_field: str) -> "Iterator[str]":
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        problems.add("not_json", texts.here)
        return
    text = record.get(text_field)
    if not isinstance(text, str):
        problems.add("no_text", texts.here)
        return
    if "\0" in text:
        problems.add("nul_lines", texts.here)
    if _SURROGATES.search(text):
        problems.add("invalid_lines", texts.here)
    sentences = split_sentences(_SURROGATES.sub("\ufffd", text.replace("\0", "")))
    if not sentences:
        problems.add("empty_records", texts.here)
    yield from sentences


def split_sentences(text: str) -> "list[str]":
    """The sentences of a text: split at line ends and behind 。！？；… with the closing quotes and brackets there.

    A run of marks ("？！", "……") ends one sentence. An English sentence ends with its line: a full stop may stand in a
    number or a name.
    """
    lines = re.split("[\n\r]+", text)
    return [sentence for line in lines for part in _SENTENCE.findall(line) if (sentence := part.strip())]
