"""What is here, for a report of a problem."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Optional

from paddle_nezha import __version__
from paddle_nezha.commands.shared import DONE, add_json, command, print_json
from paddle_nezha.hub import cache_home
from paddle_nezha.hub.places import is_offline
from paddle_nezha.tuning import plan

_PACKAGES = ("numpy", "safetensors", "tokenizers", "paddlepaddle", "paddlepaddle-gpu")


def add(commands: Any) -> None:
    one = command(
        commands, "info", _info, "versions, devices and folders, for a report of a problem", "paddle-nezha info"
    )
    add_json(one)


def _info(options: argparse.Namespace) -> int:
    facts = {
        "paddle_nezha": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
        "cache": str(cache_home()),
        "offline": is_offline(),
        **_paddle_facts(),
    }
    if options.json:
        print_json(facts)
    else:
        for name, fact in facts.items():
            print(f"{name:13} {fact}")
    return DONE


def _planned() -> str:
    """What `tune_cpu` would do here, in one line."""
    try:
        return "; ".join(line.strip() for line in plan().describe().splitlines())
    except ValueError as error:
        return str(error)


def _version(package: str) -> Optional[str]:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _paddle_facts() -> "dict[str, Any]":
    if find_spec("paddle") is None:
        return {"paddle": "not installed: configs, tokenizers and checkpoint files work, models do not"}
    from paddle_nezha import forms, operator
    from paddle_nezha._paddle import paddle

    return {
        "paddle": paddle.__version__,
        "device": paddle.device.get_device(),
        "gpus": paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0,
        "attention": forms.describe(),
        "operator": operator.describe(),
        "tune_cpu()": _planned(),
    }
