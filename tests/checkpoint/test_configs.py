import dataclasses
import json
import re

import pytest

from paddle_nezha.checkpoint import DIALECTS, HEADS, CheckpointError
from paddle_nezha.checkpoint.configs import SCHEMAS, from_foreign, remarks, remarks_from, to_foreign
from paddle_nezha.config import ACTIVATIONS, NEZHA_PRETRAINED_INIT_CONFIGURATION, NeZhaConfig

# What defines a model's numbers.
MODEL = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "max_relative_position"),
    *("type_vocab_size", "initializer_range", "layer_norm_eps", "position_encoding"),
)


@pytest.fixture
def other(tiny):
    """A config in which every setting differs from its default, as far as every dialect can say it."""
    return dataclasses.replace(
        tiny,
        hidden_act="relu",
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.3,
        max_relative_position=64,
        initializer_range=0.01,
    )


def model_of(config):
    return {name: getattr(config, name) for name in MODEL}


def through_json(content):
    return json.loads(json.dumps(content))


def test_every_dialect_has_a_schema():
    assert list(SCHEMAS) == list(DIALECTS)


# There and back


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dialect", SCHEMAS)
def test_there_and_back(other, dialect, head):
    content = through_json(to_foreign(other, dialect, head))
    back = from_foreign(content, dialect)
    assert model_of(back) == model_of(other)
    assert not back.unread
    if dialect in ("hf", "nezha_chinese_pytorch") and head == "question_answering":
        assert content["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"} and back.num_labels == 2
        assert "num_labels 6 is written as 2" in remarks(other, dialect, head)[0]
    elif "id2label" in SCHEMAS[dialect].keys:
        assert back.id2label == other.id2label and back.num_labels == 6


@pytest.mark.parametrize("dialect", ["paddlenlp", "hf", "nezha_chinese_pytorch"])
def test_the_other_settings_too(other, dialect):
    config = dataclasses.replace(
        other,
        max_relative_position=127,
        layer_norm_eps=1e-7,
        classifier_dropout=0.4,
        pad_token_id=3,
        bos_token_id=None,
        eos_token_id=7,
        use_cache=False,
        problem_type="regression",
        num_labels=3,
    )
    config.id2label = {0: "好", 1: "中", 2: "差"}
    back = from_foreign(through_json(to_foreign(config, dialect, "sequence_classification")), dialect)
    for key in SCHEMAS[dialect].keys:
        assert getattr(back, key) == getattr(config, key), key
    assert remarks(config, dialect, "sequence_classification") == (
        ["layer_norm_eps 1e-07 is written, but PaddleNLP computes with 1e-12"] if dialect == "paddlenlp" else []
    )


def test_classifier_dropout_that_is_not_set():
    """It means `hidden_dropout_prob`, and PaddleNLP's reader would put 0.1 in its place."""
    config = NeZhaConfig(classifier_dropout=None, hidden_dropout_prob=0.3)
    assert to_foreign(config, "hf", "model")["classifier_dropout"] is None
    assert to_foreign(config, "paddlenlp", "model")["classifier_dropout"] == 0.3


@pytest.mark.parametrize("dialect", ["paddlenlp", "huawei", "tensorflow"])
def test_absolute_positions_where_they_exist(other, dialect):
    config = dataclasses.replace(other, position_encoding="absolute")
    content = to_foreign(config, dialect, "model")
    assert content["use_relative_position"] is False
    assert from_foreign(content, dialect).position_encoding == "absolute"


