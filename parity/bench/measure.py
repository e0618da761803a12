"""A run: which engines are asked what, in which turns.

The engines that a task's figures read are measured together, one repetition of each in a round and every other round
in the opposite order, so that all of them meet the same state of the machine. Every other engine is then measured in
turns with ours alone. Few processes are alive at a time: each holds a model.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional

from parity.bench.figures import ACCURACY_YARDSTICK, PROMISES, promised
from parity.bench.plan import (
    ACCURACY_LENGTHS,
    ACCURACY_SCALES,
    ANCHOR,
    BY_NAME,
    MEMORY_SHAPES,
    QUICK_SHAPES,
    SHAPES,
    WHATS,
    Case,
    Engine,
    Setting,
    spelled,
)
from parity.bench.processes import EngineDied, EngineFailed, EngineMissing, EngineProcess, free_processors
from parity.bench.result import Accuracy, Bench, Cell, EngineFacts, Memory
from parity.bench.tuning import NOT_TUNED

# Engines that no figure reads are there for the table: best of these.
OTHER_REPEATS = 3
# A share of what is free: an estimate is one, and others use the machine.
_SHARE_OF_FREE = 0.6
# Threads that have just worked wait by spinning for a while, on the processors of whoever is next.
_SPINNING = 0.3


@dataclass(frozen=True)
class Options:
    """What `python -m parity bench` was asked; see its --help."""

    whats: "tuple[str, ...]" = tuple(WHATS)
    shapes: "tuple[Case, ...]" = SHAPES
    engines: "tuple[str, ...]" = tuple(BY_NAME)
    repeats: int = 9
    quick: bool = False

    @property
    def tasks(self) -> "list[str]":
        return [task for what in self.whats for task in WHATS[what]]


Progress = Callable[[str], None]


def measure(options: Options, bench: Bench, progress: Progress, save: "Callable[[], None]") -> None:
    """Measures what was asked, into `bench`: what is there stays there, however this ends.

    Args:
        progress: told what is being measured.
        save: called whenever a part is complete.
    """
    run = _Run(options, bench, progress)
    try:
        if "accuracy" in options.whats:
            run.accuracy()
            save()
        if "memory" in options.whats:
            run.memory()
            save()
        for names, tasks, repeats in turns(options.engines, options.tasks, options.repeats):
            run.times(names, tasks, repeats)
            save()
    finally:
        run.close()


def turns(
    engines: "Sequence[str]", tasks: "Sequence[str]", repeats: int
) -> "list[tuple[tuple[str, ...], tuple[str, ...], int]]":
    """Who is measured with whom: (engines, tasks, rounds)."""
    groups: "list[tuple[tuple[str, ...], tuple[str, ...], int]]" = []
    for task in tasks:
        together = tuple(name for name in promised(task) if name in engines)
        if together:
            groups.append((together, (task,), repeats))
    for name in engines:
        rest = tuple(task for task in tasks if task in BY_NAME[name].tasks and name not in promised(task))
        # Ours alone is no turn: a task that no figure reads has it with each of the others.
        if name == ANCHOR and len(engines) > 1:
            continue
        if rest:
            anchor = (ANCHOR,) if ANCHOR in engines and name != ANCHOR else ()
            groups.append(((*anchor, name), rest, min(OTHER_REPEATS, repeats)))
    return groups


class _Run:
    def __init__(self, options: Options, bench: Bench, progress: Progress) -> None:
        self.options, self.bench, self.progress = options, bench, progress
        self._alive: "dict[str, EngineProcess]" = {}
        self._round = 0

    def close(self) -> None:
        for process in self._alive.values():
            process.close()
        self._alive.clear()

    # ---- processes

    def _facts(self, engine: Engine) -> EngineFacts:
        found = next((facts for facts in self.bench.engines if facts.name == engine.name), None)
        if found is None:
            threads = engine.threads or self.bench.setting.threads
            found = EngineFacts(engine.name, engine.title, threads, engine.tuned)
            self.bench.engines.append(found)
        return found

    def _open(self, engine: Engine, setting: Setting, tuned: bool) -> Optional[EngineProcess]:
        """None where it cannot be had; the report then says why."""
        facts = self._facts(engine)
        if facts.why:
            return None
        self.progress(f"opening {engine.name}")
        try:
            process = EngineProcess(engine, setting, tuned)
        except EngineMissing as error:
            facts.why = str(error)
            return None
        except (EngineFailed, EngineDied) as error:
            facts.why = f"could not be opened: {error}"
            return None
        facts.facts = {**facts.facts, **process.facts}
        if facts.facts.get("tuning", "").startswith(NOT_TUNED):
            self.bench.note(f"engines that should be tuned ran as installed: {facts.facts['tuning']}")
        return process

    def _only(self, names: "Sequence[str]") -> "list[EngineProcess]":
        """Opens these and closes all others."""
        for name in [name for name in self._alive if name not in names]:
            self._alive.pop(name).close()
        for name in names:
            if name not in self._alive:
                process = self._open(BY_NAME[name], self.bench.setting, BY_NAME[name].tuned)
                if process is not None:
                    self._alive[name] = process
        return [self._alive[name] for name in names if name in self._alive]

    def _lost(self, process: EngineProcess, error: EngineDied, cells: "Sequence[Cell]") -> None:
        """The others go on; what it measured stays."""
        name = process.engine.name
        for cell in cells:
            cell.why = str(error)
        self.bench.note(f"{name}: {error}; what it had measured by then is kept")
        self._alive.pop(name, None)
        process.close()

    # ---- times

    def times(self, names: "Sequence[str]", tasks: "Sequence[str]", repeats: int) -> None:
        for task in tasks:
            for shape in self.options.shapes:
                opened = {process.engine.name for process in self._only(names)}
                stand_ins = _superseded(opened)
                for name in stand_ins & opened:
                    self.bench.note(f"{task}: {name} stands in for an engine that is here itself, and is left out")
                    self._alive.pop(name).close()
                self._together([name for name in names if name not in stand_ins], task, shape, repeats)

    def _together(self, names: "Sequence[str]", task: str, shape: Case, repeats: int) -> None:
        cases = [shape]
        padded = replace(shape, padded=True)
        # Of ours alone it is wanted once, where the figures are.
        asks = set(names) if set(names) <= set(promised(task)) else set(names) - {ANCHOR}
        if shape.batch > 1 and any(BY_NAME[name].takes(task, padded) for name in asks):
            cases.append(padded)
        begun: "list[tuple[str, Cell, str]]" = []
        for name in names:
            for case in cases:
                if name in self._alive and BY_NAME[name].takes(task, case):
                    cell, key = self._cell(name, task, case), f"{task} {case.name}"
                    if self._begin(name, cell, key):
                        begun.append((name, cell, key))
        self._see_who_else_works({name for name, _, _ in begun})
        for number in range(repeats):
            self.progress(f"{task} {shape.name}, round {number + 1} of {repeats}")
            self._round += 1
            for name, cell, key in begun if number % 2 == 0 else begun[::-1]:
                if name in self._alive:
                    self._repeat(name, cell, key, [c for n, c, _ in begun if n == name])
        for name in {name for name, _, _ in begun} & set(self._alive):
            try:
                self._alive[name].ask("end")
            except EngineDied as error:
                self._lost(self._alive[name], error, [])

    def _see_who_else_works(self, names: "set[str]") -> None:
        """Several threads are only as fast as others leave them processors."""
        for name in names & set(self._alive):
            threads = self._alive[name].threads
            if threads > 1:
                facts, free = self._facts(BY_NAME[name]), free_processors(threads)
                facts.free_processors = min(free, facts.free_processors or threads)

    def _cell(self, name: str, task: str, case: Case) -> Cell:
        cell = self.bench.cell(name, task, case)
        if cell is None:
            cell = Cell(name, task, case, BY_NAME[name].threads or self.bench.setting.threads)
            self.bench.cells.append(cell)
        return cell

    def _begin(self, name: str, cell: Cell, key: str) -> bool:
        need = BY_NAME[name].bytes(cell.task, cell.case, self.bench.setting)
        cell.why = self._too_large(need)
        if cell.why:
            return False
        process = self._alive[name]
        self.progress(f"{cell.task} {cell.case.name}, warming up {name}")
        try:
            cell.calls = process.ask("begin", key=key, task=cell.task, case=spelled(cell.case))["calls"]
        except EngineFailed as error:
            cell.why = str(error)
            return False
        except EngineDied as error:
            self._lost(process, error, [cell])
            return False
        return True

    def _repeat(self, name: str, cell: Cell, key: str, cells: "Sequence[Cell]") -> None:
        process = self._alive[name]
        try:
            took = process.ask("repeat", key=key)
        except EngineFailed as error:
            cell.why = str(error)
            return
        except EngineDied as error:
            self._lost(process, error, cells)
            return
        cell.rounds.append(self._round)
        cell.cpu.append(took["cpu"])
        cell.wall.append(took["wall"])
        if process.threads > 1:
            time.sleep(_SPINNING)

    @staticmethod
    def _too_large(need: int) -> str:
        free = available_memory()
        if free is None or need <= _SHARE_OF_FREE * free:
            return ""
        return f"would take about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"

    # ---- memory and accuracy: a new process for each reading

    def memory(self) -> None:
        setting = replace(self.bench.setting, threads=1)
        for name in self.options.engines:
            engine = BY_NAME[name]
            if not engine.memory:
                continue
            for what in ("attention", "forward", "training"):
                for task in WHATS[what]:
                    if task not in engine.tasks:
                        continue
                    for case in self._memory_shapes(what):
                        if engine.takes(task, case):
                            self._memory(engine, task, case, setting)

    def _memory_shapes(self, what: str) -> "tuple[Case, ...]":
        if what == "attention":
            return self.options.shapes
        kept = QUICK_SHAPES[:1] if self.options.quick else MEMORY_SHAPES
        return tuple(case for case in self.options.shapes if case in kept)

    def _memory(self, engine: Engine, task: str, case: Case, setting: Setting) -> None:
        row = Memory(engine.name, task, case)
        row.why = self._too_large(engine.bytes(task, case, setting))
        process = None if row.why else self._open(engine, setting, tuned=False)
        if process is not None:
            self.progress(f"peak memory, {task} {case.name}, {engine.name}")
            try:
                read = process.ask("memory", task=task, case=spelled(case))
                row.held_mb, row.peak_mb = read["held_mb"], read["peak_mb"]
            except (EngineFailed, EngineDied) as error:
                row.why = str(error)
            finally:
                process.close()
        if process is not None or row.why:
            self.bench.memory.append(row)

    def accuracy(self) -> None:
        lengths = ACCURACY_LENGTHS[:2] if self.options.quick else ACCURACY_LENGTHS
        for name in (ANCHOR, "ours-blocked", "ours-dense", ACCURACY_YARDSTICK):
            if name not in self.options.engines:
                continue
            process = self._open(BY_NAME[name], replace(self.bench.setting, threads=1), tuned=False)
            if process is None:
                continue
            try:
                self._errors(process, lengths)
            finally:
                process.close()

    def _errors(self, process: EngineProcess, lengths: "Sequence[int]") -> None:
        name = process.engine.name
        for length in lengths:
            for scale in ACCURACY_SCALES:
                self.progress(f"error against float64, {name}, length {length}")
                row = Accuracy(name, length, scale)
                self.bench.accuracy.append(row)
                try:
                    found = process.ask("accuracy", case=spelled(Case(2, length, padded=True)), scale=scale)
                except EngineFailed as error:
                    row.why = str(error)
                    continue
                except EngineDied as error:
                    row.why = str(error)
                    return
                row.output_error, row.gradient_error = found["output_error"], found["gradient_error"]


def _superseded(opened: "set[str]") -> "set[str]":
    """Engines that stand in for another one in the figures, where that one is there itself."""
    return {name for p in PROMISES for names in (p.over, p.under) if names[0] in opened for name in names[1:]}


def available_memory() -> Optional[int]:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
