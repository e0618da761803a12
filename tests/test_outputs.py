"""The returned dataclasses: attributes, mapping and sequence at once."""

import copy
import pickle

import pytest

from paddle_nezha import outputs
from paddle_nezha.outputs import MaskedLMOutput, ModelOutput, SequenceClassifierOutput

FIELDS = {
    "BaseModelOutputWithPoolingAndCrossAttentions": ["last_hidden_state", "pooler_output"],
    "NeZhaForPreTrainingOutput": ["loss", "prediction_logits", "seq_relationship_logits"],
    "MaskedLMOutput": ["loss", "logits"],
    "NextSentencePredictorOutput": ["loss", "logits"],
    "SequenceClassifierOutput": ["loss", "logits"],
    "TokenClassifierOutput": ["loss", "logits"],
    "MultipleChoiceModelOutput": ["loss", "logits"],
    "QuestionAnsweringModelOutput": ["loss", "start_logits", "end_logits"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_and_their_order(name):
    names = [*FIELDS[name], "hidden_states", "attentions"]
    output = getattr(outputs, name)(**{field: number for number, field in reversed(list(enumerate(names)))})
    assert list(output) == names and output.to_tuple() == tuple(range(len(names)))


def test_attribute_key_index_and_slice():
    o = SequenceClassifierOutput(loss=1, logits=2, attentions=(3,))
    assert o.loss == o["loss"] == o[0] == 1
    assert o[1:] == (2, (3,)) and o[-1] == (3,)
    assert list(o.items()) == [("loss", 1), ("logits", 2), ("attentions", (3,))]
    assert (
        isinstance(o, dict) and isinstance(o, ModelOutput) and dict(**o) == {"loss": 1, "logits": 2, "attentions": (3,)}
    )


def test_what_was_not_computed_is_none_as_attribute_and_absent_otherwise():
    o = SequenceClassifierOutput(logits=2)
    assert o.loss is None and "loss" not in o and len(o) == 1 and o[0] == 2
    with pytest.raises(KeyError, match="loss"):
        o["loss"]


def test_assignment_reaches_both_sides():
    o = SequenceClassifierOutput(loss=1, logits=2)
    o.loss = 10
    assert o["loss"] == 10
    o["logits"] = 20
    assert o.logits == 20 and o[1] == 20


@pytest.mark.parametrize("clone", [lambda o: pickle.loads(pickle.dumps(o)), copy.copy, copy.deepcopy])
def test_copies_keep_their_kind_and_parts(clone):
    o = SequenceClassifierOutput(logits=2, hidden_states=(1, 2))
    other = clone(o)
    assert type(other) is type(o) and other.to_tuple() == o.to_tuple() and other.loss is None


def test_a_mapping_can_be_rebuilt_from_its_pairs_as_tracers_do():
    made = MaskedLMOutput((name, value) for name, value in [("logits", 3), ("loss", 2)])
    assert (made.loss, made.logits, dict(made)) == (2, 3, {"loss": 2, "logits": 3})
    assert MaskedLMOutput({"logits": 3}).logits == 3


def test_pairs_with_an_unknown_name_are_refused():
    with pytest.raises(TypeError, match="SequenceClassifierOutput has no part 'bad'"):
        SequenceClassifierOutput({"bad": 1})
