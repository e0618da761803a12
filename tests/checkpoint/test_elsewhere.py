"""What we write opens in the code it is written for, by its own `from_pretrained`, and gives our numbers there."""

import dataclasses
import json
import logging
import re

import numpy as np
import pytest
from matrix import CONFIG, HEADS, Cell, drawn, named, outputs, write_folder

from paddle_nezha._paddle import paddle
from paddle_nezha.auto import MODEL_CLASSES
from paddle_nezha.checkpoint import safetensors
from paddle_nezha.checkpoint.configs import SCHEMAS, to_foreign

pytestmark = pytest.mark.oracle

# Hidden states and logits up to 1.5, from two layers of width 32. Float32 computations of two frameworks measured up to
# 3e-7 apart, 2.5 ulp; one square that did not turn moves them by more than 1e-2 (the last test).
ROUNDING = 2e-6


@pytest.fixture
def config():
    """The matrix's, but with the exact gelu, which is what people's checkpoints have; PaddleNLP counts choices by the
    config, and transformers makes a table [L, L, D] of `max_position_embeddings` in each layer."""
    return dataclasses.replace(CONFIG, hidden_act="gelu", num_choices=3, max_position_embeddings=128)


def ours(config, head):
    model = MODEL_CLASSES[head](config)
    model.load_arrays(drawn(config, head))
    model.eval()
    return model


def batch(head):
    """The inputs of `matrix.outputs`."""
    rng = np.random.default_rng(5)
    shape = (2, 3, 67) if head == "multiple_choice" else (2, 67)
    ids, types, mask = rng.integers(1, 99, shape), rng.integers(0, 2, shape), np.ones(shape, np.int64)
    mask[0, ..., 33:] = 0
    return ids, types, mask


def assert_close(theirs, model):
    expected = outputs(model)
    compared = [name for name in expected if theirs.get(name) is not None]
    assert any("logits" in name or name == "last_hidden_state" for name in compared) and "hidden_states.2" in compared
    for name in compared:
        np.testing.assert_allclose(theirs[name], expected[name], rtol=0, atol=ROUNDING, err_msg=name)


# transformers


@pytest.mark.parametrize("form", ["safetensors", "safetensors, 2 shards", "torch zip", "torch legacy"])
@pytest.mark.parametrize("head", HEADS)
def test_transformers_opens_it(head, form, config, tmp_path):
    torch, nezha = pytest.importorskip("torch"), transformers_nezha()
    config.num_labels = 2 if head == "question_answering" else 3
    model = ours(config, head)
    cell = Cell("hf", form, head)
    write_folder(tmp_path, cell, named(drawn(config, head), "hf", head), config)
    kind = getattr(nezha, json.loads((tmp_path / "config.json").read_text())["architectures"][0])
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager")
    # The pooler of heads that read none is ours alone.
    unread = {name for name in report["unexpected_keys"] if "pooler" not in name}
    assert not report["missing_keys"] and not report["mismatched_keys"] and not unread
    theirs.eval()
    ids, types, mask = map(torch.from_numpy, batch(head))
    with torch.no_grad():
        given = theirs(
            input_ids=ids, token_type_ids=types, attention_mask=mask, output_hidden_states=True, return_dict=True
        )
    found = {f"hidden_states.{number}": part.numpy() for number, part in enumerate(given.hidden_states)}
    found.update({name: part.numpy() for name, part in given.items() if name != "hidden_states"})
    assert_close(found, model)


def transformers_nezha():
    pytest.importorskip("transformers")
    return pytest.importorskip("transformers.models.deprecated.nezha.modeling_nezha")


# PaddleNLP


@pytest.mark.parametrize("weights", ["safetensors", "pdparams"])
@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("masked_lm", "next_sentence")])
def test_paddlenlp_opens_what_save_pretrained_wrote(head, weights, config, tmp_path, caplog):
    nezha = pytest.importorskip("paddlenlp.transformers")
    model = ours(config, head)
    model.save_pretrained(tmp_path, weights=weights)
    with caplog.at_level(logging.WARNING):
        theirs = getattr(nezha, type(model).__name__).from_pretrained(str(tmp_path))
    # The tied decoder lies in a safetensors file once, as the word table. PaddleNLP ties it and warns all the same.
    tied = head == "pretraining" and weights == "safetensors"
    new = re.findall(r"newly initialized: (.*)", caplog.text)
    assert new == (["['cls.predictions.decoder_weight']"] if tied else []) and "were not used" not in caplog.text
    mine = model.state_dict()
    for name, parameter in theirs.state_dict().items():
        np.testing.assert_array_equal(parameter.numpy(), mine[name].numpy(), err_msg=name)
    theirs.eval()
    ids, types, mask = map(paddle.to_tensor, batch(head))
    options = {"output_hidden_states": True, "return_dict": True}
    given = theirs(input_ids=ids, token_type_ids=types, attention_mask=mask, **options)
    found = {f"hidden_states.{number}": part.numpy() for number, part in enumerate(given.hidden_states)}
    found.update({name: part.numpy() for name, part in given.items() if name != "hidden_states"})
    assert_close(found, model)


def test_the_oracle_would_see_a_square_the_other_way_round(config, tmp_path):
    torch, nezha = pytest.importorskip("torch"), transformers_nezha()
    tensors = named(drawn(config, "model"), "hf", "model")
    name = "encoder.layer.1.attention.self.value.weight"
    tensors[name] = tensors[name].T.copy()
    safetensors.write(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    (tmp_path / SCHEMAS["hf"].file).write_text(json.dumps(to_foreign(config, "hf", "model")))
    theirs = nezha.NezhaModel.from_pretrained(tmp_path).eval()
    ids, types, mask = map(torch.from_numpy, batch("model"))
    with torch.no_grad():
        given = theirs(input_ids=ids, token_type_ids=types, attention_mask=mask, output_hidden_states=True)
    expected = outputs(ours(config, "model"))["last_hidden_state"]
    assert np.abs(given.last_hidden_state.numpy() - expected).max() > 1e-2
