import dataclasses
import re

import pytest

from paddle_nezha.checkpoint import DIALECTS, HEADS, TIES, CheckpointError, detect, parameter_shapes
from paddle_nezha.checkpoint.dialects import Evidence, Row, dropped, explain

POSITION_ENCODINGS = ("functional_relative", "parametric_relative", "absolute")
DECODER = "cls.predictions.decoder_weight"
CLASSIFIERS = ("sequence_classification", "token_classification", "question_answering", "multiple_choice")


def names_of(config, head, position_encoding="functional_relative"):
    return list(parameter_shapes(dataclasses.replace(config, position_encoding=position_encoding), head))


def file_names(dialect, config, head, position_encoding="functional_relative"):
    """A whole file of that head, as its code base writes it."""
    return [
        weight.theirs
        for name in names_of(config, head, position_encoding)
        for weight in DIALECTS[dialect].to_file(name, head)
    ]


def has_no_name(dialect, name):
    if name.endswith(("relative_key.weight", "relative_value.weight")):
        return dialect != "paddlenlp"
    return (dialect == "tensorflow" and name == DECODER) or (dialect == "bert4torch" and name.startswith("classifier."))


# The map is reversible


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("position_encoding", POSITION_ENCODINGS)
def test_ours_to_theirs_to_ours(tiny, dialect, head, position_encoding):
    """Each name of ours has its own in each dialect, or none for a reason, and each way back leads to it."""
    tongue, seen = DIALECTS[dialect], set()
    for name in names_of(tiny, head, position_encoding):
        weights = tongue.to_file(name, head)
        assert bool(weights) != has_no_name(dialect, name), name
        for weight in weights:
            back = tongue.to_ours(weight.theirs)
            assert (back.ours, back.turned) == (weight.ours, weight.turned)
            assert name in (weight.ours, f"nezha.{weight.ours}")
            assert weight.theirs not in seen
            seen.add(weight.theirs)
        plain = tongue.to_theirs(name, head)
        assert plain is None or tongue.to_ours(plain.theirs) == plain


def test_what_has_no_name_is_tied_or_nobody_s():
    assert DECODER in TIES
    assert DIALECTS["tensorflow"].to_file(DECODER, "pretraining") == ()
    assert DIALECTS["bert4torch"].to_file("classifier.bias", "token_classification") == ()
    table = "nezha.encoder.layer.0.attention.relative_key.weight"
    assert [bool(dialect.to_file(table, "masked_lm")) for dialect in DIALECTS.values()] == [True] + 5 * [False]


def test_theirs_to_ours_to_theirs():
    """No two rows of a dialect read one name, or write one parameter of a head, in two ways."""
    for dialect in DIALECTS.values():
        assert len({row.theirs for row in dialect.rows}) == len(dialect.rows)
        assert len({(row.ours, row.head) for row in dialect.rows}) == len(dialect.rows)


# The real names. Sizes stand beside them where a run gave them: a turned weight has its axes the other way round.

