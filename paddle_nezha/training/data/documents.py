"""JSON documents that are read as a whole, and the lines on which their parts stand."""

import json
from collections.abc import Iterator
from typing import Any

from paddle_nezha.training.data.lines import TextFile
from paddle_nezha.training.data.records import DataError

_NEAR = 1 << 20  # characters in which the next question is looked for


class Document:
    """The content of a JSON file.

    Raises:
        DataError: it is no JSON.
    """

    def __init__(self, file: TextFile) -> None:
        self.file = file.name
        self._text = file.text()
        try:
            self.content: Any = json.loads(self._text)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{file.name}:{error.lineno}: expected JSON, got {error.msg} at character {error.colno} of it. Is "
                "the file whole? Mend it or fetch it again."
            ) from None
        except ValueError as error:  # a number of thousands of digits
            raise DataError(f"{file.name}:1: expected JSON, got a number that is none ({error}). Mend it.") from None
        except RecursionError:
            raise DataError(
                f"{file.name}:1: the JSON is nested too deep to be read. Give a file of a known layout."
            ) from None
        self._place, self._line = 0, 1
        self._escaped = False  # how strings were written where one was found last

    def line_of(self, text: str) -> int:
        """The line of a string's next appearance behind the one asked for before; the parts are asked for in order.

        A string that was written with escapes other than JSON's usual ones is not found, and the last line holds.
        """
        for escaped in (self._escaped, not self._escaped):
            place = self._text.find(json.dumps(text, ensure_ascii=escaped), self._place, self._place + _NEAR)
            if place >= 0:
                self._escaped = escaped
                self._line += self._text.count("\n", self._place, place)
                self._place = place
                break
        return self._line

    def objects(self) -> "Iterator[tuple[int, dict[str, Any]]]":
        """The objects of a document that is a list of them, each with the line of its first text.

        Raises:
            DataError: something else in the list.
        """
        for place, found in enumerate(self.content):
            if not isinstance(found, dict):
                raise self.refuse(f"[{place}]", "an object", found)
            texts = [value for value in found.values() if isinstance(value, str)]
            yield self.line_of(texts[0]) if texts else self._line, found

    def refuse(self, at: str, expected: str, got: Any, remedy: str = "Mend or remove the entry.") -> DataError:
        """The error to raise, with the line of the part that was found last.

        Args:
            at: the path to what is wrong, as in "data[3].paragraphs[0]".
        """
        shown = "nothing" if got is None else json.dumps(got, ensure_ascii=False)
        shown = shown if len(shown) <= 60 else shown[:60] + "…"
        return DataError(f"{self.file}:{self._line} ({at}): expected {expected}, got {shown}. {remedy}")
