"""The zip archives that torch.save writes since release 1.6.

    <any name>/data.pkl    the pickle
    <any name>/byteorder   "little" or "big"; older files have none and are little
    <any name>/data/<key>  one storage each

The directory is read here and not by `zipfile`, which builds an object for each of as many entries as a file
claims and does not say where the bytes of one lie. Nothing is unpacked onto the disk, so names are only
names. Checksums of plain storages are not looked at: torch can be told to write none.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from ..errors import CheckpointError, truncated
from ..files import Source
from .tensors import Place, Reader, Region, corrupt

_MAX_ENTRIES = 10_000  # a state dict of 400 tensors takes 410
_MAX_PICKLE = 4 << 20  # bytes; the pickle of 400 tensors takes 60,000
_MAX_NAME = 1024
_MAX_RATIO = 16  # what deflate makes of weights is 1 to 4 times smaller
_SMALL = 1 << 20
_PIECE = 1 << 16
_SHOWN = 20

_END, _END64, _LOCATOR, _ENTRY, _LOCAL = (b"PK" + code for code in (b"\5\6", b"\6\6", b"\6\7", b"\1\2", b"\3\4"))
_UNREADABLE = 0x1 | 0x20 | 0x40 | 0x2000  # flags: encrypted, a patch, strongly encrypted, masked
_STORED, _DEFLATED = 0, 8
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 field"


class Entry(NamedTuple):
    """One line of the directory."""

    name: bytes
    flags: int
    method: int
    checksum: int
    packed: int  # bytes in the file
    nbytes: int  # bytes that they stand for
    header: int  # where its local header lies


class Deflated(NamedTuple):
    """Bytes that somebody compressed afterwards. They are inflated from their beginning at each look."""

    source: Source
    offset: int
    packed: int
    nbytes: int
    checksum: int

    def cost(self, length: int) -> int:
        return self.nbytes

    def copy_to(self, target: np.ndarray, start: int) -> None:
        position, checksum = 0, 0
        try:
            for piece in self._pieces():
                checksum = zlib.crc32(piece, checksum)
                first, last = max(position, start), min(position + len(piece), start + target.size)
                if first < last:
                    wanted = np.frombuffer(piece, np.uint8)[first - position : last - position]
                    target[first - start : last - start] = wanted
                position += len(piece)
                if position > self.nbytes:
                    break
        except zlib.error as error:
            raise corrupt(self.source, f"the compressed data at byte {self.offset} does not open ({error})") from None
        if (position, checksum) != (self.nbytes, self.checksum):
            raise corrupt(self.source, f"the compressed data at byte {self.offset} is not what was packed")

    def _pieces(self) -> Iterator[bytes]:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self.source.file.seek(self.offset)
        left = self.packed
        while left and not inflate.eof:
            piece = self.source.file.read(min(left, _PIECE))
            if not piece:
                raise self.source.shrunk(self.offset + self.packed - left)
            left -= len(piece)
            while piece:
                yield inflate.decompress(piece, _PIECE)
                piece = inflate.unconsumed_tail
        yield inflate.flush()


def load(source: Source) -> Any:
    """Reads the pickle of the archive and finds the storages that it names."""
    archive = _Archive(source)
    top = archive.top()
    order = _byte_order(archive, top)
    content = archive.content(top + b"data.pkl", _MAX_PICKLE)
    # BytesIO is all that BufferedReader asks for; its type says more.
    pickle = Source(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content))), f"{source.path} (its data.pkl)")
    reader = Reader()
    value = reader.load(pickle)
    for key, storage in reader.storages.items():
        name = top + b"data/" + key.encode()
        storage.order = order
        storage.place = archive.place(name)
        if storage.place.nbytes < storage.nbytes:
            came = storage.place.nbytes
            raise corrupt(source, f"expected {storage.nbytes} bytes in its {_shown(name)}, but it holds {came}")
    archive.check_used()
    return value


def _byte_order(archive: "_Archive", top: bytes) -> Literal["<", ">"]:
    if top + b"byteorder" not in archive.entries:
        return "<"
    order = archive.content(top + b"byteorder", 16).strip()
    if order not in (b"little", b"big"):
        raise corrupt(archive.source, f"expected the byte order little or big, but its record says {order!r}")
    return "<" if order == b"little" else ">"


class _Archive:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.used: list[tuple[int, int, bytes]] = []  # (begin, end, name) of what has been looked up
        self.unpacked = 0
        self.directory, self.entries = _directory(source)

    def top(self) -> bytes:
        """The folder, with its slash, that holds the pickle."""
        tops = [
            name[: -len(b"data.pkl")] for name in self.entries if name == b"data.pkl" or name.endswith(b"/data.pkl")
        ]
        if len(tops) == 1 and tops[0] + b"constants.pkl" in self.entries:
            raise CheckpointError(
                f"{self.source.path} was refused: it is a TorchScript program, not a state dict. Where you trust it, "
                "save torch.save(torch.jit.load(path).state_dict(), new_path)."
            )
        if len(tops) != 1:
            names = ", ".join(map(_shown, list(self.entries)[:_SHOWN])) or "nothing"
            raise CheckpointError(
                f"{self.source.path} is a zip archive, but not one that torch.save wrote: expected one data.pkl in "
                f"it, but came {len(tops)} (it holds {names}). If the weights are inside, unpack it first."
            )
        return tops[0]

    def content(self, name: bytes, longest: int) -> bytes:
        """A short record as a whole."""
        place = self.place(name)
        if place.nbytes > longest:
            raise self._refused(f"its {_shown(name)} should take at most {longest} bytes, but has {place.nbytes}")
        content = np.empty(place.nbytes, np.uint8)
        if content.size:
            place.copy_to(content, 0)
        return content.tobytes()

    def place(self, name: bytes) -> Place:
        """Where the bytes of a record lie, once the directory and the record itself agree about it."""
        entry = self.entries.get(name)
        if entry is None:
            raise corrupt(self.source, f"its pickle needs a record {_shown(name)}, but the archive holds none")
        begin = self._begin(entry)
        self.used.append((entry.header, begin + entry.packed, name))
        if entry.method == _STORED:
            if entry.packed != entry.nbytes:
                raise self._refused(
                    f"its {_shown(name)} lies there plainly, but takes {entry.packed} bytes for {entry.nbytes}"
                )
            return Region(self.source, begin, entry.nbytes)
        self.unpacked += entry.nbytes
        if self.unpacked > _MAX_RATIO * self.source.size + _SMALL:
            raise self._refused(
                f"its compressed records claim {self.unpacked} bytes, more than {_MAX_RATIO} times the file. No "
                "weights compress like that. If these do, unpack the archive and pack it again with `zip -0`"
            )
        return Deflated(self.source, begin, entry.packed, entry.nbytes, entry.checksum)

    def _begin(self, entry: Entry) -> int:
        name = _shown(entry.name)
        if entry.flags & _UNREADABLE or entry.method not in (_STORED, _DEFLATED):
            raise self._refused(
                f"its {name} is encrypted or compressed by method {entry.method}, but torch stores plainly; unpack "
                "the archive and pack it again with `zip -0`"
            )
        if entry.header + 30 > self.directory:
            raise corrupt(self.source, f"its directory lists {name} at byte {entry.header}, behind its own beginning")
        self.source.position = self.source.file.seek(entry.header)
        fields = struct.unpack("<4s2xHH16xHH", self.source.take(30))
        signature, flags, method, name_length, extra_length = fields
        same = signature == _LOCAL and method == entry.method and name_length == len(entry.name)
        if not same or flags & _UNREADABLE or self.source.take(name_length) != entry.name:
            raise corrupt(self.source, f"its directory has {name} at byte {entry.header}, but it is not there")
        begin = self.source.position + extra_length
        if begin + entry.packed > self.directory:
            raise corrupt(
                self.source,
                f"its {name} should end at byte {begin + entry.packed}, but the directory begins at {self.directory}",
            )
        return begin

    def check_used(self) -> None:
        """Refuses records that share bytes: a few could claim more than the whole file holds."""
        self.used.sort()
        for (_, end, name), (begin, _, other) in zip(self.used, self.used[1:]):
            if begin < end:
                raise self._refused(f"its {_shown(name)} and {_shown(other)} lie in the same bytes")

    def _refused(self, why: str) -> CheckpointError:
        return CheckpointError(f"{self.source.path} was refused: {why}. Nothing in it was run.")


def _directory(source: Source) -> tuple[int, dict[bytes, Entry]]:
    """Where the directory begins, and what it lists."""
    count, size, begin, end = _end_record(source)
    if count > _MAX_ENTRIES:
        raise CheckpointError(
            f"{source.path} was refused: its directory claims {count} entries, but a checkpoint has at most "
            f"{_MAX_ENTRIES}."
        )
    if begin + size > end:
        raise corrupt(source, f"its directory should end at byte {begin + size}, but the file's end record is at {end}")
    source.position = source.file.seek(begin)
    entries: dict[bytes, Entry] = {}
    for _ in range(count):
        entry = _entry(source, begin + size)
        if entry.name in entries:
            raise corrupt(source, f"its directory lists {_shown(entry.name)} twice")
        entries[entry.name] = entry
    return begin, entries


def _end_record(source: Source) -> tuple[int, int, int, int]:
    """The number of entries, the size and beginning of the directory, and where this record lies itself."""
    start = max(source.size - 22 - _FULL16, 0)
    source.position = source.file.seek(start)
    tail = source.take(source.size - start)
    found = tail.rfind(_END)
    if found < 0 or len(tail) - found < 22:
        raise truncated(source.path, source.size, "a zip archive with its directory at the end")
    disk, first, here, count, size, begin, comment = struct.unpack("<4H2LH", tail[found + 4 : found + 22])
    if found + 22 + comment != len(tail):
        raise truncated(source.path, source.size, f"{start + found + 22 + comment} bytes")
    end = start + found
    if end >= 20:
        source.position = source.file.seek(end - 20)
        signature, where = struct.unpack("<4s4xQ4x", source.take(20))
        if signature == _LOCATOR:
            disk, first, here, count, size, begin = _end_record64(source, where)
            end = where
    if disk or first or here != count:
        raise CheckpointError(f"{source.path} is a part of a zip archive over several files. Join them first.")
    return count, size, begin, end


def _end_record64(source: Source, where: int) -> tuple[int, ...]:
    if where + 56 > source.size:
        raise truncated(source.path, source.size, f"{where + 56} bytes")
    source.position = source.file.seek(where)
    signature, *fields = struct.unpack("<4s12x2L4Q", source.take(56))
    if signature != _END64:
        raise corrupt(source, f"expected a zip64 record at byte {where}, but it is not there")
    return tuple(fields)


def _entry(source: Source, end: int) -> Entry:
    if source.position + 46 > end:
        raise corrupt(source, "its directory is shorter than its list of entries")
    fields = struct.unpack("<4s4xHH4x3L3H8xL", source.take(46))
    signature, flags, method, checksum, packed, nbytes, name_length, extra_length, comment_length, header = fields
    if signature != _ENTRY:
        raise corrupt(source, f"expected an entry of its directory at byte {source.position - 46}")
    if name_length > _MAX_NAME or source.position + name_length + extra_length + comment_length > end:
        raise corrupt(source, f"the entry of its directory at byte {source.position - 46} is too long")
    name = source.take(name_length)
    wide = _wide(source.take(extra_length))
    source.take(comment_length)
    sizes = []
    for value in (nbytes, packed, header):
        if value == _FULL32:
            if len(wide) < 8:
                raise corrupt(source, f"its directory gives no size of {_shown(name)}")
            value, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        sizes.append(value)
    return Entry(name, flags, method, checksum, sizes[1], sizes[0], sizes[2])


def _wide(extra: bytes) -> bytes:
    """The zip64 field among an entry's extra fields."""
    while len(extra) >= 4:
        kind, length = struct.unpack("<HH", extra[:4])
        if kind == 1:
            return extra[4 : 4 + length]
        extra = extra[4 + length :]
    return b""


def _shown(name: bytes) -> str:
    """A name of the file that is safe in a terminal and in a log line."""
    return ascii(name[:200].decode("utf-8", "replace"))
