"""What a forward accepts: ids, embeddings, masks and labels, checked before anything is computed.

Types and shapes are always checked. Values are looked at where that is free (eager mode on a CPU): on a GPU it would
be a synchronisation, and a traced graph has none.
"""

import difflib
import os
import sys
import warnings
from typing import Any, Optional

from paddle_nezha._paddle import Tensor, is_eager, paddle, plain_python, values_can_be_read

_INTEGERS = (paddle.int32, paddle.int64)
_MASK_INTEGERS = (paddle.bool, paddle.int8, paddle.uint8, paddle.int16, paddle.int32, paddle.int64)
_HALVES = (paddle.float16, paddle.bfloat16)
_FLOATS = (*_HALVES, paddle.float32, paddle.float64)
IGNORED_LABELS = (-100, -1)

_PACKAGE = os.path.dirname(__file__) + os.sep
_PADDLE = os.path.dirname(paddle.__file__) + os.sep

_NO_CACHE = ("cache", "past_key_values", "use_cache", "encoder_hidden_states", "encoder_attention_mask")


@plain_python
def refuse_unknown(arguments: "dict[str, Any]", known: "tuple[str, ...]") -> None:
    """Refuses what a forward does not take.

    Raises:
        NotImplementedError: a cache or cross-attention argument that is not None or False.
        TypeError: any other name; the message gives the nearest known one.
    """
    for name, value in arguments.items():
        if name in _NO_CACHE:
            if value is None or value is False:
                continue
            raise NotImplementedError(
                f"{name} is not supported: NeZha is an encoder whose every position sees the whole sequence, so there "
                "is nothing to keep from an earlier call. Pass the full sequence, with a [B, L, L] attention_mask if "
                "some positions must not see others."
            )
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"forward() has no argument {name!r}.{hint} It takes: {', '.join(known)}.")