LAYER = """
attention.self.query.weight attention.self.query.bias attention.self.key.weight attention.self.key.bias
attention.self.value.weight attention.self.value.bias attention.output.dense.weight attention.output.dense.bias
attention.output.LayerNorm.weight attention.output.LayerNorm.bias intermediate.dense.weight intermediate.dense.bias
output.dense.weight output.dense.bias output.LayerNorm.weight output.LayerNorm.bias
"""
EMBEDDINGS = """
embeddings.word_embeddings.weight embeddings.token_type_embeddings.weight
embeddings.LayerNorm.weight embeddings.LayerNorm.bias
"""
POOLER = "pooler.dense.weight pooler.dense.bias"
BERT4TORCH = """
mlmBias embeddings.word_embeddings.weight embeddings.segment_embeddings.weight
embeddings.layerNorm.weight embeddings.layerNorm.bias
encoderLayer.0.multiHeadAttention.q.weight encoderLayer.0.multiHeadAttention.q.bias
encoderLayer.0.multiHeadAttention.k.weight encoderLayer.0.multiHeadAttention.k.bias
encoderLayer.0.multiHeadAttention.v.weight encoderLayer.0.multiHeadAttention.v.bias
encoderLayer.0.multiHeadAttention.o.weight encoderLayer.0.multiHeadAttention.o.bias
encoderLayer.0.multiHeadAttention.relative_positions_encoding.position_embeddings
encoderLayer.0.attnLayerNorm.weight encoderLayer.0.attnLayerNorm.bias
encoderLayer.0.feedForward.intermediateDense.weight encoderLayer.0.feedForward.intermediateDense.bias
encoderLayer.0.feedForward.outputDense.weight encoderLayer.0.feedForward.outputDense.bias
encoderLayer.0.ffnLayerNorm.weight encoderLayer.0.ffnLayerNorm.bias
pooler.weight pooler.bias nsp.weight nsp.bias mlmDense.weight mlmDense.bias mlmLayerNorm.weight mlmLayerNorm.bias
mlmDecoder.weight mlmDecoder.bias
"""
PADDLE_LAYER = """
layer_norm.weight layer_norm.bias attention.query.weight attention.query.bias attention.key.weight attention.key.bias
attention.value.weight attention.value.bias attention.dense.weight attention.dense.bias
attention.layer_norm.weight attention.layer_norm.bias ffn.weight ffn.bias ffn_output.weight ffn_output.bias
"""
TENSORFLOW = """
bert/embeddings/word_embeddings bert/embeddings/token_type_embeddings
bert/embeddings/LayerNorm/gamma bert/embeddings/LayerNorm/beta
bert/encoder/layer_0/attention/self/query/kernel bert/encoder/layer_0/attention/self/query/bias
bert/encoder/layer_0/attention/self/key/kernel bert/encoder/layer_0/attention/self/key/bias
bert/encoder/layer_0/attention/self/value/kernel bert/encoder/layer_0/attention/self/value/bias
bert/encoder/layer_0/attention/output/dense/kernel bert/encoder/layer_0/attention/output/dense/bias
bert/encoder/layer_0/attention/output/LayerNorm/gamma bert/encoder/layer_0/attention/output/LayerNorm/beta
bert/encoder/layer_0/intermediate/dense/kernel bert/encoder/layer_0/intermediate/dense/bias
bert/encoder/layer_0/output/dense/kernel bert/encoder/layer_0/output/dense/bias
bert/encoder/layer_0/output/LayerNorm/gamma bert/encoder/layer_0/output/LayerNorm/beta
bert/pooler/dense/kernel bert/pooler/dense/bias
"""
TF_WORDS = """
cls/predictions/transform/dense/kernel cls/predictions/transform/dense/bias
cls/predictions/transform/LayerNorm/gamma cls/predictions/transform/LayerNorm/beta cls/predictions/output_bias
"""
TF_RELATION = "cls/seq_relationship/output_weights cls/seq_relationship/output_bias"
TRANSFORM = """
cls.predictions.transform.dense.weight cls.predictions.transform.dense.bias
cls.predictions.transform.LayerNorm.weight cls.predictions.transform.LayerNorm.bias
cls.predictions.bias cls.predictions.decoder.weight
"""
SECOND_BIAS = "cls.predictions.decoder.bias"
RELATION = "cls.seq_relationship.weight cls.seq_relationship.bias"
CLASSIFIER, SPANS = "classifier.weight classifier.bias", "qa_outputs.weight qa_outputs.bias"
TABLE = "encoder.layer.0.attention.self.relative_positions_encoding.positions_encoding"
PADDLE_WORDS = """
cls.predictions.decoder_weight cls.predictions.decoder_bias cls.predictions.dense.weight cls.predictions.dense.bias
cls.predictions.layer_norm.weight cls.predictions.layer_norm.bias
"""


