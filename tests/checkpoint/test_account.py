import dataclasses

import numpy as np
import pytest

from paddle_nezha.checkpoint import DIALECTS, HEADS, CheckpointError, parameter_shapes, reconcile

HF = DIALECTS["hf"]


def to_hf(arrays, head, prefix="nezha."):
    """The same checkpoint as Hugging Face's code would store it."""
    found = {}
    for name, array in arrays.items():
        weight = HF.to_theirs(name, head)
        base = weight.theirs.startswith(("embeddings.", "encoder.", "pooler."))
        found[prefix + weight.theirs if base else weight.theirs] = array.T.copy() if weight.turned else array
    return found


def refused(*arguments, **options):
    with pytest.raises(CheckpointError) as error:
        reconcile(*arguments, **options)
    return error.value.account, str(error.value)


def assert_same(got, wanted):
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name, strict=True)


@pytest.mark.parametrize("head", HEADS)
def test_own_checkpoint(tiny, weights, head):
    arrays = weights(tiny, head)
    account = reconcile(parameter_shapes(tiny, head), arrays)
    assert_same(account.arrays, arrays)
    assert account.complete and not account.renamed and not account.turned and not account.dropped
    assert account.summary() == f"{len(arrays)} parameters loaded from paddlenlp names (0 renamed, 0 turned)"


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("prefix", ["", "nezha.", "bert.", "module."])
def test_hf_checkpoint(tiny, weights, head, prefix):
    """Q03: Linear weights turn, square ones too; embeddings and LayerNorm do not."""
    arrays = weights(tiny, head)
    account = reconcile(parameter_shapes(tiny, head), to_hf(arrays, head, prefix))
    # Huawei's PyTorch files differ from Hugging Face's in the prefix alone.
    assert account.dialect == ("huawei" if prefix == "bert." else "hf")
    assert_same(account.arrays, arrays)
    linear = [name for name, array in arrays.items() if array.ndim == 2 and "embedd" not in name]
    assert account.turned == [name for name in linear if "decoder" not in name]


def test_prefix_alone(tiny, weights):
    arrays = weights(tiny, "model")
    account = reconcile(parameter_shapes(tiny, "model"), {f"bert.{name}": value for name, value in arrays.items()})
    assert_same(account.arrays, arrays)
    assert account.renamed == {f"bert.{name}": name for name in arrays}


# Dropped, new


def test_position_tables_are_dropped_without_alarm(tiny, weights):
    """Q16"""
    arrays = to_hf(weights(tiny, "model"), "model")
    for number in range(2):
        table = f"nezha.encoder.layer.{number}.attention.self.relative_positions_encoding.positions_encoding"
        arrays[table] = np.zeros((7, 7, 8), np.float32)
    arrays["nezha.embeddings.position_ids"] = np.arange(41)
    account = reconcile(parameter_shapes(tiny, "model"), arrays)
    assert len(account.dropped) == 3
    assert "2 x a position table, which the model computes, 1 x a constant index" in account.summary()
    assert not any("position" in name for name in account.arrays)


def test_heads_are_dropped_from_a_base_model(tiny, weights):
    arrays = weights(tiny, "pretraining")
    account = reconcile(parameter_shapes(tiny, "model"), arrays)
    assert len(account.dropped) == 8
    assert account.dropped["cls.predictions.decoder_bias"] == "of another head (cls.predictions)"
    assert account.dropped["cls.seq_relationship.weight"] == "of another head (cls.seq_relationship)"
    assert_same(account.arrays, {name[6:]: array for name, array in arrays.items() if name.startswith("nezha.")})


def test_a_new_head_only_where_it_is_allowed(tiny, weights):
    expected = parameter_shapes(tiny, "sequence_classification")
    arrays = weights(tiny, "pretraining")
    account = reconcile(expected, arrays, new_allowed=["classifier."])
    assert account.new == {"classifier.weight": "classifier", "classifier.bias": "classifier"}
    assert account.summary().endswith("new, to be trained: classifier")
    account, _ = refused(expected, arrays)
    assert account.missing == ["classifier.weight", "classifier.bias"]


