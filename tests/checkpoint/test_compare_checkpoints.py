import numpy as np
import pytest

from paddle_nezha.checkpoint import DIALECTS, CheckpointError, pdparams, safetensors, torch_files
from paddle_nezha.checkpoint.compare import compare_checkpoints

WORDS = "embeddings.word_embeddings.weight"
QUERY = "encoder.layer.0.attention.query.weight"
DECODER = "cls.predictions.decoder_weight"


def in_dialect(arrays, name, head):
    """The same numbers as that code base's file holds them."""
    return {
        weight.theirs: np.ascontiguousarray(array.T) if weight.turned else array
        for ours, array in arrays.items()
        for weight in DIALECTS[name].to_file(ours, head)
    }


@pytest.fixture
def pair(tiny, weights, tmp_path):
    """Two files of the same numbers: a .pdparams of ours and a torch file with transformers' names.

    `pair(change)` gives both paths after `change(arrays)` was applied to the numbers of the second.
    """

    def make(change=lambda arrays: None):
        arrays = weights(tiny, "pretraining")
        pdparams.write(tmp_path / "a.pdparams", arrays)
        changed = {name: array.copy() for name, array in arrays.items() if name != DECODER}
        change(changed)
        torch_files.write(tmp_path / "b.bin", in_dialect(changed, "hf", "pretraining"))
        return tmp_path / "a.pdparams", tmp_path / "b.bin"

    return make


def test_equal_whatever_the_format_the_dialect_and_the_tie(pair):
    comparison = compare_checkpoints(*pair())
    assert comparison.differences == [] and comparison.dialects == ("paddlenlp", "hf")
    # The word embeddings stand for their decoder.
    assert WORDS in comparison.equal and DECODER not in comparison.equal
    assert len(comparison.equal) == len(set(comparison.equal)) == 45


def test_one_number_that_differs_is_found_with_its_place(pair):
    def change(arrays):
        arrays["nezha." + QUERY][3, 5] += 0.25

    (difference,) = compare_checkpoints(*pair(change)).differences
    assert (difference.name, difference.kind) == (QUERY, "values")
    assert difference.largest == pytest.approx(0.25, rel=1e-6)  # a float32 sum
    assert difference.told.startswith("1 of 1024 numbers differ, by at most 0.25 at [3, 5]: ")


def test_a_square_matrix_turned_round_is_no_equal(pair):
    def change(arrays):
        arrays["nezha." + QUERY] = arrays["nezha." + QUERY].T.copy()

    (difference,) = compare_checkpoints(*pair(change)).differences
    assert difference.name == QUERY and "992 of 1024 numbers differ" in difference.told


def test_what_only_one_side_has_and_another_shape(pair):
    def change(arrays):
        del arrays["nezha.pooler.dense.bias"]
        arrays["something.else"] = np.zeros(3, np.float32)
        arrays["nezha." + WORDS] = arrays["nezha." + WORDS][:98]

    a, b = pair(change)
    held = torch_files.read(b)
    torch_files.write(b, {**held, "something.else": np.zeros(3, np.int64)})
    found = {difference.name: difference for difference in compare_checkpoints(a, b).differences}
    assert {name: difference.kind for name, difference in found.items()} == {
        "pooler.dense.bias": "only in A",
        "something.else": "only in B",
        WORDS: "shape",
    }
    assert found["something.else"].told == "only in B: [3] of int64"
    assert found[WORDS].told == "shape [99, 32] in A, [98, 32] in B"


@pytest.mark.parametrize(
    ("a", "b", "kind", "told", "largest"),
    [
        ([1.0, 0.0], [1.0, -0.0], "values", "other bytes: a zero's sign", 0.0),
        ([1.0, np.nan], [1.0, np.nan], None, None, None),
        ([1.0, np.nan], [1.0, 2.0], "values", "1 of 2 numbers differ, by at most inf at [1]: nan in A, 2 in B", np.inf),
        ([1.0, np.inf], [1.0, -np.inf], "values", "by at most inf at [1]", np.inf),
        ([1.0, np.inf], [1.0, np.inf], None, None, None),
    ],
)
def test_what_is_no_ordinary_number(tmp_path, a, b, kind, told, largest):
    for name, values in (("a", a), ("b", b)):
        safetensors.write(tmp_path / f"{name}.safetensors", {"pooler.dense.bias": np.array(values, np.float32)})
    comparison = compare_checkpoints(tmp_path / "a.safetensors", tmp_path / "b.safetensors", dialect_a="hf")
    found = [(difference.kind, difference.largest) for difference in comparison.differences]
    assert found == ([] if kind is None else [(kind, largest)])
    assert kind is None or told in comparison.differences[0].told


def test_another_precision_is_said_to_be_that(tmp_path):
    values = np.array([0.5, 2.0], np.float32)
    safetensors.write(tmp_path / "a.safetensors", {"pooler.dense.bias": values})
    safetensors.write(tmp_path / "b.safetensors", {"pooler.dense.bias": values.astype(np.float16)})
    (difference,) = compare_checkpoints(tmp_path / "a.safetensors", tmp_path / "b.safetensors").differences
    assert (difference.kind, difference.told) == ("dtype", "the same values, float32 in A and float16 in B")


def test_bfloat16_bits_of_paddle_are_the_float32_of_their_values(tmp_path):
    values = np.array([0.5, 2.0], np.float32)
    pdparams.write(tmp_path / "a.pdparams", {"pooler.dense.bias": (values.view(np.uint32) >> 16).astype(np.uint16)})
    safetensors.write(tmp_path / "b.safetensors", {"pooler.dense.bias": values})
    assert compare_checkpoints(tmp_path / "a.pdparams", tmp_path / "b.safetensors").differences == []


def test_a_difference_beyond_the_first_piece_has_its_own_place(tmp_path, monkeypatch):
    monkeypatch.setattr("paddle_nezha.checkpoint.compare._PIECE", 4)
    values = np.zeros((3, 5), np.float32)
    safetensors.write(tmp_path / "a.safetensors", {WORDS: values})
    values[2, 1], values[0, 0] = 3.0, -1.0
    safetensors.write(tmp_path / "b.safetensors", {WORDS: values})
    (difference,) = compare_checkpoints(tmp_path / "a.safetensors", tmp_path / "b.safetensors").differences
    assert difference.told == "2 of 15 numbers differ, by at most 3 at [2, 1]: 0 in A, 3 in B"


def test_a_checkpoint_that_contradicts_itself_is_not_compared(tmp_path, tiny, weights):
    arrays = weights(tiny, "masked_lm")
    pdparams.write(tmp_path / "a.pdparams", arrays)
    pdparams.write(tmp_path / "b.pdparams", {**arrays, DECODER: arrays[DECODER] + 1})
    with pytest.raises(CheckpointError, match=r"b\.pdparams: [\s\S]*which are one parameter"):
        compare_checkpoints(tmp_path / "a.pdparams", tmp_path / "b.pdparams")


def test_an_unknown_dialect_is_named(pair):
    with pytest.raises(ValueError, match="dialect must be one of paddlenlp, hf, .*, but got 'keras'"):
        compare_checkpoints(*pair(), dialect_b="keras")
