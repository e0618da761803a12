import hashlib
import json

import numpy as np
import pytest

from paddle_nezha.checkpoint import HEADS, pdparams, safetensors
from paddle_nezha.checkpoint.convert import TARGETS, convert
from paddle_nezha.checkpoint.verify import digest_of, record_of, verify

QUERY = "encoder.layer.0.attention.query.weight"


@pytest.fixture
def folder(tiny, weights, tmp_path):
    """A folder of ours, the same numbers each time: `folder(head, change)`, `change(arrays)` applied to them first."""
    drawn = {}

    def make(head="pretraining", change=lambda arrays: None):
        drawn.setdefault(head, weights(tiny, head))
        arrays = {name: array.copy() for name, array in drawn[head].items()}
        change(arrays)
        tiny.save_pretrained(tmp_path / "model")
        pdparams.write(tmp_path / "model" / "model_state.pdparams", arrays)
        return tmp_path / "model"

    return make


def checks(findings):
    return {check.name: check for check in findings.checks}


@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("multiple_choice", "sequence_classification")])
def test_a_sound_checkpoint(folder, tiny, weights, head):
    tiny.architectures = ["NeZhaForTokenClassification"]  # tells only what the tensors leave open
    findings = verify(folder("question_answering" if head == "question_answering" else head))
    if head == "question_answering":  # ours calls its output a classifier too, which by the config has 6 outputs
        assert not findings.right and "expected [32, 6], found [32, 2]" in findings.problems()
        return
    assert findings.right, findings.problems()
    assert (findings.form, findings.dialect, findings.head) == ("pdparams", "paddlenlp", head)
    assert findings.parameters == sum(
        array.size for name, array in weights(tiny, head).items() if not name.endswith("decoder_weight")
    )


def test_the_digest_is_of_the_numbers_alone(folder, tmp_path):
    """The same in every format and dialect: so a file of one code base can be held against another's."""
    whole = verify(folder())
    for to, target in TARGETS.items():
        for names in target.names:
            convert(folder(), tmp_path / to / names, to, names=names)
            other = verify(tmp_path / to / names)
            assert (other.digest, other.tensors) == (whole.digest, whole.tensors), (to, names)
            assert other.right and other.parameters == whole.parameters


def test_the_digest_is_what_it_is_said_to_be(folder):
    findings = verify(folder())
    arrays = pdparams.read(folder() / "model_state.pdparams")
    record = findings.tensors[QUERY]
    assert record.sha256 == hashlib.sha256(arrays["nezha." + QUERY].astype("<f4").tobytes(order="C")).hexdigest()
    assert (record.shape, record.dtype) == ((32, 32), "float32")
    lines = [
        f"{name} float32 {'x'.join(map(str, item.shape))} {item.sha256}\n"
        for name, item in sorted(findings.tensors.items())
    ]
    assert findings.digest == hashlib.sha256("".join(lines).encode()).hexdigest() and len(lines) == 45


def test_the_digest_knows_layout_dtype_and_byte_order():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    alike = [np.asfortranarray(array), array.astype(">f4"), array[::1]]
    assert all(record_of(other) == record_of(array) for other in alike)
    others = [array.T, array.astype(np.float64), array.reshape(3, 2), -array]
    records = [record_of(other) for other in (array, *others)]
    assert len({digest_of({"x": record}) for record in records}) == 5


def test_one_bit_changes_the_digest_of_its_tensor_and_of_the_whole(folder):
    one = verify(folder())

    def change(arrays):
        arrays["nezha." + QUERY].view(np.uint32)[3, 5] ^= 1

    other = verify(folder(change=change))
    assert [name for name in one.tensors if one.tensors[name] != other.tensors[name]] == [QUERY]
    assert one.digest != other.digest


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_found(folder, value):
    def change(arrays):
        arrays["nezha." + QUERY][3, 5] = value

    findings = verify(folder(change=change))
    assert not findings.right and checks(findings)["values"].told == f"not finite (NaN or infinity): {QUERY}"


def test_a_missing_tensor_and_one_too_many_are_found(folder):
    def change(arrays):
        del arrays["nezha." + QUERY]
        arrays["nezha.encoder.layer.2.ffn.bias"] = np.zeros(37, np.float32)

    findings = verify(folder(change=change))
    told = checks(findings)["structure"].told
    assert not findings.right and f"missing (1):\n  nezha.{QUERY}" in told
    assert "unexpected (1):\n  nezha.encoder.layer.2.ffn.bias" in told


def test_a_file_without_a_config_is_digested_and_not_judged(folder, tmp_path):
    file = folder() / "model_state.pdparams"
    whole = verify(file)
    alone = tmp_path / "alone" / "x.pdparams"
    alone.parent.mkdir()
    file.rename(alone)
    findings = verify(alone)
    assert findings.digest == whole.digest and findings.right
    structure = checks(findings)["structure"]
    assert structure.passed is None and "not held to a config, since there is none: No config in" in structure.told
    assert checks(verify(alone, config=tmp_path / "model"))["structure"].passed is True
    with pytest.raises(FileNotFoundError, match="No config in"):
        verify(alone, config=tmp_path / "alone")


def test_a_classifier_that_nothing_names_is_digested_and_not_judged(folder):
    findings = verify(folder("sequence_classification"))
    structure = checks(findings)["structure"]
    assert findings.right and findings.digest and structure.passed is None
    assert "Say which by head= (--head on the command line)" in structure.told


def test_the_count_of_parameters(folder):
    right = verify(folder()).parameters
    assert checks(verify(folder(), parameters=right))["parameters"].passed is True
    count = checks(verify(folder(), parameters=right + 1))["parameters"]
    assert count.passed is False and count.told == f"expected {right + 1:,} parameters, found {right:,}"
    partial = checks(verify(folder("masked_lm"), parameters=right))["parameters"]
    assert partial.passed is None and f"of a masked_lm; {right:,} go with all pretraining heads" in partial.told


def test_a_damaged_file_is_a_finding_and_a_missing_one_an_error(folder, tmp_path):
    file = folder() / "model_state.pdparams"
    file.write_bytes(file.read_bytes()[:-100])
    findings = verify(file.parent)
    assert not findings.right and findings.digest is None
    assert "corrupt or truncated" in checks(findings)["readable"].told
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "nothing.pdparams")


def test_findings_are_plain_json(folder):
    content = json.loads(verify(folder()).to_json())
    assert content["right"] is True and content["tensors"][QUERY]["shape"] == [32, 32]
    assert {check["name"] for check in content["checks"]} == {"values", "structure"}


def test_sharded_and_half_precision(tmp_path, tiny, weights):
    """bfloat16 is digested as the float32 of its value, float16 as itself."""
    values = {name: array.astype(np.float16) for name, array in weights(tiny, "model").items()}
    tiny.save_pretrained(tmp_path)
    names = list(values)
    for shard, part in (("one", names[:9]), ("two", names[9:])):
        safetensors.write(tmp_path / f"{shard}.safetensors", {name: values[name] for name in part})
    places = {name: "one.safetensors" if name in names[:9] else "two.safetensors" for name in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    findings = verify(tmp_path)
    assert findings.right and {record.dtype for record in findings.tensors.values()} == {"float16"}
