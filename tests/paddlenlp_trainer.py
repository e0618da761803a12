"""What `test_interop.py` runs in processes of its own: PaddleNLP's Trainer over the four heads, and the Auto classes.

python paddlenlp_trainer.py train|reopen|whole|resume FOLDER
"""

import json
import random
import sys
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from pathlib import Path

import numpy as np

from paddle_nezha.interop import register

register()

import paddle  # noqa: E402
import paddlenlp.transformers as theirs  # noqa: E402
from paddlenlp.data import DataCollatorForTokenClassification, DataCollatorWithPadding  # noqa: E402
from paddlenlp.trainer import Trainer, TrainingArguments  # noqa: E402

import paddle_nezha as ours  # noqa: E402

DEMO = Path(__file__).resolve().parent.parent / "weights" / "nezha-seeded-demo"
# Each head, the labels that a Trainer hands it, and whether the Trainer is given our class or what AutoModelFor… opens.
HEADS = {
    "SequenceClassification": (["labels"], ours),
    "TokenClassification": (["labels"], theirs),
    "QuestionAnswering": (["start_positions", "end_positions"], ours),
    "MultipleChoice": (["labels"], theirs),
}
GREETINGS = ("今天早上下了一场小雨", "她把热茶放在窗台上", "风筝就落在了树上")


def class_of(source, head):
    return getattr(source, f"NeZhaFor{head}" if source is ours else f"AutoModelFor{head}")


def examples(head, tokenizer):
    """48 examples whose labels can be read off the text."""
    draw = random.Random(5)
    found = []
    for _ in range(48):
        label = draw.randrange(3)
        text = GREETINGS[label] * draw.randrange(1, 4)
        if head == "MultipleChoice":
            row = dict(tokenizer([text] * 3, list(GREETINGS), return_attention_mask=True))
        else:
            row = dict(tokenizer(text, return_attention_mask=True))
        if head == "TokenClassification":
            row["labels"] = [-100, *[number % 3 for number in row["input_ids"][1:-1]], -100]
        elif head == "QuestionAnswering":
            row.update(start_positions=1 + label, end_positions=3 + label)
        else:
            row["labels"] = label
        found.append(row)
    return found


def choices(tokenizer):
    """Pads [C, L] rows: PaddleNLP's collators know one axis."""

    def collate(rows):
        flat = [{key: row[key][c] for key in row if key != "labels"} for row in rows for c in range(3)]
        padded = tokenizer.pad(flat, return_tensors="np")
        batch = {key: paddle.to_tensor(value.reshape(len(rows), 3, -1)) for key, value in padded.items()}
        return {**batch, "labels": paddle.to_tensor([row["labels"] for row in rows])}

    return collate


def trainer(head, folder, steps=10, unified=False):
    labels, source = HEADS[head]
    tokenizer = (ours.NeZhaTokenizer if source is ours else theirs.AutoTokenizer).from_pretrained(DEMO.as_posix())
    paddle.seed(3)
    options = {} if head in ("QuestionAnswering", "MultipleChoice") else {"num_labels": 3}
    model = class_of(source, head).from_pretrained(DEMO.as_posix(), **options)
    collate = {
        "TokenClassification": DataCollatorForTokenClassification(tokenizer),
        "MultipleChoice": choices(tokenizer),
    }.get(head, DataCollatorWithPadding(tokenizer))
    rows = examples(head, tokenizer)
    arguments = TrainingArguments(
        output_dir=str(folder / head),
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        evaluation_strategy="steps",
        eval_steps=5,
        save_steps=5,
        logging_steps=1,
        load_best_model_at_end=not unified,
        label_names=labels,
        unified_checkpoint=unified,
        disable_tqdm=True,
        report_to=[],
    )
    return Trainer(model, None, arguments, collate, rows, rows, tokenizer)


def predictions(model, head, folder):
    """Logits of every example, one batch, in eval mode."""
    tokenizer = ours.NeZhaTokenizer.from_pretrained(folder)
    collate = choices(tokenizer)
    rows = examples(head, tokenizer)
    if head == "MultipleChoice":
        batch = {key: value for key, value in collate(rows).items() if key != "labels"}
    else:
        batch = tokenizer.pad([{k: r[k] for k in tokenizer(GREETINGS[0], return_attention_mask=True)} for r in rows])
        batch = {key: paddle.to_tensor(value) for key, value in batch.items()}
    model.eval()
    with paddle.no_grad():
        answer = model(**batch)
    return np.stack([logits.numpy() for logits in (answer if isinstance(answer, tuple) else (answer,))])


def train(folder):
    for head in HEADS:
        found = trainer(head, folder)
        assert isinstance(found.model, getattr(ours, f"NeZhaFor{head}"))
        assert isinstance(found.model, theirs.PretrainedModel)
        before = found.evaluate()["eval_loss"]
        found.train()
        after = found.evaluate()["eval_loss"]
        found.save_model(str(folder / head / "final"))
        np.save(folder / f"{head}.npy", predictions(found.model, head, folder / head / "final"))
        (folder / f"{head}.json").write_text(json.dumps({"before": before, "after": after}))


def weights_of(model):
    return {name: value.numpy() for name, value in model.state_dict().items()}


FORMS = {"plain": False, "unified": True}  # of checkpoints: Trainer's own, and PaddleNLP's "unified" ones


def whole(folder):
    for name, unified in FORMS.items():
        found = trainer("SequenceClassification", folder / name, unified=unified)
        found.train()
        np.savez(folder / f"{name}.npz", **weights_of(found.model))


def resume(folder):
    """From step 5 of `whole`, as if that had been stopped there. The forms come in the same order: Paddle numbers its
    parameters through a process, and finds an optimizer's state by these numbers."""
    for name, unified in FORMS.items():
        found = trainer("SequenceClassification", folder / name / "resumed", unified=unified)
        found.train(resume_from_checkpoint=str(folder / name / "SequenceClassification" / "checkpoint-5"))
        whole = np.load(folder / f"{name}.npz")
        apart = {key: float(np.abs(value - whole[key]).max()) for key, value in weights_of(found.model).items()}
        facts = {"steps": found.state.global_step, "apart": max(apart.values())}
        (folder / f"{name}.json").write_text(json.dumps(facts))


def reopen(folder):
    found = {}
    for head in HEADS:
        final = (folder / head / "final").as_posix()
        expected = np.load(folder / f"{head}.npy")
        auto = class_of(theirs, head).from_pretrained(final)
        models = {"ours": class_of(ours, head).from_pretrained(final), "auto": auto, "load": ours.load(final)}
        found[head] = {
            **{name: bool((predictions(model, head, final) == expected).all()) for name, model in models.items()},
            "auto is": [kind.__name__ for kind in (ours.NeZhaPretrainedModel, theirs.PretrainedModel)]
            if isinstance(auto, (ours.NeZhaPretrainedModel)) and isinstance(auto, theirs.PretrainedModel)
            else [],
            "config": theirs.AutoConfig.from_pretrained(final).architectures,
            "tokenizer": theirs.AutoTokenizer.from_pretrained(final)("今天")["input_ids"],
        }
    (folder / "reopened.json").write_text(json.dumps(found))


if __name__ == "__main__":
    {"train": train, "reopen": reopen, "whole": whole, "resume": resume}[sys.argv[1]](Path(sys.argv[2]))