@pytest.mark.parametrize("dialect", SCHEMAS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(tiny, dialect, activation):
    """What is written means the same there, or is refused by name."""
    tanh_form, exact_form = {"gelu_new", "gelu_tanh"}, {"gelu", "gelu_python"}
    config = dataclasses.replace(tiny, hidden_act=activation, max_relative_position=64)
    if activation not in SCHEMAS[dialect].activations:
        with pytest.raises(
            CheckpointError, match=f"hidden_act='{activation}' has no spelling in the config of {dialect}"
        ):
            to_foreign(config, dialect, "model")
        return
    content = to_foreign(config, dialect, "model")
    back = from_foreign(content, dialect).hidden_act
    alike = next((group for group in (tanh_form, exact_form, {"silu", "swish"}) if activation in group), {activation})
    assert back in alike
    said = [line for line in remarks(config, dialect, "model") if line.startswith("hidden_act")]
    assert len(said) == (content["hidden_act"] != activation)


# What the files say


def test_hf_file(tiny):
    content = to_foreign(tiny, "hf", "masked_lm")
    assert content["model_type"] == "nezha" and content["architectures"] == ["NezhaForMaskedLM"]
    assert content["id2label"] == {i: f"LABEL_{i}" for i in range(6)} and "num_labels" not in content
    assert to_foreign(tiny, "hf", "pretraining")["architectures"] == ["NezhaForPreTraining"]
    assert not {"position_encoding", "embedding_size", "unread"} & set(content)


def test_architectures(tiny):
    written = {
        name: to_foreign(dataclasses.replace(tiny, max_relative_position=64, hidden_act="relu"), name, "pretraining")
        for name in SCHEMAS
    }
    assert {name: content.get("architectures") for name, content in written.items()} == {
        "paddlenlp": ["NeZhaForPretraining"],
        "hf": ["NezhaForPreTraining"],
        "huawei": None,
        "nezha_chinese_pytorch": ["NeZhaForPreTraining"],
        "bert4torch": None,
        "tensorflow": None,
    }
    assert written["bert4torch"]["model"] == "nezha"


def test_the_published_huawei_files():
    """The `bert_config.json` of the official base model, PyTorch's and TensorFlow's, key by key."""
    base = NeZhaConfig(**NEZHA_PRETRAINED_INIT_CONFIGURATION["nezha-base-chinese"])
    published = {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 2,
        "vocab_size": 21128,
        "use_relative_position": True,
    }
    assert to_foreign(base, "huawei", "pretraining") == {
        **published,
        "max_relative_position": 64,
        "layer_norm_eps": 1e-12,
    }
    tanh = dataclasses.replace(base, hidden_act="gelu_new")
    assert to_foreign(tanh, "tensorflow", "pretraining") == published
    assert from_foreign(published, "tensorflow") == tanh
    assert from_foreign(published, "huawei") == base
    assert from_foreign(published, "tensorflow", hidden_act="gelu") == base


def test_a_huawei_file_without_the_word_is_a_bert():
    content = to_foreign(NeZhaConfig(hidden_act="relu"), "huawei", "model")
    del content["use_relative_position"]
    assert from_foreign(content, "huawei").position_encoding == "absolute"
    assert from_foreign(content, "hf").position_encoding == "functional_relative"


# What a person is told


def test_conversions_of_gelu_are_told():
    """Design: Huawei's TensorFlow code calls the tanh form gelu."""
    (said,) = remarks_from({"hidden_act": "gelu"}, "tensorflow")
    assert "'gelu' is written as 'gelu_new'" in said and "tanh form" in said and "hidden_act='gelu'" in said
    assert remarks_from({}, "tensorflow") == [said]
    assert remarks_from({"hidden_act": "relu"}, "tensorflow") == remarks_from({"hidden_act": "gelu"}, "hf") == []
    config = NeZhaConfig(hidden_act="gelu_tanh")
    assert remarks(config, "hf", "model") == ["hidden_act 'gelu_tanh' is written as 'gelu_new'"]
    (said,) = remarks(config, "tensorflow", "model")
    assert said.startswith("hidden_act 'gelu_tanh' is written as 'gelu', the name of the tanh form")


def test_what_is_left_out_is_told(tiny):
    config = NeZhaConfig.from_dict(
        {**tiny.to_dict(), "embedding_size": 16, "pooler_type": "x", "quantization_config": {}}
    )
    assert remarks(config, "hf", "model") == [
        "left out, since the file has no such key: embedding_size, pooler_type, quantization_config"
    ]
    (said,) = remarks(config, "huawei", "model")
    assert said.endswith("embedding_size, num_labels, pooler_type, quantization_config")
    config.id2label = {0: "a", 1: "b"}
    assert "id2label, label2id" in remarks(config, "bert4torch", "model")[0]
    assert remarks(NeZhaConfig(), "hf", "model") == remarks(NeZhaConfig(), "huawei", "model") == []


def test_what_is_not_honoured_there_is_told():
    config = NeZhaConfig(layer_norm_eps=1e-6)
    for dialect in ("huawei", "bert4torch"):
        assert remarks(config, dialect, "masked_lm") == [
            "layer_norm_eps 1e-06 is written, but the masked-LM head there has 1e-12"
        ]
        assert remarks(config, dialect, "token_classification") == []
    (said,) = remarks(NeZhaConfig(), "paddlenlp", "masked_lm")
    assert said == "PaddleNLP has no NeZhaForMaskedLM: its NeZhaModel reads the encoder"


# Refused


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_learned_relative_tables_are_refused_everywhere(tiny, dialect):
    config = dataclasses.replace(tiny, position_encoding="parametric_relative")
    says = f"position_encoding='parametric_relative' has no spelling in the config of {dialect}, .*own format"
    with pytest.raises(CheckpointError, match=says):
        to_foreign(config, dialect, "model")


@pytest.mark.parametrize("dialect", ["hf", "nezha_chinese_pytorch", "bert4torch"])
def test_absolute_positions_are_refused_where_every_nezha_is_relative(tiny, dialect):
    with pytest.raises(CheckpointError, match="position_encoding='absolute' has no spelling.*Such a model is a BERT"):
        to_foreign(dataclasses.replace(tiny, position_encoding="absolute"), dialect, "model")


@pytest.mark.parametrize(("setting", "value"), [("max_relative_position", 127), ("layer_norm_eps", 1e-6)])
def test_what_tensorflow_holds_fixed_is_refused(setting, value):
    with pytest.raises(
        CheckpointError, match=re.escape(f"{setting}={value!r} has no spelling in the config of tensorflow")
    ):
        to_foreign(NeZhaConfig(hidden_act="relu", **{setting: value}), "tensorflow", "model")


def test_absolute_positions_have_no_distance():
    config = NeZhaConfig(hidden_act="relu", max_relative_position=127, position_encoding="absolute")
    assert "max_relative_position" not in to_foreign(config, "tensorflow", "model")


def test_unknown_dialect_and_head(tiny):
    with pytest.raises(ValueError, match="dialect must be one of paddlenlp, hf, .*but got 'keras'"):
        to_foreign(tiny, "keras", "model")
    with pytest.raises(ValueError, match="head must be one of model, .*but got 'mlm'"):
        to_foreign(tiny, "hf", "mlm")


# Their own classes read it


@pytest.mark.oracle
@pytest.mark.parametrize("head", HEADS)
def test_transformers_reads_it(tiny, tmp_path, head):
    transformers = pytest.importorskip("transformers")
    from transformers.models.deprecated.nezha import modeling_nezha

    config = dataclasses.replace(tiny, hidden_act="gelu_tanh", layer_norm_eps=1e-7, classifier_dropout=None)
    content = to_foreign(config, "hf", head)
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "NezhaConfig"
    assert theirs.num_labels == (2 if head == "question_answering" else 6)
    for key, value in content.items():
        assert getattr(theirs, key) == value, key
    model = getattr(modeling_nezha, theirs.architectures[0])(theirs)
    assert model_of(from_foreign(theirs.to_dict(), "hf")) == {**model_of(config), "hidden_act": "gelu_new"}
    _holds(model.state_dict(), "hf", config, head)


@pytest.mark.oracle
@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("masked_lm", "next_sentence")])
def test_paddlenlp_reads_it(tiny, tmp_path, head):
    transformers = pytest.importorskip("paddlenlp.transformers")
    config = dataclasses.replace(tiny, hidden_act="gelu_tanh", classifier_dropout=None)
    content = to_foreign(config, "paddlenlp", head)
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    theirs = transformers.NeZhaConfig.from_pretrained(str(tmp_path))
    assert theirs.num_labels == 6
    for key in set(content) - {"bos_token_id", "eos_token_id"}:  # which its constructor takes and forgets
        value = content[key]
        assert getattr(theirs, key) == value, key
    model = getattr(transformers, content["architectures"][0])(theirs)
    _holds(model.state_dict(), "paddlenlp", config, head)


def _holds(state, dialect, config, head):
    """Every tensor of their model has our name, our shape and no rival."""
    from paddle_nezha.checkpoint import parameter_shapes

    written = {
        weight.theirs: shape[::-1] if weight.turned else shape
        for name, shape in parameter_shapes(config, head).items()
        for weight in DIALECTS[dialect].to_file(name, head)
    }
    assert {name: tuple(tensor.shape) for name, tensor in state.items()}.items() <= written.items()
    assert all("pooler" in name for name in set(written) - set(state))
