"""The judge's command line: `python -m parity run | compare | faults`.

Exit codes: 0 equal, 1 the two sides part, 2 the run could not be made.
"""

import argparse
import sys
from pathlib import Path

from parity.device import quiet_imports
from parity.result import Report
from parity.stages import HEADS

_RUN_EXAMPLES = """examples:
  python -m parity run                                     every case, training, and the shelf's checkpoint
  python -m parity run --quick                             the same kinds of question in under a minute
  python -m parity run --case 'pad-*' --stage 'layer.*'    some cases, some stages
  python -m parity run --weights FOLDER --text FILE        your own checkpoint on your own text
  python -m parity run --against transformers              with another implementation (make oracles)

exit code: 0 equal, 1 parts, 2 could not run"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="judge the model against its reference",
        description="Holds paddle_nezha against torch_ref, stage by stage, forward and backward; float64 is the truth.",
        epilog=_RUN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="only this case (may hold *; repeatable)"
    )
    run.add_argument("--head", action="append", default=[], choices=HEADS, help="only this head (repeatable)")
    run.add_argument(
        "--stage", action="append", default=[], metavar="NAME", help="only this stage (may hold *; repeatable)"
    )
    run.add_argument(
        "--dtype", choices=("float64", "float32"), help="only this question: the formula, or the arithmetic"
    )
    run.add_argument(
        "--weights", type=Path, metavar="FOLDER", help="judge this checkpoint in place of the seeded cases"
    )
    run.add_argument(
        "--text", type=Path, metavar="FILE", help="text for the checkpoint, one a line (its own sentences.txt)"
    )
    run.add_argument(
        "--against", choices=("transformers", "paddlenlp"), help="compare with this implementation instead"
    )
    run.add_argument(
        "--device", choices=("cpu", "gpu"), default="cpu", help="where float32 is computed (gpu: unmeasured)"
    )
    run.add_argument("--quick", action="store_true", help="fewer heads and seeds: under a minute")
    run.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    run.add_argument(
        "--report", type=Path, metavar="FOLDER", help="also write parity.json, .md, .xml (JUnit) and .html there"
    )
    compare = commands.add_parser(
        "compare",
        help="has an error grown between two reports?",
        description="Fails when an error has grown from one report to the next, even inside its tolerance.",
        epilog="example: python -m parity compare before/parity.json build/parity/parity.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("old", type=Path, metavar="OLD.json")
    compare.add_argument("new", type=Path, metavar="NEW.json")
    faults = commands.add_parser(
        "faults",
        help="plant faults one at a time and see each one caught",
        description="Tests the judge: plants faults in the model, its backward, its loader and its training.",
        epilog="example: python -m parity faults --kind loader",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    faults.add_argument(
        "--kind", action="append", choices=("forward", "backward", "loader", "training"), help="only these"
    )
    faults.add_argument("--name", action="append", metavar="NAME", help="only this fault (repeatable)")
    return top


def main(arguments: "list[str]") -> int:
    options = parser().parse_args(arguments)
    quiet_imports()
    return {"run": _run, "compare": _compare, "faults": _faults}[options.command](options, arguments[1:])


def _run(options: argparse.Namespace, command: "list[str]") -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from parity import report as reports
    from parity.run import CouldNotRun, Options, judge

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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        _check(options)
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("starting", total=None)
            report = judge(
                command,
                asked,
                1 if options.device == "gpu" else max(1, options.jobs),
                lambda job, done, total: progress.update(
                    task, description=f"{job.kind} {job.name} {job.head}".strip(), completed=done, total=total
                ),
            )
    except (CouldNotRun, OSError, ValueError, RuntimeError) as error:
        print(f"parity could not run: {error}", file=sys.stderr)
        return 2
    reports.show(report)
    if options.report:
        paths = reports.write_all(report, options.report)
        print(f"Reports: {', '.join(map(str, paths))}")
    return 0 if report.passed else 1


def _check(options: argparse.Namespace) -> None:
    """What can be said before anything is computed."""
    from parity.run import CouldNotRun

    if options.text and not options.weights:
        raise CouldNotRun("--text is read with a checkpoint: give --weights FOLDER too.")
    if options.weights and options.against:
        raise CouldNotRun("--against judges the seeded cases: leave out --weights.")
    for path, kind in ((options.weights, "folder"), (options.text, "file")):
        if path and not (path.is_dir() if kind == "folder" else path.is_file()):
            raise CouldNotRun(f"{path} is no {kind}.")
    if options.against:
        from parity.outside import available

        missing = available(options.against)
        if missing:
            raise CouldNotRun(missing)


def _compare(options: argparse.Namespace, _command: "list[str]") -> int:
    from parity.regress import compare, show_findings

    try:
        old, new = Report.from_json(options.old), Report.from_json(options.new)
        findings = compare(old, new)
    except (OSError, ValueError) as error:
        print(f"parity could not compare: {error}", file=sys.stderr)
        return 2
    show_findings(findings, old, new)
    return 1 if findings else 0


def _faults(options: argparse.Namespace, _command: "list[str]") -> int:
    from rich.console import Console
    from rich.progress import Progress

    from parity import faults
    from parity.report.faults import show

    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("planting faults", total=len(faults.FAULTS))
            findings = faults.run(options.kind, options.name, lambda _finding: progress.advance(task))
    except ValueError as error:
        print(f"parity could not run: {error}", file=sys.stderr)
        return 2
    show(findings)
    return 0 if findings and all(finding.placed for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
