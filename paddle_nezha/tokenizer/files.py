"""Tokenizer folders: four files, read as PaddleNLP and HF write them, each written whole or not at all."""

import json
import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from tokenizers import AddedToken

from .. import hub
from .._files import listing, replaced
from .kinds import TOKEN, UNLIMITED, checked, path_of
from .settings import KINDS, setting

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
_DEEPEST = 50  # lists and objects inside each other; Python's own JSON fails at some hundreds
_FLAGS = ("lstrip", "normalized", "rstrip", "single_word", "special")
_ID = re.compile("0|[1-9][0-9]{0,8}")
_RESTORE = "correct the file, or restore it from its source"


@dataclass
class Folder:
    """What a tokenizer folder says.

    `added_file` is the file that numbers the added tokens; `unread` are settings of other programs, written back as
    they came.
    """

    settings: dict[str, Any]
    added_file: str
    added: dict[int, AddedToken] = field(default_factory=dict)
    unread: dict[str, Any] = field(default_factory=dict)


def resolve(folder: Any, cache_dir: Any = None) -> str:
    """The folder to read for what `from_pretrained` was given.

    Raises:
        TypeError: no path.
        FileNotFoundError: no folder and no published name, or no vocabulary in the folder.
    """
    path = path_of("folder", folder)
    if not os.path.exists(path):
        path = os.fspath(hub.resolve(path, cache_dir=cache_dir, weights=False))
    _check_has_vocabulary(path)
    return path


def read_folder(folder: str) -> Folder:
    """The settings of a folder, its added tokens, and what nobody here reads.

    Raises:
        ValueError: a file is not a JSON object, holds a value its key cannot have, or asks for something that would
            change ids and is not done here.
    """
    settings_file, special_file = (os.path.join(folder, name) for name in (SETTINGS_FILE, SPECIAL_TOKENS_FILE))
    written, special = _read_json(settings_file), _read_json(special_file)
    merged = {name: _content(value) for name, value in {**written, **special}.items()}
    origin = {**dict.fromkeys(written, settings_file), **dict.fromkeys(special, special_file)}
    _refuse_other_behaviour(merged, origin)
    settings = {
        name: setting(name, value, origin[name])
        for name, value in merged.items()
        if name in KINDS and value is not None
    }
    if merged.get("max_len") is not None and "model_max_length" not in merged:  # its old name
        settings["model_max_length"] = checked(
            "max_len", merged["max_len"], KINDS["model_max_length"], origin["max_len"]
        )
    settings.setdefault("split_symbols", _splits_symbols(merged))
    unread = {name: value for name, value in merged.items() if name not in KINDS and name not in _NOT_KEPT}
    described = written.get("added_tokens_decoder")
    if described is not None and described != {}:
        return Folder(settings, settings_file, _described_tokens(described, settings_file), unread)
    added_file = os.path.join(folder, ADDED_TOKENS_FILE)
    added = _listed_tokens(_read_json(added_file), settings.get("additional_special_tokens", ()), added_file)
    return Folder(settings, added_file, added, unread)


def write_folder(folder: str, tokens: list[str], size: int, settings: Mapping[str, Any], added: dict[int, AddedToken]):
    """Writes the four files (added_tokens.json only if there are any) and gives their paths.

    `tokens` are all tokens in the order of ids, the first `size` of them the vocabulary.
    """
    special = {name: value for name, value in settings.items() if name.endswith(("_token", "_tokens")) and value}
    later = {token: number for number, token in enumerate(tokens) if number >= size}
    described = {str(number): _flags(token) for number, token in sorted(added.items())}
    contents = {
        SETTINGS_FILE: _json(_described(settings, described)),
        SPECIAL_TOKENS_FILE: _json(special),
        ADDED_TOKENS_FILE: _json(later) if later else None,
    }
    written = [write_vocabulary(folder, tokens[:size])]
    for name, text in contents.items():
        path = os.path.join(folder, name)
        if text is not None:
            _write(path, text)
            written.append(path)
        elif os.path.exists(path):  # of an earlier tokenizer: read back, it would add its tokens to this one
            os.remove(path)
    return tuple(written)


