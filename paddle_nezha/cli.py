"""NeZha checkpoints on the command line: fetch them, look at them, carry them from one code base to another.

Exit codes: 0 done (right, equal); 1 found wrong, or different; 2 could not.
"""

import argparse
import contextlib
import io
import json
import logging
import math
import os
import platform
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional

from paddle_nezha import __version__
from paddle_nezha._streams import discard_output, open_closed_streams
from paddle_nezha.checkpoint import DIALECTS, HEADS, CheckpointError
from paddle_nezha.checkpoint.compare import compare_checkpoints
from paddle_nezha.checkpoint.convert import TARGETS, convert
from paddle_nezha.checkpoint.errors import shown
from paddle_nezha.checkpoint.verify import Findings
from paddle_nezha.hub import cache_home, fetch, is_published, list_entries, resolve
from paddle_nezha.hub.places import is_offline
from paddle_nezha.hub.resolving import check_weights
from paddle_nezha.tuning import plan, tune_cpu
from paddle_nezha.verification import verify

DONE, WRONG, COULD_NOT = 0, 1, 2
_MARKS = {True: "ok", False: "WRONG", None: "--"}
_PACKAGES = ("numpy", "safetensors", "tokenizers", "paddlepaddle", "paddlepaddle-gpu")


def main(arguments: "Optional[list[str]]" = None) -> int:
    """Runs one command and gives its exit code."""
    open_closed_streams()
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path is printed on any terminal, spelled out if need be
            stream.reconfigure(errors="backslashreplace")
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is half done is cleaned up
    try:
        with _log_lines():
            code: int = options.run(options)
            sys.stdout.flush()
            return code
    except CheckpointError as error:
        return _fail(error, WRONG if options.run in (_fetch, _verify) else COULD_NOT, options.json)
    except BrokenPipeError:  # the reader has seen enough
        discard_output()
        return DONE
    except (ValueError, OSError) as error:
        return _fail(error, COULD_NOT, options.json)
    except KeyboardInterrupt:
        kept = "; what came so far is kept" if options.run is _fetch else ""
        return _fail(f"stopped{kept}", 130)


def _fail(error: object, code: int, as_json: bool = False) -> int:
    print(f"paddle-nezha: {error}", file=sys.stderr)
    if as_json:
        _print_json({"error": str(error)})
    return code


