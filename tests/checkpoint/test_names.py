import dataclasses
import math
import subprocess
import sys

import pytest

from paddle_nezha.checkpoint import DIALECTS, HEADS, TIES, detect, parameter_shapes
from paddle_nezha.config import NEZHA_PRETRAINED_INIT_CONFIGURATION, NeZhaConfig

POSITION_ENCODINGS = ("functional_relative", "parametric_relative", "absolute")


def with_positions(config, position_encoding):
    return dataclasses.replace(config, position_encoding=position_encoding)


@pytest.mark.parametrize(
    ("name", "count"), [("nezha-base-chinese", 102_489_226), ("nezha-large-wwm-chinese", 326_072_970)]
)
def test_published_sizes(name, count):
    """Q15: the figures of the official files with all pretraining heads, the tied decoder counted once."""
    config = NeZhaConfig(**NEZHA_PRETRAINED_INIT_CONFIGURATION[name])
    shapes = parameter_shapes(config, "pretraining")
    assert sum(math.prod(shape) for parameter, shape in shapes.items() if parameter not in TIES) == count
    assert not any("position" in parameter for parameter in shapes)


def test_one_layer_by_hand(tiny):
    shapes = parameter_shapes(tiny, "model")
    layer = {name[len("encoder.layer.1.") :]: shape for name, shape in shapes.items() if ".layer.1." in name}
    square = {f"attention.{part}.weight": (32, 32) for part in ("query", "key", "value", "dense")}
    flat = {f"attention.{part}.bias": (32,) for part in ("query", "key", "value", "dense", "layer_norm")}
    assert layer == {
        **square,
        **flat,
        "attention.layer_norm.weight": (32,),
        "ffn.weight": (32, 37),
        "ffn.bias": (37,),
        "ffn_output.weight": (37, 32),
        "ffn_output.bias": (32,),
        "layer_norm.weight": (32,),
        "layer_norm.bias": (32,),
    }
    assert {name: shape for name, shape in shapes.items() if not name.startswith("encoder.")} == {
        "embeddings.word_embeddings.weight": (99, 32),
        "embeddings.token_type_embeddings.weight": (3, 32),
        "embeddings.layer_norm.weight": (32,),
        "embeddings.layer_norm.bias": (32,),
        "pooler.dense.weight": (32, 32),
        "pooler.dense.bias": (32,),
    }
    assert len(shapes) == 2 * len(layer) + 6


def test_position_encodings_add_their_own_tables(tiny):
    plain = parameter_shapes(tiny, "model")
    absolute = parameter_shapes(with_positions(tiny, "absolute"), "model")
    assert absolute.items() - plain.items() == {("embeddings.position_embeddings.weight", (41, 32))}
    learned = parameter_shapes(with_positions(tiny, "parametric_relative"), "model")
    assert learned.items() - plain.items() == {
        (f"encoder.layer.{number}.attention.relative_{part}.weight", (11, 8))
        for number in range(2)
        for part in ("key", "value")
    }
    assert plain.keys() < absolute.keys() and plain.keys() < learned.keys()


PREDICTIONS = {
    "cls.predictions.dense.weight": (32, 32),
    "cls.predictions.dense.bias": (32,),
    "cls.predictions.layer_norm.weight": (32,),
    "cls.predictions.layer_norm.bias": (32,),
    "cls.predictions.decoder_weight": (99, 32),
    "cls.predictions.decoder_bias": (99,),
}
NEXT_SENTENCE = {"cls.seq_relationship.weight": (32, 2), "cls.seq_relationship.bias": (2,)}


@pytest.mark.parametrize(
    ("head", "own"),
    [
        ("pretraining", {**PREDICTIONS, **NEXT_SENTENCE}),
        ("masked_lm", PREDICTIONS),
        ("next_sentence", NEXT_SENTENCE),
        ("sequence_classification", {"classifier.weight": (32, 6), "classifier.bias": (6,)}),
        ("token_classification", {"classifier.weight": (32, 6), "classifier.bias": (6,)}),
        ("question_answering", {"classifier.weight": (32, 2), "classifier.bias": (2,)}),
        ("multiple_choice", {"classifier.weight": (32, 1), "classifier.bias": (1,)}),
    ],
)
def test_heads_add_their_own_parameters(tiny, head, own):
    model = {f"nezha.{name}": shape for name, shape in parameter_shapes(tiny, "model").items()}
    assert parameter_shapes(tiny, head) == {**model, **own}


def test_unknown_head(tiny):
    with pytest.raises(ValueError, match="one of model, pretraining, .*but got 'mlm'"):
        parameter_shapes(tiny, "mlm")


