"""torch_ref against implementations nobody here wrote.

The first tests run anywhere, those marked `oracle` only where the framework is installed.
"""

import sys
import types
from importlib import metadata

import numpy as np
import pytest
import torch

import torch_ref
from paddle_nezha.config import ACTIVATIONS, NeZhaConfig
from parity import outside

SIZES = dict(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=17,
    max_relative_position=3,
    max_position_embeddings=16,
    num_labels=3,
    initializer_range=0.4,
)
# On the scale of the largest value. The figures the project promises; found: 3e-14 at most.
OUTPUTS, GRADIENTS = 1e-10, 1e-9


@pytest.fixture
def rng():
    torch.manual_seed(24)
    return np.random.default_rng(24)


@pytest.fixture(params=sorted(outside.VERSIONS))
def framework(request):
    reason = outside.available(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def transformers():
    reason = outside.available("transformers")
    if reason:
        pytest.skip(reason)


@pytest.fixture
def paddlenlp():
    reason = outside.available("paddlenlp")
    if reason:
        pytest.skip(reason)


def reference(head, dtype=torch.float64, **changes):
    """A reference in which biases and LayerNorms are random too."""
    ref = torch_ref.build(NeZhaConfig(**{**SIZES, **changes}), head)
    with torch.no_grad():
        for p in ref.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return ref


def example(head, rng, length=9):
    """Inputs with ragged padding and two segments, and labels at every place."""
    shape = (2, 3, length) if head == "multiple_choice" else (2, length)
    ids = rng.integers(0, SIZES["vocab_size"], shape)
    mask = np.ones(shape, dtype=int)
    mask[1, ..., length - 2 :] = 0
    inputs = {"input_ids": ids, "token_type_ids": rng.integers(0, 2, shape), "attention_mask": mask}
    labels = {
        "model": {},
        "pretraining": {"labels": rng.integers(0, 31, shape), "next_sentence_label": np.array([1, 0])},
        "masked_lm": {"labels": rng.integers(0, 31, shape)},
        "next_sentence": {"next_sentence_label": np.array([1, 0])},
        "sequence_classification": {"labels": np.array([2, 0])},
        "token_classification": {"labels": rng.integers(0, 3, shape)},
        "question_answering": {"start_positions": np.array([1, 4]), "end_positions": np.array([8, 5])},
        "multiple_choice": {"labels": np.array([2, 0])},
    }
    return inputs, labels[head]


def distance(found, truth):
    """Largest difference on the scale of the largest true value; lists (of layers) by their worst."""
    if isinstance(truth, list):
        assert len(found) == len(truth)
        return max(distance(a, b) for a, b in zip(found, truth))
    assert np.shape(found) == np.shape(truth)
    return np.abs(np.asarray(found) - truth).max() / max(np.abs(truth).max(), 1e-300)


def assert_equal(framework, ref, inputs, labels):
    """Outputs, loss and gradients of the framework and of `ref`, all in float64."""
    result = outside.run(framework, ref.config, ref.head, torch_ref.parameters(ref), inputs, labels)
    out = ref(**inputs, **labels)
    truth = out.arrays()
    known = outside.differences(framework, ref.config, ref.head, inputs, labels)
    compared = [name for name in result.outputs if name not in known]
    assert "last_hidden_state" in compared and (ref.head == "model" or any("logits" in n for n in compared))
    for name in compared:
        assert distance(result.outputs[name], truth[name]) <= OUTPUTS, name
    if not labels:
        assert result.loss is None and out.loss is None
        return
    assert distance(result.loss, truth["loss"]) <= OUTPUTS
    out.loss.backward()
    true_gradients = torch_ref.gradients(ref)
    assert result.gradients.keys() == true_gradients.keys()
    scale = max(np.abs(g).max() for g in true_gradients.values())
    for name, gradient in true_gradients.items():
        found = outside.comparable_gradient(framework, ref.config, name, result.gradients[name])
        gradient = outside.comparable_gradient(framework, ref.config, name, gradient)
        assert np.abs(found - gradient).max() / scale <= GRADIENTS, name


# ---- without any framework


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match="expected one of transformers, paddlenlp, got 'keras'; choose"):
        outside.available("keras")


@pytest.fixture
def forget():
    """Nothing that is found out about a made-up installation outlives the test."""
    outside._module.cache_clear()
    yield
    outside._module.cache_clear()


