"""NeZhaConfig: defaults, checks, and every config file in circulation."""

import copy
import json
import pickle
import subprocess
import sys

import pytest

from paddle_nezha.config import (
    ACTIVATIONS,
    NEZHA_PRETRAINED_INIT_CONFIGURATION,
    NEZHA_PRETRAINED_RESOURCE_FILES_MAP,
    NeZhaConfig,
)

DEFAULTS = {
    "vocab_size": 21128,
    "embedding_size": 128,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "max_relative_position": 64,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "classifier_dropout": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "use_cache": True,
    "use_relative_position": True,
    "position_encoding": "functional_relative",
    "num_labels": 2,
    "num_choices": 2,
    "problem_type": None,
    "return_dict": False,
    "output_hidden_states": False,
    "output_attentions": False,
    "architectures": None,
    "id2label": {0: "LABEL_0", 1: "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default(name):
    assert getattr(NeZhaConfig(), name) == DEFAULTS[name]


def test_no_setting_goes_untested():
    assert set(NeZhaConfig().to_dict()) == {*DEFAULTS, "model_type"}


def test_deviates_use_relative_position_has_a_default():
    assert NeZhaConfig().use_relative_position is True


def test_activation_names_are_those_of_the_contract():
    gelus = "gelu gelu_10 gelu_fast gelu_new gelu_python gelu_tanh quick_gelu"
    assert set(ACTIVATIONS) == set(f"{gelus} linear mish relu relu6 sigmoid silu swish tanh".split())
    for name in ACTIVATIONS:
        assert NeZhaConfig(hidden_act=name).hidden_act == name


def test_no_framework_is_imported():
    code = "import sys, paddle_nezha.config; sys.exit(any(name in sys.modules for name in ('paddle', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- names and what follows from them


def test_model_type_and_attribute_map():
    assert NeZhaConfig.model_type == "nezha"
    assert NeZhaConfig.attribute_map == {"dropout": "classifier_dropout", "num_classes": "num_labels"}


@pytest.mark.parametrize("old, new, value", [("dropout", "classifier_dropout", 0.3), ("num_classes", "num_labels", 5)])
def test_alias_reads_and_writes_the_setting(old, new, value):
    config = NeZhaConfig(**{old: value})
    assert getattr(config, new) == getattr(config, old) == value
    other = NeZhaConfig()
    setattr(other, old, value)
    assert getattr(other, new) == value and old not in other.to_dict()


def test_alias_that_contradicts_the_setting_is_refused():
    with pytest.raises(ValueError, match="num_classes=3 and num_labels=4 are two names of one setting: give one"):
        NeZhaConfig(num_classes=3, num_labels=4)
    assert NeZhaConfig(num_classes=3, num_labels=3).num_labels == 3


def test_labels_follow_num_labels():
    config = NeZhaConfig(num_labels=3)
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    config.num_labels = 1
    assert config.id2label == {0: "LABEL_0"} and config.label2id == {"LABEL_0": 0}


def test_num_labels_follows_labels():
    config = NeZhaConfig(id2label={"1": "bad", "0": "good", "2": "so so"})
    assert config.num_labels == 3 and config.label2id == {"good": 0, "bad": 1, "so so": 2}
    assert NeZhaConfig(label2id={"good": 0}).id2label == {0: "good"}
    config.num_labels = 3  # the same number: the names stay
    assert config.id2label[0] == "good"


@pytest.mark.parametrize(
    "facts, message",
    [
        ({"id2label": {0: "a", 2: "b"}}, "id2label must name each class 0..n-1 once"),
        ({"id2label": {0: "a", 1: "a"}}, "each name different"),
        ({"id2label": {}}, "id2label must name each class"),
        ({"id2label": {0: "a"}, "label2id": {"b": 0}}, "contradict each other"),
        ({"id2label": {0: "a"}, "num_labels": 2}, "num_labels is 2, but id2label names 1 classes: give one of them"),
    ],
)
def test_labels_that_do_not_fit_are_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        NeZhaConfig(**facts)


def test_position_encoding_and_its_older_boolean_agree():
    assert NeZhaConfig(use_relative_position=False).position_encoding == "absolute"
    assert NeZhaConfig(use_relative_position=True).position_encoding == "functional_relative"
    assert NeZhaConfig(position_encoding="parametric_relative").use_relative_position is True
    assert NeZhaConfig(position_encoding="parametric_relative", use_relative_position=True).use_relative_position
    config = NeZhaConfig(position_encoding="parametric_relative")
    config.use_relative_position = True
    assert config.position_encoding == "parametric_relative"
    config.use_relative_position = False
    assert config.position_encoding == "absolute"
    config.use_relative_position = True
    assert config.position_encoding == "functional_relative"


def test_position_encoding_that_contradicts_the_boolean_is_refused():
    with pytest.raises(
        ValueError, match="use_relative_position=False contradicts position_encoding='parametric_relative'"
    ):
        NeZhaConfig(position_encoding="parametric_relative", use_relative_position=False)


def test_published_sizes():
    for name in ("nezha-base-chinese", "nezha-base-wwm-chinese"):
        config = NeZhaConfig.from_pretrained(name)
        assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (12, 768, 12)
        assert (config.intermediate_size, config.vocab_size, config.max_relative_position) == (3072, 21128, 64)
    for name in ("nezha-large-chinese", "nezha-large-wwm-chinese"):
        config = NeZhaConfig.from_pretrained(name)
        assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (24, 1024, 16)
        assert (config.intermediate_size, config.vocab_size, config.max_relative_position) == (4096, 21128, 64)


def test_names_that_scripts_import():
    names = {"nezha-base-chinese", "nezha-large-chinese", "nezha-base-wwm-chinese", "nezha-large-wwm-chinese"}
    assert set(NEZHA_PRETRAINED_INIT_CONFIGURATION) == names
    assert set(NEZHA_PRETRAINED_RESOURCE_FILES_MAP["model_state"]) == names
    for name, facts in NEZHA_PRETRAINED_INIT_CONFIGURATION.items():
        assert NeZhaConfig(**facts) == NeZhaConfig.from_pretrained(name)


# ---- bad values


@pytest.mark.parametrize(
    "facts, message",
    [
        ({"hidden_size": 770}, r"hidden_size \(770\) must be a multiple of num_attention_heads \(12\): change one"),
        ({"hidden_size": 36}, "36 / 12 = 3 must be even, since the position table pairs a sine with a cosine"),
        ({"hidden_act": "gleu"}, "hidden_act must be one of gelu, .* got 'gleu'. Did you mean 'gelu'?"),
        (
            {"position_encoding": "relative"},
            "position_encoding must be one of functional_relative, parametric_relative",
        ),
        ({"problem_type": "classification"}, "problem_type must be one of regression, single_label_classification"),
        ({"pad_token_id": 21128}, r"pad_token_id \(21128\) must be below vocab_size \(21128\)"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be a probability, 0 <= p < 1, but got 1.0"),
        ({"attention_probs_dropout_prob": -0.1}, "attention_probs_dropout_prob must be a probability"),
        ({"classifier_dropout": 2}, "classifier_dropout must be a probability"),
        ({"hidden_dropout_prob": float("nan")}, "must be a probability"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer from 1 to 1,000, but got 0"),
        ({"vocab_size": 1.5}, "vocab_size must be an integer from 1 to 134,217,728, but got 1.5"),
        ({"max_relative_position": True}, "max_relative_position must be an integer"),
        (
            {"layer_norm_eps": 2e-3},
            "layer_norm_eps must be a number from 0 to 0.001, beyond which Paddle has no LayerNorm",
        ),
        ({"initializer_range": float("inf")}, "initializer_range must be a finite number of at least 0"),
        ({"initializer_range": -0.02}, "initializer_range must be a finite number of at least 0"),
        ({"use_relative_position": "no"}, "use_relative_position must be True or False, but got 'no'"),
        ({"return_dict": None}, "return_dict must be True or False"),
        ({"architectures": "NeZhaModel"}, "architectures must be a list of class names"),
    ],
)
def test_bad_value_is_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        NeZhaConfig(**facts)


def test_unknown_keyword_in_code_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match=r"no setting 'hiden_size'\. Did you mean 'hidden_size'\?"):
        NeZhaConfig(hiden_size=768)
    with pytest.raises(TypeError, match=r"'colour'\. It has: .*classifier_dropout, dropout"):
        NeZhaConfig(colour="blue")


def test_assignment_is_checked_and_refused_assignment_changes_nothing():
    config = NeZhaConfig()
    config.hidden_act = "relu"
    with pytest.raises(ValueError, match="hidden_act must be one of"):
        config.hidden_act = "nothing"
    with pytest.raises(ValueError, match="hidden_dropout_prob must be a probability"):
        config.hidden_dropout_prob = 3
    assert (config.hidden_act, config.hidden_dropout_prob) == ("relu", 0.1)


def test_sizes_may_pass_through_a_misfit_and_are_checked_together():
    config = NeZhaConfig()
    config.hidden_size = 1024  # not a multiple of 12 until the next line
    with pytest.raises(ValueError, match="must be a multiple"):
        config.validate()
    config.num_attention_heads = 16
    config.validate()
    assert config.head_size == 64


def test_unknown_attribute_names_the_nearest():
    with pytest.raises(AttributeError, match="no setting 'hidden_sizes'. Did you mean 'hidden_size'?"):
        NeZhaConfig().hidden_sizes  # noqa: B018


# ---- files


def test_round_trip_keeps_every_setting_and_every_unread_key(tmp_path):
    config = NeZhaConfig.from_dict(
        {
            "hidden_size": 48, "num_attention_heads": 3, "position_encoding": "parametric_relative", "dropout": None,
            "id2label": {"0": "否", "1": "是", "2": "?"}, "transformers_version": "4.57.6", "directionality": "bidi",
        }
    )  # fmt: skip
    config.save_pretrained(tmp_path / "a folder" / "新")
    again = NeZhaConfig.from_pretrained(tmp_path / "a folder" / "新")
    assert again.to_dict() == config.to_dict()
    assert again.transformers_version == "4.57.6" and again.directionality == "bidi"
    assert again.classifier_dropout is None and again.id2label[0] == "否"
    assert [item.name for item in (tmp_path / "a folder" / "新").iterdir()] == ["config.json"]


def test_written_file_says_what_other_readers_need(tmp_path):
    NeZhaConfig().save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert written["model_type"] == "nezha" and written["use_relative_position"] is True
    assert written["embedding_size"] == 128 and written["eos_token_id"] == 3 and written["use_cache"] is True
    assert "unread" not in written


def test_copies_and_pickles_are_equal_and_apart():
    config = NeZhaConfig.from_dict({"id2label": {"0": "a", "1": "b", "2": "c"}, "kept": [1]})
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other.to_dict() == config.to_dict()
        other.num_labels = 7
        other.unread["kept"].append(2)
        assert config.num_labels == 3 and config.kept == [1]


def test_unknown_key_in_a_file_is_kept_but_an_unknown_override_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}')
    assert NeZhaConfig.from_pretrained(tmp_path).to_dict()["torch_dtype"] == "float32"
    with pytest.raises(TypeError, match=r"no setting 'num_label'\. Did you mean 'num_labels'\?"):
        NeZhaConfig.from_pretrained(tmp_path, num_label=3)


@pytest.mark.parametrize(
    "overrides, read",
    [
        ({"num_labels": 2}, {"num_labels": 2, "id2label": {0: "LABEL_0", 1: "LABEL_1"}}),
        ({"num_classes": 4}, {"num_labels": 4}),
        ({"use_relative_position": False}, {"position_encoding": "absolute"}),
        ({"dropout": 0.4}, {"classifier_dropout": 0.4}),
        ({"hidden_act": "relu"}, {"hidden_act": "relu", "num_labels": 3}),
    ],
)
def test_override_wins_over_the_file(overrides, read, tmp_path):
    NeZhaConfig(id2label={0: "a", 1: "b", 2: "c"}, position_encoding="parametric_relative").save_pretrained(tmp_path)
    config = NeZhaConfig.from_pretrained(tmp_path, **overrides)
    assert {name: getattr(config, name) for name in read} == read


@pytest.mark.parametrize(
    "file, raw, m, relative",
    [
        ("config.json", {}, 64, True),
        ("model_config.json", {"init_class": "NeZhaModel"}, 64, True),
        ("bert_config.json", {}, 64, False),
        ("bert_config.json", {"use_relative_position": True}, 64, True),
        ("bert_config.json", {"use_relative_position": True, "max_relative_position": 127}, 127, True),
    ],
)
def test_missing_keys_by_origin(file, raw, m, relative, tmp_path):
    (tmp_path / file).write_text(json.dumps(raw))
    for where in (tmp_path, tmp_path / file):
        config = NeZhaConfig.from_pretrained(where)
        assert (config.max_relative_position, config.use_relative_position) == (m, relative)


def test_old_nested_config_file(tmp_path):
    nested = {
        "init_args": [
            {"hidden_size": 48, "num_attention_heads": 4, "max_relative_position": 31, "init_class": "NeZhaModel"}
        ],
        "num_classes": 5,
        "dropout": None,
        "init_class": "NeZhaForSequenceClassification",
    }
    (tmp_path / "model_config.json").write_text(json.dumps(nested))
    config = NeZhaConfig.from_pretrained(tmp_path)
    assert (config.hidden_size, config.max_relative_position, config.num_labels) == (48, 31, 5)
    assert config.architectures == ["NeZhaForSequenceClassification"] and config.classifier_dropout == 0.1


def test_config_json_is_read_first(tmp_path):
    (tmp_path / "bert_config.json").write_text('{"hidden_size": 24}')
    NeZhaConfig(hidden_size=48).save_pretrained(tmp_path)
    assert NeZhaConfig.from_pretrained(tmp_path).hidden_size == 48


def test_file_that_starts_with_a_byte_order_mark(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 48}', encoding="utf-8-sig")
    assert NeZhaConfig.from_pretrained(tmp_path).hidden_size == 48


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"is_decoder": True}, "asks for a decoder .*NeZha is an encoder. Set it to false"),
        ({"add_cross_attention": True}, "asks for cross-attention"),
        ({"model_type": "roberta"}, "of a 'roberta' model, not of NeZha"),
        ({"model_type": "bert"}, "To open a BERT here, pass use_relative_position=False"),
        ({"hidden_size": "768"}, "hidden_size must be an integer"),
    ],
)
def test_file_that_cannot_be_honoured_is_refused(raw, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=message):
        NeZhaConfig.from_pretrained(tmp_path)


