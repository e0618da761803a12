"""Commands that put a model to work on texts: fill-mask and encode."""

import argparse
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any

from paddle_nezha.commands.shared import add_json, command, print_json
from paddle_nezha.pipelines import pipeline
from paddle_nezha.pipelines.batches import TOKENS_PER_BATCH
from paddle_nezha.pipelines.lines import Source
from paddle_nezha.pipelines.running import Done
from paddle_nezha.tuning import tune_cpu


def add(commands: Any) -> None:
    one = command(
        commands,
        "fill-mask",
        _fill_mask,
        "ranked tokens for each [MASK] of a text, or of every line of a file",
        'paddle-nezha fill-mask "今天天气很[MASK]。" --model nezha-base-chinese',
        "paddle-nezha fill-mask --model ./my-model --input texts.txt --output filled.jsonl",
    )
    one.add_argument(
        "texts", nargs="*", metavar="TEXT", help="a text with [MASK] in it; several masks are filled apart"
    )
    one.add_argument("--top", type=int, default=5, metavar="N", help="tokens for each mask (default: %(default)s)")
    _add_files(one, "the JSONL to write (default: - for standard output)", required=False)

    one = command(
        commands,
        "encode",
        _encode,
        "a vector for every line of a file of any size",
        "paddle-nezha encode --model nezha-base-chinese --input texts.txt --output vectors.npy",
        "paddle-nezha encode --model ./my-model --input texts.jsonl.gz --field title --output - --pooling cls",
    )
    one.add_argument(
        "--pooling",
        choices=("mean", "cls", "pooled"),  # encode.POOLINGS, which needs Paddle
        default="mean",
        help="mean of all tokens' last hidden states, [CLS] and [SEP] among them; that of [CLS]; or the pooler's "
        "output (default: %(default)s)",
    )
    one.add_argument(
        "--dtype",
        choices=("float32", "float16"),  # encode.DTYPES
        default="float32",
        help="what is written; computed is in float32 (default: %(default)s)",
    )
    _add_files(one, "the .npy or .jsonl to write; - is JSONL on standard output", required=True)


def _add_files(one: argparse.ArgumentParser, output: str, required: bool) -> None:
    one.add_argument(
        "--model", metavar="FOLDER|NAME", help="a checkpoint (default: the small one that comes with a checkout)"
    )
    one.add_argument(
        "--input",
        required=required,
        metavar="FILE",
        help="texts, one a line, or .jsonl, gzipped or not; - is standard input",
    )
    one.add_argument("--output", required=required, metavar="FILE", help=output)
    one.add_argument("--field", metavar="KEY", help="read JSONL, with the text under KEY (default of a .jsonl: text)")
    one.add_argument("--max-length", type=int, metavar="N", help="tokens that are read of a text (default: 512)")
    one.add_argument(
        "--tokens-per-batch",
        type=int,
        default=TOKENS_PER_BATCH,
        metavar="N",
        help="tokens that are computed at once (default: %(default)s)",
    )
    one.add_argument(
        "--force",
        action="store_true",
        help="replace an output that is there, and begin anew what was begun with other settings",
    )
    add_json(one)


def _fill_mask(options: argparse.Namespace) -> int:
    if bool(options.texts) == (options.input is not None):
        raise ValueError("Give either texts, or --input with a file of them.")
    if options.output is not None and options.input is None:
        raise ValueError("--output goes with --input: the answers to texts given here are printed.")
    fill = _opened("fill-mask", options, top_k=options.top)
    if options.input is not None:
        output = options.output or "-"
        done = fill.run(Source(options.input, options.field), output, force=options.force)
        return _report(done, output, options.json)
    answers = fill(options.texts)
    if options.json:
        print_json(
            [
                {"text": text, "masks": [[asdict(candidate) for candidate in candidates] for candidates in found]}
                for text, found in zip(options.texts, answers)
            ]
        )
        return 0
    for text, found in zip(options.texts, answers):
        print(text)
        for number, candidates in enumerate(found, 1):
            if len(found) > 1:
                print(f"  mask {number}")
            for candidate in candidates:
                print(f"  {candidate.probability:7.4f}  {candidate.token:8}  {candidate.text or ''}".rstrip())
    return 0


def _encode(options: argparse.Namespace) -> int:
    encode = _opened("encode", options, pooling=options.pooling)
    source = Source(options.input, options.field)
    done = encode.run(source, options.output, dtype=options.dtype, force=options.force)
    if encode.cut:
        print(f"{encode.cut:,} texts were cut to {encode.max_length} tokens (--max-length)", file=sys.stderr)
    return _report(done, options.output, options.json)


def _opened(task: str, options: argparse.Namespace, **more: Any) -> Any:
    tune_cpu()
    try:
        return pipeline(
            task, options.model, max_length=options.max_length, tokens_per_batch=options.tokens_per_batch, **more
        )
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        raise ValueError(str(error)) from None
    finally:
        # Paddle, imported by now, has put a handler of its own in the place of Python's, and dies of SIGTERM by it.
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _report(done: Done, output: str, as_json: bool) -> int:
    """What was read goes to stderr; standard output may be carrying the answers."""
    for remark in done.account.remarks():
        print(remark, file=sys.stderr)
    if output == "-":
        return 0
    if as_json:
        print_json({"output": output, "lines": done.account.lines, "resumed_at": done.resumed})
    else:
        print(f"{output}: {done.account.lines:,} lines")
    return 0
