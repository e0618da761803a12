"""What the commands share: how one is described, its exit codes, and what it prints."""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from paddle_nezha._children import cores

DONE, WRONG, COULD_NOT = 0, 1, 2


def command(
    commands: Any, name: str, run: "Callable[[argparse.Namespace], int]", summary: str, *examples: str
) -> argparse.ArgumentParser:
    """A sub-command.

    Args:
        commands: what `add_subparsers` gave.
        run: does it, and gives the exit code.
        summary: what it does, in a line that begins in lower case.
        examples: whole command lines.

    Two defaults of it may be set (`set_defaults`): `refused`, the exit code for a checkpoint that is not right, and
    `kept`, what a person is told of an interrupted one's work.
    """
    one: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="\n  ".join(("examples:", *examples)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(run=run, refused=COULD_NOT, kept="", json=False)
    return one


def fail(error: object, code: int, as_json: bool = False) -> int:
    """Tells an error, and gives the exit code back."""
    print(f"paddle-nezha: {error}", file=sys.stderr)
    if as_json:
        print_json({"error": str(error)})
    return code


def add_cached(one: argparse.ArgumentParser) -> None:
    one.add_argument("--cache-dir", metavar="DIR", help="the cache (default: PADDLE_NEZHA_HOME, or the platform's)")
    add_json(one)


def add_json(one: argparse.ArgumentParser) -> None:
    one.add_argument("--json", action="store_true", help="print JSON")


def setting(text: str) -> "tuple[str, Any]":
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def print_json(content: Any) -> None:
    print(json.dumps(_strict(content), ensure_ascii=False, indent=2, default=str, allow_nan=False))


def _strict(content: Any) -> Any:
    """The same with infinities and NaN, which JSON has not, as texts."""
    if isinstance(content, dict):
        return {key: _strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_strict(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


def use_all_cores() -> None:
    """Before Paddle is imported, which takes one thread unless told otherwise. The launcher tells its processes."""
    processes = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))


def stopped_by(name: str) -> int:
    """The exit code of a process that a signal ended, as shells give it."""
    return {"SIGINT": 130}.get(name, 143)
