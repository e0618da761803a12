"""Checkpoints: fetch them, look at them, carry them from one code base to another."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddle_nezha.checkpoint import DIALECTS, HEADS
from paddle_nezha.checkpoint.compare import compare_checkpoints
from paddle_nezha.checkpoint.convert import TARGETS, convert
from paddle_nezha.checkpoint.errors import shown
from paddle_nezha.checkpoint.verify import Findings
from paddle_nezha.commands.shared import DONE, WRONG, add_cached, add_json, command, print_json, setting
from paddle_nezha.hub import fetch, is_published, list_entries, resolve
from paddle_nezha.hub.resolving import check_weights
from paddle_nezha.tuning import tune_cpu
from paddle_nezha.verification import verify

_MARKS = {True: "ok", False: "WRONG", None: "--"}


def add(commands: Any) -> None:
    one = command(
        commands,
        "fetch",
        _fetch,
        "bring a published checkpoint here, whole and checked",
        "paddle-nezha fetch nezha-base-chinese",
        "paddle-nezha fetch sijunhe/nezha-cn-base --to ./nezha --mirror https://hf-mirror.com",
    )
    one.add_argument("name", metavar="NAME", help="a name that `paddle-nezha list` gives")
    one.add_argument("--to", metavar="DIR", help="the folder to fill (default: one in the cache)")
    one.add_argument("--mirror", metavar="URL", help="take the files from here (default: PADDLE_NEZHA_MIRROR)")
    one.add_argument("--offline", action="store_true", default=None, help="open no connection")
    add_cached(one)
    one.set_defaults(refused=WRONG, kept="; what came so far is kept")

    one = command(
        commands,
        "list",
        _list,
        "what was published, where it is, how large, and whether it is here and verified",
        "paddle-nezha list",
    )
    add_cached(one)

    one = command(
        commands,
        "verify",
        _verify,
        "every tensor by name, shape, dtype and sha256; the file by its record; the outputs by published ones",
        "paddle-nezha verify nezha-base-chinese",
        "paddle-nezha verify ./my-model --json > digests.json",
    )
    one.add_argument("what", metavar="FOLDER|FILE|NAME", help="a checkpoint, or the name of a published one")
    add_cached(one)
    one.set_defaults(refused=WRONG)

    one = command(
        commands,
        "convert",
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
        type=setting,
        metavar="KEY=VALUE",
        help="a setting that wins over SRC's config, such as hidden_act=gelu (repeatable)",
    )
    one.add_argument("--force", action="store_true", help="replace the checkpoint that DST holds")
    add_json(one)

    one = command(
        commands,
        "diff",
        _diff,
        "two checkpoints of any formats, tensor by tensor",
        "paddle-nezha diff nezha-base-chinese sijunhe/nezha-cn-base",
    )
    one.add_argument("a", metavar="A", help="a folder, a weight file, or a published name")
    one.add_argument("b", metavar="B", help="another one")
    add_json(one)


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
        print_json({"name": options.name, "folder": folder, "files": sorted(os.listdir(folder))})
    else:
        print(folder)
    return DONE


def _list(options: argparse.Namespace) -> int:
    entries = list_entries(options.cache_dir)
    if options.json:
        print_json([asdict(entry) for entry in entries])
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
        print_json(asdict(report))
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
        print_json(asdict(comparison))
    else:
        for difference in comparison.differences:
            print(f"{shown(difference.name)}: {difference.told}")
        print(
            f"{len(comparison.equal)} tensors equal byte for byte, {len(comparison.differences)} different "
            f"(A has {comparison.dialects[0]} names, B {comparison.dialects[1]})"
        )
    return WRONG if comparison.differences else DONE


def _place(text: str) -> Path:
    """A path as it is, or the folder of a published name."""
    path = Path(text)
    is_here = path.exists() or path.with_name(path.name + ".index").exists()
    return path if is_here else resolve(text)
