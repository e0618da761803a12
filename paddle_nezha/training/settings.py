"""Settings of a training as a dataclass, from a YAML file and from flags: one description serves both, and the help."""

import argparse
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Optional, TypeVar, get_args

Kind = TypeVar("Kind")
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "dict": "a mapping of names to values",
}


def read_yaml(path: Path) -> "dict[str, Any]":
    """The settings in a file.

    Raises:
        ValueError: no YAML, or no mapping of names to values.
        FileNotFoundError: no such file.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no YAML file: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold lines such as `batch_size: 32`, but holds a {type(content).__name__}.")
    return content


def make(kind: "type[Kind]", values: "Mapping[str, Any]", source: str) -> Kind:
    """Settings of a kind.

    Raises:
        ValueError: an unknown name, with the nearest known one; a value of another type, or out of range; a setting
            without a default that is missing.
    """
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    given = {}
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}."
            raise ValueError(f"{source}: there is no setting {name!r}{hint}")
        given[name] = _typed(known[name], value, source)
    missing = [
        name
        for name, item in known.items()
        if name not in given and item.default is MISSING and item.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"{source}: {', '.join(missing)} must be given.")
    return kind(**given)


def add_flags(parser: argparse.ArgumentParser, kind: type, leave_out: "Sequence[str]" = ()) -> None:
    """A flag for each setting, `--batch-size` for `batch_size`; none has a default, so that a file's values stay."""
    for item in fields(kind):
        if item.name in leave_out:
            continue
        default = "" if item.default in (MISSING, None) else f" (default: {_shown(item.default)})"
        parser.add_argument(
            f"--{item.name.replace('_', '-')}",
            dest=item.name,
            default=argparse.SUPPRESS,
            metavar=item.metadata.get("metavar", _metavar(item)),
            help=item.metadata["help"] + default,
        )


def given_flags(kind: type, options: argparse.Namespace) -> "dict[str, Any]":
    return {item.name: getattr(options, item.name) for item in fields(kind) if hasattr(options, item.name)}


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else f"{value}"


def _annotated(item: "Field[Any]") -> "tuple[str, bool]":
    """The name of a field's type, and whether None will do."""
    given = get_args(item.type)
    plain = next(kind for kind in given if kind is not type(None)) if given else item.type
    return getattr(plain, "__name__", str(plain)), bool(given)


def _metavar(item: "Field[Any]") -> str:
    plain, _ = _annotated(item)
    return {"bool": "BOOL", "int": "N", "float": "X", "str": "TEXT", "dict": "JSON"}.get(plain, "VALUE")


def _typed(item: "Field[Any]", value: Any, source: str) -> Any:
    """A value as the annotation of its field wants it; texts, as flags and YAML's 1e-4 are, are read."""
    plain, optional = _annotated(item)
    if optional and (value is None or value in ("none", "null")):
        return None
    try:
        if plain == "bool":
            return _boolean(value)
        if plain == "int" and not isinstance(value, bool):
            number = float(value)
            if number != int(number):
                raise ValueError
            return int(value) if isinstance(value, (int, str)) and str(value).lstrip("+-").isdigit() else int(number)
        if plain == "float" and not isinstance(value, bool):
            return float(value)
        if plain == "str" and not isinstance(value, (dict, list)):
            return str(value)
        if plain == "dict":
            return mapping(value)
    except (TypeError, ValueError, OverflowError):
        pass
    words = {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
        "dict": "a mapping such as {name: value}",
    }
    raise ValueError(f"{source}: {item.name} must be {words[plain]}, but got {value!r}.")


def _boolean(value: Any) -> bool:
    found: Optional[bool] = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(
        str(value).lower()
    )
    if found is None:
        raise ValueError
    return found


def mapping(value: Any) -> "dict[str, Any]":
    """A mapping, or one written as JSON or YAML.

    Raises:
        ValueError: something else.
    """
    if isinstance(value, str):
        import yaml

        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"expected a mapping such as {{text: review}}, but got {value!r}.") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping such as {{text: review}}, but got {value!r}.")
    return value