# The map


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("position_encoding", ["functional_relative", "absolute"])
def test_map_is_reversible(tiny, head, position_encoding):
    """Each of our names has one name in each dialect, no two the same, and the way back leads to it."""
    names = list(parameter_shapes(with_positions(tiny, position_encoding), head))
    for dialect in DIALECTS.values():
        weights = [dialect.to_theirs(name, head) for name in names]
        assert None not in weights
        assert len({weight.theirs for weight in weights}) == len(names)
        for name, weight in zip(names, weights):
            assert dialect.to_ours(weight.theirs) == weight
            assert name.endswith(weight.ours)


def test_hf_names_and_turns():
    """The table of the published code bases, some rows written out, squares and oblongs alike."""
    hf = DIALECTS["hf"]
    for ours, theirs, turned in [
        ("embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight", False),
        ("embeddings.layer_norm.weight", "embeddings.LayerNorm.weight", False),
        ("encoder.layer.11.attention.query.weight", "encoder.layer.11.attention.self.query.weight", True),
        ("encoder.layer.0.attention.value.bias", "encoder.layer.0.attention.self.value.bias", False),
        ("encoder.layer.0.attention.dense.weight", "encoder.layer.0.attention.output.dense.weight", True),
        (
            "encoder.layer.0.attention.layer_norm.bias",
            "encoder.layer.0.attention.output.LayerNorm.bias",
            False,
        ),
        ("encoder.layer.0.ffn.weight", "encoder.layer.0.intermediate.dense.weight", True),
        ("encoder.layer.0.ffn_output.weight", "encoder.layer.0.output.dense.weight", True),
        ("encoder.layer.0.layer_norm.weight", "encoder.layer.0.output.LayerNorm.weight", False),
        ("pooler.dense.weight", "pooler.dense.weight", True),
        ("cls.predictions.dense.weight", "cls.predictions.transform.dense.weight", True),
        ("cls.predictions.layer_norm.weight", "cls.predictions.transform.LayerNorm.weight", False),
        ("cls.predictions.decoder_weight", "cls.predictions.decoder.weight", False),
        ("cls.predictions.decoder_bias", "cls.predictions.bias", False),
        ("cls.seq_relationship.weight", "cls.seq_relationship.weight", True),
    ]:
        assert hf.to_theirs(ours, "pretraining") == (ours, theirs, turned)
    assert hf.to_theirs("classifier.weight", "question_answering").theirs == "qa_outputs.weight"
    assert hf.to_theirs("classifier.weight", "token_classification").theirs == "classifier.weight"


@pytest.mark.parametrize("prefix", ["", "nezha.", "bert.", "module.", "module.bert.", "module.module.nezha."])
def test_prefixes_and_second_spellings(prefix):
    hf, paddle = DIALECTS["hf"], DIALECTS["paddlenlp"]
    assert paddle.to_ours(prefix + "embeddings.layer_norm.bias").ours == "embeddings.layer_norm.bias"
    for theirs, ours in [
        ("embeddings.LayerNorm.gamma", "embeddings.layer_norm.weight"),
        ("encoder.layer.10.output.LayerNorm.beta", "encoder.layer.10.layer_norm.bias"),
    ]:
        assert hf.to_ours(prefix + theirs).ours == ours
    assert hf.to_ours("module.cls.predictions.decoder.bias").ours == "cls.predictions.decoder_bias"


@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.{}.ffn.weight",
        "encoder.layer.01.ffn.weight",
        "encoder.layer.-1.ffn.weight",
        "encoder.layer.0.ffn.weight.",
        "xencoder.layer.0.ffn.weight",
        "nezha.cls.predictions.decoder_bias",
        "bert.nezha.pooler.dense.bias",
        "pooler.dense",
        "",
    ],
)
def test_names_of_nothing(name):
    assert DIALECTS["paddlenlp"].to_ours(name) is None


def test_learned_relative_tables_have_no_foreign_name():
    name = "encoder.layer.0.attention.relative_key.weight"
    assert DIALECTS["paddlenlp"].to_ours(name) == (name, name, False)
    assert DIALECTS["hf"].to_theirs(name, "model") is None


@pytest.mark.parametrize("head", HEADS)
def test_detection(tiny, head):
    names = parameter_shapes(tiny, head)
    assert detect(names).name == "paddlenlp"
    assert detect([DIALECTS["hf"].to_theirs(name, head).theirs for name in names]).name == "hf"
    assert detect([]).name == "paddlenlp"


def test_no_framework_is_imported():
    """Design: the checkpoint package works where neither Paddle nor torch is installed."""
    code = "import sys, paddle_nezha.checkpoint; print(sorted({'paddle', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
