import dataclasses
import math
import subprocess
import sys

import pytest

from paddle_nezha.checkpoint import TIES, parameter_shapes
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


def test_no_framework_is_imported():
    """Design: the checkpoint package works where neither Paddle nor torch is installed."""
    code = "import sys, paddle_nezha.checkpoint; print(sorted({'paddle', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
