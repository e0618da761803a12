"""Tokenizer folders: four files, read as PaddleNLP and HF write them, each written whole or not at all."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from tokenizers import AddedToken

from ..checkpoint.files import replaced

VOCABULARY_FILE = "vocab.txt"
SETTINGS_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
ADDED_TOKENS_FILE = "added_tokens.json"

TOKENIZER_CLASS = "NeZhaTokenizer"  # PaddleNLP's name too: both open a folder that says it
# Settings of other tokenizers that would change ids, with the values that mean what is done here.
_ONLY_VALUES: dict[str, tuple[Any, ...]] = {
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "split_special_tokens": (False, None),
    "truncation_side": ("right", None),
    "clean_text": (True, None),
    "wordpieces_prefix": ("##", None),
}
# Where the folder came from, or which class wrote it: nothing that a copy of the folder should repeat.
_NOT_KEPT = (
    "added_tokens_decoder", "init_class", "max_len", "name_or_path", "special_tokens_map_file",
    "tokenizer_class", "tokenizer_file", "vocab_file",
)  # fmt: skip
_UNLIMITED = 10**30  # HF's way to write "no limit"; its own files hold float 1e30 turned to int, a little more


@dataclass
class Folder:
    """What a tokenizer folder says. `unread` are settings of other programs, written back as they came."""

    settings: dict[str, Any]
    added: dict[int, AddedToken] = field(default_factory=dict)
    unread: dict[str, Any] = field(default_factory=dict)


def read_folder(folder: str, known: frozenset[str]) -> Folder:
    """The settings of a folder that are `known`, its added tokens, and what nobody here reads.

    Raises:
        FileNotFoundError: no folder, or no vocabulary in it.
        ValueError: a file is not a JSON object, or asks for something that would change ids and is not done
            here.
    """
    _check_has_vocabulary(folder)
    written = _read_json(os.path.join(folder, SETTINGS_FILE))
    special = _read_json(os.path.join(folder, SPECIAL_TOKENS_FILE))
    merged = {name: _content(value) for name, value in {**written, **special}.items()}
    _refuse_other_behaviour(merged, folder)
    settings = {name: value for name, value in merged.items() if name in known and value is not None}
    _settle_length(settings, merged)
    settings.setdefault("split_symbols", _splits_symbols(merged))
    unread = {name: value for name, value in merged.items() if name not in known and name not in _NOT_KEPT}
    added = _added_tokens(folder, written, settings.get("additional_special_tokens", ()))
    return Folder(settings, added, unread)


def write_folder(folder: str, tokens: list[str], size: int, settings: Mapping[str, Any], added: dict[int, AddedToken]):
    """Writes the four files (added_tokens.json only if there are any) and gives their paths.

    `tokens` are all tokens in the order of ids, the first `size` of them the vocabulary.
    """
    os.makedirs(folder, exist_ok=True)
    special = {name: value for name, value in settings.items() if name.endswith(("_token", "_tokens")) and value}
    later = {token: number for number, token in enumerate(tokens) if number >= size}
    described = {str(number): _flags(token) for number, token in sorted(added.items())}
    contents = {
        VOCABULARY_FILE: "".join(f"{token}\n" for token in tokens[:size]),
        SETTINGS_FILE: _json(_described(settings, described)),
        SPECIAL_TOKENS_FILE: _json(special),
        ADDED_TOKENS_FILE: _json(later) if later else None,
    }
    written = []
    for name, text in contents.items():
        path = os.path.join(folder, name)
        if text is not None:
            _write(path, text)
            written.append(path)
        elif os.path.exists(path):  # of an earlier tokenizer: read back, it would add its tokens to this one
            os.remove(path)
    return tuple(written)


def _described(settings: Mapping[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    length = settings["model_max_length"]
    described = {
        **settings,
        "model_max_length": _UNLIMITED if length is None else length,
        "tokenizer_class": TOKENIZER_CLASS,
    }
    return {**described, "added_tokens_decoder": added} if added else described


def _write(path: str, text: str) -> None:
    with replaced(path) as temporary, open(temporary, "wb") as file:
        file.write(text.encode("utf-8"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _flags(token: AddedToken) -> dict[str, Any]:
    names = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    return {name: getattr(token, name) for name in names}


def _check_has_vocabulary(folder: str) -> None:
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"expected a folder that holds {VOCABULARY_FILE}, {folder!r} is no folder; "
            "give the path of a folder made by save_pretrained, or build NeZhaTokenizer(vocab_file)"
        )
    if not os.path.isfile(os.path.join(folder, VOCABULARY_FILE)):
        found = ", ".join(sorted(os.listdir(folder))) or "nothing"
        raise FileNotFoundError(
            f"expected {VOCABULARY_FILE} in {folder!r} (with {SETTINGS_FILE}, {SPECIAL_TOKENS_FILE} and "
            f"{ADDED_TOKENS_FILE} where they exist), found {found}; copy the vocabulary there"
        )


def _read_json(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            value = json.load(file)
    except ValueError as error:
        raise ValueError(f"expected JSON in {path!r}, got {error}; restore the file from its source") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object in {path!r}, got {type(value).__name__}; restore the file")
    return value


def _content(value: Any) -> Any:
    """A token written with its flags, as its text."""
    if isinstance(value, dict) and "content" in value:
        return value["content"]
    if isinstance(value, list):
        return [_content(item) for item in value]
    return value


def _refuse_other_behaviour(settings: Mapping[str, Any], folder: str) -> None:
    for name, allowed in _ONLY_VALUES.items():
        if name in settings and settings[name] not in allowed:
            raise ValueError(
                f"expected {name}={allowed[0]!r}, {folder!r} was saved with {name}={settings[name]!r}, which "
                f"gives other ids and is not supported; correct {SETTINGS_FILE} if training was different"
            )


def _settle_length(settings: dict[str, Any], merged: Mapping[str, Any]) -> None:
    length: Optional[float] = merged.get("model_max_length", merged.get("max_len"))
    if length is not None:
        settings["model_max_length"] = int(length) if length < _UNLIMITED else None


def _splits_symbols(merged: Mapping[str, Any]) -> Optional[bool]:
    """A folder keeps its writer's ids: PaddleNLP splits symbols, BERT's tokenizers do not."""
    writer = merged.get("tokenizer_class") or merged.get("init_class")
    return None if writer is None else writer == TOKENIZER_CLASS


def _added_tokens(folder: str, written: Mapping[str, Any], special: Any) -> dict[int, AddedToken]:
    described = written.get("added_tokens_decoder")
    if described:
        return {int(number): AddedToken(**_known_flags(flags)) for number, flags in described.items()}
    listed = _read_json(os.path.join(folder, ADDED_TOKENS_FILE))
    return {
        number: AddedToken(token, special=token in special, normalized=token not in special)
        for token, number in listed.items()
    }


def _known_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if not name.startswith("__")}
