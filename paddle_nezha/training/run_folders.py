"""Where a run's folder is given for the model that the run left in it."""

from pathlib import Path

from paddle_nezha.training.runs import MODEL_FOLDER, RUN_FILE


def model_in(folder: Path) -> Path:
    """The model in a run's folder; any other folder is itself.

    Raises:
        ValueError: a run that is not finished, or the runs of several seeds.
    """
    if any(folder.glob("*config.json")):  # of a model or a tokenizer; a run has none
        return folder
    if (folder / MODEL_FOLDER).is_dir():
        return folder / MODEL_FOLDER
    goes_on = "has left no model yet: the command that began it goes on with it until it is finished."
    if (folder / RUN_FILE).exists():
        raise ValueError(f"{folder} is a run that {goes_on}")
    finished = sorted(path.parent.name for path in folder.glob(f"*/{MODEL_FOLDER}") if path.is_dir())
    if finished:
        raise ValueError(f"{folder} holds several models: name one of {', '.join(finished)} in it.")
    begun = sorted(path.parent.name for path in folder.glob(f"*/{RUN_FILE}"))
    if begun:
        raise ValueError(f"{folder} holds a run, {begun[0]}, that {goes_on}")
    return folder
