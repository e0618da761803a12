"""Entities: a tag for each character or word, trained with `paddle.Model.fit`.

    python examples/tag.py --model nezha-base-chinese --train train.conll --dev dev.conll --steps 500 --save folder

`--model folder --steps 0` scores what was saved.
"""

import argparse
import math
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise

import numpy as np
import paddle
from paddle.static import InputSpec

from paddle_nezha import NeZhaForTokenClassification, NeZhaTokenizer
from paddle_nezha.heads import cross_entropy
from paddle_nezha.training import DataCollatorForTokenClassification, token_features, word_tags
from paddle_nezha.training.data.readers import label_names, read
from paddle_nezha.training.scoring.entities import score_entities

INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # in the order of `forward`


def prepared(model, args):
    """The model as `paddle.Model` trains it. Paddle's own cross-entropy would count the labels of -100 too."""
    optimizer = paddle.optimizer.AdamW(
        args.rate,
        parameters=model.parameters(),
        weight_decay=0.01,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0),
    )
    inputs = [InputSpec([None, None], "int64", name) for name in INPUTS]
    runner = paddle.Model(model, inputs, [InputSpec([None, None], "int64", "labels")])
    runner.prepare(optimizer, cross_entropy)
    return runner


def f1(model, records, features, collate, names, args):
    loader = paddle.io.DataLoader(features, batch_size=args.batch, collate_fn=collate)
    (logits,) = prepared(model, args).predict(loader, verbose=0)
    predicted = [row for batch in logits for row in batch.argmax(-1).tolist()]
    tags = word_tags(features, predicted, names)
    return score_entities([record.labels for record in records], tags)["f1"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "train", "dev", "save"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-5)
    args = parser.parse_args()
    np.random.seed(1)
    paddle.seed(1)
    tokenizer = NeZhaTokenizer.from_pretrained(args.model)
    padded = DataCollatorForTokenClassification(tokenizer)

    def collate(rows):
        return list(padded(rows).values())  # the inputs, then the labels

    files = [list(read("token", file)) for file in (args.train, args.dev)]
    names = label_names(files[0])
    train, dev = (token_features(file, tokenizer, max_length=256, label_names=names)[0] for file in files)
    model = NeZhaForTokenClassification.from_pretrained(args.model, id2label=dict(enumerate(names)))
    if args.steps:
        loader = paddle.io.DataLoader(train, batch_size=args.batch, shuffle=True, collate_fn=collate)
        epochs = math.ceil(args.steps / len(loader))
        prepared(model, args).fit(loader, epochs=epochs, num_iters=args.steps, verbose=0)
    model.save_pretrained(args.save)
    tokenizer.save_pretrained(args.save)
    reopened = NeZhaForTokenClassification.from_pretrained(args.save)
    print(f"dev entity F1 {f1(reopened, files[1], dev, collate, names, args):.4f}, saved in {args.save}")