@pytest.mark.parametrize("name", sorted(outside.VERSIONS))
def test_missing_framework_says_so(name, forget, monkeypatch, rng):
    def absent(distribution):
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(outside.metadata, "version", absent)
    says = f"{name} is not installed; expected {name}=={outside.VERSIONS[name]}: run `make oracles`"
    assert outside.available(name).startswith(says)
    ref = reference("model")
    with pytest.raises(outside.OutsideUnavailable, match="is not installed; expected .*make oracles"):
        outside.run(name, ref.config, "model", torch_ref.parameters(ref), example("model", rng)[0])


def test_framework_without_nezha_says_so(forget, monkeypatch):
    monkeypatch.setattr(outside.metadata, "version", lambda distribution: "5.24.0")
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    for name in list(sys.modules):
        if name.startswith("transformers.models"):
            monkeypatch.delitem(sys.modules, name)
    says = outside.available("transformers")
    assert says.startswith("transformers 5.24.0 offers no NeZha here (ModuleNotFoundError: ")
    assert "expected transformers==4.57.6: run `make oracles`" in says


def config(**changes):
    return NeZhaConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    "framework, head, changes, length, reason",
    [
        (
            "transformers",
            "model",
            {"position_encoding": "absolute"},
            9,
            "sinusoidal relative positions alone",
        ),
        ("transformers", "model", {}, 17, "max_position_embeddings tokens and fails beyond"),
        ("paddlenlp", "masked_lm", {}, 9, "no NeZha head for masked language modelling"),
        ("paddlenlp", "model", {"position_encoding": "parametric_relative"}, 9, "no learned relative tables"),
        ("paddlenlp", "model", {"position_encoding": "absolute"}, 9, "keeps the relative terms"),
        ("paddlenlp", "model", {}, 513, "ends at 512 tokens"),
        ("paddlenlp", "model", {"layer_norm_eps": 1e-5}, 9, "epsilon to 1e-12"),
    ],
)
def test_cases_that_cannot_be_run_are_named(framework, head, changes, length, reason, rng):
    inputs, labels = example(head, rng, length)
    assert reason in outside.differences(framework, config(**changes), head, inputs, labels)["*"]
    shorter, labels = example(head, rng, 9)
    if head == "model":
        assert "*" not in outside.differences(framework, config(), head, shorter, labels)


@pytest.mark.parametrize("framework", sorted(outside.VERSIONS))
def test_blind_queries_and_mask_ranks_are_named(framework, rng):
    inputs, _ = example("model", rng)
    inputs["attention_mask"][0] = 0
    assert "without any visible key" in outside.differences(framework, config(), "model", inputs, {})["*"]
    inputs["attention_mask"] = np.ones((2, 2, 9, 9), dtype=int)
    assert "takes masks of rank 2" in outside.differences(framework, config(), "model", inputs, {})["*"]


def test_label_differences_are_named(rng):
    def known(framework, head, labels, **changes):
        return set(outside.differences(framework, config(**changes), head, example(head, rng)[0], labels))

    some, none = np.array([2, -100]), np.array([-1, -100])
    head = "sequence_classification"
    assert known("transformers", head, {"labels": some}) == set()
    assert known("transformers", head, {"labels": none}) == {"loss", "grad"}
    assert known("paddlenlp", head, {"labels": some}) == {"attentions", "loss", "grad"}
    assert known("paddlenlp", head, {"labels": np.array([2, 0])}) == {"attentions"}
    assert known("paddlenlp", head, {"labels": np.array([[0.5], [-1.0]])}, num_labels=1) == {"attentions"}
    span = {"start_positions": np.array([1, 9]), "end_positions": np.array([2, -1])}
    assert known("paddlenlp", "question_answering", span) == {"attentions"}
    span["start_positions"] = np.array([9, -1])
    assert known("paddlenlp", "question_answering", span) == {"attentions"}
    assert known("transformers", "question_answering", span) == {"loss", "grad"}
    order = {"next_sentence_label": np.array([0, 1])}
    assert known("transformers", "pretraining", order) == {"loss", "grad"}
    assert known("paddlenlp", "pretraining", order) == {"attentions", "loss", "grad"}


# ---- with the frameworks


@pytest.mark.oracle
@pytest.mark.parametrize("head", torch_ref.HEADS)
def test_every_head_in_float64(framework, head, rng):
    if framework == "paddlenlp" and head in ("masked_lm", "next_sentence"):
        with pytest.raises(outside.OutsideUnavailable, match="no NeZha head"):
            inputs, labels = example(head, rng)
            outside.run(framework, config(), head, torch_ref.parameters(reference(head)), inputs, labels)
        return
    assert_equal(framework, reference(head), *example(head, rng))


