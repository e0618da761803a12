"""JSON documents that are read as a whole, and the lines on which their parts stand."""

import json
from collections.abc import Iterator
from typing import Any

from paddle_nezha.training.data.lines import TextFile
from paddle_nezha.training.data.records import DataError


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
        except RecursionError:
            raise DataError(
                f"{file.name}:1: the JSON is nested too deep to be read. Give a file of a known layout."
            ) from None
        self._place, self._line = 0, 1

    def line_of(self, text: str) -> int:
        """The line of a string's next appearance behind the one asked for before; the parts are asked for in order.

        A string that was written with escapes other than JSON's usual ones is not found, and the last line holds.
        """
        for ascii_only in (False, True):
            place = self._text.find(json.dumps(text, ensure_ascii=ascii_only), self._place)
            if place >= 0:
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
        """The error to raise; `at` is a path within the document, as in "data[3].paragraphs[0]"."""
        shown = "nothing" if got is None else json.dumps(got, ensure_ascii=False)
        shown = shown if len(shown) <= 60 else shown[:60] + "…"
        return DataError(f"{self.file}:{self._line} ({at}): expected {expected}, got {shown}. {remedy}")