def test_a_bert_opens_when_asked_for_as_one(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert NeZhaConfig.from_pretrained(tmp_path, use_relative_position=False).position_encoding == "absolute"


def test_file_that_is_no_config(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not a JSON file .*restore it"):
        NeZhaConfig.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="holds a JSON list, but a config is a JSON object"):
        NeZhaConfig.from_pretrained(tmp_path)


def test_place_without_a_config_says_what_was_looked_for_and_found(tmp_path):
    (tmp_path / "vocab.txt").write_text("")
    with pytest.raises(
        FileNotFoundError, match="looked for config.json, model_config.json, bert_config.json.* holds vocab.txt"
    ):
        NeZhaConfig.from_pretrained(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"neither a folder, nor a config file, nor a published name \(nezha-base"
    ):
        NeZhaConfig.from_pretrained(tmp_path / "nezha-bas-chinese")


def test_configs_are_equal_if_they_would_be_written_alike():
    assert NeZhaConfig() == NeZhaConfig(num_labels=2) != NeZhaConfig(num_labels=3)
    assert NeZhaConfig(id2label={0: "坏", 1: "好"}) != NeZhaConfig()
    assert NeZhaConfig() != {"hidden_size": 768}


def test_a_config_can_be_built_from_what_it_writes():
    config = NeZhaConfig(num_labels=3, use_relative_position=False, hidden_size=64, num_attention_heads=4)
    assert NeZhaConfig(**config.to_dict()) == config
    with pytest.raises(ValueError, match="model_type must be 'nezha'"):
        NeZhaConfig(model_type="bert")


def test_null_in_a_file_means_not_set_but_where_it_has_a_meaning():
    config = NeZhaConfig.from_dict(
        {"num_choices": None, "hidden_act": None, "bos_token_id": None, "classifier_dropout": None}
    )
    assert (config.num_choices, config.hidden_act, config.bos_token_id, config.classifier_dropout) == (
        2,
        "gelu",
        None,
        None,
    )
    assert NeZhaConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("name", list(NEZHA_PRETRAINED_INIT_CONFIGURATION))
def test_published_init_dicts_hold_the_thirteen_keys_scripts_read(name):
    facts = NEZHA_PRETRAINED_INIT_CONFIGURATION[name]
    assert len(facts) == 13 and facts["hidden_size"] in (768, 1024) and facts["vocab_size"] == 21128
    assert NeZhaConfig(**facts) == NeZhaConfig.from_pretrained(name)


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"id2label": 3}, "id2label must be a mapping from class index to name, but got 3"),
        ({"id2label": {"x": "a"}}, "id2label must be a mapping from class index"),
        ({"label2id": 5}, "label2id must be a mapping from name to class index, but got 5"),
        ({"architectures": 3}, "architectures must be a list of class names, but got 3"),
        ({"init_args": 3}, "init_args must be a list of arguments, but got 3"),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused_with_the_file(raw, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=message) as caught:
        NeZhaConfig.from_pretrained(tmp_path)
    assert "config.json" in str(caught.value)


