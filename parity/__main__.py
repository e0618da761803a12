"""The judge's command line: `python -m parity run | compare | faults | bench`, in the folder of the checkout.

Exit codes: 0 equal, 1 the two sides part, 2 the run could not be made, 128 + n stopped by signal n.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddle_nezha._streams import discard_output, open_closed_streams
from parity.bench import command as bench
from parity.device import quiet_imports
from parity.result import Report
from parity.run import LEAST_TEXTS, CouldNotRun, Options, judge, reason
from parity.stages import HEADS

_RUN_EPILOG = f"""heads:
  {", ".join(HEADS[:4])},
  {", ".join(HEADS[4:])}

stages, in the order of the forward (N is a layer; --stage 'layer.*.query' is all of one kind):
  table, rows, mask, embeddings,
  layer.N.query, key, value, scores, probs, context, attention_output, ffn, output,
  pooler, mlm.transform, mlm.logits, nsp.logits, classifier.logits, loss,
  grad:PARAMETER; and in training parameter:PARAMETER, weights, weights:PARAMETER, loss_curve

examples:
  python -m parity run                                     every case, training, and the shelf's checkpoints
  python -m parity run --quick                             the same kinds of question in under a minute
  python -m parity run --case 'pad-*' --stage 'layer.*'    some cases, some stages
  python -m parity run --weights FOLDER --text FILE        your own checkpoint on your own text
  python -m parity run --against transformers              with another implementation (make oracles)

Run it in the folder of the checkout, which holds parity/. PARITY_TRACEBACK=1 shows where an error arose.
exit code: 0 equal, 1 parts, 2 could not run, 128 + n stopped by signal n"""

_COMPARE_EPILOG = """example:
  python -m parity compare before/parity.json build/parity/parity.json

exit code: 0 not worse, 1 worse, 2 could not compare"""

_FAULTS_EPILOG = """example:
  python -m parity faults --kind loader

exit code: 0 every fault caught at the right stage, 1 one was not, 2 could not run, 128 + n stopped by signal n"""


class Stopped(BaseException):
    """A signal asked this process to end; no handler of ordinary errors may keep it."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True)
    run = _command(
        commands,
        "run",
        "judge the model against its reference",
        "Holds paddle_nezha against torch_ref, stage by stage, forward and backward; float64 is the truth.",
        _RUN_EPILOG,
    )
    run.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="only this case (may hold *; repeatable)"
    )
    run.add_argument(
        "--head", action="append", default=[], choices=HEADS, metavar="HEAD", help="only this head (repeatable)"
    )
    run.add_argument(
        "--stage", action="append", default=[], metavar="NAME", help="only this stage (may hold *; repeatable)"
    )
    run.add_argument(
        "--dtype", choices=("float64", "float32"), help="only this question: the formula, or the arithmetic"
    )
    run.add_argument(
        "--weights", type=_path, metavar="FOLDER", help="judge this checkpoint in place of the seeded cases"
    )
    run.add_argument(
        "--text",
        type=_path,
        metavar="FILE",
        help=f"text for the checkpoint, UTF-8, at least {LEAST_TEXTS} texts, one a line (default: its sentences.txt)",
    )
    run.add_argument(
        "--against", choices=("transformers", "paddlenlp"), help="compare with this implementation instead"
    )
    run.add_argument(
        "--device", choices=("cpu", "gpu"), default="cpu", help="where float32 is computed (gpu: unmeasured)"
    )
    run.add_argument("--quick", action="store_true", help="fewer cases, heads and seeds: under a minute")
    run.add_argument("--jobs", type=_count, default=2, metavar="N", help="processes (default: 2)")
    run.add_argument(
        "--report", type=_path, metavar="FOLDER", help="also write parity.json, .md, .xml (JUnit) and .html there"
    )
    compare = _command(
        commands,
        "compare",
        "has an error grown between two reports?",
        "Fails when an error has grown from one report to the next, even inside its limit.",
        _COMPARE_EPILOG,
    )
    compare.add_argument("old", type=_path, metavar="OLD.json")
    compare.add_argument("new", type=_path, metavar="NEW.json")
    faults = _command(
        commands,
        "faults",
        "plant faults one at a time and see each one caught",
        "Tests the judge: plants faults in the model, its backward, its loader and its training.",
        _FAULTS_EPILOG,
    )
    faults.add_argument(
        "--kind", action="append", choices=("forward", "backward", "loader", "training"), help="only these (repeatable)"
    )
    faults.add_argument("--name", action="append", metavar="NAME", help="only this fault (repeatable)")
    bench.add_arguments(_command(commands, "bench", bench.SUMMARY, bench.DESCRIPTION, bench.EPILOG))
    return top


