"""A run of the judge: which questions are asked of what, by how many processes, and the report of it."""

import contextlib
import fnmatch
import multiprocessing
import os
import platform
import shlex
import signal
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Callable, Optional

from paddle_nezha._children import end_with_parent
from paddle_nezha.config import NeZhaConfig
from parity.cases import CASES, Case
from parity.device import DeviceMissing, prepare
from parity.result import FORMULA, Report, Row

SHELF = Path(__file__).resolve().parent.parent / "weights"
# The float32 cases that a quick run asks about, a few unlike ones that eight seeds settle, and what it leaves out of
# the other questions: what takes seconds each. A whole run asks all.
_QUICK_ARITHMETIC = ("pad-ragged", "peaked", "m64-length66", "parametric", "absolute")
_QUICK_WITHOUT = ("base-width", "m127-length255")
_QUICK_WITHOUT_TRAINING = (("lamb", "float32"),)
# Fewer texts would repeat within the first two batches, of single texts and of pairs.
LEAST_TEXTS = 8


class CouldNotRun(Exception):
    """The run cannot be made as asked; the message says why and what to do. Exit code 2."""


@dataclass(frozen=True)
class Options:
    """What `python -m parity run` was asked; see its --help."""

    cases: "tuple[str, ...]" = ()
    heads: "tuple[str, ...]" = ()
    stages: "tuple[str, ...]" = ()
    dtypes: "tuple[str, ...]" = ("float64", "float32")
    device: str = "cpu"
    weights: Optional[Path] = None
    text: Optional[Path] = None
    against: Optional[str] = None
    quick: bool = False

    def wants_case(self, name: str) -> bool:
        return not self.cases or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.cases)

    def wants_head(self, head: str) -> bool:
        return not self.heads or head in self.heads

    def wants_stage(self, stage: str) -> bool:
        return not self.stages or any(fnmatch.fnmatchcase(stage, pattern) for pattern in self.stages)


@dataclass(frozen=True)
class Job:
    """One question about one thing, small enough to be handed to another process.

    Args:
        kind: a key of `_KINDS`.
        name: the case, the optimizer, or the checkpoint's folder.
    """

    kind: str
    name: str
    head: str = ""
    options: Options = field(default_factory=Options)

    def run(self) -> "tuple[list[Row], list[str]]":
        """Rows, and notes a reader must know."""
        return _KINDS[self.kind](self)


