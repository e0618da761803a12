"""`python -m parity bench`: its options, and what is done with them."""

import argparse
import os
import platform
import shlex
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

from parity.bench.figures import LEAST_PAIRS, figures
from parity.bench.measure import Options, measure
from parity.bench.plan import BASE_SIZES, BY_NAME, ENGINES, QUICK_SHAPES, QUICK_SIZES, SHAPES, WHATS, Case, Setting
from parity.bench.result import Bench
from parity.run import CouldNotRun, environment

SUMMARY = "how fast is it, beside what else there is?"
DESCRIPTION = (
    "Measures speed, memory and accuracy of paddle_nezha beside other engines, in turns within one run, and holds the "
    "promised figures to it."
)
_WIDTH = max(len(engine.name) for engine in ENGINES)
EPILOG = f"""engines:
{chr(10).join(f"  {engine.name:{_WIDTH}}  {engine.title}" for engine in ENGINES)}

What is not installed is left out, and the report says so. A figure is the median of at least {LEAST_PAIRS} ratios of
neighbouring repetitions; with one thread the processor's time is read, with several the clock's.

examples:
  python -m parity bench                                        everything: the better part of an hour
  python -m parity bench --what attention,memory                a few minutes
  python -m parity bench --what forward --shapes 8x128 --engines ours,bound,bert

exit code: 0 measured, 1 a promised figure is missed, 2 could not run, 128 + n stopped by signal n (what was measured by
then is written)"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    whats = ", ".join(WHATS)
    command.add_argument(
        "--what", type=_listed(WHATS), default=tuple(WHATS), metavar="LIST", help=f"of {whats} (default: all)"
    )
    command.add_argument("--shapes", type=_shapes, metavar="LIST", help=f"default: {','.join(c.name for c in SHAPES)}")
    command.add_argument(
        "--engines", type=_listed(BY_NAME), default=tuple(BY_NAME), metavar="LIST", help="default: all (see below)"
    )
    command.add_argument(
        "--repeats", type=_positive, metavar="N", help=f"rounds of what figures read (default: {LEAST_PAIRS})"
    )
    command.add_argument("--threads", type=_positive, default=1, metavar="N", help="of every engine (default: 1)")
    command.add_argument(
        "--dropout", type=_probability, default=0.0, metavar="P", help="in training, for every engine (default: 0)"
    )
    command.add_argument("--quick", action="store_true", help="a tiny model at tiny shapes: does everything run?")
    command.add_argument(
        "--report",
        type=_folder,
        default=Path("build/bench"),
        metavar="FOLDER",
        help="for bench.json, .md and .html (default: build/bench)",
    )


def _listed(known: "Any") -> "Callable[[str], tuple[str, ...]]":
    def read(text: str) -> "tuple[str, ...]":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        strange = [name for name in names if name not in known]
        if strange or not names:
            got = strange[0] if strange else text
            raise argparse.ArgumentTypeError(f"expected names of {', '.join(known)}, with commas; got {got!r}")
        return tuple(name for name in known if name in names)  # in the order of the report

    return read


def _shapes(text: str) -> "tuple[Case, ...]":
    try:
        return tuple(dict.fromkeys(Case.parse(part) for part in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"expected a probability below 1, got {text!r}")
    return value


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a folder, got an empty name; for the current one write .")
    return Path(text)


def run(arguments: argparse.Namespace, command: "Sequence[str]", progress: "Callable[[str], None]") -> Bench:
    """Measures, and writes the report whenever a part is complete and however the run ends.

    Raises:
        CouldNotRun: nothing was measured; the message says why.
        OSError: the report cannot be written.
    """
    from parity.bench.report import prepare, write

    prepare(arguments.report)
    options = _options(arguments)
    bench = Bench(
        command=shlex.join(["python", "-m", "parity", "bench", *command]),
        setting=_setting(arguments, options),
        environment=surroundings(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=options.quick,
    )
    started = time.monotonic()

    def save() -> None:
        if not bench.measured:
            return
        bench.seconds = time.monotonic() - started
        bench.figures = figures(bench, [*options.whats, *options.tasks], options.shapes, options.engines)
        write(bench, arguments.report)

    try:
        measure(options, bench, progress, save)
    except BaseException as error:
        bench.stopped = _words(error)
        save()
        raise
    if not bench.measured:
        found = [(engine.name, engine.why) for engine in bench.engines]
        found += [(f"{cell.engine}, {cell.task} {cell.case.name}", cell.why) for cell in bench.cells]
        reasons = "; ".join(f"{name}: {why}" for name, why in found if why)
        raise CouldNotRun(f"Nothing was measured under these options. {reasons}".rstrip())
    save()
    return bench


def _words(error: BaseException) -> str:
    number = error.args[0] if error.args else None
    if not isinstance(error, Exception) and isinstance(number, int):
        return f"stopped by {signal.Signals(number).name}"
    return f"stopped: {type(error).__name__}: {error}"


def _options(arguments: argparse.Namespace) -> Options:
    shapes = arguments.shapes or (QUICK_SHAPES if arguments.quick else SHAPES)
    repeats = arguments.repeats or (2 if arguments.quick else LEAST_PAIRS)
    return Options(arguments.what, shapes, arguments.engines, repeats, arguments.quick)


def _setting(arguments: argparse.Namespace, options: Options) -> Setting:
    sizes = dict(QUICK_SIZES if arguments.quick else BASE_SIZES)
    # BERT learns one position for each token, as many as the longest shape has.
    sizes["max_position_embeddings"] = max([sizes["max_position_embeddings"], *(c.length for c in options.shapes)])
    setting = Setting(sizes, arguments.threads, arguments.dropout)
    return replace(setting, least=0.0) if arguments.quick else setting


def surroundings() -> "dict[str, str]":
    """Versions, and the processor with what its speed hangs on."""
    facts = environment()
    facts.pop("threads", None)  # of this process, which measures nothing
    facts["avx512"] = _avx512()
    facts["processors"] = str(os.cpu_count() or "unknown")
    facts["system"] = f"{platform.system()} {platform.machine()}"
    return facts


def _avx512() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        flags = next(line for line in lines if line.startswith("flags"))
    except (OSError, StopIteration):
        return "unknown"
    return "yes" if " avx512f" in flags else "no"
