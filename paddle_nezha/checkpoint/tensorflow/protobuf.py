"""The wire format of protocol buffers, as much of it as TensorFlow's index files use, for bytes nobody vouches for.

https://protobuf.dev/programming-guides/encoding. What the numbers of the fields mean is the caller's to know.
"""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class Malformed(Exception):
    """Bytes that are not what they should be; whoever knows the file adds its path and the remedy."""


class Unsupported(Malformed):
    """Bytes that are right, but of a kind that is not read here."""


class Message:
    """The fields of one message. A field that is absent is 0 or holds no parts, as in proto3."""

    def __init__(self, data: bytes) -> None:
        self._numbers: dict[int, int] = {}
        self._parts: dict[int, list[bytes]] = {}
        position = 0
        while position < len(data):
            key, position = varint(data, position)
            field, wire = key >> 3, key & 7
            if wire == _VARINT:
                self._numbers[field], position = varint(data, position)
                continue
            if wire == _BYTES:
                length, position = varint(data, position)
            elif wire in (_FIXED32, _FIXED64):
                length = 4 if wire == _FIXED32 else 8
            else:
                raise Malformed(f"a field of wire type {wire}")
            end = position + length
            if end > len(data):
                raise Malformed("a field runs beyond its end")
            if wire == _BYTES:
                self._parts.setdefault(field, []).append(data[position:end])
            else:
                self._numbers[field] = int.from_bytes(data[position:end], "little")
            position = end

    def __contains__(self, field: int) -> bool:
        return field in self._numbers or field in self._parts

    def unsigned(self, field: int) -> int:
        """The last number given for a field."""
        return self._numbers.get(field, 0)

    def signed(self, field: int) -> int:
        """The same as an int32 or int64, whose negative numbers are stored as 64 bits."""
        value = self.unsigned(field)
        return value - (1 << 64) if value >> 63 else value

    def parts(self, field: int) -> list[bytes]:
        """All strings or messages of a repeated field."""
        return self._parts.get(field, [])

    def message(self, field: int) -> "Message":
        """The message in a field: several of them count as one, as the format has it."""
        return Message(b"".join(self.parts(field)))


def varint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits, and the position behind it."""
    value = 0
    for count in range(_LONGEST_VARINT):
        if position + count >= len(data):
            raise Malformed("a number runs beyond its end")
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80 and value < 1 << 64:
            return value, position + count + 1
    raise Malformed("a number of more than 64 bits")