def judge(command: "list[str]", options: Options, processes: int, advance: "Callable[[Job, int, int], None]") -> Report:
    """Runs every job and gathers the report.

    Args:
        advance: called after each job with it, how many are done, and how many there are.

    Raises:
        CouldNotRun: nothing fits the options, a framework, a device or a file is missing, or a job failed.
        OSError, ValueError: the checkpoint's config or texts cannot be read.
    """
    started = time.monotonic()
    if options.weights:
        read_texts(options, options.weights)  # refused before the frameworks are imported
        NeZhaConfig.from_pretrained(options.weights)
    jobs = list(plan(options))
    if not jobs:
        names = ", ".join(case.name for case in CASES)
        raise CouldNotRun(f"Nothing to judge under these options. Cases are: {names}; training cases: adamw, lamb.")
    report = Report(
        command=shlex.join(["python", "-m", "parity", "run", *command]),
        subject=_subject_name(options),
        quick=options.quick,
        environment=environment(),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    with contextlib.closing(_executed(jobs, processes)) as executed:
        for done, (job, (rows, notes)) in enumerate(executed, 1):
            report.rows += [row for row in rows if options.wants_case(row.case) and options.wants_stage(row.stage)]
            report.notes += [note for note in notes if note not in report.notes]
            advance(job, done, len(jobs))
    if not report.rows:
        raise CouldNotRun(
            f"No stage fits {' '.join(options.stages) or 'these options'}. "
            "`python -m parity run --help` lists the stages; a name may hold *."
        )
    try:
        report.cause = _cause(report, options)
    except Exception as error:  # the verdict stands without it
        report.notes.append(f"the likely cause could not be looked for: {reason(error)}")
    report.seconds = time.monotonic() - started
    return report


def _subject_name(options: Options) -> str:
    if options.weights:
        return str(options.weights)
    return "seeded cases" if options.against else "seeded cases and the shelf"


def plan(options: Options) -> "Iterator[Job]":
    """The jobs of a run, in the order of the report."""
    if options.against:
        return _against_jobs(options)
    if options.weights:
        return _subject_jobs(options, options.weights)
    return _all_jobs(options)


def _all_jobs(options: Options) -> "Iterator[Job]":
    for kind, dtype in (("formula", "float64"), ("arithmetic", "float32")):
        if dtype in options.dtypes:
            for number, case in enumerate(CASES):
                if options.wants_case(case.name):
                    yield from (Job(kind, case.name, head, options) for head in _heads(case, kind, number, options))
    for optimizer in ("adamw", "lamb"):
        if options.wants_case(optimizer) and options.wants_head("pretraining"):
            yield from (
                Job("training", optimizer, dtype, options)
                for dtype in options.dtypes
                if not (options.quick and not options.cases and (optimizer, dtype) in _QUICK_WITHOUT_TRAINING)
            )
    if not (options.quick and options.cases):
        for file in sorted(SHELF.glob("*/config.json")):
            yield from _subject_jobs(options, file.parent)


def _heads(case: Case, kind: str, number: int, options: Options) -> "list[str]":
    """Formula: every head. Arithmetic, which takes eight seeds: one head a case in turn, unless one is asked for."""
    wanted = [head for head in case.heads if options.wants_head(head)]
    named = bool(options.cases or options.heads)
    if options.quick and not named:
        if case.name in _QUICK_WITHOUT or (kind == "arithmetic" and case.name not in _QUICK_ARITHMETIC):
            return []
    if wanted and not named and (kind == "arithmetic" or options.quick):
        return [wanted[number % len(wanted)]]
    return wanted


def _subject_jobs(options: Options, folder: Path) -> "Iterator[Job]":
    for kind, dtype in (("subject-formula", "float64"), ("subject-arithmetic", "float32")):
        names = (
            [f"{folder.name}-text0", f"{folder.name}-text1"] if kind == "subject-formula" else [f"{folder.name}-text"]
        )
        if dtype in options.dtypes and any(map(options.wants_case, names)):
            if not (options.quick and kind == "subject-arithmetic"):
                yield Job(kind, str(folder), options.heads[0] if options.heads else "", options)


def _against_jobs(options: Options) -> "Iterator[Job]":
    from parity.against import cases_against

    for case, head in cases_against(str(options.against)):
        if options.wants_case(case.name) and options.wants_head(head):
            yield Job("against", case.name, head, options)


# ---- what each kind of job does; the frameworks are imported here, in the process that needs them


def _formula(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.judge import judge_formula

    return judge_formula(_case(job.name), job.head), []


def _arithmetic(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.judge import judge_arithmetic

    return judge_arithmetic(_case(job.name), job.head, device=job.options.device), []


def _training(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.training import judge_training

    return judge_training(job.name, job.head, quick=job.options.quick), []


def _subject_formula(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.subject import judge_formula_of

    return judge_formula_of(_subject(job)), []


def _subject_arithmetic(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.subject import judge_arithmetic_of

    return judge_arithmetic_of(_subject(job), device=job.options.device), []


def _against(job: Job) -> "tuple[list[Row], list[str]]":
    from parity.against import judge_against

    rows, reason = judge_against(str(job.options.against), _case(job.name), job.head)
    return rows, [f"not compared: {reason}"] if reason else []


_KINDS: "dict[str, Callable[[Job], tuple[list[Row], list[str]]]]" = {
    "formula": _formula,
    "arithmetic": _arithmetic,
    "training": _training,
    "subject-formula": _subject_formula,
    "subject-arithmetic": _subject_arithmetic,
    "against": _against,
}


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def _subject(job: Job):
    from parity.subject import Subject

    folder = Path(job.name)
    return Subject.open(folder, read_texts(job.options, folder), job.head or None)


def read_texts(options: Options, folder: Path) -> "list[str]":
    """The texts that a checkpoint is judged on: those of `options.text`, or what the folder brings along.

    Raises:
        FileNotFoundError: there is no such file; the message says how to give one.
        ValueError: it is not UTF-8, or holds fewer than LEAST_TEXTS texts.
    """
    file = options.text or folder / "sentences.txt"
    if options.text is None and not file.is_file():
        raise FileNotFoundError(
            f"{folder} brings no sentences.txt: give a UTF-8 file of at least {LEAST_TEXTS} texts, one a line, with "
            "--text FILE."
        )
    data = file.read_bytes()
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"expected UTF-8, but line {line} of {file} holds byte 0x{data[error.start]:02x}. "
            "Convert it, for example with `iconv -f GB18030 -t UTF-8`."
        ) from error
    texts = [line for line in lines if line]
    if len(texts) < LEAST_TEXTS:
        raise ValueError(f"expected at least {LEAST_TEXTS} texts, one a line, but {file} holds {len(texts)}. Add some.")
    return texts


def _cause(report: Report, options: Options) -> str:
    """The likely cause of the first failure, found by computing that case once more; only the formula has causes."""
    row = report.first_failure
    if row is None or row.question != FORMULA:
        return ""
    from parity.causes import likely_cause
    from parity.judge import observe_formula

    if any(case.name == row.case for case in CASES):
        sample, truth, seen = observe_formula(_case(row.case), row.head, (row.form,))
        return likely_cause(row.stage, sample, seen[row.form], truth)
    from parity.subject import observe_text

    subject = _subject(Job("subject-formula", str(options.weights or SHELF), row.head, options))
    return likely_cause(row.stage, *observe_text(subject, int(row.case[-1]), row.form))


# ---- processes


def _executed(jobs: "list[Job]", processes: int) -> "Generator[tuple[Job, tuple[list[Row], list[str]]], None, None]":
    """Every job with what came of it, in their order. Closed early, it leaves no process behind."""
    if processes <= 1:
        for job in jobs:
            yield job, _run(job)
        return
    others = multiprocessing.active_children()
    # Spawned, not forked: both frameworks start threads that a fork would lose.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin_worker)
    try:
        with _without_interrupts():
            results = pool.map(_run, jobs)
        yield from zip(jobs, results)
    except BrokenProcessPool as error:
        raise CouldNotRun(
            "a worker process ended without an answer, perhaps for lack of memory; try --jobs 1."
        ) from error
    except BaseException:  # a stop, or a job that failed: nobody waits for the jobs under way
        answers = pool._result_queue
        # Before its workers die: the thread of the pool that found them dead first would fail, in words for nobody, on
        # the jobs that `map` has called off.
        pool.shutdown(wait=False, cancel_futures=True)
        workers = [child for child in multiprocessing.active_children() if child not in others]
        for worker in workers:
            worker.kill()
        # Who is killed in the middle of an answer leaves half of it in the pipe, and the pool waits for the rest for as
        # long as anybody could still write it: that is ourselves, who never do. No public method closes this end.
        answers._writer.close()  # type: ignore[attr-defined]
        for worker in workers:
            worker.join()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_interrupts() -> "Iterator[None]":
    """Processes started here never see Ctrl-C, which a terminal sends to every one; it reaches us after the block."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(job: Job) -> "tuple[list[Row], list[str]]":
    """
    Raises:
        CouldNotRun: for whatever reason. Exceptions of the frameworks do not all survive the way between processes.
    """
    try:
        prepare(job.options.device)
        return job.run()
    except Exception as error:
        raise CouldNotRun(reason(error, f" in {job.kind} {Path(job.name).name} {job.head}".rstrip())) from error


def reason(error: Exception, place: str = "") -> str:
    """What went wrong, for people: our own words, or, where none were foreseen, one line that says what and where."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, (CouldNotRun, DeviceMissing, OSError, ValueError)) and str(error):
        return str(error)
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    said = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"unforeseen{place}: {said} (PARITY_TRACEBACK=1 shows where)"


def _begin_worker() -> None:
    """Workers live no longer than the process that started them, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it could not be blocked
    end_with_parent()


def environment() -> "dict[str, str]":
    """Versions, processor and threads: what the numbers may depend on."""
    facts = {"python": platform.python_version()}
    for name in ("paddlepaddle", "paddlepaddle-gpu", "torch", "numpy", "transformers", "paddlenlp"):
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    facts["processor"] = _processor()
    facts["threads"] = os.environ.get("OMP_NUM_THREADS", "as the frameworks choose")
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