@contextlib.contextmanager
def _log_lines() -> "Iterator[None]":
    """What the package has to say while it works, on stderr."""
    logger, handler = logging.getLogger("paddle_nezha"), logging.StreamHandler(sys.stderr)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # Paddle gives the root logger a handler, which would say everything once more
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(handler)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="paddle-nezha", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"paddle-nezha {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = _command(
        commands,
        _fetch,
        "bring a published checkpoint here, whole and checked",
        "paddle-nezha fetch nezha-base-chinese",
        "paddle-nezha fetch sijunhe/nezha-cn-base --to ./nezha --mirror https://hf-mirror.com",
    )
    one.add_argument("name", metavar="NAME", help="a name that `paddle-nezha list` gives")
    one.add_argument("--to", metavar="DIR", help="the folder to fill (default: one in the cache)")
    one.add_argument("--mirror", metavar="URL", help="take the files from here (default: PADDLE_NEZHA_MIRROR)")
    one.add_argument("--offline", action="store_true", default=None, help="open no connection")
    _cached(one)

    one = _command(
        commands,
        _list,
        "what was published, where it is, how large, and whether it is here and verified",
        "paddle-nezha list",
    )
    _cached(one)

    one = _command(
        commands,
        _verify,
        "every tensor by name, shape, dtype and sha256; the file by its record; the outputs by published ones",
        "paddle-nezha verify nezha-base-chinese",
        "paddle-nezha verify ./my-model --json > digests.json",
    )
    one.add_argument("what", metavar="FOLDER|FILE|NAME", help="a checkpoint, or the name of a published one")
    _cached(one)

    one = _command(
        commands,
        _convert,
        "write a checkpoint in another format, with another code base's names and config",
        "paddle-nezha convert ./huawei-tensorflow ./nezha",
        "paddle-nezha convert ./nezha ./for-transformers --to hf",
        "paddle-nezha convert ./nezha ./for-bert4torch --to torch --names bert4torch",
    )
    one.add_argument("src", metavar="SRC", help="a folder, a weight file, or a published name")
    one.add_argument("dst", metavar="DST", help="the folder to write")
    one.add_argument("--to", choices=tuple(TARGETS), default="paddle", help="what to write (default: %(default)s)")
    one.add_argument("--dialect", choices=tuple(DIALECTS), help="whose names SRC has (default: detected)")
    one.add_argument("--names", choices=TARGETS["torch"].names, help="with --to torch: whose names to write")
    one.add_argument("--head", choices=HEADS, help="which head to write (default: the one that is there)")
    one.add_argument("--config", metavar="FILE", help="SRC's config, where it is not beside the weights")
    one.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting that wins over SRC's config, such as hidden_act=gelu (repeatable)",
    )
    one.add_argument("--force", action="store_true", help="replace the checkpoint that DST holds")
    _json(one)

    one = _command(
        commands,
        _diff,
        "two checkpoints of any formats, tensor by tensor",
        "paddle-nezha diff nezha-base-chinese sijunhe/nezha-cn-base",
    )
    one.add_argument("a", metavar="A", help="a folder, a weight file, or a published name")
    one.add_argument("b", metavar="B", help="another one")
    _json(one)

    one = _command(
        commands,
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
    _json(one)

    one = _command(commands, _info, "versions, devices and folders, for a report of a problem", "paddle-nezha info")
    _json(one)
    return top


def _command(commands: Any, run: Any, summary: str, *examples: str) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = commands.add_parser(
        run.__name__[1:],
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="\n  ".join(("examples:", *examples)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(run=run)
    return one


def _cached(one: argparse.ArgumentParser) -> None:
    one.add_argument("--cache-dir", metavar="DIR", help="the cache (default: PADDLE_NEZHA_HOME, or the platform's)")
    _json(one)


def _json(one: argparse.ArgumentParser) -> None:
    one.add_argument("--json", action="store_true", help="print JSON")


def _setting(text: str) -> "tuple[str, Any]":
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _print_json(content: Any) -> None:
    print(json.dumps(_strict(content), ensure_ascii=False, indent=2, default=str, allow_nan=False))


def _strict(content: Any) -> Any:
    """The same with infinities and NaN, which JSON has not, as texts."""
    if isinstance(content, dict):
        return {key: _strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_strict(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


# ---- the commands


def _fetch(options: argparse.Namespace) -> int:
    folder = fetch(
        options.name,
        to=options.to,
        cache_dir=options.cache_dir,
        mirror=options.mirror,
        offline=options.offline,
        check=check_weights,
    )
    if options.json:
        _print_json({"name": options.name, "folder": folder, "files": sorted(os.listdir(folder))})
    else:
        print(folder)
    return DONE


def _list(options: argparse.Namespace) -> int:
    entries = list_entries(options.cache_dir)
    if options.json:
        _print_json([asdict(entry) for entry in entries])
        return DONE
    wide = max(len(entry.name) for entry in entries)
    print(f"{'name':{wide}}  {'parameters':>11}  {'size':>8}  {'verified':8}  where")
    for entry in entries:
        size = f"{entry.size / 1e6:,.0f} MB" if entry.size else "?"
        place = str(entry.folder) if entry.folder else f"not here: {entry.address}"
        print(f"{entry.name:{wide}}  {entry.parameters:11,}  {size:>8}  {entry.verified or '--':8}  {place}")
    return DONE


def _verify(options: argparse.Namespace) -> int:
    if is_published(options.what):
        tune_cpu()  # for its outputs, which are computed again
    findings = verify(options.what, cache_dir=options.cache_dir)
    if options.json:
        print(findings.to_json(), end="")
    else:
        print("\n".join(told(findings)))
    return DONE if findings.right else WRONG


def told(findings: Findings) -> "list[str]":
    """Findings in lines for a person."""
    lines = [f"{_MARKS[check.passed]:5}  {check.name}: {check.told}" for check in findings.checks]
    if findings.digest:
        lines.append(
            f"{len(findings.tensors)} tensors, {findings.parameters:,} parameters, {findings.form} with "
            f"{findings.dialect} names, digest {findings.digest}"
        )
    return [*lines, f"{findings.path} is {'right' if findings.right else 'WRONG'}."]


def _convert(options: argparse.Namespace) -> int:
    report = convert(
        _place(options.src),
        options.dst,
        options.to,
        dialect=options.dialect,
        head=options.head,
        names=options.names,
        config=options.config,
        overrides=dict(options.set),
        force=options.force,
    )
    if options.json:
        _print_json(asdict(report))
        return DONE
    print(f"read     {report.source}: {report.form}, {report.head}, {report.summary}")
    print(
        f"wrote    {report.target}: {', '.join(report.files)} ({report.parameters:,} parameters, {report.names} names)"
    )
    print("checked  opened again, and every tensor is the source's, byte for byte")
    for remark in report.remarks:
        print(f"note     {remark}")
    return DONE


def _diff(options: argparse.Namespace) -> int:
    comparison = compare_checkpoints(_place(options.a), _place(options.b))
    if options.json:
        _print_json(asdict(comparison))
    else:
        for difference in comparison.differences:
            print(f"{shown(difference.name)}: {difference.told}")
        print(
            f"{len(comparison.equal)} tensors equal byte for byte, {len(comparison.differences)} different "
            f"(A has {comparison.dialects[0]} names, B {comparison.dialects[1]})"
        )
    return WRONG if comparison.differences else DONE


def _export(options: argparse.Namespace) -> int:
    try:
        from paddle_nezha.export import export
        from paddle_nezha.operator import OperatorError
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        return _fail(error, COULD_NOT, options.json)
    try:
        report = export(options.src, options.dst, options.op, head=options.head, force=options.force)
    except OperatorError as error:
        return _fail(error, COULD_NOT, options.json)
    if options.json:
        _print_json(asdict(report))
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


def _place(text: str) -> Path:
    """A path as it is, or the folder of a published name."""
    path = Path(text)
    is_here = path.exists() or path.with_name(path.name + ".index").exists()
    return path if is_here else resolve(text)


def _info(options: argparse.Namespace) -> int:
    facts = {
        "paddle_nezha": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
        "cache": str(cache_home()),
        "offline": is_offline(),
        **_paddle_facts(),
    }
    if options.json:
        _print_json(facts)
    else:
        for name, fact in facts.items():
            print(f"{name:13} {fact}")
    return DONE


def _planned() -> str:
    """What `tune_cpu` would do here, in one line."""
    try:
        return "; ".join(line.strip() for line in plan().describe().splitlines())
    except ValueError as error:
        return str(error)


def _version(package: str) -> Optional[str]:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _paddle_facts() -> "dict[str, Any]":
    if find_spec("paddle") is None:
        return {"paddle": "not installed: configs, tokenizers and checkpoint files work, models do not"}
    from paddle_nezha import operator
    from paddle_nezha._paddle import paddle

    return {
        "paddle": paddle.__version__,
        "device": paddle.device.get_device(),
        "gpus": paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0,
        "attention": "the operator on processors in eager mode; plain Paddle operations on GPUs, in traced graphs, for "
        "masks of pairs, where probabilities are asked for, and where the operator is not available",
        "operator": operator.describe(),
        "tune_cpu()": _planned(),
    }