def write_vocabulary(folder: str, tokens: Sequence[str]) -> str:
    """Writes vocab.txt into a folder, made where there is none, and gives its path."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, VOCABULARY_FILE)
    _write(path, "".join(f"{token}\n" for token in tokens))
    return path


def _described(settings: Mapping[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    length = settings["model_max_length"]
    described = {
        **settings,
        "model_max_length": UNLIMITED if length is None else length,
        "tokenizer_class": TOKENIZER_CLASS,
    }
    return {**described, "added_tokens_decoder": added} if added else described


def _write(path: str, text: str) -> None:
    with replaced(path) as temporary, open(temporary, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # a lone surrogate, from JSON, as JSON writes it


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _flags(token: AddedToken) -> dict[str, Any]:
    return {name: getattr(token, name) for name in ("content", *_FLAGS)}


def _check_has_vocabulary(folder: str) -> None:
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"expected a folder that holds {VOCABULARY_FILE}, {folder!r} is no folder; "
            "give the path of a folder made by save_pretrained, or build NeZhaTokenizer(vocab_file)"
        )
    if not os.path.isfile(os.path.join(folder, VOCABULARY_FILE)):
        raise FileNotFoundError(
            f"expected {VOCABULARY_FILE} in {folder!r} (with {SETTINGS_FILE}, {SPECIAL_TOKENS_FILE} and "
            f"{ADDED_TOKENS_FILE} where they exist); copy the vocabulary there. Found {listing(folder)}"
        )


def _read_json(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            value = json.load(file, object_pairs_hook=_distinct)
    except ValueError as error:
        raise ValueError(f"expected JSON in {path!r}, got {error}; restore the file from its source") from error
    except RecursionError:
        raise _too_deep(path) from None
    if _is_deep(value):
        raise _too_deep(path)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object in {path!r}, got {type(value).__name__}; {_RESTORE}")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _too_deep(path: str) -> ValueError:
    return ValueError(
        f"expected at most {_DEEPEST} lists and objects inside each other in {path!r}, got more; {_RESTORE}"
    )


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_DEEPEST + 1):
        nested = [item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, (dict, list))]
        layer = [child for children in nested for child in children]
    return bool(layer)


def _content(value: Any) -> Any:
    """A token written with its flags, as its text, alone or in a list."""
    values = value if isinstance(value, list) else [value]
    texts = [item["content"] if isinstance(item, dict) and "content" in item else item for item in values]
    return texts if isinstance(value, list) else texts[0]


def _refuse_other_behaviour(merged: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    for name, allowed in _ONLY_VALUES.items():
        if name in merged and merged[name] not in allowed:
            raise ValueError(
                f"expected {name}={allowed[0]!r}, {origin[name]!r} says {name}={reprlib.repr(merged[name])}, which "
                "gives other ids and is not supported; correct the file if training was different"
            )


def _splits_symbols(merged: Mapping[str, Any]) -> Optional[bool]:
    """A folder keeps its writer's ids: PaddleNLP splits symbols, BERT's tokenizers do not."""
    writer = merged.get("tokenizer_class") or merged.get("init_class")
    return None if writer is None else writer == TOKENIZER_CLASS


def _described_tokens(described: Any, file: str) -> dict[int, AddedToken]:
    name = "added_tokens_decoder"
    if not isinstance(described, dict):
        raise _refused(name, "an object of ids and tokens", described, file)
    tokens = {}
    for number, flags in described.items():
        if not _ID.fullmatch(number):
            raise _refused(f"each key of {name}", "an id in digits", number, file)
        tokens[int(number)] = _described_token(f"{name}[{number!r}]", flags, file)
    return tokens


def _described_token(name: str, flags: Any, file: str) -> AddedToken:
    if not isinstance(flags, dict):
        raise _refused(name, "an object with content and flags", flags, file)
    given = {flag: value for flag, value in flags.items() if not flag.startswith("__")}
    content = checked(f"{name}.content", given.pop("content", None), TOKEN, file)
    for flag, value in given.items():
        if flag not in _FLAGS or not isinstance(value, bool):
            raise _refused(f"{name}.{flag}", f"one of {', '.join(_FLAGS)}, and true or false", value, file)
    return AddedToken(content, **given)


def _listed_tokens(listed: Mapping[str, Any], special: Sequence[str], file: str) -> dict[int, AddedToken]:
    tokens: dict[int, AddedToken] = {}
    for token, number in listed.items():
        checked("each key", token, TOKEN, file)
        if type(number) is not int or number < 0:
            raise _refused(f"the id of {token!r}", "a whole number of at least 0", number, file)
        if number in tokens:
            raise _refused(f"the id of {token!r}", f"its own, not that of {tokens[number].content!r}", number, file)
        tokens[number] = AddedToken(token, special=token in special, normalized=token not in special)
    return tokens


def _refused(name: str, expected: str, got: Any, file: str) -> ValueError:
    return ValueError(f"expected {name} in {file!r} to be {expected}, got {reprlib.repr(got)}; {_RESTORE}")
