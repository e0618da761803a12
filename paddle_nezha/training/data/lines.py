"""The lines of a labelled file: UTF-8, as it is or gzipped; what is anything else is refused by its name.

Lines end in "\\n" or "\\r\\n", and the last one may lack its end. Nothing else ends a line: U+2028 and U+0085 stand
inside texts. A byte order mark is passed over.
"""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, Any, Optional

from paddle_nezha._files import PathLike, listing
from paddle_nezha.training.data.records import DataError

LONGEST_LINE = 1 << 28  # bytes; SQuAD is one line of 30 MB, but a file without line ends must not fill the memory
_SAMPLED = 2000  # lines, and
_SAMPLED_CHARACTERS = 1 << 20
_JUDGED = 1 << 16  # bytes that tell an encoding
_GZIP = b"\x1f\x8b"
_FORMATS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"PAR1": "a Parquet file",
}
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_ENCODINGS = ("GB18030", "BIG5", "UTF-16LE", "UTF-16BE")
# Chinese text in the right encoding consists of these to a third or more; in a wrong one they hardly occur.
_FREQUENT = frozenset(
    "的一是不了在人有我他这這个個中大来來上国國到说說们們为為子和你地出道也时時年得就那要下以生会會自着著去之过過家学學对對可她里裡后後"
    "小么麼心多天而能好都然没沒日于於起还還发發成事只作当當想看文无無开開手用主行方又如前所本见見经經头頭面公同三已老从從动動两兩长長，。！？、"
)
_ENOUGH = 0.1


def shortened(text: str, most: int = 60) -> str:
    """A line for a message: quoted, and no longer than helps."""
    return repr(text if len(text) <= most else text[:most] + "…")


class TextFile:
    """A file of text that can be read as often as need be.

    Raises:
        DataError: there is no such file, or it is no regular one, or it has no content.
    """

    def __init__(self, path: PathLike) -> None:
        self.name = os.fspath(path)
        self.path = Path(path)
        if not self.path.exists():
            folder = self.path.parent
            beside = f" {folder} holds {listing(folder)}." if folder.is_dir() else f" Nor is there a folder {folder}."
            raise DataError(f"{self.name}: no such file.{beside} Correct the path.")
        if not self.path.is_file():
            got = "a folder" if self.path.is_dir() else "no regular file"
            raise DataError(f"{self.name}: expected a file that can be read more than once, got {got}. Name a file.")
        self._refuse_what_is_no_text()

    def _refuse_what_is_no_text(self) -> None:
        start = self._start(_JUDGED)
        for magic, what in _FORMATS.items():
            if start.startswith(magic):
                raise DataError(f"{self.name}: expected text, got {what}. Export or unpack it as UTF-8 text.")
        if not start.removeprefix(codecs.BOM_UTF8).strip():
            raise DataError(f"{self.name}:1: expected examples, got an empty file. Write or fetch it again.")

    def lines(self) -> "Iterator[tuple[int, str]]":
        """Each line's number from 1 and its text without its end.

        Raises:
            DataError: another encoding, NUL, a line without end, damaged gzip data.
        """
        number = 0
        try:
            with self._opened() as file:
                while raw := file.readline(LONGEST_LINE):
                    number += 1
                    yield number, self._text(raw, number)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"{self.name}:{number + 1}: the gzip data is damaged ({error}). Fetch or pack the file again."
            ) from None

    def sample(self) -> "list[tuple[int, str]]":
        """The first lines: enough to tell a layout."""
        lines, characters = [], 0
        for number, line in islice(self.lines(), _SAMPLED):
            lines.append((number, line))
            characters += len(line)
            if characters > _SAMPLED_CHARACTERS:
                break
        return lines

    def text(self) -> str:
        """All of it, lines joined by "\\n"."""
        return "\n".join(line for _, line in self.lines())

    @contextmanager
    def _opened(self) -> "Iterator[IO[bytes]]":
        with self._raw() as file:
            zipped = file.read(2) == _GZIP
            file.seek(0)
            content: Any = gzip.GzipFile(fileobj=file) if zipped else file
            yield content

    def _raw(self) -> "AbstractContextManager[IO[bytes]]":
        return open(self.path, "rb")

    def _start(self, size: int) -> bytes:
        try:
            with self._opened() as file:
                return file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{self.name}:1: the gzip data is damaged ({error}). Fetch or pack it again.") from None

    def _text(self, raw: bytes, number: int) -> str:
        where = f"{self.name}:{number}"
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            raise DataError(f"{where}: the line has more than {LONGEST_LINE:,} bytes. Split it: one example a line.")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._not_utf8(where, f"the byte 0x{raw[error.start]:02x} at place {error.start}") from None
        if "\0" in text:
            raise self._not_utf8(where, f"NUL at character {text.index(chr(0))}")
        line = text.removesuffix("\n").removesuffix("\r")
        if number == 1 and not text.endswith("\n") and "\r" in line:
            raise DataError(
                f"{where}: the lines end in CR alone, as old Macs wrote them. Convert it: tr '\\r' '\\n' < FILE > NEW"
            )
        return line

    def _not_utf8(self, where: str, met: str) -> DataError:
        fitting = _fitting_encoding(self._start(_JUDGED))
        if fitting is None:
            return DataError(
                f"{where}: expected UTF-8 text, got {met}, and no other encoding fits the file. Mend the line, or "
                "remove it."
            )
        return DataError(
            f"{where}: expected UTF-8 text, got {met}: the file is {fitting}. Convert it: "
            f"iconv -f {fitting} -t UTF-8 FILE > NEW"
        )


class SpooledFile(TextFile):
    """What was piped in, kept in an open file; one reader at a time.

    Args:
        file: which can be read and sought; it stays open.
        name: what messages call it.

    Raises:
        DataError: it is no text, or has no content.
    """

    def __init__(self, file: "IO[bytes]", name: str) -> None:
        self.name, self._file = name, file
        self._refuse_what_is_no_text()

    def _raw(self) -> "AbstractContextManager[IO[bytes]]":
        self._file.seek(0)
        return nullcontext(self._file)


def _fitting_encoding(start: bytes) -> Optional[str]:
    """The encoding other than UTF-8 whose reading of the bytes is Chinese text; None where there is none."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    shares = {name: _share_of_frequent(start, name) for name in _ENCODINGS}
    best = max(_ENCODINGS, key=lambda name: shares[name])
    return best if shares[best] >= _ENOUGH else None


def _share_of_frequent(start: bytes, encoding: str) -> float:
    try:  # not to the end, which may lie within a character
        text = codecs.getincrementaldecoder(encoding)("strict").decode(start, final=False)
    except UnicodeDecodeError:
        return 0.0
    foreign = [character for character in text if not character.isascii()]
    return sum(character in _FREQUENT for character in foreign) / len(foreign) if foreign else 0.0
