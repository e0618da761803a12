"""What a person means by a name: a folder, or a published checkpoint."""

from pathlib import Path
from typing import Optional, Union

from paddle_nezha.checkpoint.errors import CheckpointError
from paddle_nezha.checkpoint.verify import verify
from paddle_nezha.config import NeZhaConfig

from .fetching import fetch
from .places import PathLike
from .registry import Entry, published


def resolve(
    name_or_folder: Union[str, PathLike], *, cache_dir: Optional[PathLike] = None, weights: bool = True
) -> Path:
    """The folder of a checkpoint: the one named, or that of a published name, fetched if it is not here yet.

    Args:
        weights: False where config and vocabulary are enough.

    Raises:
        FileNotFoundError: neither a folder nor a published name; the message says what is near, or what a historical
            name meant.
        TypeError: no name at all.
        FetchError, CheckpointError: it could not be fetched, or is not what was published.
    """
    if not isinstance(name_or_folder, (str, Path)) and not hasattr(name_or_folder, "__fspath__"):
        raise TypeError(f"expected a folder or a published name, but got {name_or_folder!r}.")
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise FileNotFoundError(f"{folder} is a file: give the folder that holds the config and the weights.")
    try:
        published(str(name_or_folder))
    except ValueError as error:
        raise FileNotFoundError(f"There is no folder {str(name_or_folder)!r}. {error}") from None
    return fetch(str(name_or_folder), cache_dir=cache_dir, check=check_weights, weights=weights)


def check_weights(entry: Entry, weights: Path) -> None:
    """Holds new weights to what is known of a published checkpoint: every tensor's name, shape and dtype, all numbers
    finite, and how many there are. To be handed to `fetch`, so that nothing else is ever trusted.

    Raises:
        CheckpointError: they are something else; the message says what.
    """
    config = NeZhaConfig.from_dict(dict(entry.config)) if entry.config is not None else weights.parent
    findings = verify(weights, config=config, parameters=entry.parameters)
    if not findings.right:
        raise CheckpointError(f"{weights} does not hold the weights of {entry.name}: {findings.problems()}")