def listed(prefix, *texts):
    return [prefix + name for text in texts for name in text.split()]


def torch_model(prefix, *more):
    layer = " ".join(f"encoder.layer.0.{name}" for name in LAYER.split())
    return listed(prefix, EMBEDDINGS, layer, *more)


def paddle_model(prefix):
    embeddings = EMBEDDINGS.replace("LayerNorm", "layer_norm")
    layer = " ".join(f"encoder.layer.0.{name}" for name in PADDLE_LAYER.split())
    return listed(prefix, embeddings, layer, POOLER)


OLD_BERT4TORCH = BERT4TORCH.replace("attnLayerNorm", "layerNorm1").replace("ffnLayerNorm", "layerNorm2")
FILES = {
    # (dialect, head): state dicts of models with one layer
    # transformers 4.57.6, by a run
    ("hf", "model"): torch_model("", POOLER),
    ("hf", "pretraining"): torch_model("nezha.", POOLER) + listed("", TRANSFORM, SECOND_BIAS, RELATION),
    ("hf", "masked_lm"): torch_model("nezha.") + listed("", TRANSFORM, SECOND_BIAS),
    ("hf", "next_sentence"): torch_model("nezha.", POOLER) + listed("", RELATION),
    ("hf", "sequence_classification"): torch_model("nezha.", POOLER) + listed("", CLASSIFIER),
    ("hf", "token_classification"): torch_model("nezha.") + listed("", CLASSIFIER),
    ("hf", "question_answering"): torch_model("nezha.") + listed("", SPANS),
    ("hf", "multiple_choice"): torch_model("nezha.", POOLER) + listed("", CLASSIFIER),
    # PaddleNLP 3.0.0b4, by a run
    ("paddlenlp", "model"): paddle_model(""),
    ("paddlenlp", "pretraining"): paddle_model("nezha.") + listed("", PADDLE_WORDS, RELATION),
    ("paddlenlp", "sequence_classification"): paddle_model("nezha.") + listed("", CLASSIFIER),
    ("paddlenlp", "token_classification"): paddle_model("nezha.") + listed("", CLASSIFIER),
    ("paddlenlp", "question_answering"): paddle_model("nezha.") + listed("", CLASSIFIER),
    ("paddlenlp", "multiple_choice"): paddle_model("nezha.") + listed("", CLASSIFIER),
    # bert4torch 0.4.9.post2, by a run with all heads
    ("bert4torch", "pretraining"): listed("", BERT4TORCH),
    # The rest by reading the modules and variables that the code declares
    ("huawei", "pretraining"): torch_model("bert.", POOLER) + listed("", TRANSFORM, RELATION),
    ("huawei", "masked_lm"): torch_model("bert.", POOLER) + listed("", TRANSFORM),
    ("huawei", "sequence_classification"): torch_model("bert.", POOLER) + listed("", CLASSIFIER),
    ("huawei", "multiple_choice"): torch_model("bert.", POOLER) + listed("", CLASSIFIER),
    ("huawei", "question_answering"): torch_model("bert.", POOLER) + listed("", SPANS),
    ("nezha_chinese_pytorch", "pretraining"): torch_model("bert.", POOLER, TABLE)
    + listed("", TRANSFORM, SECOND_BIAS, RELATION),
    ("nezha_chinese_pytorch", "token_classification"): torch_model("bert.", POOLER, TABLE) + listed("", CLASSIFIER),
    ("nezha_chinese_pytorch", "question_answering"): torch_model("bert.", POOLER, TABLE) + listed("", SPANS),
    ("tensorflow", "pretraining"): listed("", TENSORFLOW, TF_WORDS, TF_RELATION),
    ("tensorflow", "sequence_classification"): listed("", TENSORFLOW, "output_weights output_bias"),
    ("tensorflow", "question_answering"): listed("", TENSORFLOW, "cls/squad/output_weights cls/squad/output_bias"),
}


