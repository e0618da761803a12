"""The right one of several choices, given a text and a question, trained in a plain loop.

    python examples/choose.py --model nezha-base-chinese --train train.json --dev dev.json --steps 500 --save folder

`--model folder --steps 0` scores what was saved.
"""

import argparse
import zlib  # noqa: F401  before Paddle, whose release 2.6.2 breaks it otherwise
from itertools import chain, islice, repeat

import numpy as np
import paddle

from paddle_nezha import NeZhaForMultipleChoice, NeZhaTokenizer
from paddle_nezha.training import DataCollatorForMultipleChoice, best_choices, choice_features
from paddle_nezha.training.data.readers import read


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
        loss, _ = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()


def accuracy(model, records, features, collate, args):
    model.eval()
    logits = []
    for batch in paddle.io.DataLoader(features, batch_size=args.batch, collate_fn=collate):
        with paddle.no_grad():
            logits.extend(model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]).numpy())
    chosen = best_choices(records, logits)
    return sum(choice == record.label for choice, record in zip(chosen, records)) / len(records)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "train", "dev", "save"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--max-length", type=int, default=256)
    args = parser.parse_args()
    np.random.seed(1)
    paddle.seed(1)
    tokenizer = NeZhaTokenizer.from_pretrained(args.model)
    collate = DataCollatorForMultipleChoice(tokenizer)
    files = [list(read("choice", file)) for file in (args.train, args.dev)]
    most = max(len(record.choices) for file in files for record in file)
    features = [choice_features(file, tokenizer, max_length=args.max_length, num_choices=most)[0] for file in files]
    model = NeZhaForMultipleChoice.from_pretrained(args.model)
    if args.steps:
        loop(model, features[0], collate, args)
    model.save_pretrained(args.save)
    tokenizer.save_pretrained(args.save)
    reopened = NeZhaForMultipleChoice.from_pretrained(args.save)
    print(f"dev accuracy {accuracy(reopened, files[1], features[1], collate, args):.4f}, saved in {args.save}")
