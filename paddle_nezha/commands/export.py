"""Models for Paddle Inference."""

import argparse
from dataclasses import asdict
from typing import Any

from paddle_nezha.checkpoint import HEADS
from paddle_nezha.commands.shared import COULD_NOT, DONE, add_json, command, fail, print_json


def add(commands: Any) -> None:
    one = command(
        commands,
        "export",
        _export,
        "write a model for Paddle Inference, with its tokenizer and, if asked for, the attention operator",
        "paddle-nezha export ./my-model ./served",
        "paddle-nezha export nezha-base-chinese ./served --head masked_lm --op",
    )
    one.add_argument("src", metavar="FOLDER", help="a checkpoint's folder, or a published name")
    one.add_argument("dst", metavar="OUT", help="the folder to write")
    one.add_argument(
        "--op",
        action="store_true",
        help="compute attention by the operator, faster; OUT then carries its library, for this Paddle release and "
        "this kind of processor (paddle_nezha.load_op registers it)",
    )
    one.add_argument("--head", choices=HEADS, help="which head to export (default: the one that is there)")
    one.add_argument("--force", action="store_true", help="replace the export that OUT holds")
    add_json(one)


def _export(options: argparse.Namespace) -> int:
    try:
        from paddle_nezha.export import export
        from paddle_nezha.operator import OperatorError
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        return fail(error, COULD_NOT, options.json)
    try:
        report = export(options.src, options.dst, options.op, head=options.head, force=options.force)
    except OperatorError as error:
        return fail(error, COULD_NOT, options.json)
    if options.json:
        print_json(asdict(report))
        return DONE
    print(f"wrote    {report.folder}: {', '.join(report.files)}")
    print(f"inputs   {', '.join(report.inputs)}: int64, any batch and length")
    print(f"outputs  {', '.join(report.outputs)} ({report.head})")
    if report.operator is None:
        print("operator none: it runs wherever Paddle Inference does")
    else:
        needs = ", ".join(f"{what} {report.operator[what]}" for what in ("Paddle", "system", "processor"))
        print(f"operator for {needs}: paddle_nezha.load_op({report.folder!r}) before the predictor is made")
    for remark in report.remarks:
        print(f"note     {remark}")
    return DONE
