"""Commands that put a model to work on texts: fill-mask, encode and predict."""

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json, use_all_cores
from paddle_nezha.pipelines import pipeline
from paddle_nezha.pipelines.batches import TOKENS_PER_BATCH
from paddle_nezha.pipelines.lines import Source
from paddle_nezha.pipelines.running import Done
from paddle_nezha.training.settings import mapping
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

    one = command(
        commands,
        "predict",
        _predict,
        "what a fine-tuned model answers to every example of a file of any size",
        "paddle-nezha predict run --input texts.txt --output answers.jsonl",
        "paddle-nezha predict run/model --input test.tsv.gz --output answers.tsv --format tsv",
        "zcat texts.gz | paddle-nezha predict run --input - --output - > answers.jsonl",
    )
    one.add_argument("model", metavar="FOLDER", help="what `paddle-nezha finetune` left: its run, or the model in it")
    one.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="a file of any layout that finetune reads, gzipped or not; texts may stand one a line, and a model for "
        "tags tags their characters; where there are labels, scores are printed; - is standard input",
    )
    one.add_argument("--output", required=True, metavar="FILE", help="the file to write; - is standard output")
    one.add_argument(
        "--format",
        choices=("jsonl", "tsv"),  # predict.FORMS, which needs Paddle
        default="jsonl",
        help="an object a line, or a header and columns; probabilities are in the order of names in the model's "
        "task.json (default: %(default)s)",
    )
    one.add_argument("--n-best", type=int, default=0, metavar="N", help="span: list the N best answers too")
    one.add_argument(
        "--layout",
        metavar="NAME",
        help="how the file is laid out (told from its content); of lines without tags, conll takes each for a token "
        "and tsv for a sentence",
    )
    one.add_argument(
        "--columns",
        metavar="JSON",
        help="which columns or keys hold what, such as {text: review, label: stars}; {text: review} leaves labels out",
    )
    _add_running(one)


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
    _add_running(one)


def _add_running(one: argparse.ArgumentParser) -> None:
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


def _predict(options: argparse.Namespace) -> int:
    use_all_cores()
    tune_cpu()
    try:
        with _own_handler():
            predict = pipeline(None, options.model, tokens_per_batch=options.tokens_per_batch, n_best=options.n_best)
        columns = None if options.columns is None else mapping(options.columns)
        source = predict.source(options.input, layout=options.layout, columns=columns)
        done = predict.run(source, options.output, form=options.format, force=options.force)
    except ModuleNotFoundError as error:
        if error.name not in ("paddle", "sklearn", "seqeval", "yaml"):
            raise
        needs = error if error.name == "paddle" else f"{error}: pip install 'paddle_nezha[train]'"
        return fail(needs, COULD_NOT, options.json)
    for remark in done.remarks:
        print(remark, file=sys.stderr)
    streams = options.output == "-"
    if options.json and not streams:
        told = {"output": options.output, "rows": done.rows, "resumed_at": done.resumed}
        print_json(told if done.scores is None else {**told, "scores": done.scores})
        return DONE
    if not streams:
        print(f"{options.output}: {done.rows:,} rows")
    if done.scores is not None:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in done.scores.items())
        print(f"scores: {shown}", file=sys.stderr if streams else sys.stdout)
    return DONE


def _opened(task: str, options: argparse.Namespace, **more: Any) -> Any:
    tune_cpu()
    try:
        with _own_handler():
            return pipeline(
                task, options.model, max_length=options.max_length, tokens_per_batch=options.tokens_per_batch, **more
            )
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        raise ValueError(str(error)) from None


@contextlib.contextmanager
def _own_handler() -> "Iterator[None]":
    """Paddle, imported within the block, puts a handler of its own in the place of Python's, and dies of SIGTERM by
    it; after the block Python's is there again."""
    try:
        yield
    finally:
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
