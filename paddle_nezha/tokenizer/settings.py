"""The settings of a tokenizer, each with what it may be: keywords of the constructor, keys of its files."""

from typing import Any, Optional

from . import kinds

SPECIAL_NAMES = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
KINDS = {
    **dict.fromkeys(SPECIAL_NAMES, kinds.TOKEN),
    "additional_special_tokens": kinds.ADDABLES,
    "clean_up_tokenization_spaces": kinds.FLAG,
    "do_lower_case": kinds.FLAG,
    "model_max_length": kinds.MODEL_LENGTH,
    "padding_side": kinds.SIDE,
    "split_symbols": kinds.FLAG_OR_NONE,
    "strip_accents": kinds.FLAG_OR_NONE,
    "tokenize_chinese_chars": kinds.FLAG,
}


def setting(name: str, value: Any, file: Optional[str] = None) -> Any:
    """The value of a setting in its one form.

    Raises:
        ValueError: a value the setting cannot have, with its name and the file it stands in.
    """
    return kinds.checked(name, value, KINDS[name], file)
