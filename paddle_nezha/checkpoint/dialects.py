"""The name map between PaddleNLP's parameters and other code bases', as data, read in both directions.

A name alone decides which parameter a tensor is and whether it turns; its shape never does, since square
matrices look the same either way.

The names are those of: PaddleNLP 3.0.0b4; transformers 4.57.6; NEZHA-PyTorch and NEZHA-TensorFlow of
huawei-noah/Pretrained-Language-Model; lonePatient/NeZha_Chinese_PyTorch; bert4torch 0.1.9 to 0.6.2.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from .errors import CheckpointError
from .names import RELATIVE_TABLES, bare, unwrapped


class Row(NamedTuple):
    """One module. `{}` stands for the number of the layer."""

    ours: str
    theirs: str
    kind: str
    head: Optional[str] = None  # the only head in which the foreign name is used


class Weight(NamedTuple):
    """One parameter under both names. A turned one is [in, out] here and [out, in] there."""

    ours: str
    theirs: str
    turned: bool


class Evidence(NamedTuple):
    """How well a dialect explains a list of names. The larger one wins, the first number before the second."""

    known: int  # names that mean a parameter, under whatever prefix and spelling
    own: int  # names exactly as this code base writes them, its stored position tables included


# The parameters of a module: our suffix, theirs, and whether theirs is turned.
_KINDS: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "linear": ((".weight", ".weight", True), (".bias", ".bias", False)),
    "norm": ((".weight", ".weight", False), (".bias", ".bias", False)),
    "table": ((".weight", ".weight", False),),
    "tensor": (("", "", False),),
    "turned": (("", "", True),),
    "paddle linear": ((".weight", ".weight", False), (".bias", ".bias", False)),
    "tf linear": ((".weight", "/kernel", False), (".bias", "/bias", False)),
    "tf norm": ((".weight", "/gamma", False), (".bias", "/beta", False)),
    "tf table": ((".weight", "", False),),
}

_LAYER = "encoder.layer.{}."
_HF_MODEL = (
    Row("embeddings.word_embeddings", "embeddings.word_embeddings", "table"),
    Row("embeddings.position_embeddings", "embeddings.position_embeddings", "table"),
    Row("embeddings.token_type_embeddings", "embeddings.token_type_embeddings", "table"),
    Row("embeddings.layer_norm", "embeddings.LayerNorm", "norm"),
    Row(_LAYER + "attention.query", _LAYER + "attention.self.query", "linear"),
    Row(_LAYER + "attention.key", _LAYER + "attention.self.key", "linear"),
    Row(_LAYER + "attention.value", _LAYER + "attention.self.value", "linear"),
    Row(_LAYER + "attention.dense", _LAYER + "attention.output.dense", "linear"),
    Row(_LAYER + "attention.layer_norm", _LAYER + "attention.output.LayerNorm", "norm"),
    Row(_LAYER + "ffn", _LAYER + "intermediate.dense", "linear"),
    Row(_LAYER + "ffn_output", _LAYER + "output.dense", "linear"),
    Row(_LAYER + "layer_norm", _LAYER + "output.LayerNorm", "norm"),
    Row("pooler.dense", "pooler.dense", "linear"),
)
_HF_TRANSFORM = (
    Row("cls.predictions.dense", "cls.predictions.transform.dense", "linear"),
    Row("cls.predictions.layer_norm", "cls.predictions.transform.LayerNorm", "norm"),
)
_HF_ROWS = (
    *_HF_MODEL,
    *_HF_TRANSFORM,
    Row("cls.predictions.decoder_weight", "cls.predictions.decoder.weight", "tensor"),
    Row("cls.predictions.decoder_bias", "cls.predictions.bias", "tensor"),
    Row("cls.seq_relationship", "cls.seq_relationship", "linear"),
    Row("classifier", "qa_outputs", "linear", head="question_answering"),
    Row("classifier", "classifier", "linear"),
)
_PADDLE_ROWS = (
    *(
        Row(row.ours, row.ours, "paddle linear" if row.kind == "linear" else row.kind)
        for row in _HF_ROWS
        if row.head is None
    ),
    *(Row(_LAYER + table, _LAYER + table, "tensor") for table in RELATIVE_TABLES),  # of this project alone
)

_BERT4TORCH_LAYER = "encoderLayer.{}."
# It has no classifiers: people write their own around its model.
_BERT4TORCH_ROWS = (
    Row("embeddings.word_embeddings", "embeddings.word_embeddings", "table"),
    Row("embeddings.position_embeddings", "embeddings.position_embeddings", "table"),
    Row("embeddings.token_type_embeddings", "embeddings.segment_embeddings", "table"),
    Row("embeddings.layer_norm", "embeddings.layerNorm", "norm"),
    Row(_LAYER + "attention.query", _BERT4TORCH_LAYER + "multiHeadAttention.q", "linear"),
    Row(_LAYER + "attention.key", _BERT4TORCH_LAYER + "multiHeadAttention.k", "linear"),
    Row(_LAYER + "attention.value", _BERT4TORCH_LAYER + "multiHeadAttention.v", "linear"),
    Row(_LAYER + "attention.dense", _BERT4TORCH_LAYER + "multiHeadAttention.o", "linear"),
    Row(_LAYER + "attention.layer_norm", _BERT4TORCH_LAYER + "attnLayerNorm", "norm"),
    Row(_LAYER + "ffn", _BERT4TORCH_LAYER + "feedForward.intermediateDense", "linear"),
    Row(_LAYER + "ffn_output", _BERT4TORCH_LAYER + "feedForward.outputDense", "linear"),
    Row(_LAYER + "layer_norm", _BERT4TORCH_LAYER + "ffnLayerNorm", "norm"),
    Row("pooler.dense", "pooler", "linear"),
    Row("cls.predictions.dense", "mlmDense", "linear"),
    Row("cls.predictions.layer_norm", "mlmLayerNorm", "norm"),
    Row("cls.predictions.decoder_weight", "mlmDecoder.weight", "tensor"),
    Row("cls.predictions.decoder_bias", "mlmBias", "tensor"),
    Row("cls.seq_relationship", "nsp", "linear"),
)

# A kernel is [in, out], as ours; `output_weights` is [out, in]. The decoder is the word table and no variable.
_TF_ROWS = (
    *(
        Row(row.ours, row.theirs.replace("layer.{}", "layer_{}").replace(".", "/"), f"tf {row.kind}")
        for row in (*_HF_MODEL, *_HF_TRANSFORM)
    ),
    Row("cls.predictions.decoder_bias", "cls/predictions/output_bias", "tensor"),
    Row("cls.seq_relationship.weight", "cls/seq_relationship/output_weights", "turned"),
    Row("cls.seq_relationship.bias", "cls/seq_relationship/output_bias", "tensor"),
    Row("classifier.weight", "cls/squad/output_weights", "turned", head="question_answering"),
    Row("classifier.bias", "cls/squad/output_bias", "tensor", head="question_answering"),
    Row("classifier.weight", "output_weights", "turned"),
    Row("classifier.bias", "output_bias", "tensor"),
)

# What files hold beside parameters, and why it is left out.
_DROPPED = (
    (re.compile(r"relative_positions_encoding"), "a position table, which the model computes"),
    (re.compile(r"(^|\.)(position_ids|token_type_ids)$"), "a constant index, no parameter"),
)


@dataclass(frozen=True)
class Dialect:
    """One code base's names.

    Args:
        name: what reports and options call it.
        rows: its modules beside ours.
        layer: how the names inside of a layer begin.
        separator: between the parts of a name.
        parts: what the names of the model itself begin with, as against its heads'.
        prefix: before those, in files of a model with a head.
        prefix_alone: before those, in files of the model alone.
        copies: (second name, first name) of tensors that files hold twice; both are written.
        tables: names of the position tables that files hold; never read or written, but evidence of their origin.
        spellings: (pattern, replacement) pairs that bring other spellings to the one in `rows`; read only.
    """

    name: str
    rows: tuple[Row, ...]
    layer: str = _LAYER
    separator: str = "."
    parts: tuple[str, ...] = ("embeddings", "encoder", "pooler")
    prefix: str = ""
    prefix_alone: str = ""
    copies: tuple[tuple[str, str], ...] = ()
    tables: tuple[str, ...] = ()
    spellings: tuple[tuple[str, str], ...] = ()
    _read: dict[str, Weight] = field(init=False, repr=False, compare=False)
    _written: dict[tuple[str, Optional[str]], Weight] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weights = [
            (row.head, Weight(row.ours + our_end, row.theirs + their_end, turned))
            for row in self.rows
            for our_end, their_end, turned in _KINDS[row.kind]
        ]
        object.__setattr__(self, "_read", {weight.theirs: weight for _, weight in weights})
        object.__setattr__(self, "_written", {(weight.ours, head): weight for head, weight in weights})

    def to_ours(self, name: str) -> Optional[Weight]:
        """The parameter that a foreign name means, whatever its prefix and spelling; None when it means none."""
        spelled = bare(name, self.separator, self.parts)
        for pattern, replacement in self.spellings:
            spelled = re.sub(pattern, replacement, spelled)
        template, number = _template(dict(self.copies).get(spelled, spelled), self.layer)
        return _numbered(self._read.get(template), number)

    def to_theirs(self, name: str, head: str) -> Optional[Weight]:
        """The same from our name, as files of that head spell it, without prefix; None where they have no such."""
        template, number = _template(bare(name), _LAYER)
        weight = self._written.get((template, head)) or self._written.get((template, None))
        return _numbered(weight, number)

    def to_file(self, name: str, head: str) -> tuple[Weight, ...]:
        """Every name under which this code base's files of a head hold a parameter, prefix included.

        Usually one; two where its files hold the tensor twice; none where they have no such parameter: the tied
        decoder in TensorFlow, learned relative tables everywhere but here, classifiers in bert4torch.
        """
        weight = self.to_theirs(name, head)
        if weight is None:
            return ()
        names = [weight.theirs, *(second for second, first in self.copies if first == weight.theirs)]
        prefix = self.prefix_alone if head == "model" else self.prefix
        return tuple(weight._replace(theirs=prefix + name if self._is_base(name) else name) for name in names)

    def evidence(self, names: Iterable[str]) -> Evidence:
        """How many of the names this dialect knows, and how many of them are its very own."""
        listed = list(names)
        return Evidence(
            known=sum(self.to_ours(name) is not None for name in listed),
            own=sum(self._is_own(name) for name in listed),
        )

    def _is_base(self, name: str) -> bool:
        return name.split(self.separator)[0] in self.parts

    def _is_own(self, name: str) -> bool:
        spelled = bare(name, self.separator, self.parts)
        prefix = unwrapped(name, self.separator)[: -len(spelled)] if spelled else ""
        template, number = _template(spelled, self.layer)
        if self._is_base(spelled) and prefix not in (self.prefix, self.prefix_alone):
            return False
        known = template in self._read or template in self.tables or template in dict(self.copies)
        return known and (bool(number) or "{}" not in template)


PADDLENLP = Dialect("paddlenlp", _PADDLE_ROWS, prefix="nezha.")
_MLM_BIASES = (("cls.predictions.decoder.bias", "cls.predictions.bias"),)
_HF_TABLES = (_LAYER + "attention.self.relative_positions_encoding.positions_encoding",)
# Early torch files, converted from TensorFlow by name, kept its words.
_GAMMA_BETA = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
HF = Dialect("hf", _HF_ROWS, prefix="nezha.", copies=_MLM_BIASES, tables=_HF_TABLES, spellings=_GAMMA_BETA)
HUAWEI = Dialect(
    "huawei",
    _HF_ROWS,
    prefix="bert.",
    spellings=(*_GAMMA_BETA, (r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias")),
)
# Also what bert4torch's `save_pretrained` writes.
NEZHA_CHINESE_PYTORCH = Dialect(
    "nezha_chinese_pytorch",
    _HF_ROWS,
    prefix="bert.",
    copies=_MLM_BIASES,
    tables=_HF_TABLES,
    spellings=_GAMMA_BETA,
)
BERT4TORCH = Dialect(
    "bert4torch",
    _BERT4TORCH_ROWS,
    layer=_BERT4TORCH_LAYER,
    # Its heads are parts of the model, so that a module around it stands before them too.
    parts=("embeddings", "encoderLayer", "pooler", "mlmDense", "mlmLayerNorm", "mlmDecoder", "mlmBias", "nsp"),
    copies=(("mlmDecoder.bias", "mlmBias"),),
    tables=(_BERT4TORCH_LAYER + "multiHeadAttention.relative_positions_encoding.position_embeddings",),
    # Before 0.4
    spellings=((r"\.layerNorm1\.", ".attnLayerNorm."), (r"\.layerNorm2\.", ".ffnLayerNorm.")),
)
TENSORFLOW = Dialect(
    "tensorflow", _TF_ROWS, layer="encoder/layer_{}/", separator="/", prefix="bert/", prefix_alone="bert/"
)
# In the order that settles ties.
DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect for dialect in (PADDLENLP, HF, HUAWEI, NEZHA_CHINESE_PYTORCH, BERT4TORCH, TENSORFLOW)
}


def explain(names: Iterable[str]) -> dict[str, Evidence]:
    """The evidence for each dialect, for reports."""
    listed = list(names)
    return {name: dialect.evidence(listed) for name, dialect in DIALECTS.items()}


def detect(names: Iterable[str]) -> Dialect:
    """The dialect that knows most of the names.

    Where several know as many, the one that writes most of them exactly so, then the first in `DIALECTS`: they
    differ in prefixes alone, and what is read is the same. Names that no dialect knows are the account's affair.

    Raises:
        CheckpointError: dialects that know as many contradict each other about what a name means. A few tensors
            do not tell: `pooler.dense.weight` is [in, out] in PaddleNLP's files and [out, in] in the others.
    """
    listed = list(names)
    found = explain(listed)
    best = max(DIALECTS.values(), key=lambda dialect: found[dialect.name])
    equals = [dialect for dialect in DIALECTS.values() if found[dialect.name].known == found[best.name].known]
    for name in listed:
        readings = {(weight.ours, weight.turned) if weight else None for weight in _readings(equals, name)}
        if len(readings) > 1:
            raise CheckpointError(
                f"The names of the tensors do not tell whose they are: {_listed(equals)} each know "
                f"{found[best.name].known} of {len(listed)}, and read {ascii(name)} differently. "
                "Say which it is by dialect= (--dialect on the command line)."
            )
    return best


def dropped(name: str) -> Optional[str]:
    """Why a tensor of this name is left out on purpose, or None."""
    return next((why for pattern, why in _DROPPED if pattern.search(name)), None)


def _readings(dialects: Iterable[Dialect], name: str) -> list[Optional[Weight]]:
    return [dialect.to_ours(name) for dialect in dialects]


def _listed(dialects: Iterable[Dialect]) -> str:
    *names, last = [dialect.name for dialect in dialects]
    return f"{', '.join(names)} and {last}"


def _template(name: str, layer: str) -> tuple[str, str]:
    numbers = re.match(re.escape(layer).replace(r"\{\}", "(0|[1-9][0-9]*)"), name)
    if numbers is None:
        return name, ""
    return layer + name[numbers.end() :], numbers.group(1)


def _numbered(weight: Optional[Weight], number: str) -> Optional[Weight]:
    if weight is None or (not number and "{}" in weight.ours):  # a file may spell "{}" itself
        return None
    return weight._replace(ours=weight.ours.replace("{}", number), theirs=weight.theirs.replace("{}", number))
