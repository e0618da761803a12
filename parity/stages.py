"""The vocabulary of the judge: every stage of a forward, in order, and how far it may be from the truth.

table, rows, mask                                            what attention looks up and who may see whom
embeddings                                                   [B, L, N]
layer.N.query | key | value                                  [B, L, N], before the heads are split
layer.N.scores | probs                                       [B, H, F, T], scores before the mask
layer.N.context | attention_output | ffn | output            [B, L, N], ffn [B, L, I] after the activation
pooler                                                       [B, N]
mlm.transform, mlm.logits, nsp.logits, classifier.logits     what the head gives
loss                                                         []
grad:<parameter>                                             by PaddleNLP's parameter names
"""

import numpy as np

from paddle_nezha.config import NeZhaConfig

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

# Gathers, comparisons and integers have one right answer.
EXACT = ("rows", "mask")
# NumPy and PyTorch call different sines and cosines: measured up to 1e-14 apart near 1. The float32 table is exact.
TABLE_LIMIT = 2e-14
# "Is the formula the same": float64 on both sides. Reached are about 1e-14 on tiny models; the rest is room for length.
FORMULA_LIMIT = 1e-10
# "Is the arithmetic as good": Paddle's float32 error over PyTorch's own, geometric mean over the samples.
RATIO_LIMIT = 1.5
# Paddle's reductions on a CPU add one number after another in float32, PyTorch's add in pairs. So the gradients of
# biases and LayerNorms, which are sums over all tokens, are noisier in Paddle by about sqrt(tokens) / 9: measured on
# bare LayerNorm, Linear and `sum` 1.0, 1.5, 2.3, 3.9, 7.4 times PyTorch's error at 14, 64, 256, 1024, 4096 tokens.
TOKEN_SUM_RATIO = RATIO_LIMIT / 8.0
# Paddle's GELU on a CPU is 0 where 1 + erf still has a tail: around -5 its float32 error was 4 times PyTorch's. There
# the units of a trained feed-forward rest, those of the seeded cases do not: behind it, without the operators, the
# errors of nezha-tiny-chinese were up to 1.6 times PyTorch's, and 0.7 to 1.1 times with them.
TRAINED_GELU_RATIO = 2.0
# A single sample is noise (Paddle and PyTorch round differently): it fails only far beyond PyTorch's worst.
SINGLE_FACTOR, SINGLE_ULPS = 16.0, 32.0
ULP = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}


def forward_stages(config: NeZhaConfig, head: str) -> "list[str]":
    """Every stage of a forward up to the loss, in order."""
    stages = ["table"] if config.position_encoding == "functional_relative" else []
    stages += ["rows"] if config.use_relative_position else []
    stages += ["mask", "embeddings"]
    for layer in range(config.num_hidden_layers):
        parts = ("query", "key", "value", "scores", "probs", "context", "attention_output", "ffn", "output")
        stages += [f"layer.{layer}.{part}" for part in parts]
    stages.append("pooler")
    if head in ("pretraining", "masked_lm"):
        stages += ["mlm.transform", "mlm.logits"]
    if head in ("pretraining", "next_sentence"):
        stages.append("nsp.logits")
    if head in ("sequence_classification", "token_classification", "question_answering", "multiple_choice"):
        stages.append("classifier.logits")
    return stages if head == "model" else [*stages, "loss"]


def ratio_limit(stage: str, shape: "tuple[int, ...]", tokens: int) -> "tuple[float, str]":
    """What the float32 ratio of a stage may be, and why where it is not RATIO_LIMIT.

    Args:
        shape: of the stage's array. tokens: B * L of the case, pads included.
    """
    allowed = TOKEN_SUM_RATIO * tokens**0.5
    if stage.startswith("grad:") and len(shape) == 1 and allowed > RATIO_LIMIT:
        return allowed, f"a sum over {tokens} tokens, which Paddle adds one after another and PyTorch in pairs"
    return RATIO_LIMIT, ""


def trained_ratio_limit(stage: str, shape: "tuple[int, ...]", tokens: int) -> "tuple[float, str]":
    """`ratio_limit` for trained weights where Paddle computes the GELU."""
    limit, reason = ratio_limit(stage, shape, tokens)
    before = ("embeddings", *(f"layer.0.{part}" for part in ("query", "key", "value", "scores", "probs", "context")))
    if limit >= TRAINED_GELU_RATIO or stage in (*before, "table", "layer.0.attention_output"):
        return limit, reason
    return TRAINED_GELU_RATIO, "Paddle's GELU is 0 where PyTorch's still has a tail, and trained units rest there"


def never_made(stage: str, form: str) -> bool:
    """Whether a form never holds a stage whole: the blocked one no scores, the operator nothing before its context."""
    inside = {"dense": (), "blocked": (".scores", ".probs")}
    return stage.endswith(inside.get(form, (".scores", ".probs", ".query", ".key", ".value", "table")))


def token_axes(stage: str) -> int:
    """How many axes after B run over query tokens: where pad positions are left out of a comparison.

    Returns:
        1 for [B, L, …], 2 for [B, H, F, T] (the third axis), 0 where there is none.
    """
    if stage.endswith((".scores", ".probs")):
        return 2
    tokenwise = ("embeddings", "query", "key", "value", "context", "attention_output", "ffn", "output")
    return int(stage.rsplit(".", 1)[-1] in tokenwise or stage in ("mlm.transform", "mlm.logits"))


def scale_siblings(parameter: str) -> "tuple[str, ...]":
    """Parameters whose gradients share one scale with this one's, for a gradient may be exactly zero:
    softmax does not see a shift of all its inputs, so neither the key's bias nor, where the softmax runs over
    positions or choices, a classifier's bias and the LayerNorm bias below it; and at L = 1 no query or key has a
    gradient."""
    module, _, _ = parameter.rpartition(".")
    owner, _, name = module.rpartition(".")
    if owner.endswith(".attention") and name in ("query", "key", "value", "relative_key", "relative_value"):
        return tuple(f"{owner}.{part}.{kind}" for part in ("query", "key", "value") for kind in ("weight", "bias"))
    return (f"{module}.weight", f"{module}.bias")
