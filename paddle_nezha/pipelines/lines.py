"""Texts of a file, one a line, with an account of what was odd about them. Needs no Paddle.

A file is plain text or JSONL, as it is or gzipped (told by its first bytes), or "-" for what is piped in. Lines end in
"\\n" or "\\r\\n"; the last one may lack it. Every line is one text, an empty one too: what is computed of line n stands
at place n. Bytes that are not UTF-8 become U+FFFD, which the tokenizer drops, as it drops NUL.
"""

import codecs
import gzip
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Callable, Optional

from paddle_nezha._files import PathLike, name_file

# Characters of a text beyond these are left out, so that a file without line ends does not fill the memory.
LONGEST_TEXT = 1 << 20
_LONGEST_LINE = 4 * LONGEST_TEXT  # bytes: UTF-8 takes at most 4 for a character
_LONGEST_OBJECT = 4 * _LONGEST_LINE
_SHOWN = 5  # line numbers in a message
# A file with this many lines that are not UTF-8, and over half of its texts among them, is in another encoding.
_FOREIGN = 10


@dataclass(frozen=True)
class Line:
    """One text of a file; `number` counts from 1."""

    number: int
    text: str


@dataclass
class Account:
    """What was read: how many lines, and in which of them something was odd."""

    lines: int = 0
    digest: str = ""  # sha256 of all bytes, unzipped; once everything is read
    _odd: "dict[str, list[int]]" = field(default_factory=dict)  # its number, and the first lines

    def note(self, what: str, number: int) -> None:
        found = self._odd.setdefault(what, [0])
        found[0] += 1
        if len(found) <= _SHOWN:
            found.append(number)

    def count(self, what: str) -> int:
        return self._odd.get(what, [0])[0]

    def remarks(self) -> "list[str]":
        """A sentence for each thing that was odd."""
        told = []
        for what, (count, *first) in self._odd.items():
            more = ", …" if count > len(first) else ""
            told.append(f"{what}: {count:,} of {self.lines:,} lines ({', '.join(map(str, first))}{more})")
        return told


EMPTY, NOT_UTF8, NUL, TOO_LONG = "empty", "bytes that are not UTF-8, dropped", "NUL characters, dropped", "cut"
_CUT = f"longer than {LONGEST_TEXT:,} characters, the rest left out"


class Source:
    """A file of texts, to be read as often as need be.

    Args:
        path: the file; "-" is what is piped in, which can be read once, or again while it is `spooled`.
        key: under which a JSONL object holds its text. None reads a file whose name ends in .jsonl or .jsonl.gz as
            JSONL with the key "text", and any other as plain text.
    """

    def __init__(self, path: PathLike, key: Optional[str] = None) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self._path = None if str(path) == "-" else Path(path)
        named = str(path).lower().endswith((".jsonl", ".jsonl.gz"))
        self.key = "text" if key is None and named else key
        self._spooled: Optional[IO[bytes]] = None

    @property
    def reading(self) -> "dict[str, Optional[str]]":
        """What decides, beside its bytes, which texts it holds."""
        return {"key": self.key}

    @property
    def files(self) -> "list[Any]":
        return numbers_of(sys.stdin) if self._path is None else [self._path]

    @contextmanager
    def spooled(self, folder: PathLike) -> Iterator[None]:
        """Within the block what is piped in can be read more than once: it is kept on the disk of `folder`, in a file
        without a name."""
        if self._path is not None:
            yield
            return
        with piped_in(folder) as self._spooled:
            yield
        self._spooled = None

    def read(self, account: Account) -> Iterator[Line]:
        """Every line from the first on; what is odd about them goes into `account`.

        Raises:
            ValueError: UTF-16; a gzip file that is damaged; a line that is no JSON object with a text. File and line
                are named.
        """
        with self._opened() as file:
            digest = sha256()
            try:
                for number, (raw, whole) in enumerate(_raw_lines(file, digest.update, self._limit), 1):
                    account.lines = number
                    yield Line(number, self._text(raw, whole, number, account))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(
                    f"{self.name}, after line {account.lines}: the gzip data is damaged ({error}). Fetch or pack the "
                    "file again."
                ) from None
            account.digest = digest.hexdigest()

    def survey(self, check: "Optional[Callable[[Line], None]]" = None) -> Account:
        """Reads everything once, before anything is computed.

        Args:
            check: is given each line, and raises ValueError at one that cannot be used.

        Raises:
            ValueError: as `read` and `check`; a pipe, which cannot be read again; most lines are not UTF-8.
        """
        if self._path is not None and self._path.exists() and not (self._path.is_file() or self._path.is_dir()):
            raise ValueError(
                f"{self.name}: expected a file that can be read more than once, got no regular file. Name a file, or "
                "read it from standard input (-)."
            )
        account = Account()
        for line in self.read(account):
            if check is not None:
                check(line)
        foreign, texts = account.count(NOT_UTF8), account.lines - account.count(EMPTY)
        if foreign >= _FOREIGN and foreign > texts / 2:
            raise ValueError(
                f"{self.name} is not UTF-8 ({foreign:,} of {texts:,} lines). If it is GBK or GB18030, convert it: "
                "iconv -f GB18030 -t UTF-8 FILE > NEW"
            )
        return account

    @property
    def _limit(self) -> int:
        return _LONGEST_LINE if self.key is None else _LONGEST_OBJECT

    @contextmanager
    def _opened(self) -> "Iterator[IO[bytes]]":
        if self._path is not None:
            if self._path.is_dir():
                raise IsADirectoryError(f"{self.name}: expected a file of texts, got a folder. Name a file.")
            if not self._path.exists():
                raise FileNotFoundError(f"{self.name}: no such file. Correct the path.")
            with open(self._path, "rb") as file:
                yield _unzipped(file)
        elif self._spooled is not None:
            self._spooled.seek(0)
            yield _unzipped(self._spooled)
        else:
            yield _unzipped(sys.stdin.buffer)

    def _text(self, raw: bytes, whole: bool, number: int, account: Account) -> str:
        if number == 1:
            if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ValueError(f"{self.name} is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW")
            raw = raw.removeprefix(codecs.BOM_UTF8)
        # Where a line was cut, so may its last character have been: that is no bad byte.
        try:
            text = codecs.getincrementaldecoder("utf-8")("strict").decode(raw, final=whole)
        except UnicodeDecodeError:
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=whole)
            account.note(NOT_UTF8, number)
        if self.key is not None:
            text, whole = self._of_object(text, whole, number), True
        if len(text) > LONGEST_TEXT or not whole:
            account.note(_CUT, number)
            text = text[:LONGEST_TEXT]
        if "\0" in text:
            account.note(NUL, number)
        if not text.strip():
            account.note(EMPTY, number)
        return text

    def _of_object(self, text: str, whole: bool, number: int) -> str:
        where = f"{self.name}, line {number}"
        wanted = f'expected a JSON object with a text under "{self.key}"'
        if not whole:
            raise ValueError(f"{where}: {wanted}, got a line of more than {_LONGEST_OBJECT:,} bytes. Split it.")
        try:
            content: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            got = "an empty line" if not text.strip() else f"no JSON ({error})"
            raise ValueError(f"{where}: {wanted}, got {got}. Remove or mend the line.") from None
        if not isinstance(content, dict):
            raise ValueError(f"{where}: {wanted}, got {_kind(content)}. Mend the line.")
        found = content.get(self.key)
        if not isinstance(found, str):
            got = f"{_kind(found)} there" if self.key in content else f"the keys {', '.join(content) or '(none)'}"
            raise ValueError(f"{where}: {wanted}, got {got}. Name the key that holds the text, or mend the line.")
        return found


