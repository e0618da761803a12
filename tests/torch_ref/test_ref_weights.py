"""Names, layouts and files of torch_ref."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import torch_ref
from paddle_nezha.config import NeZhaConfig

SIZES = dict(
    vocab_size=29,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,  # square on purpose: only the values can tell a transposed weight
    max_relative_position=3,
    num_labels=12,
    initializer_range=0.4,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(22)


def build(head="pretraining", **changes):
    return torch_ref.build(NeZhaConfig(**{**SIZES, **changes}), head)


def hf_tensors(ref):
    own = dict(ref.named_parameters())
    tensors = {n.hf: own[n.own].detach().clone() for n in torch_ref.names(ref)}
    if "cls.predictions.bias" in tensors:
        tensors["cls.predictions.decoder.weight"] = tensors["nezha.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    return tensors


def same(one, other):
    a, b = torch_ref.parameters(one), torch_ref.parameters(other)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("encoding", ["functional_relative", "parametric_relative", "absolute"])
@pytest.mark.parametrize("head", torch_ref.HEADS)
def test_paddle_round_trip(head, encoding):
    source, target = build(head, position_encoding=encoding), build(head, position_encoding=encoding)
    assert not same(source, target)
    torch_ref.load_paddle(target, torch_ref.parameters(source))
    assert same(source, target)


def test_paddle_names_and_layout():
    ref = build("pretraining", intermediate_size=17)
    arrays = torch_ref.parameters(ref)
    assert len(arrays) == 5 - 1 + 2 * 16 + 2 + 5 + 2
    assert arrays["nezha.encoder.layer.1.ffn.weight"].shape == (12, 17)  # Paddle: [in, out]
    weight = ref.base.layers[1].query.weight.detach().numpy()
    assert np.array_equal(arrays["nezha.encoder.layer.1.attention.query.weight"], weight.T)
    assert arrays["cls.seq_relationship.weight"].shape == (12, 2)
    assert "cls.predictions.decoder_weight" not in arrays
    assert set(torch_ref.parameters(build("model"))) == {
        name.removeprefix("nezha.") for name in arrays if name.startswith("nezha.")
    }


def test_gradients_have_paddle_layout_and_one_tied_entry():
    ref = build("masked_lm", intermediate_size=17)
    ids = np.array([[3, 4, 5]])
    ref(ids, labels=np.array([[6, -100, 7]])).loss.backward()
    gradients, arrays = torch_ref.gradients(ref), torch_ref.parameters(ref)
    assert {n: g.shape for n, g in gradients.items()} == {n: a.shape for n, a in arrays.items()}
    word = gradients["nezha.embeddings.word_embeddings.weight"]
    assert np.all(np.abs(word).max(axis=1) > 0)  # every row, through the decoder
    assert np.all(gradients["nezha.pooler.dense.weight"] == 0)  # masked LM does not read it
    name = "nezha.encoder.layer.0.attention.value.weight"
    step = 1e-6
    for at in ((2, 7), (7, 2)):
        moved = {n: a.copy() for n, a in arrays.items()}
        losses = []
        for sign in (1, -1):
            moved[name][at] = arrays[name][at] + sign * step
            torch_ref.load_paddle(ref, moved)
            losses.append(ref(ids, labels=np.array([[6, -100, 7]])).loss.item())
        slope = (losses[0] - losses[1]) / (2 * step)
        assert gradients[name][at] == pytest.approx(slope, rel=1e-6, abs=1e-9)  # 1e-16 / step, and step squared


def test_load_paddle_names_every_fault_and_changes_nothing():
    ref = build()
    arrays = torch_ref.parameters(build())
    before = torch_ref.parameters(ref)
    arrays["nezha.encoder.layer.2.ffn.bias"] = np.zeros(12)
    del arrays["nezha.pooler.dense.bias"]
    arrays["cls.predictions.decoder_bias"] = np.zeros(28)
    arrays["cls.predictions.decoder_weight"] = np.zeros((29, 12))
    arrays["cls.seq_relationship.bias"] = np.zeros(2, dtype=np.uint16)
    with pytest.raises(ValueError) as caught:
        torch_ref.load_paddle(ref, arrays)
    for line in (
        "head pretraining in paddle names",
        "unknown: nezha.encoder.layer.2.ffn.bias",
        "missing: nezha.pooler.dense.bias",
        "shape: cls.predictions.decoder_bias: expected (29,), got (28,)",
        "tied: cls.predictions.decoder_weight differs from nezha.embeddings.word_embeddings.weight",
        "dtype: cls.seq_relationship.bias: expected floating point, got torch.uint16",
        "build the head and config that these weights were saved from",
    ):
        assert line in str(caught.value)
    assert all(np.array_equal(before[n], a) for n, a in torch_ref.parameters(ref).items())


def test_tied_copy_is_accepted_where_it_agrees_and_unknown_elsewhere():
    ref = build("masked_lm")
    arrays = torch_ref.parameters(ref)
    arrays["cls.predictions.decoder_weight"] = arrays["nezha.embeddings.word_embeddings.weight"]
    torch_ref.load_paddle(ref, arrays)
    other = build("sequence_classification")
    with pytest.raises(ValueError, match="unknown: cls.predictions.decoder_weight"):
        torch_ref.load_paddle(
            other, {**torch_ref.parameters(other), "cls.predictions.decoder_weight": np.zeros((29, 12))}
        )


def test_square_weight_of_wrong_layout_gives_other_numbers():
    source, target = build("model"), build("model")
    arrays = torch_ref.parameters(source)
    arrays["encoder.layer.0.ffn.weight"] = np.ascontiguousarray(arrays["encoder.layer.0.ffn.weight"].T)
    torch_ref.load_paddle(target, arrays)
    ids = np.array([[1, 2, 3]])
    assert (source(ids).last_hidden_state - target(ids).last_hidden_state).abs().max() > 1e-3


HF_BASE = {
    "embeddings.word_embeddings.weight": (29, 12),
    "embeddings.token_type_embeddings.weight": (2, 12),
    "embeddings.LayerNorm.weight": (12,),
    "embeddings.LayerNorm.bias": (12,),
    "encoder.layer.0.attention.self.query.weight": (12, 12),
    "encoder.layer.0.attention.self.query.bias": (12,),
    "encoder.layer.0.attention.self.key.weight": (12, 12),
    "encoder.layer.0.attention.self.key.bias": (12,),
    "encoder.layer.0.attention.self.value.weight": (12, 12),
    "encoder.layer.0.attention.self.value.bias": (12,),
    "encoder.layer.0.attention.output.dense.weight": (12, 12),
    "encoder.layer.0.attention.output.dense.bias": (12,),
    "encoder.layer.0.attention.output.LayerNorm.weight": (12,),
    "encoder.layer.0.attention.output.LayerNorm.bias": (12,),
    "encoder.layer.0.intermediate.dense.weight": (17, 12),  # PyTorch: [out, in]
    "encoder.layer.0.intermediate.dense.bias": (17,),
    "encoder.layer.0.output.dense.weight": (12, 17),
    "encoder.layer.0.output.dense.bias": (12,),
    "encoder.layer.0.output.LayerNorm.weight": (12,),
    "encoder.layer.0.output.LayerNorm.bias": (12,),
    "pooler.dense.weight": (12, 12),
    "pooler.dense.bias": (12,),
}
HF_HEADS = {
    "model": {},
    "masked_lm": {
        "cls.predictions.transform.dense.weight": (12, 12),
        "cls.predictions.transform.dense.bias": (12,),
        "cls.predictions.transform.LayerNorm.weight": (12,),
        "cls.predictions.transform.LayerNorm.bias": (12,),
        "cls.predictions.bias": (29,),
    },
    "next_sentence": {"cls.seq_relationship.weight": (2, 12), "cls.seq_relationship.bias": (2,)},
    "token_classification": {"classifier.weight": (5, 12), "classifier.bias": (5,)},
    "question_answering": {"qa_outputs.weight": (2, 12), "qa_outputs.bias": (2,)},
    "multiple_choice": {"classifier.weight": (1, 12), "classifier.bias": (1,)},
}


@pytest.mark.parametrize("head", HF_HEADS)
def test_hugging_face_names_and_shapes(head):
    ref = build(head, num_hidden_layers=1, intermediate_size=17, num_labels=5)
    own = dict(ref.named_parameters())
    prefix = "" if head == "model" else "nezha."
    expected = {**{prefix + name: shape for name, shape in HF_BASE.items()}, **HF_HEADS[head]}
    assert {n.hf: tuple(own[n.own].shape) for n in torch_ref.names(ref)} == expected


@pytest.mark.parametrize("suffix", [".safetensors", ".bin", ".pt"])
@pytest.mark.parametrize("head", torch_ref.HEADS)
def test_hugging_face_file(head, suffix, tmp_path):
    source, target = build(head), build(head)
    path = tmp_path / f"weights{suffix}"
    tensors = hf_tensors(source)
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    torch_ref.load_file(target, path)
    assert same(source, target)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_paddle_file(suffix, tmp_path):
    source, target = build(), build()
    path = tmp_path / f"model{suffix}"
    tensors = {name: torch.tensor(array) for name, array in torch_ref.parameters(source).items()}
    save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
    torch_ref.load_file(target, path)
    assert same(source, target)


def test_old_spellings_and_constants(tmp_path):
    source, target = build(), build()
    tensors = {}
    for name, tensor in hf_tensors(source).items():
        name = name.replace("nezha.", "bert.")
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors["module." + name] = tensor
    del tensors["module.cls.predictions.bias"]  # its copy decoder.bias stays
    constant = "module.bert.encoder.layer.0.attention.self.relative_positions_encoding.positions_encoding"
    tensors[constant] = torch.zeros(5, 5, 6)
    tensors["module.bert.embeddings.position_ids"] = torch.arange(5)
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    torch_ref.load_file(target, tmp_path / "pytorch_model.bin")
    assert same(source, target)


def test_hugging_face_file_without_pooler(tmp_path):
    source, target = build("masked_lm"), build("masked_lm")
    save_file({n: t for n, t in hf_tensors(source).items() if "pooler" not in n}, tmp_path / "m.safetensors")
    torch_ref.load_file(target, tmp_path / "m.safetensors")
    ids = np.array([[1, 2, 3]])
    assert torch.equal(source(ids).logits, target(ids).logits)
    assert target(ids).pooler_output is None and "nezha.pooler.dense.bias" not in torch_ref.parameters(target)
    with pytest.raises(ValueError, match="missing: nezha.pooler.dense.bias"):
        reader = build("next_sentence")
        own = hf_tensors(reader)
        save_file({n: t for n, t in own.items() if "pooler" not in n}, tmp_path / "n.safetensors")
        torch_ref.load_file(reader, tmp_path / "n.safetensors")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"m.pdparams: expected a .safetensors, .* got suffix '.pdparams'; read other"):
        torch_ref.load_file(build(), tmp_path / "m.pdparams")


def test_torch_files_run_no_code(tmp_path):
    class Harmless:
        def __reduce__(self):
            return print, ("this line must not be printed",)

    torch.save({"x": Harmless()}, tmp_path / "m.bin")
    with pytest.raises(Exception, match="Weights only load failed"):
        torch_ref.load_file(build(), tmp_path / "m.bin")