@pytest.mark.parametrize(("dialect", "head"), FILES)
def test_real_files_map_completely(tiny, dialect, head):
    names = FILES[dialect, head]
    one_layer = dataclasses.replace(tiny, num_hidden_layers=1)
    assert detect(names).name == dialect
    kept = [name for name in names if not dropped(name)]
    weights = [DIALECTS[dialect].to_ours(name) for name in kept]
    assert None not in weights
    found = {weight.ours for weight in weights}
    wanted = {name[6:] if name.startswith("nezha.") else name for name in names_of(one_layer, head)}
    without = {"pooler.dense.weight", "pooler.dense.bias"} if not any("pooler" in name for name in names) else set()
    assert wanted - found == without | ({DECODER} & wanted if dialect == "tensorflow" else set())
    assert found <= wanted

    written = set(file_names(dialect, one_layer, head))
    assert written >= set(kept) and {DIALECTS[dialect].to_ours(name).ours for name in written - set(kept)} == without


def test_older_bert4torch():
    """Releases before 0.4 (runs of 0.1.9, 0.2.9 and 0.3.2) number the LayerNorms of a layer."""
    old, new = OLD_BERT4TORCH.split(), BERT4TORCH.split()
    assert detect(old).name == "bert4torch"
    assert [DIALECTS["bert4torch"].to_ours(name) for name in old] == [
        DIALECTS["bert4torch"].to_ours(name) for name in new
    ]
    around = [f"bert.{name}" for name in new]  # a person's own module around it
    assert [DIALECTS["bert4torch"].to_ours(name) for name in around] == [
        DIALECTS["bert4torch"].to_ours(name) for name in new
    ]


def test_bert4torch_save_pretrained():
    """It writes transformers' names but keeps its own for the tables."""
    table = "encoderLayer.0.multiHeadAttention.relative_positions_encoding.position_embeddings"
    names = torch_model("bert.", POOLER) + listed("", TRANSFORM, SECOND_BIAS, RELATION) + [table]
    dialect = detect(names)
    assert [name for name in names if dialect.to_ours(name) is None] == [table]
    assert "position table" in dropped(table)


# What turns


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_turns(tiny, dialect):
    """By hand: torch turns every Linear, TensorFlow its `output_weights` alone, nobody tables, norms or biases."""
    linear = re.compile(r"(query|key|value|dense|ffn|ffn_output|seq_relationship|classifier)\.weight$")
    for head in HEADS:
        for name in names_of(tiny, head):
            for weight in DIALECTS[dialect].to_file(name, head):
                if dialect == "tensorflow":
                    expected = weight.theirs.endswith("output_weights")
                else:
                    expected = dialect != "paddlenlp" and bool(linear.search(name))
                assert weight.turned == expected, name