@plain_python
def warn_caller(message: str) -> None:
    """A warning that points at the line outside this package, and outside Paddle, that called a model."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, _PADDLE)):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


@plain_python
def check_tensor(name: str, value: Any) -> None:
    if is_eager() and not isinstance(value, paddle.Tensor):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        remedy = "tokenize with return_tensors='pd'" if kind.startswith("torch") else "pass paddle.to_tensor(...)"
        raise TypeError(f"{name} must be a paddle.Tensor, but got {kind}: {remedy}.")


@plain_python
def check_shape(name: str, value: Tensor, *expected: "Optional[int]", remedy: str = "") -> None:
    """Axes given as None, and those that a traced graph leaves open (negative), fit anything.

    Args:
        remedy: what to do about a shape that does not fit, a whole sentence.
    """
    shape = list(value.shape)
    fits = len(shape) == len(expected) and all(
        want is None or want < 0 or got < 0 or want == got for want, got in zip(expected, shape)
    )
    if not fits:
        wanted = ", ".join("any" if want is None or want < 0 else str(want) for want in expected)
        remedy = remedy or "It goes with the ids of the same call: make both from one batch."
        raise ValueError(f"{name} must have shape [{wanted}], but got {shape}. {remedy}")


@plain_python
def check_ids(name: str, ids: Tensor, limit: int, what: str) -> None:
    """Integer ids [B, L], each in 0 .. limit - 1.

    Raises:
        TypeError: not a Paddle tensor, or not int32 / int64.
        ValueError: another rank, an empty axis, or (eager mode on a CPU) an id out of range.
    """
    check_tensor(name, ids)
    if ids.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be int32 or int64, but got {ids.dtype}: convert with {name}.astype('int64').")
    if len(ids.shape) != 2 or 0 in ids.shape:
        raise ValueError(
            f"{name} must have shape [batch, length], neither of them 0, but got {list(ids.shape)}: give one text as a "
            "batch of one, [1, length]."
        )
    if values_can_be_read(ids):
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= limit:
            raise ValueError(
                f"{name} must lie in 0 .. {limit - 1} ({what} is {limit}), but got {low if low < 0 else high}: "
                "check that tokenizer and checkpoint belong together."
            )


@plain_python
def check_embeddings(inputs_embeds: Tensor, table: Tensor) -> None:
    """Word embeddings [B, L, N] in the dtype of the word table [V, N], or in half precision (mixed precision)."""
    check_tensor("inputs_embeds", inputs_embeds)
    if inputs_embeds.dtype not in (table.dtype, *_HALVES):
        raise TypeError(
            f"inputs_embeds must have the model's dtype {table.dtype}, but got {inputs_embeds.dtype}: "
            "convert with inputs_embeds.astype(model.get_input_embeddings().weight.dtype)."
        )
    remedy = "Look them up in model.get_input_embeddings()."
    check_shape("inputs_embeds", inputs_embeds, None, None, table.shape[1], remedy=remedy)
    if 0 in inputs_embeds.shape:
        raise ValueError(f"inputs_embeds must not be empty, but got shape {list(inputs_embeds.shape)}. {remedy}")


@plain_python
def check_choices(
    input_ids: Optional[Tensor],
    token_type_ids: Optional[Tensor],
    attention_mask: Optional[Tensor],
    inputs_embeds: Optional[Tensor],
) -> None:
    """The inputs of multiple choice, each [B, C, L, …], before the choices are merged into the batch.

    Raises:
        ValueError: a rank without the axis of choices, no choices at all, or inputs that differ in B or C: merged, they
            might fit and pair each choice with another's mask.
    """
    first: "Optional[list[int]]" = None
    for name, item, ranks in (
        ("input_ids", input_ids, (3,)),
        ("inputs_embeds", inputs_embeds, (4,)),
        ("token_type_ids", token_type_ids, (3,)),
        ("attention_mask", attention_mask, (3, 4, 5)),
    ):
        if item is None:
            continue
        check_tensor(name, item)
        shape = list(item.shape)
        if len(shape) not in ranks or 0 in shape:
            raise ValueError(
                f"Multiple choice reads {name} with the axes [batch, choices, length, …], none of them 0, but got "
                f"shape {shape}: stack the choices of each example along axis 1."
            )
        first = first or shape
        check_shape(name, item, *first[:2], *[None] * (len(shape) - 2))


@plain_python
def check_precision(words: Tensor) -> None:
    """Refuses half precision on a CPU, where Paddle has no kernels for it."""
    if words.dtype in _HALVES and values_can_be_read(words):
        raise TypeError(
            f"The model would compute in {words.dtype}, but Paddle has no CPU kernels for it: convert with "
            "model.to(dtype='float32') (and inputs_embeds.astype('float32')), or move to a GPU."
        )


@plain_python
def visible_keys(mask: Tensor, batch: int, length: int, heads: int) -> Tensor:
    """An attention mask as truth values that broadcast over [B, H, F, T].

    Args:
        mask: [B, L], [B, L, L] or [B, 1 or H, L, L]; bool or integer, 1 attends and 0 does not. A float mask must
            hold 0 and 1 as well.

    Returns:
        bool [B, 1, 1, L], [B, 1, L, L] or [B, 1 or H, L, L].

    Raises:
        TypeError: another kind of tensor.
        ValueError: another shape; values other than 0 and 1; a float mask of zeros only, which is an additive mask
            that hides nothing or a 0/1 mask that hides everything (values: eager mode on a CPU).
    """
    check_tensor("attention_mask", mask)
    if mask.dtype not in _MASK_INTEGERS + _FLOATS:
        raise TypeError(
            f"attention_mask must be bool, integer or floating point, but got {mask.dtype}: convert with "
            "attention_mask.astype('int64')."
        )
    _check_mask_shape(list(mask.shape), batch, length, heads)
    if mask.dtype != paddle.bool and values_can_be_read(mask):
        _check_mask_values(mask)
    visible = mask.astype("bool")
    return (
        visible.unsqueeze([1, 2])
        if len(mask.shape) == 2
        else visible.unsqueeze([1])
        if len(mask.shape) == 3
        else visible
    )


def _check_mask_shape(shape: "list[int]", batch: int, length: int, heads: int) -> None:
    wanted: "dict[int, list[tuple[int, ...]]]" = {
        2: [(batch, length)],
        3: [(batch, length, length)],
        4: [(batch, 1, length, length), (batch, heads, length, length)],
    }

    def fits(want: "tuple[int, ...]") -> bool:
        return all(a < 0 or b < 0 or a == b for a, b in zip(want, shape))

    if not any(fits(want) for want in wanted.get(len(shape), ())):
        broadcast = len(shape) == 4 and shape[1:3] == [1, 1]
        remedy = (
            "Squeeze axes 1 and 2, and if it is additive (0 keeps) convert it: "
            "attention_mask = (mask.squeeze([1, 2]) > -1).astype('int64')."
            if broadcast
            else "Take it from the tokenizer with return_attention_mask=True, for the same texts."
        )
        raise ValueError(
            f"attention_mask must have shape [B, L], [B, L, L], [B, 1, L, L] or [B, {heads}, L, L] with B = {batch} "
            f"and L = {length}, but got {shape}. {remedy}"
        )


def _check_mask_values(mask: Tensor) -> None:
    wide = mask.astype("float64") if mask.dtype in _FLOATS else mask.astype("int64")
    is_float = mask.dtype in _FLOATS
    if bool(((wide != 0) & (wide != 1)).any()):
        low, high = wide.min().item(), wide.max().item()
        if low < 0:
            remedy = "An additive mask (0 keeps, far below 0 hides) becomes one with (mask > -1).astype('int64')."
        elif is_float and bool((wide != wide.round()).any()):
            remedy = "Fractions and NaN say neither: make the mask with (input_ids != pad_token_id).astype('int64')."
        else:
            remedy = "If every number but 0 attends, (mask != 0).astype('int64') says so."
        raise ValueError(
            f"attention_mask must hold 1 (attends) and 0 (does not), but got values between {low:g} and {high:g}. "
            f"{remedy}"
        )
    if is_float and not bool((wide == 1).any()):
        raise ValueError(
            "attention_mask is floating point and all zeros: as an additive mask that hides nothing, as a 0/1 mask "
            "everything. Leave it out to show all, or convert an additive mask with "
            "attention_mask = (mask > -1).astype('int64')."
        )


@plain_python
def check_class_labels(name: str, labels: Tensor, logits: Tensor, classes: Optional[int] = None) -> Tensor:
    """Class labels for logits [..., K].

    Args:
        logits: or what they will be made of, [..., N].
        classes: K; None is the last axis of the logits.
        labels: int32 or int64 [...] or [..., 1]; 0 .. K - 1, or -100 or -1 where there is no label.

    Returns:
        int64 [...].

    Raises:
        TypeError: not an integer tensor.
        ValueError: another shape, or (eager mode on a CPU) a label out of range.
    """
    *shape, last = list(logits.shape)
    classes = last if classes is None else classes
    labels = _integers(name, labels, shape)
    if values_can_be_read(labels):
        fits = (labels >= 0) & (labels < classes)
        for value in IGNORED_LABELS:
            fits = fits | (labels == value)
        if not bool(fits.all()):
            raise ValueError(
                f"{name} must lie in 0 .. {classes - 1}, or be {' or '.join(map(str, IGNORED_LABELS))} where there is "
                f"no label, but got {labels.masked_select(~fits)[0].item()}: compare the labels of the data with the "
                "config's num_labels (or the tokenizer's vocabulary with vocab_size)."
            )
    return labels


@plain_python
def check_loss_only(labels: "dict[str, Optional[Tensor]]", **outputs: Optional[bool]) -> None:
    """What comes with `loss_only=True`: labels, and no request for other outputs.

    Raises:
        ValueError: none of the labels; another output.
    """
    if all(item is None for item in labels.values()):
        raise ValueError(
            f"loss_only=True returns the loss alone, but no labels came to make it of: give {' or '.join(labels)}, or "
            "leave loss_only out."
        )
    for name, value in outputs.items():
        if value:
            raise ValueError(
                f"loss_only=True returns the loss alone, but {name}=True came with it: ask for one of the two."
            )


@plain_python
def check_positions(name: str, positions: Tensor, logits: Tensor) -> Tensor:
    """Positions [B] or [B, 1] for logits [B, L], as int64 [B]; one outside 0 .. L - 1 is an answer that was cut off."""
    return _integers(name, positions, list(logits.shape)[:-1])


@plain_python
def check_targets(name: str, labels: Tensor, logits: Tensor) -> Tensor:
    """Several labels at once, in the shape of the logits, each from 0 to 1 (looked at in eager mode on a CPU)."""
    check_tensor(name, labels)
    check_shape(name, labels, *logits.shape)
    if values_can_be_read(labels):
        misfits = ~((labels >= 0) & (labels <= 1))  # NaN is one too
        if bool(misfits.any()):
            raise ValueError(
                f"{name} must lie in 0 .. 1 where several can be right at once, but got "
                f"{labels.masked_select(misfits)[0].item():g}: give integers for one class each, or set problem_type."
            )
    return labels


@plain_python
def check_numbers(name: str, labels: Tensor, logits: Tensor) -> Tensor:
    """Numbers in the shape of the logits; a trailing axis of 1 is accepted and dropped."""
    return _shaped(name, labels, list(logits.shape))


def _integers(name: str, labels: Tensor, shape: "list[int]") -> Tensor:
    labels = _shaped(name, labels, shape)
    if labels.dtype not in _INTEGERS:
        raise TypeError(
            f"{name} must be int32 or int64 class indices, but got {labels.dtype}: convert with {name}.astype('int64')."
        )
    return labels.astype("int64")


def _shaped(name: str, labels: Tensor, shape: "list[int]") -> Tensor:
    check_tensor(name, labels)
    if len(labels.shape) == len(shape) + 1 and labels.shape[-1] == 1:
        labels = labels.squeeze(-1)
    check_shape(name, labels, *shape)
    return labels
