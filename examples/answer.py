"""Answers to questions, as spans of a text, trained in a plain loop.

    python examples/answer.py --model nezha-base-chinese --train train.json --dev dev.json --steps 500 --save folder

`--model folder --steps 0` scores what was saved.
"""

import argparse
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from itertools import chain, islice, repeat

import numpy as np
import paddle

from paddle_nezha import NeZhaForQuestionAnswering, NeZhaTokenizer
from paddle_nezha.training import DataCollatorForQuestionAnswering, best_spans, span_features
from paddle_nezha.training.data.readers import read
from paddle_nezha.training.scoring.spans import score_spans


def loop(model, features, collate, args):
    loader = paddle.io.DataLoader(features, batch_size=args.batch, shuffle=True, collate_fn=collate)
    optimizer = paddle.optimizer.AdamW(
        args.rate,
        parameters=model.parameters(),
        weight_decay=0.01,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0),
    )
    model.train()
    for batch in islice(chain.from_iterable(repeat(loader)), args.steps):
        loss, *_ = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()


def scores(model, records, features, collate, args):
    model.eval()
    starts, ends = [], []
    for batch in paddle.io.DataLoader(features, batch_size=args.batch, collate_fn=collate):
        with paddle.no_grad():
            start, end = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
        starts.extend(start.numpy())
        ends.extend(end.numpy())
    answers = best_spans(records, features, starts, ends, max_answer_length=50)
    return score_spans(records, [answer.text for answer in answers])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "train", "dev", "save"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--max-length", type=int, default=512)
    args = parser.parse_args()
    np.random.seed(1)
    paddle.seed(1)
    tokenizer = NeZhaTokenizer.from_pretrained(args.model)
    collate = DataCollatorForQuestionAnswering(tokenizer)
    files = [list(read("span", file)) for file in (args.train, args.dev)]
    train, dev = (span_features(file, tokenizer, max_length=args.max_length)[0] for file in files)
    model = NeZhaForQuestionAnswering.from_pretrained(args.model)
    if args.steps:
        loop(model, train, collate, args)
    model.save_pretrained(args.save)
    tokenizer.save_pretrained(args.save)
    reopened = NeZhaForQuestionAnswering.from_pretrained(args.save)
    found = scores(reopened, files[1], dev, collate, args)
    print(f"dev exact match {found['em']:.4f}, F1 {found['f1']:.4f}, saved in {args.save}")