def test_some_rows_by_hand():
    pairs = {
        "huawei": [
            ("nezha.encoder.layer.3.ffn_output.weight", "bert.encoder.layer.3.output.dense.weight", True),
            ("nezha.encoder.layer.3.layer_norm.bias", "bert.encoder.layer.3.output.LayerNorm.bias", False),
            ("cls.predictions.decoder_bias", "cls.predictions.bias", False),
        ],
        "bert4torch": [
            ("nezha.encoder.layer.3.attention.dense.weight", "encoderLayer.3.multiHeadAttention.o.weight", True),
            ("nezha.encoder.layer.3.attention.layer_norm.weight", "encoderLayer.3.attnLayerNorm.weight", False),
            ("nezha.encoder.layer.3.layer_norm.weight", "encoderLayer.3.ffnLayerNorm.weight", False),
            ("nezha.encoder.layer.3.ffn.weight", "encoderLayer.3.feedForward.intermediateDense.weight", True),
            ("nezha.pooler.dense.weight", "pooler.weight", True),
            ("nezha.embeddings.token_type_embeddings.weight", "embeddings.segment_embeddings.weight", False),
            ("cls.seq_relationship.weight", "nsp.weight", True),
        ],
        "tensorflow": [
            ("nezha.embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings", False),
            ("nezha.encoder.layer.3.attention.query.weight", "bert/encoder/layer_3/attention/self/query/kernel", False),
            ("nezha.encoder.layer.3.layer_norm.weight", "bert/encoder/layer_3/output/LayerNorm/gamma", False),
            ("cls.predictions.layer_norm.bias", "cls/predictions/transform/LayerNorm/beta", False),
            ("cls.seq_relationship.weight", "cls/seq_relationship/output_weights", True),
        ],
    }
    for dialect, rows in pairs.items():
        for ours, theirs, turned in rows:
            (weight, *_) = DIALECTS[dialect].to_file(ours, "pretraining")
            assert (weight.theirs, weight.turned) == (theirs, turned)
    qa = [dialect.to_file("classifier.weight", "question_answering") for dialect in DIALECTS.values()]
    assert [weights[0].theirs if weights else None for weights in qa] == [
        *("classifier.weight", "qa_outputs.weight", "qa_outputs.weight", "qa_outputs.weight"),
        *(None, "cls/squad/output_weights"),
    ]


def test_second_biases_are_written_where_files_hold_both():
    written = {
        name: [weight.theirs for weight in dialect.to_file("cls.predictions.decoder_bias", "masked_lm")]
        for name, dialect in DIALECTS.items()
    }
    both = ["cls.predictions.bias", "cls.predictions.decoder.bias"]
    assert written == {
        "paddlenlp": ["cls.predictions.decoder_bias"],
        "hf": both,
        "huawei": ["cls.predictions.bias"],
        "nezha_chinese_pytorch": both,
        "bert4torch": ["mlmBias", "mlmDecoder.bias"],
        "tensorflow": ["cls/predictions/output_bias"],
    }
    assert DIALECTS["huawei"].to_ours("cls.predictions.decoder.bias").ours == "cls.predictions.decoder_bias"


# Prefixes and spellings


@pytest.mark.parametrize(
    "prefix",
    ["", "nezha.", "bert.", "encoder.", "module.", "model.", "_orig_mod.", "module.bert.", "model.module.nezha."],
)
@pytest.mark.parametrize("dialect", ["paddlenlp", "hf", "huawei", "nezha_chinese_pytorch", "bert4torch"])
def test_any_prefix(tiny, dialect, prefix):
    """Wrappers stand before everything, a model's name before its own parts only."""
    tongue = DIALECTS[dialect]
    wrappers = re.sub(r"(nezha|bert|encoder)\.$", "", prefix)
    for name in names_of(tiny, "model") + ["cls.predictions.decoder_bias"]:
        (weight, *_) = tongue.to_file(name, "model")
        before = prefix if weight.theirs.split(".")[0] in tongue.parts else wrappers
        assert tongue.to_ours(before + weight.theirs) == weight


@pytest.mark.parametrize("prefix", ["", "bert/", "module/bert/"])
def test_prefixes_in_tensorflow(prefix):
    """TensorFlow Hub puts `module/` before everything."""
    tongue = DIALECTS["tensorflow"]
    assert tongue.to_ours(f"{prefix}pooler/dense/kernel").ours == "pooler.dense.weight"
    assert tongue.to_ours("module/cls/predictions/output_bias").ours == "cls.predictions.decoder_bias"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "name",
    [
        *("bert.nezha.pooler.dense.bias", "nezha.cls.predictions.bias", "xbert.pooler.dense.bias", "bert"),
        *("encoder.layer.00.output.dense.bias", "encoder.layer.{}.output.dense.bias", "encoderLayer.{}.attnLayerNorm"),
        *("encoder.layer.1\n.output.dense.bias", "encoder.layer.٣.output.dense.bias", "encoder.pooler", "", "."),
        *("pooler.dense.bias.x", "bert/encoder/layer_{}/output/dense/kernel", "bert/pooler/dense", "module/", "model."),
        *("pooler.dense", "encoder.encoder.encoder.layer.0.output.dense.bias", "bert.pooler/dense/bias"),
    ],
)
def test_names_of_nothing(dialect, name):
    assert DIALECTS[dialect].to_ours(name) is None


