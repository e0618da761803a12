"""Reading `vocab.txt`: one token per line, the id is the line's place counted from 0."""

import os
from collections.abc import Sequence
from typing import Any, Union

from .kinds import path_of


class Vocab:
    """The tokens of a vocabulary file as PaddleNLP scripts ask for them: unknown tokens have the id of `unk_token`."""

    def __init__(self, tokens: Sequence[str], unk_token: str) -> None:
        self.idx_to_token = dict(enumerate(tokens))
        self.token_to_idx = {token: number for number, token in self.idx_to_token.items()}
        self.unk_token = unk_token

    def __len__(self) -> int:
        return len(self.idx_to_token)

    def __contains__(self, token: object) -> bool:
        return token in self.token_to_idx

    def __getitem__(self, tokens: Any) -> Any:
        return self.to_indices(tokens)

    def to_indices(self, tokens: Any) -> Any:
        """The id of a token, or of each token of a list or tuple."""
        if isinstance(tokens, (list, tuple)):
            return [self.to_indices(token) for token in tokens]
        return self.token_to_idx.get(tokens, self.token_to_idx[self.unk_token])

    def to_tokens(self, indices: Any) -> Any:
        """The token of an id, or of each id of a list, tuple or array.

        Raises:
            ValueError: an id the vocabulary file does not hold.
        """
        if hasattr(indices, "tolist"):
            indices = indices.tolist()
        if isinstance(indices, (list, tuple)):
            return [self.to_tokens(index) for index in indices]
        if indices not in self.idx_to_token:
            raise ValueError(
                f"expected ids of the vocabulary file, in [0, {len(self)}), got {indices!r}; "
                "added tokens have ids beyond it, use convert_ids_to_tokens"
            )
        return self.idx_to_token[indices]


def read_vocabulary(path: Union[str, os.PathLike[str]]) -> list[str]:
    """The tokens of a vocabulary file in the order of their ids.

    Lines end at "\\n" and nowhere else: U+2028 is itself a token of the Chinese vocabulary. A file whose
    every line ends with "\\r\\n" was converted on Windows and reads as the original; a byte order mark is
    skipped.

    Raises:
        TypeError: no path.
        FileNotFoundError: no file at `path`.
        ValueError: not UTF-8, empty, an empty line, mixed line ends, or the same token twice.
    """
    path = path_of("vocab_file", path)
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"expected a vocabulary file with one token per line, found no file at {path!r}; "
            "to open a saved folder use NeZhaTokenizer.from_pretrained(folder)"
        )
    with open(path, "rb") as file:
        lines = _decode(file.read(), path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise ValueError(f"expected one token per line, {path!r} is empty; fetch the vocabulary again")
    lines = _without_carriage_returns(lines, path)
    _check_distinct(lines, path)
    return lines


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"expected UTF-8, line {line} of {path!r} holds byte 0x{data[error.start]:02x}; "
            "convert it, for example `iconv -f GB18030 -t UTF-8`"
        ) from error


def _without_carriage_returns(lines: Sequence[str], path: str) -> list[str]:
    ends = [line.endswith("\r") for line in lines]
    if not any(ends):
        return list(lines)
    if not all(ends[:-1]):  # the last line may lack its line end altogether
        odd = ends.index(not ends[0]) + 1
        raise ValueError(
            f"expected one kind of line end, {path!r} mixes '\\n' and '\\r\\n' (they change at line {odd}); "
            "convert the file, for example with `dos2unix`"
        )
    return [line[:-1] if end else line for line, end in zip(lines, ends)]


def _check_distinct(tokens: Sequence[str], path: str) -> None:
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if token == "":
            raise ValueError(
                f"expected a token on every line, line {number} of {path!r} is empty; "
                "removing it moves every later id, so fetch the vocabulary again"
            )
        if token in seen:
            raise ValueError(
                f"expected distinct tokens, {path!r} holds {token!r} on lines {seen[token]} and {number}; "
                "an id would be lost, so fetch the vocabulary again"
            )
        seen[token] = number