def _command(commands: Any, name: str, summary: str, description: str, epilog: str) -> argparse.ArgumentParser:
    style = argparse.RawDescriptionHelpFormatter
    return commands.add_parser(name, help=summary, description=description, epilog=epilog, formatter_class=style)


def _path(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, got an empty one; for the current folder write .")
    return Path(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of processes from 1 on, got {text!r}")
    return int(text)


def main(arguments: "list[str]") -> int:
    open_closed_streams()
    options = parser().parse_args(arguments)
    quiet_imports()
    verb = {"run": "run", "compare": "compare", "faults": "plant faults", "bench": "measure"}[options.command]
    perform = {"run": _run, "compare": _compare, "faults": _faults, "bench": _bench}[options.command]
    try:
        with _stoppable():
            code = perform(options, arguments[1:])
            sys.stdout.flush()
            return code
    except Stopped as stopped:
        (number,) = stopped.args
        print(f"parity: stopped by {signal.Signals(number).name}.", file=sys.stderr)
        return 128 + number
    except Exception as error:  # 1 would say that the two sides part
        if os.environ.get("PARITY_TRACEBACK"):
            traceback.print_exc()
        print(f"parity could not {verb}: {reason(error)}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk
            discard_output()
        return 2


@contextlib.contextmanager
def _stoppable() -> "Iterator[None]":
    """SIGTERM and SIGINT raise Stopped, so that everything opened is closed; a second one ends the process as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, _frame: Any) -> None:
        for each in heeded:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)

    for number in heeded:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number] or signal.SIG_DFL)


@contextlib.contextmanager
def _reader_may_leave() -> "Iterator[None]":
    """`… | head` closes our output before its end. Rich answers by exit code 1, but the verdict stands."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        discard_output()


def _run(options: argparse.Namespace, command: "list[str]") -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from parity import report as reports

    asked = Options(
        cases=tuple(options.case),
        heads=tuple(options.head),
        stages=tuple(options.stage),
        dtypes=(options.dtype,) if options.dtype else ("float64", "float32"),
        device=options.device,
        weights=options.weights,
        text=options.text,
        against=options.against,
        quick=options.quick,
    )
    _check(options)
    if options.report:
        reports.prepare(options.report)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        report = judge(
            command,
            asked,
            1 if options.device == "gpu" else options.jobs,
            lambda job, done, total: progress.update(
                task, description=f"{job.kind} {Path(job.name).name} {job.head}".strip(), completed=done, total=total
            ),
        )
    paths = reports.write_all(report, options.report) if options.report else []  # first: output may fail
    with _reader_may_leave():
        reports.show(report)
        if paths:
            print(f"Reports: {', '.join(map(str, paths))}")
    return 0 if report.passed else 1


def _check(options: argparse.Namespace) -> None:
    """What can be said before anything is computed."""
    if options.text and not options.weights:
        raise CouldNotRun("--text is read with a checkpoint: give --weights FOLDER too.")
    if options.weights and options.against:
        raise CouldNotRun("--against judges the seeded cases: leave out --weights.")
    if options.weights and not options.weights.is_dir():
        raise CouldNotRun(
            f"--weights {options.weights} is no folder: give one with a config, weights and a vocabulary."
        )
    if options.text and not options.text.is_file():
        raise CouldNotRun(f"--text {options.text} is no file: give one with at least {LEAST_TEXTS} texts, one a line.")
    if options.against:
        from parity.outside import available

        missing = available(options.against)
        if missing:
            raise CouldNotRun(missing)


def _compare(options: argparse.Namespace, _command: "list[str]") -> int:
    from parity.regress import compare, show_findings

    old, new = Report.from_json(options.old), Report.from_json(options.new)
    findings = compare(old, new)
    with _reader_may_leave():
        show_findings(findings, old, new)
    return 1 if findings else 0


def _faults(options: argparse.Namespace, _command: "list[str]") -> int:
    from rich.console import Console
    from rich.progress import Progress

    from parity import faults
    from parity.report.faults import show

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("planting faults", total=len(faults.FAULTS))
        findings = faults.run(options.kind, options.name, lambda _finding: progress.advance(task))
    with _reader_may_leave():
        show(findings)
    return 0 if findings and all(finding.placed for finding in findings) else 1


def _bench(options: argparse.Namespace, command: "list[str]") -> int:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from parity.bench.report import show

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        found = bench.run(options, command, lambda doing: progress.update(task, description=doing))
    with _reader_may_leave():
        show(found)
        print(f"Reports: {', '.join(str(options.report / name) for name in ('bench.json', 'bench.md', 'bench.html'))}")
    return 0 if found.met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