@pytest.mark.oracle
@pytest.mark.parametrize("length", [1, 3, 4, 6, 7, 8, 16])  # m = 3
def test_lengths_around_the_clip(framework, length, rng):
    inputs, labels = example("token_classification", rng, length)
    inputs["attention_mask"][:] = 1
    assert_equal(framework, reference("token_classification"), inputs, labels)


@pytest.mark.oracle
@pytest.mark.parametrize("act", ACTIVATIONS)
def test_every_activation(framework, act, rng):
    assert_equal(framework, reference("pretraining", hidden_act=act), *example("pretraining", rng))


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["regression", "marks", "forced"])
def test_sequence_classification_losses(framework, kind, rng):
    inputs, _ = example("sequence_classification", rng)
    changes = {"regression": {"num_labels": 1}, "marks": {}, "forced": {"problem_type": "regression"}}[kind]
    labels = {
        "regression": np.array([0.3, -1.0]),
        "marks": np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
        "forced": rng.normal(size=(2, 3)),
    }[kind]
    assert_equal(framework, reference("sequence_classification", **changes), inputs, {"labels": labels})


@pytest.mark.oracle
def test_embeddings_in_place_of_ids(framework, rng):
    ref = reference("sequence_classification")
    embeds = rng.normal(size=(2, 9, 12))
    given = embeds.copy()
    assert_equal(framework, ref, {"inputs_embeds": embeds}, {"labels": np.array([2, 0])})
    assert np.array_equal(embeds, given)


@pytest.mark.oracle
def test_positions_outside_the_text(framework, rng):
    inputs, _ = example("question_answering", rng)
    labels = {"start_positions": np.array([9, 4]), "end_positions": np.array([8, -1])}
    assert_equal(framework, reference("question_answering"), inputs, labels)


@pytest.mark.oracle
def test_no_start_inside_the_text(paddlenlp, rng):
    inputs, _ = example("question_answering", rng)
    labels = {"start_positions": np.array([9, -1]), "end_positions": np.array([8, -100])}
    assert_equal("paddlenlp", reference("question_answering"), inputs, labels)


@pytest.mark.oracle
@pytest.mark.parametrize("head", ["pretraining", "masked_lm", "token_classification"])
def test_ignored_labels(transformers, head, rng):
    inputs, labels = example(head, rng)
    labels["labels"][:, ::3] = -100
    labels["labels"][1, 1] = -1
    assert_equal("transformers", reference(head), inputs, labels)


@pytest.mark.oracle
def test_causal_mask(transformers, rng):
    inputs, labels = example("token_classification", rng)
    inputs["attention_mask"] = np.tril(np.ones((2, 9, 9), dtype=int))
    assert_equal("transformers", reference("token_classification"), inputs, labels)


@pytest.mark.oracle
def test_other_epsilon_and_one_head(transformers, rng):
    ref = reference("masked_lm", layer_norm_eps=1e-3, num_attention_heads=1)
    assert_equal("transformers", ref, *example("masked_lm", rng))


@pytest.mark.oracle
def test_an_error_would_be_seen(framework, rng):
    inputs, labels = example("sequence_classification", rng)
    ref = reference("sequence_classification")
    arrays = torch_ref.parameters(ref)
    name = "nezha.encoder.layer.1.attention.query.weight"
    arrays[name] = np.ascontiguousarray(arrays[name].T)
    result = outside.run(framework, ref.config, ref.head, arrays, inputs, labels)
    assert distance(result.outputs["logits"], ref(**inputs).arrays()["logits"]) > 1e-3


@pytest.mark.oracle
def test_arrays_of_another_head_are_refused(framework, rng):
    inputs, labels = example("sequence_classification", rng)
    arrays = torch_ref.parameters(reference("pretraining"))
    with pytest.raises(ValueError, match="on one side alone there are .*classifier.bias.*cls.predictions"):
        outside.run(framework, config(), "sequence_classification", arrays, inputs, labels)