def test_hf_heads_without_a_pooler(tiny, weights):
    """HF leaves the pooler out of heads that do not read it; the rest of such a file is complete."""
    expected = parameter_shapes(tiny, "masked_lm")
    arrays = {name: array for name, array in weights(tiny, "masked_lm").items() if "pooler" not in name}
    account = reconcile(expected, to_hf(arrays, "masked_lm"), new_allowed=["pooler."])
    assert account.new == {"nezha.pooler.dense.weight": "pooler", "nezha.pooler.dense.bias": "pooler"}
    assert_same(account.arrays, arrays)


def test_half_a_head_is_not_new(tiny, weights):
    expected = parameter_shapes(tiny, "sequence_classification")
    arrays = weights(tiny, "sequence_classification")
    del arrays["classifier.bias"]
    account, _ = refused(expected, arrays, new_allowed=["classifier."])
    assert account.missing == ["classifier.bias"] and not account.new


# Ties and second copies


def test_a_missing_decoder_is_the_word_table(tiny, weights):
    arrays = weights(tiny, "pretraining")
    words = arrays["nezha.embeddings.word_embeddings.weight"]
    del arrays["cls.predictions.decoder_weight"]
    account = reconcile(parameter_shapes(tiny, "pretraining"), arrays)
    assert account.arrays["cls.predictions.decoder_weight"] is words


@pytest.mark.parametrize("head", ["pretraining", "masked_lm"])
def test_a_decoder_that_differs_is_refused(tiny, weights, head):
    arrays = weights(tiny, head)
    arrays["cls.predictions.decoder_weight"] = arrays["cls.predictions.decoder_weight"].copy()
    account = reconcile(parameter_shapes(tiny, head), arrays)
    assert account.arrays["cls.predictions.decoder_weight"] is arrays["nezha.embeddings.word_embeddings.weight"]
    arrays["cls.predictions.decoder_weight"][98, 31] += 1e-6
    account, message = refused(parameter_shapes(tiny, head), arrays)
    assert list(account.conflicts) == ["cls.predictions.decoder_weight"]
    assert "cls.predictions.decoder_weight and nezha.embeddings.word_embeddings.weight, which are one" in message


def test_one_parameter_under_two_names(tiny, weights):
    arrays = to_hf(weights(tiny, "masked_lm"), "masked_lm")
    arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
    account = reconcile(parameter_shapes(tiny, "masked_lm"), arrays)
    assert account.dropped == {"cls.predictions.decoder.bias": "a second copy"}
    arrays["cls.predictions.decoder.bias"][5] += 1
    account, message = refused(parameter_shapes(tiny, "masked_lm"), arrays)
    assert "claimed twice with different values (1)" in message
    assert account.conflicts == {
        "cls.predictions.decoder_bias": "cls.predictions.bias and cls.predictions.decoder.bias"
    }


# Refused, with everything in one message


def test_everything_that_is_wrong_is_listed_at_once(tiny, weights):
    """Q05: a wrong key, a wrong shape, a wrong dtype, NaN and infinity never load quietly."""
    arrays = weights(tiny, "model")
    arrays["pooler.dense.wieght"] = arrays.pop("pooler.dense.weight")
    arrays["encoder.layer.2.ffn.bias"] = np.zeros(37, np.float32)
    arrays["encoder.layer.0.ffn.weight"] = arrays["encoder.layer.0.ffn.weight"].T
    arrays["encoder.layer.0.ffn.bias"] = np.zeros(37, np.int64)
    arrays["encoder.layer.1.layer_norm.bias"][3] = np.nan
    arrays["encoder.layer.1.layer_norm.weight"][31] = -np.inf
    account, message = refused(parameter_shapes(tiny, "model"), arrays)
    assert account.missing == ["pooler.dense.weight"]
    assert account.unexpected == ["pooler.dense.wieght", "encoder.layer.2.ffn.bias"]
    assert account.misshaped == {
        "encoder.layer.0.ffn.weight": "expected [32, 37], found [37, 32]",
        "encoder.layer.0.ffn.bias": "expected [37], found [37] of int64",
    }
    assert account.not_finite == ["encoder.layer.1.layer_norm.weight", "encoder.layer.1.layer_norm.bias"]
    for line in (
        "missing (1):\n  pooler.dense.weight",
        "unexpected (2):\n  pooler.dense.wieght\n  encoder.layer.2.ffn.bias",
        "mis-shaped (2):\n  encoder.layer.0.ffn.weight: expected [32, 37], found [37, 32]",
        "not finite (NaN or infinity) (2):\n  encoder.layer.1.layer_norm.weight",
        "Compare its config.json",
    ):
        assert line in message