def given_lines(texts: Any) -> "list[Line]":
    """A list of texts that a caller hands over, as lines.

    Raises:
        ValueError: it is something else, or holds something else, named by its number from 1.
    """
    if isinstance(texts, (bytes, dict)) or not isinstance(texts, Iterable):
        raise ValueError(f"expected a text or a list of texts, got {repr(texts)[:60]}. Hand it over so.")
    lines = [Line(number, text) for number, text in enumerate(texts, 1)]
    for line in lines:
        if not isinstance(line.text, str):
            raise ValueError(f"text {line.number}: expected a text, got {repr(line.text)[:60]}. Hand it over as a str.")
    return lines


def numbers_of(stream: Any) -> "list[int]":
    """The number of an open file, for `os.stat`; none of one that is no file of the system."""
    with suppress(OSError, ValueError, AttributeError):  # io.UnsupportedOperation is both of the first
        return [stream.fileno()]
    return []


@contextmanager
def piped_in(folder: PathLike) -> "Iterator[IO[bytes]]":
    """Within the block what is piped in stands in a file without a name, on the disk of `folder`.

    Raises:
        OSError: the disk is full; the folder is named.
    """
    file = tempfile.TemporaryFile(dir=folder)
    try:
        try:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            file.flush()
        except OSError as error:
            name_file(error, folder)
            raise
        yield file
    finally:
        with suppress(OSError):  # a full disk was told above
            file.close()


_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


def _kind(content: Any) -> str:
    return _KINDS.get(type(content), "a number")


def _unzipped(file: "IO[bytes]") -> Any:
    peek: Any = getattr(file, "peek", None)
    if peek is not None:
        start = peek(2)[:2]
    else:  # a temporary file may be one that cannot
        start = file.read(2)
        file.seek(0)
    return gzip.GzipFile(fileobj=file) if start == b"\x1f\x8b" else file


def _raw_lines(file: "IO[bytes]", see: "Callable[[bytes], None]", limit: int) -> "Iterator[tuple[bytes, bool]]":
    """Each line's bytes without its end, and whether they are all of it: of a longer one the first `limit` come."""
    while True:
        line = file.readline(limit)
        if not line:
            return
        see(line)
        whole = True
        last = line
        while not last.endswith(b"\n"):
            last = file.readline(limit)
            if not last:
                break
            see(last)
            whole = whole and last in (b"\n", b"\r\n")
        yield (line.removesuffix(b"\n").removesuffix(b"\r") if whole else line), whole
