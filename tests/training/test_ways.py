"""The ways to train that need no trainer of ours, over every head; and a script as PaddleNLP's users write them.

PaddleNLP's Trainer over the same heads is in tests/test_interop.py.
"""

import json
from pathlib import Path

import pytest
from pythons import in_a_process

from paddle_nezha._paddle import paddle

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "weights" / "nezha-seeded-demo"
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
every_head = pytest.mark.parametrize("head", HEADS)
every_way = pytest.mark.parametrize("way", ["loop", "fit"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which each head was trained each way by one process, and reopened by another."""
    folder = tmp_path_factory.mktemp("trained")
    for command in ("train", "reopen"):
        in_a_process(Path(__file__).with_name("ways.py"), command, folder)
    return folder


@every_way
@every_head
def test_it_learns(trained, way, head):
    facts = json.loads((trained / way / head / "facts.json").read_text())
    assert facts["after"] < facts["before"]


@every_way
@every_head
def test_a_new_process_predicts_the_same(trained, way, head):
    assert json.loads((trained / way / head / "reopened.json").read_text()) is True


@pytest.mark.parametrize("head", ["SequenceClassification", "MultipleChoice"])
def test_paddles_accuracy_reads_the_logits(trained, head):
    before, after = json.loads((trained / "fit" / head / "facts.json").read_text())["evaluated"]
    assert 0 <= before["acc"] < after["acc"] <= 1


# A fine-tuning in PaddleNLP's idiom. It is run with its first line as it stands, and with that line changed.
IDIOM = """
from paddlenlp.transformers import NeZhaForSequenceClassification, NeZhaTokenizer
import json
import numpy as np
import paddle
import paddle.nn.functional as F

folder, saved = {folder!r}, {saved!r}
model = NeZhaForSequenceClassification.from_pretrained(folder, num_classes=2)
tokenizer = NeZhaTokenizer.from_pretrained(folder)
texts = [("今天下了一场小雨", 0), ("明天天气很好", 1), ("今天的风停了", 0), ("明天坐火车去新疆", 1)] * 8
rows = [(tokenizer(text=text, max_seq_len=16), label) for text, label in texts]

def padded(name):
    length = max(len(row[name]) for row, _ in rows)
    return [row[name] + [0] * (length - len(row[name])) for row, _ in rows]

data = paddle.io.TensorDataset([
    paddle.to_tensor(column) for column in
    (padded("input_ids"), padded("token_type_ids"), [[label] for _, label in rows])
])
loader = paddle.io.DataLoader(data, batch_size=8, return_list=True)
decay_params = [p.name for n, p in model.named_parameters() if not any(nd in n for nd in ["bias", "norm"])]
optimizer = paddle.optimizer.AdamW(
    learning_rate=1e-3,
    parameters=model.parameters(),
    weight_decay=0.01,
    apply_decay_param_fun=lambda x: x in decay_params,
)
criterion = paddle.nn.loss.CrossEntropyLoss()
metric = paddle.metric.Accuracy()
losses = []
model.train()
for epoch in range(3):
    for input_ids, token_type_ids, labels in loader:
        logits = model(input_ids, token_type_ids)
        loss = criterion(logits, labels)
        probs = F.softmax(logits, axis=1)
        correct = metric.compute(probs, labels)
        metric.update(correct)
        acc = metric.accumulate()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
model.eval()
metric.reset()
with paddle.no_grad():
    for input_ids, token_type_ids, labels in loader:
        logits = model(input_ids, token_type_ids)
        metric.update(metric.compute(logits, labels))
model.save_pretrained(saved)
tokenizer.save_pretrained(saved)
print(json.dumps([losses, metric.accumulate()]))
"""
THEIRS = "from paddlenlp.transformers import"
OURS = "from paddle_nezha import"


@pytest.fixture
def idiom(tmp_path):
    """Runs the script with an import; gives its losses and its accuracy."""
    from paddle_nezha import NeZhaForSequenceClassification, NeZhaTokenizer

    start = tmp_path / "start"
    paddle.seed(4)  # the classifier's weights
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    NeZhaForSequenceClassification.from_pretrained(DEMO, num_labels=2, **no_dropout).save_pretrained(start)
    NeZhaTokenizer.from_pretrained(DEMO).save_pretrained(start)

    def run(line):
        script = tmp_path / "script.py"
        saved = tmp_path / "saved"
        script.write_text(IDIOM.format(folder=start.as_posix(), saved=saved.as_posix()).replace(THEIRS, line))
        losses, accuracy = json.loads(in_a_process(script).splitlines()[-1])
        assert (saved / "config.json").exists() and (saved / "vocab.txt").exists()
        return losses, accuracy

    return run


def test_paddlenlps_idiom_runs_with_one_line_changed(idiom):
    losses, accuracy = idiom(OURS)
    assert len(losses) == 12 and losses[-1] < losses[0] and accuracy > 0.5


@pytest.mark.oracle
def test_paddlenlps_idiom_gives_paddlenlps_losses(idiom):
    """Each step's loss, from the same weights without dropout. 3e-7 apart at most when measured: float32 sums."""
    theirs, ours = idiom(THEIRS), idiom(OURS)
    assert theirs[1] == ours[1]
    assert max(abs(their - our) for their, our in zip(theirs[0], ours[0])) <= 1e-5