def test_every_key_misspelt(tiny, weights):
    """Q05"""
    arrays = {f"x{name}": array for name, array in weights(tiny, "model").items()}
    account, message = refused(parameter_shapes(tiny, "model"), arrays)
    assert account.missing == [name[1:] for name in arrays]
    assert account.unexpected == list(arrays)
    assert all(name in message for name in arrays)


def test_a_name_that_prints_is_escaped(tiny, weights):
    arrays = {**weights(tiny, "model"), "\x1b[2Jall is well\n": np.zeros(1)}
    _, message = refused(parameter_shapes(tiny, "model"), arrays)
    assert r"  '\x1b[2Jall is well\n'" in message and "\x1b" not in message


def test_an_empty_file(tiny):
    account, _ = refused(parameter_shapes(tiny, "model"), {})
    assert len(account.missing) == len(parameter_shapes(tiny, "model"))


def test_a_bert_checkpoint_is_no_nezha(tiny, weights):
    """Q63"""
    bert = dataclasses.replace(tiny, position_encoding="absolute")
    for arrays in (weights(bert, "model"), to_hf(weights(bert, "model"), "model", prefix="bert.")):
        _, message = refused(parameter_shapes(tiny, "model"), arrays)
        assert "position_embeddings.weight" in message
        assert "it is a BERT checkpoint and no NeZha" in message and "use_relative_position=False" in message
        assert reconcile(parameter_shapes(bert, "model"), arrays).complete


def test_a_nezha_checkpoint_is_no_bert(tiny, weights):
    """Q63, the reverse"""
    bert = dataclasses.replace(tiny, position_encoding="absolute")
    _, message = refused(parameter_shapes(bert, "model"), weights(tiny, "model"))
    assert "it is a NeZha checkpoint and no BERT" in message and "use_relative_position=True" in message


def test_a_classifier_of_another_width(tiny, weights):
    """Q05"""
    wider = dataclasses.replace(tiny, num_labels=7)
    account, message = refused(parameter_shapes(tiny, "token_classification"), weights(wider, "token_classification"))
    assert account.misshaped["classifier.weight"] == "expected [32, 6], found [32, 7]"
    assert "give the config its num_labels" in message


def test_learned_tables_where_none_are_expected_and_the_reverse(tiny, weights):
    learned = dataclasses.replace(tiny, position_encoding="parametric_relative")
    for wanted, given in ((tiny, learned), (learned, tiny)):
        account, message = refused(parameter_shapes(wanted, "model"), weights(given, "model"))
        assert 'position_encoding="parametric_relative"' in message
        assert len(account.unexpected) + len(account.missing) == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_stored_precision_is_kept(tiny, weights, dtype):
    arrays = {name: array.astype(dtype) for name, array in weights(tiny, "model").items()}
    assert_same(reconcile(parameter_shapes(tiny, "model"), arrays).arrays, arrays)


def test_the_file_s_arrays_are_not_changed(tiny, weights):
    arrays = weights(tiny, "pretraining")
    before = {name: array.copy() for name, array in arrays.items()}
    reconcile(parameter_shapes(tiny, "pretraining"), arrays)
    assert_same(arrays, before)