def test_json_too_deep_to_read_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match="is not a JSON file"):
        NeZhaConfig.from_pretrained(tmp_path)


def test_a_key_called_unread_is_kept_like_any_other():
    assert NeZhaConfig.from_dict({"unread": 5}).to_dict()["unread"] == 5


def test_a_lone_surrogate_in_an_unread_key_survives_a_round_trip(tmp_path):
    config = NeZhaConfig.from_dict({"note": "\ud800"})
    config.save_pretrained(tmp_path)
    assert NeZhaConfig.from_pretrained(tmp_path) == config
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_assigning_a_misspelt_setting_is_refused_and_a_note_of_ones_own_is_kept():
    config = NeZhaConfig.from_dict({"foo": 1})
    with pytest.raises(AttributeError, match="no setting 'hiden_size'. Did you mean 'hidden_size'?"):
        config.hiden_size = 16
    config.foo, config.experiment = 2, "b"
    assert (config.foo, config.to_dict()["foo"], config.to_dict()["experiment"]) == (2, 2, "b")


@pytest.mark.parametrize(
    "name",
    ["num_hidden_layers", "vocab_size", "num_labels", "max_relative_position", "hidden_size", "intermediate_size"],
)
def test_a_size_beyond_every_model_is_refused_before_anything_is_built(name):
    with pytest.raises(ValueError, match=f"{name} must be an integer from 1 to [0-9,]+, but got 1000000000000"):
        NeZhaConfig.from_dict({name: 10**12})


