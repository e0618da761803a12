"""Every parameter of every head: its name and its shape, as PaddleNLP's files carry them.

Axis letters: N hidden, D = N / H head size, I feed-forward width, V vocabulary, R = 2m + 1. A Linear weight
is [in, out], as Paddle stores it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import NeZhaConfig

Shapes = dict[str, tuple[int, ...]]

HEADS = (
    "model",
    "pretraining",
    "masked_lm",
    "next_sentence",
    "sequence_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
)

# The parts that heads add to the model, by the prefix of their parameters.
HEAD_PARTS = ("cls.predictions.", "cls.seq_relationship.", "classifier.")

# One parameter under two names: files may hold the first or leave it out, and it equals the second.
TIES = {"cls.predictions.decoder_weight": "embeddings.word_embeddings.weight"}

ABSOLUTE_TABLE = "embeddings.position_embeddings.weight"
RELATIVE_TABLES = ("attention.relative_key.weight", "attention.relative_value.weight")

_PREFIX = "nezha."
# Around a whole model: torch's DataParallel and TensorFlow Hub, people's own modules and Lightning, torch.compile.
_WRAPPERS = ("module", "model", "_orig_mod")
# Around the model without its head. `encoder` is what people call it in a module of their own, and stands before
# the model's own `encoder`.
_BASES = ("nezha", "bert", "encoder")
_BASE_PARTS = ("embeddings", "encoder", "pooler")


def bare(name: str, separator: str = ".", parts: "tuple[str, ...]" = _BASE_PARTS) -> str:
    """A parameter's name without what files put before it: any number of wrappers, then one name of the model.

    Args:
        name: as in a file, e.g. `module.bert.pooler.dense.bias`.
        separator: between the parts of a name.
        parts: what the names of the model itself begin with. Only before those is a model's name taken off.
    """
    plain = unwrapped(name, separator)
    base, _, rest = plain.partition(separator)
    return rest if base in _BASES and rest.split(separator)[0] in parts else plain


def unwrapped(name: str, separator: str = ".") -> str:
    """A parameter's name without the wrappers before it: `module.model.cls.x` is `cls.x`."""
    while name.partition(separator)[0] in _WRAPPERS and separator in name:
        name = name.partition(separator)[2]
    return name


def parameter_shapes(config: "NeZhaConfig", head: str) -> Shapes:
    """Every parameter of a head by PaddleNLP's name.

    Args:
        config: sizes and `position_encoding`.
        head: one of `HEADS`. "model" has names without prefix; in all others the model's own begin
            with `nezha.`.

    Returns:
        Shapes by name, in the order of the forward pass. All heads hold the whole model, pooler included. The
        masked-LM decoder is listed although it is tied to the word embeddings: PaddleNLP's files hold it.

    Raises:
        ValueError: no such head.
    """
    if head not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, but got {head!r}.")
    model = _model(config)
    if head == "model":
        return model
    return {**{_PREFIX + name: shape for name, shape in model.items()}, **_head(config, head)}


def _model(config: "NeZhaConfig") -> Shapes:
    width = config.hidden_size
    shapes: Shapes = {"embeddings.word_embeddings.weight": (config.vocab_size, width)}
    if config.position_encoding == "absolute":
        shapes[ABSOLUTE_TABLE] = (config.max_position_embeddings, width)
    shapes["embeddings.token_type_embeddings.weight"] = (config.type_vocab_size, width)
    shapes.update(_norm("embeddings.layer_norm", width))
    for number in range(config.num_hidden_layers):
        shapes.update(_layer(f"encoder.layer.{number}.", config))
    shapes.update(_linear("pooler.dense", width, width))
    return shapes


def _layer(layer: str, config: "NeZhaConfig") -> Shapes:
    width, inner = config.hidden_size, config.intermediate_size
    shapes: Shapes = {}
    for part in ("query", "key", "value"):
        shapes.update(_linear(f"{layer}attention.{part}", width, width))
    if config.position_encoding == "parametric_relative":
        rows = 2 * config.max_relative_position + 1
        shapes.update({layer + table: (rows, width // config.num_attention_heads) for table in RELATIVE_TABLES})
    shapes.update(_linear(f"{layer}attention.dense", width, width))
    shapes.update(_norm(f"{layer}attention.layer_norm", width))
    shapes.update(_linear(f"{layer}ffn", width, inner))
    shapes.update(_linear(f"{layer}ffn_output", inner, width))
    shapes.update(_norm(f"{layer}layer_norm", width))
    return shapes


def _head(config: "NeZhaConfig", head: str) -> Shapes:
    width = config.hidden_size
    if head in ("pretraining", "masked_lm"):
        shapes = {
            **_linear("cls.predictions.dense", width, width),
            **_norm("cls.predictions.layer_norm", width),
            "cls.predictions.decoder_weight": (config.vocab_size, width),
            "cls.predictions.decoder_bias": (config.vocab_size,),
        }
        return {**shapes, **_linear("cls.seq_relationship", width, 2)} if head == "pretraining" else shapes
    if head == "next_sentence":
        return _linear("cls.seq_relationship", width, 2)
    outputs = {"question_answering": 2, "multiple_choice": 1}.get(head, config.num_labels)
    return _linear("classifier", width, outputs)


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
