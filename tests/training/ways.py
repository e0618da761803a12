"""What `test_ways.py` runs in processes of its own: four heads, each by a plain loop and by `paddle.Model.fit`.

python ways.py train|reopen FOLDER
"""

import json
import random
import sys
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from pathlib import Path

import numpy as np
import paddle
from paddle.static import InputSpec

import paddle_nezha
from paddle_nezha import heads
from paddle_nezha.training import (
    DataCollatorForMultipleChoice,
    DataCollatorForQuestionAnswering,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

DEMO = Path(__file__).resolve().parent.parent.parent / "weights" / "nezha-seeded-demo"
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
TEXTS = ("今天早上下了一场小雨", "她把热茶放在窗台上", "风筝就落在了树上")
TOKENIZER = paddle_nezha.NeZhaTokenizer.from_pretrained(DEMO)


def span_loss(start, end, start_positions, end_positions):
    return (heads.cross_entropy(start, start_positions) + heads.cross_entropy(end, end_positions)) / 2


# Head: collator, the names of its labels, and the loss and the metric that `paddle.Model` is given.
HEADS = {
    "SequenceClassification": (
        DataCollatorWithPadding,
        ["labels"],
        paddle.nn.CrossEntropyLoss(),
        paddle.metric.Accuracy(),
    ),
    "TokenClassification": (DataCollatorForTokenClassification, ["labels"], heads.cross_entropy, None),
    "QuestionAnswering": (
        DataCollatorForQuestionAnswering,
        ["start_positions", "end_positions"],
        span_loss,
        None,
    ),
    "MultipleChoice": (
        DataCollatorForMultipleChoice,
        ["labels"],
        paddle.nn.CrossEntropyLoss(),
        paddle.metric.Accuracy(),
    ),
}


def features(head):
    """48 of them, whose labels can be read off the text."""
    draw = random.Random(5)
    found = []
    for _ in range(48):
        label = draw.randrange(3)
        text = TEXTS[label] * draw.randrange(1, 4)
        row = dict(TOKENIZER([text] * 3, list(TEXTS)) if head == "MultipleChoice" else TOKENIZER(text))
        if head == "TokenClassification":
            row["labels"] = [-100, *[number % 3 for number in row["input_ids"][1:-1]], -100]
        elif head == "QuestionAnswering":
            row.update(start_positions=1 + label, end_positions=3 + label)
        else:
            row["labels"] = label
        found.append(row)
    return found


def model_of(head):
    paddle.seed(3)
    options = {} if head in ("QuestionAnswering", "MultipleChoice") else {"num_labels": 3}
    return getattr(paddle_nezha, f"NeZhaFor{head}").from_pretrained(DEMO, **options)


def adamw(model):
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    return paddle.optimizer.AdamW(2e-3, parameters=model.parameters(), weight_decay=0.01, grad_clip=clip)


def loop(head, model):
    """Two epochs."""
    loader = paddle.io.DataLoader(features(head), batch_size=8, collate_fn=HEADS[head][0](TOKENIZER))
    optimizer = adamw(model)
    model.train()
    for _ in range(2):
        for batch in loader:
            loss, *_ = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()


def runner_of(head, model):
    _, labels, loss, metric = HEADS[head]
    axes = [None] * (3 if head == "MultipleChoice" else 2)
    targets = [InputSpec([None] * (2 if head == "TokenClassification" else 1), "int64", name) for name in labels]
    runner = paddle.Model(model, [InputSpec(axes, "int64", name) for name in INPUTS], targets)
    runner.prepare(adamw(model), loss, metric)
    return runner


def fit(head, model):
    """Likewise; `paddle.Model` takes lists: the inputs in the order of `forward`, then the labels."""
    collate = HEADS[head][0](TOKENIZER)
    rows = paddle.io.DataLoader(features(head), batch_size=8, collate_fn=lambda rows: list(collate(rows).values()))
    runner = runner_of(head, model)
    before = runner.evaluate(rows, verbose=0)
    runner.fit(rows, epochs=2, verbose=0)
    return before, runner.evaluate(rows, verbose=0)


def scored(head, model):
    """The loss over all examples, and the logits."""
    batch = {name: paddle.to_tensor(array) for name, array in HEADS[head][0](TOKENIZER)(features(head)).items()}
    model.eval()
    with paddle.no_grad():
        loss, *logits = model(**batch)
    return loss.item(), np.stack([part.numpy() for part in logits])


def train(folder):
    for head in HEADS:
        for way in (loop, fit):
            model = model_of(head)
            before, _ = scored(head, model)
            facts = {"before": before, "evaluated": way(head, model)}
            saved = folder / way.__name__ / head
            facts["after"], logits = scored(head, model)
            model.save_pretrained(saved)
            np.save(saved / "logits.npy", logits)
            (saved / "facts.json").write_text(json.dumps(facts, default=float))


def reopen(folder):
    for head in HEADS:
        for way in (loop, fit):
            saved = folder / way.__name__ / head
            _, logits = scored(head, getattr(paddle_nezha, f"NeZhaFor{head}").from_pretrained(saved))
            same = bool((logits == np.load(saved / "logits.npy")).all())
            (saved / "reopened.json").write_text(json.dumps(same))


if __name__ == "__main__":
    {"train": train, "reopen": reopen}[sys.argv[1]](Path(sys.argv[2]))