def test_a_cache_folder_may_be_named_as_for_models(tmp_path):
    assert NeZhaConfig.from_pretrained("nezha-base-chinese", cache_dir=tmp_path).hidden_size == 768


@pytest.mark.parametrize(
    "name", ["is_decoder", "add_cross_attention", "init_args", "init_class", "model_type", "to_dict"]
)
def test_a_note_that_would_be_read_as_something_else_is_refused(name):
    config = NeZhaConfig()
    with pytest.raises(AttributeError, match=name):
        setattr(config, name, "v")
    assert config == NeZhaConfig()


@pytest.mark.parametrize("name", ["tie_word_embeddings", "vocab", "labels", "layers"])
def test_a_note_is_taken_for_a_slip_only_if_it_is_nearly_a_setting(name):
    config = NeZhaConfig()
    setattr(config, name, True)
    assert NeZhaConfig.from_dict(config.to_dict()) == config and config.to_dict()[name] is True


def test_a_note_that_json_cannot_hold_is_refused_by_name_when_it_is_made_and_when_it_has_grown():
    config = NeZhaConfig()
    for value in (b"bytes", {1, 2}, object()):
        with pytest.raises(ValueError, match="note 'best'.*JSON"):
            config.best = value
    with pytest.raises(ValueError, match="must be a dict"):
        config.unread = None
    config.best = []
    config.best.append(object())
    with pytest.raises(ValueError, match="note 'best'"):
        config.to_json_string()


def test_a_note_can_be_removed_and_a_setting_cannot():
    config = NeZhaConfig()
    config.best = 1
    del config.best
    assert config == NeZhaConfig()
    with pytest.raises(AttributeError, match="hidden_size"):
        del config.hidden_size


def test_a_copy_has_notes_and_labels_of_its_own():
    config = NeZhaConfig()
    twin = copy.copy(config)
    twin.best, twin.id2label[0] = 1, "other"
    assert config == NeZhaConfig()