@pytest.mark.parametrize("dialect", ["hf", "huawei", "nezha_chinese_pytorch"])
def test_gamma_and_beta(dialect):
    tongue = DIALECTS[dialect]
    for theirs, ours in [
        ("bert.embeddings.LayerNorm.gamma", "embeddings.layer_norm.weight"),
        ("encoder.layer.10.output.LayerNorm.beta", "encoder.layer.10.layer_norm.bias"),
        ("cls.predictions.transform.LayerNorm.gamma", "cls.predictions.layer_norm.weight"),
    ]:
        assert tongue.to_ours(theirs).ours == ours
    assert tongue.to_ours("pooler.dense.beta") is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"bert.{TABLE}", "position table"),
        ("encoderLayer.7.multiHeadAttention.relative_positions_encoding.position_embeddings", "position table"),
        ("nezha.embeddings.position_ids", "constant index"),
        ("embeddings.token_type_ids", "constant index"),
        ("embeddings.position_embeddings.weight", None),
        ("bert/embeddings/position_embeddings", None),
        ("embeddings.token_type_embeddings.weight", None),
    ],
)
def test_dropped_on_purpose(name, why):
    assert why in dropped(name) if why else dropped(name) is None


# Detection


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("position_encoding", POSITION_ENCODINGS)
def test_detection(tiny, dialect, head, position_encoding):
    names = file_names(dialect, tiny, head, position_encoding)
    if dialect == "bert4torch" and head in CLASSIFIERS:
        names += ["dense.weight", "dense.bias"]  # a person's own layer
    tables = [table.format(number) for table in DIALECTS[dialect].tables for number in range(2)]
    found = detect(names + tables).name
    # Without a prefix transformers', Huawei's and NeZha_Chinese_PyTorch's models are one; the tables exclude Huawei.
    alike = head == "model" and dialect in ("huawei", "nezha_chinese_pytorch")
    assert found == ("hf" if alike else dialect)
    assert DIALECTS[found].evidence(names) >= DIALECTS[dialect].evidence(names)


def test_evidence():
    names = [
        "bert.pooler.dense.bias",
        "bert.embeddings.LayerNorm.gamma",
        "cls.predictions.decoder.bias",
        f"bert.{TABLE}",
    ]
    assert explain([*names, "global_step"]) == {
        "paddlenlp": Evidence(known=1, own=0),
        "hf": Evidence(known=3, own=1),
        "huawei": Evidence(known=3, own=1),
        "nezha_chinese_pytorch": Evidence(known=3, own=3),
        "bert4torch": Evidence(known=0, own=0),
        "tensorflow": Evidence(known=0, own=0),
    }
    assert detect(names).name == "nezha_chinese_pytorch"


@pytest.mark.parametrize(
    ("names", "dialect"),
    [
        ([], "paddlenlp"),
        (["x", "y.weight"], "paddlenlp"),
        (["output_weights", "output_bias"], "tensorflow"),
        (["qa_outputs.weight"], "hf"),
        (["embeddings.word_embeddings.weight"], "paddlenlp"),  # the same in all
        (["bert.embeddings.word_embeddings.weight"], "huawei"),  # and its prefix is Huawei's
        (["pooler.dense.weight", "embeddings.LayerNorm.weight"], "hf"),
        (["pooler.dense.weight", "embeddings.layer_norm.weight"], "paddlenlp"),
        (["mlmBias"], "bert4torch"),
    ],
)
def test_a_few_tensors(names, dialect):
    assert detect(names).name == dialect