@pytest.mark.oracle
def test_float32_is_no_better_and_no_worse_than_torch_ref(framework, rng):
    ref = reference("pretraining")
    inputs, labels = example("pretraining", rng)
    arrays = {name: array.astype("float32") for name, array in torch_ref.parameters(ref).items()}
    torch_ref.load_paddle(ref, arrays)  # the truth has the rounded weights too
    truth = ref(**inputs, **labels).arrays()
    single = ref.to(torch.float32)(**inputs, **labels).arrays()
    result = outside.run(framework, ref.config, "pretraining", arrays, inputs, labels, "float32")
    for name in ("last_hidden_state", "prediction_logits", "seq_relationship_logits"):
        found, own = result.outputs[name], single[name]
        assert found.dtype == np.float32
        # The rule for a single sample: 16 times the error of torch_ref's own float32, and 32 ulp.
        allowed = 16 * distance(own, truth[name]) + 32 * np.finfo(np.float32).eps
        assert 0 < distance(found, truth[name]) <= allowed, name


@pytest.mark.oracle
def test_their_own_tables_are_ours_in_float32(framework, rng):
    ref = reference("model", hidden_size=64, max_relative_position=64, max_position_embeddings=200)
    table = torch_ref.position_table(64, 32)[torch_ref.relative_rows(200, 64)].numpy()
    arrays = torch_ref.parameters(ref)
    case = outside.Case(ref.config, "model", example("model", rng)[0], {})
    if framework == "transformers":
        with torch.device("meta"):
            names = torch_ref.names(ref)
        model = outside._transformers_model(case, names, arrays, "float32")
        theirs = [p.positions_encoding.numpy() for p in model.modules() if hasattr(p, "positions_encoding")]
        # Their angle r / 10000^(2i/D), up to 128, is rounded in float32 four times on its way.
        allowed = 4 * 128 * np.finfo(np.float32).eps
    else:
        parts = outside._paddlenlp_model(case, arrays, "float32").sublayers()
        found = [p.relative_positions_embeddings for p in parts if hasattr(p, "relative_positions_embeddings")]
        theirs = [table.numpy()[:200, :200] for table in found]
        allowed = np.finfo(np.float32).eps / 2  # made in float64 and rounded once
    assert len(theirs) == 2
    for found in theirs:
        assert np.abs(found - table).max() <= allowed


# ---- the known differences are real, and are what their reasons say


@pytest.mark.oracle
def test_padding_row_has_no_look_up_gradient_in_transformers(transformers, rng):
    ref = reference("sequence_classification", pad_token_id=5)
    inputs, labels = example("sequence_classification", rng)
    inputs["input_ids"][0, 2] = 5
    result = outside.run("transformers", ref.config, ref.head, torch_ref.parameters(ref), inputs, labels)
    ref(**inputs, **labels).loss.backward()
    name = "nezha.embeddings.word_embeddings.weight"
    assert np.all(result.gradients[name][5] == 0) and np.any(torch_ref.gradients(ref)[name][5] != 0)
    assert_equal("transformers", reference("sequence_classification", pad_token_id=5), inputs, labels)


@pytest.mark.oracle
def test_transformers_mean_over_no_label_is_nan(transformers, rng):
    ref = reference("token_classification")
    inputs, labels = example("token_classification", rng)
    labels["labels"][:] = -100
    arrays = torch_ref.parameters(ref)
    result = outside.run("transformers", ref.config, ref.head, arrays, inputs, labels)
    assert np.isnan(result.loss) and ref(**inputs, **labels).loss.item() == 0.0


@pytest.mark.oracle
def test_paddlenlp_divides_by_all_positions(paddlenlp, rng):
    ref = reference("token_classification")
    inputs, labels = example("token_classification", rng)
    labels["labels"][:, :3] = -100  # 12 of 18 are labelled
    result = outside.run("paddlenlp", ref.config, ref.head, torch_ref.parameters(ref), inputs, labels)
    loss = ref(**inputs, **labels).loss.item()
    assert result.loss == pytest.approx(loss * 12 / 18, rel=OUTPUTS)


@pytest.mark.oracle
def test_paddlenlp_attentions_are_scores(paddlenlp, rng):
    ref = reference("model")
    inputs, _ = example("model", rng)
    result = outside.run("paddlenlp", ref.config, "model", torch_ref.parameters(ref), inputs)
    record = {}
    ref(**inputs, record=record)
    seen = record["mask"].expand(2, 2, 9, 9).numpy()
    for n in range(2):
        scores = record[f"layer.{n}.scores"].detach().numpy()
        assert distance(result.outputs["attentions"][n][seen], scores[seen]) <= OUTPUTS
        assert result.outputs["attentions"][n][~seen].max() < -9000
