"""Classes of texts, or of pairs of texts, trained in one of three ways.

    python examples/classify.py --model nezha-base-chinese --train train.tsv --dev dev.tsv --steps 500 --save folder

`--way loop` is a plain loop, `--way fit` is `paddle.Model.fit`, `--way trainer` is PaddleNLP's Trainer, which needs
PaddleNLP. `--model folder --steps 0` scores what was saved.
"""

import argparse
import math
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from itertools import chain, islice, repeat

import numpy as np
import paddle
from paddle.static import InputSpec

from paddle_nezha import NeZhaForSequenceClassification, NeZhaTokenizer
from paddle_nezha.training import DataCollatorWithPadding, sentence_features
from paddle_nezha.training.data.readers import label_names, read


def adamw(model, rate):
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    return paddle.optimizer.AdamW(rate, parameters=model.parameters(), weight_decay=0.01, grad_clip=clip)


def loop(model, train, collate, args):
    loader = paddle.io.DataLoader(train, batch_size=args.batch, shuffle=True, collate_fn=collate)
    optimizer = adamw(model, args.rate)
    model.train()
    for batch in islice(chain.from_iterable(repeat(loader)), args.steps):
        loss, _ = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()


def fit(model, train, collate, args):
    def as_list(rows):  # inputs in the order of `forward`, then the label
        return list(collate(rows).values())

    loader = paddle.io.DataLoader(train, batch_size=args.batch, shuffle=True, collate_fn=as_list)
    inputs = [InputSpec([None, None], "int64", name) for name in ("input_ids", "token_type_ids", "attention_mask")]
    runner = paddle.Model(model, inputs, [InputSpec([None], "int64", "labels")])
    runner.prepare(adamw(model, args.rate), paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
    epochs = math.ceil(args.steps / len(loader))
    runner.fit(loader, epochs=epochs, num_iters=args.steps, verbose=0)


def trainer(model, train, collate, args):
    from paddlenlp.trainer import Trainer, TrainingArguments

    from paddle_nezha.interop import register

    def as_tensors(rows):
        return {name: paddle.to_tensor(array) for name, array in collate(rows).items()}

    register()
    settings = {"per_device_train_batch_size": args.batch, "learning_rate": args.rate, "weight_decay": 0.01}
    arguments = TrainingArguments(args.save, max_steps=args.steps, save_strategy="no", report_to=[], **settings)
    Trainer(model, None, arguments, as_tensors, train).train()


def accuracy(model, dev, collate, args):
    model.eval()
    right = 0
    for batch in paddle.io.DataLoader(dev, batch_size=args.batch, collate_fn=collate):
        labels = batch.pop("labels")
        with paddle.no_grad():
            right += int((model(**batch).argmax(-1) == labels).sum().item())
    return right / len(dev)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "train", "dev", "save"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--way", choices=["loop", "fit", "trainer"], default="loop")
    parser.add_argument("--pairs", action="store_true", help="two texts a line")
    args = parser.parse_args()
    np.random.seed(1)
    paddle.seed(1)
    tokenizer = NeZhaTokenizer.from_pretrained(args.model)
    collate = DataCollatorWithPadding(tokenizer)
    files = [list(read("pair" if args.pairs else "sentence", file)) for file in (args.train, args.dev)]
    names = label_names(files[0])
    train, dev = (sentence_features(file, tokenizer, max_length=128, label_names=names)[0] for file in files)
    model = NeZhaForSequenceClassification.from_pretrained(args.model, id2label=dict(enumerate(names)))
    if args.steps:
        {"loop": loop, "fit": fit, "trainer": trainer}[args.way](model, train, collate, args)
    model.save_pretrained(args.save)
    tokenizer.save_pretrained(args.save)
    reopened = NeZhaForSequenceClassification.from_pretrained(args.save)
    print(f"dev accuracy {accuracy(reopened, dev, collate, args):.4f}, saved in {args.save}")