@pytest.mark.parametrize(
    "names",
    [
        ["classifier.weight", "classifier.bias"],
        ["bert.pooler.dense.weight"],
        # as much of one as of the other
        ["pooler.dense.weight", "embeddings.LayerNorm.weight", "embeddings.layer_norm.weight"],
    ],
)
def test_a_few_tensors_that_do_not_tell(names):
    """A classifier alone may be [in, out] or [out, in]: if it is square, no shape tells."""
    with pytest.raises(CheckpointError) as error:
        detect(names)
    message = str(error.value)
    assert "do not tell whose they are: paddlenlp, hf, huawei" in message
    assert f"read {names[0]!r} differently" in message and "dialect=" in message


def test_a_mixture_is_read_by_the_larger_part(tiny):
    """What does not belong to it is left for the account to refuse."""
    theirs, ours = file_names("hf", tiny, "model"), file_names("paddlenlp", tiny, "model")
    assert detect(theirs + ours[:9]).name == "hf"
    assert detect(theirs[:9] + ours).name == "paddlenlp"


# Mistakes in the data are seen


def planted(dialect, old, new):
    rows = [new if row == old else row for row in dialect.rows]
    assert old in dialect.rows and rows != list(dialect.rows)
    return dataclasses.replace(dialect, rows=tuple(rows))


LAYER_OF = {"bert4torch": "encoderLayer.{}.", "tensorflow": "encoder/layer_{}/"}


@pytest.mark.parametrize(
    ("dialect", "head", "old", "new"),
    [
        # Query and key exchanged in one direction would be two rows that read one name
        ("huawei", "pretraining", "attention.key", ("attention.self.query", "linear")),
        ("bert4torch", "pretraining", "attention.value", ("multiHeadAttention.k", "linear")),
        ("bert4torch", "pretraining", "layer_norm", ("attnLayerNorm", "norm")),
        ("tensorflow", "pretraining", "ffn_output", ("intermediate/dense", "tf linear")),
        # A layer's number lost
        ("hf", "masked_lm", "ffn", ("intermediate.dense", "table")),
        # A kind without its bias
        ("tensorflow", "masked_lm", "attention.dense", ("attention/output/dense", "tf table")),
    ],
)
def test_planted_rows_are_caught(tiny, dialect, head, old, new):
    tongue, start = DIALECTS[dialect], LAYER_OF.get(dialect, "encoder.layer.{}.")
    row = next(row for row in tongue.rows if row.ours == f"encoder.layer.{{}}.{old}")
    wrong = planted(tongue, row, Row(row.ours, start + new[0], new[1]))
    one_layer = dataclasses.replace(tiny, num_hidden_layers=1)
    read = [wrong.to_ours(name) for name in FILES.get((dialect, head), file_names(dialect, one_layer, head))]
    found = [weight.ours for weight in read if weight]
    wanted = {name[6:] if name.startswith("nezha.") else name for name in names_of(one_layer, head)}
    assert not wanted - {DECODER, "pooler.dense.weight", "pooler.dense.bias"} <= set(found)


@pytest.mark.parametrize(
    ("dialect", "ours", "kind"),
    [
        ("huawei", "encoder.layer.{}.attention.query", "paddle linear"),
        ("bert4torch", "pooler.dense", "paddle linear"),
        ("tensorflow", "cls.seq_relationship.weight", "tensor"),
    ],
)
def test_a_square_that_does_not_turn_is_caught(dialect, ours, kind):
    """By the name alone: all of these may be square."""
    (row,) = [row for row in DIALECTS[dialect].rows if row.ours == ours]
    wrong = planted(DIALECTS[dialect], row, row._replace(kind=kind))
    name = (ours if ours.endswith(".weight") else f"{ours}.weight").format(0)
    (weight,), (right,) = wrong.to_file(name, "pretraining"), DIALECTS[dialect].to_file(name, "pretraining")
    assert (weight.turned, right.turned) == (False, True) and weight.theirs == right.theirs
