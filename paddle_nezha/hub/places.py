"""Where files are kept: our cache, and PaddleNLP's."""

import os
from pathlib import Path
from typing import Optional

import platformdirs

from paddle_nezha.checkpoint.errors import PathLike

from .registry import BCEBOS, Entry, RemoteFile

HOME_VARIABLE = "PADDLE_NEZHA_HOME"
OFFLINE_VARIABLE = "PADDLE_NEZHA_OFFLINE"
_NO = ("", "0", "false", "no", "off")


def cache_home(cache_dir: Optional[PathLike] = None) -> Path:
    """The folder of all fetched checkpoints: `cache_dir`, else PADDLE_NEZHA_HOME, else the platform's cache folder.

    The environment is read at each call.
    """
    given = cache_dir or os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("paddle_nezha", appauthor=False))


def is_offline(offline: Optional[bool] = None) -> bool:
    """`offline`, else what PADDLE_NEZHA_OFFLINE says now."""
    return os.environ.get(OFFLINE_VARIABLE, "").strip().lower() not in _NO if offline is None else offline


def paddlenlp_copies(entry: Entry, file: RemoteFile) -> "list[Path]":
    """Where PaddleNLP's cache may hold a file: newer releases rename it, older ones keep the name of the source."""
    if entry.host is not BCEBOS:
        return []
    home = os.environ.get("PPNLP_HOME") or Path.home() / ".paddlenlp"
    folder = Path(home) / "models" / entry.name
    return [path for name in (file.name, file.source_name) if (path := folder / name).is_file()]
