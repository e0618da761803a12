"""Which checkpoints were published, where, and what is known of each: data, and how an address is made of it.

No checksum here is ours: `sha256=None` says that none was ever published. Such a file is pinned when it is first used.
"""

import difflib
import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Optional

from paddle_nezha.config import HISTORICAL_NAMES, NEZHA_PRETRAINED_INIT_CONFIGURATION

VOCABULARY_NAME = "vocab.txt"
CONFIG_NAME = "config.json"
PDPARAMS_NAME, TORCH_NAME = "model_state.pdparams", "pytorch_model.bin"
MIRROR_VARIABLE = "PADDLE_NEZHA_MIRROR"

# Parameters with all pretraining heads, the tied word table counted once.
BASE_PARAMETERS, LARGE_PARAMETERS = 102_489_226, 326_072_970
BYTES_PER_PARAMETER = 4  # of the official files, which are float32


@dataclass(frozen=True)
class Host:
    """A place that serves checkpoints. `variable` names the environment variable that moves it elsewhere."""

    address: str
    variable: Optional[str] = None


BCEBOS = Host("https://bj.bcebos.com/paddlenlp/models/transformers/nezha")
HUGGING_FACE = Host("https://huggingface.co", "HF_ENDPOINT")


@dataclass(frozen=True)
class RemoteFile:
    """One file of a published checkpoint.

    Args:
        name: its name in the folder that `from_pretrained` opens.
        path: where it is, behind the address of its host or of a mirror.
        sha256, size: as published, size in bytes; None where nothing was published.
    """

    name: str
    path: str
    sha256: Optional[str] = None
    size: Optional[int] = None

    @property
    def is_weights(self) -> bool:
        return self.name in (PDPARAMS_NAME, TORCH_NAME)

    @property
    def source_name(self) -> str:
        """Its name at the source, which PaddleNLP's cache keeps."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Entry:
    """A published checkpoint.

    Args:
        files: small ones first, so that a wrong address shows before a gigabyte has come.
        parameters: how many numbers the weights hold, all pretraining heads included.
        config: the settings where the source has no config file, else None.
        licence, provenance: in words; what nobody stated is said to be unstated.
    """

    name: str
    host: Host
    files: "tuple[RemoteFile, ...]"
    parameters: int
    config: "Optional[dict[str, Any]]"
    licence: str
    provenance: str

    @property
    def weights(self) -> RemoteFile:
        return next(file for file in self.files if file.is_weights)

    def address(self, file: RemoteFile, mirror: Optional[str] = None) -> str:
        """The URL of a file: of `mirror`, else of PADDLE_NEZHA_MIRROR, else of the host (HF_ENDPOINT honoured)."""
        moved = os.environ.get(self.host.variable) if self.host.variable else None
        base = mirror or os.environ.get(MIRROR_VARIABLE) or moved or self.host.address
        return f"{base.rstrip('/')}/{file.path}"


_VOCABULARY = RemoteFile(
    VOCABULARY_NAME,
    "nezha-chinese-vocab.txt",
    sha256="45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c",
    size=109_540,
)
_RELEASES = {
    "nezha-base-chinese": "NEZHA-base",
    "nezha-base-wwm-chinese": "NEZHA-base-WWM",
    "nezha-large-chinese": "NEZHA-large",
    "nezha-large-wwm-chinese": "NEZHA-large-WWM",
}


def _official(name: str) -> Entry:
    return Entry(
        name=name,
        host=BCEBOS,
        files=(_VOCABULARY, RemoteFile(PDPARAMS_NAME, f"{name}.pdparams")),
        parameters=_parameters(name),
        config=NEZHA_PRETRAINED_INIT_CONFIGURATION[name],
        licence="Apache-2.0 (PaddleNLP, which publishes it; no separate statement for the weights)",
        provenance=f"Huawei Noah's Ark Lab's {_RELEASES[name]} (arXiv 1909.00204), converted and hosted by PaddleNLP; "
        "no checksum published",
    )


def _hugging_face(repository: str, release: str, weights_sha256: Optional[str] = None) -> Entry:
    def file(name: str, sha256: Optional[str] = None) -> RemoteFile:
        return RemoteFile(name, f"{repository}/resolve/main/{name}", sha256)

    return Entry(
        name=repository,
        host=HUGGING_FACE,
        files=(file(CONFIG_NAME), file(VOCABULARY_NAME), file(TORCH_NAME, weights_sha256)),
        parameters=_parameters(repository),
        config=None,
        licence="AFL-3.0",
        provenance=f"Huawei Noah's Ark Lab's {release} (arXiv 1909.00204), converted for transformers by sijunhe",
    )


def _parameters(name: str) -> int:
    return LARGE_PARAMETERS if "large" in name else BASE_PARAMETERS


ENTRIES: "dict[str, Entry]" = {
    entry.name: entry
    for entry in (
        *(_official(name) for name in NEZHA_PRETRAINED_INIT_CONFIGURATION),
        _hugging_face("sijunhe/nezha-cn-base", "NEZHA-base"),
        _hugging_face(
            "sijunhe/nezha-cn-large", "NEZHA-large", "d162f8667bf77baaa8d5850ea81c7c432944d7bff5fd9208451c3d5e47771c47"
        ),
        _hugging_face("sijunhe/nezha-base-wwm", "NEZHA-base-WWM"),
        _hugging_face(
            "sijunhe/nezha-large-wwm",
            "NEZHA-large-WWM",
            "b1172679412134f2558dfd9d510093f0fa83720b34b4c95e33b4f076078ada00",
        ),
    )
}


def is_published(name: str) -> bool:
    """Whether `fetch` knows the name, or at least what it once meant."""
    return name in ENTRIES or name in HISTORICAL_NAMES


def published(name: str) -> Entry:
    """The entry of a name.

    Raises:
        ValueError: no such name; the message explains a historical one, and else gives the nearest and all names.
    """
    if name in ENTRIES:
        return ENTRIES[name]
    if name in HISTORICAL_NAMES:
        raise ValueError(f"{name!r} names no file: {HISTORICAL_NAMES[name]}")
    close = difflib.get_close_matches(name, ENTRIES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{name!r} is no published checkpoint.{hint} Published: {', '.join(ENTRIES)}.")
