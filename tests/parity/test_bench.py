"""The benchmark: what its numbers mean, and that everything runs. Nothing here depends on how long anything took."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from reports import HOSTILE

from parity.__main__ import Stopped, main, parser
from parity.bench import command, measure, processes
from parity.bench.backends.inputs import heads, ids_and_mask, packed, unpacked
from parity.bench.figures import (
    LEAST_PAIRS,
    PROMISES,
    accuracy_ratios,
    cell_ratios,
    figures,
    geometric_mean,
    pair_ratios,
    times_anchor,
)
from parity.bench.measure import Options, turns
from parity.bench.plan import (
    ATTENTION,
    ATTENTION_TRAINING,
    BASE_SIZES,
    BY_NAME,
    ENGINES,
    FORWARD,
    QUICK_SIZES,
    SHAPES,
    TASKS,
    TRAINING,
    WHATS,
    Case,
    Setting,
)
from parity.bench.processes import EngineDied, EngineMissing, EngineProcess, missing
from parity.bench.report import html, markdown, show, tables, write
from parity.bench.result import Accuracy, Bench, Cell, EngineFacts, Figure, Memory

ROOT = Path(__file__).resolve().parents[2]
QUICK = Setting(QUICK_SIZES, least=0.0)
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


# ---- made-up runs


def cell(engine, seconds, task=FORWARD, case=SHAPES[1], threads=1, first=1, wall=None):
    rounds = list(range(first, first + len(seconds)))
    return Cell(engine, task, case, threads, 1, rounds, list(seconds), list(wall or seconds))


def bench(*cells, **changes):
    facts = {
        "command": "python -m parity bench",
        "setting": Setting(),
        "environment": {"avx512": "yes", "processor": "a processor"},
        "engines": [EngineFacts(c.engine, BY_NAME[c.engine].title, c.threads, BY_NAME[c.engine].tuned) for c in cells],
        "cells": list(cells),
    }
    return Bench(**{**facts, **changes})


def figure_of(run, number, whats=tuple(TASKS) + tuple(WHATS), cases=(SHAPES[1],)):
    (found,) = [f for f in figures(run, whats, cases, tuple(BY_NAME)) if f.number == number]
    return found


# ---- numbers


def test_ratios_are_of_rounds_that_both_have():
    assert pair_ratios({1: 2.0, 2: 3.0, 4: 8.0}, {2: 1.5, 3: 7.0, 4: 2.0}) == [2.0, 4.0]
    assert pair_ratios({1: 2.0}, {1: 0.0}) == [] == pair_ratios({}, {1: 1.0})


def test_a_drift_of_the_machine_cancels_in_pairs():
    drift = np.linspace(1.0, 3.0, 9)
    found = figure_of(bench(cell("ours", 0.7 * drift), cell("bert", drift)), 2)
    assert found.measured == pytest.approx(0.7) and found.low == pytest.approx(found.high) and found.pairs == 9


def test_the_clock_is_the_processors_for_one_thread_and_the_walls_for_several():
    one = cell("ours", [1.0], wall=[4.0])
    two = cell("ours-2-threads", [1.8], threads=2, wall=[2.0])
    assert cell_ratios(one, cell("bound", [2.0], wall=[40.0])) == ([0.5], "cpu")
    assert cell_ratios(one, two) == ([2.0], "wall")
    assert (one.best, two.best) == (1.0, 2.0)
    assert cell_ratios(one, None) == ([], "")


def test_everybody_is_compared_with_ours_in_shared_rounds_alone():
    run = bench(cell("ours", [1.0, 1.0, 2.0]), cell("bert-stock", [6.0, 50.0], first=3))
    assert times_anchor(run, run.cells[1]) == 3.0
    assert times_anchor(run, run.cells[0]) is None


@pytest.mark.parametrize(
    "number, over, under, ratio, met",
    [
        (2, "ours", "bert", 0.75, True),
        (2, "ours", "bert", 0.76, False),
        (5, "published-stock", "ours-inference", 6.5, True),
        (5, "published-stock", "ours-inference", 6.4, False),
        (11, "bert-openvino", "ours-inference", 1.0, True),
        (11, "bert-openvino", "ours-inference", 0.99, False),
    ],
)
def test_a_bound_is_held_in_its_own_sense(number, over, under, ratio, met):
    found = figure_of(bench(cell(over, [ratio] * 9), cell(under, [1.0] * 9)), number)
    assert (found.met, found.why, found.clock) == (met, "", "cpu")


def test_one_bad_pair_does_not_move_a_figure():
    found = figure_of(bench(cell("ours", [0.7] * 8 + [70.0]), cell("bert", [1.0] * 9)), 2)
    assert (found.measured, found.high, found.met) == (0.7, 70.0, True)


def test_the_padded_batch_is_held_against_the_full_one_of_its_shape():
    padded = replace(SHAPES[1], padded=True)
    run = bench(cell("ours", [0.55] * 9, case=padded), cell("ours", [1.0] * 9))
    assert figure_of(run, 7).measured == pytest.approx(0.55)
    assert not [f for f in figures(run, (FORWARD,), (Case(1, 128),), ("ours",)) if f.number == 7]


def test_what_is_installed_itself_goes_before_what_stands_in_for_it():
    stand_in, served = cell("published-stock", [9.0] * 9), cell("ours-inference", [1.0] * 9)
    assert figure_of(bench(stand_in, served), 5).measured == 9.0
    assert figure_of(bench(stand_in, served, cell("paddlenlp", [7.0] * 9)), 5).measured == 7.0


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"quick": True}, "not base size"),
        ({"setting": Setting({**BASE_SIZES, "num_hidden_layers": 2})}, "not base size"),
        ({"setting": Setting(threads=4)}, "promised for one thread"),
        ({"setting": Setting(dropout=0.1)}, "promised without dropout"),
        ({"environment": {"avx512": "no"}}, "promised for processors with AVX-512"),
        ({"environment": {}}, "AVX-512 or not is unknown"),
        ({"engines": [EngineFacts("bert", "", 1, True, {"tuning": "not tuned: no"})]}, "bert is not tuned"),
    ],
)
def test_under_other_conditions_a_figure_is_reported_and_not_judged(changes, why):
    run = bench(cell("ours", [7.0] * 9), cell("bert", [1.0] * 9), **changes)
    found = figure_of(run, 2)
    assert (found.measured, found.met, found.why) == (7.0, None, why)
    run.figures = [found]
    assert run.met


def test_two_threads_are_judged_only_on_two_free_processors():
    run = bench(
        cell("ours", [1.9] * 9, ATTENTION, SHAPES[3]), cell("ours-2-threads", [1.0] * 9, ATTENTION, SHAPES[3], 2)
    )
    for free, met, why in ((1.1, None, "others used the machine: 1.1 of 2 processors were free"), (1.95, True, "")):
        run.engines[1].free_processors = free
        found = figure_of(run, 8, cases=(SHAPES[3],))
        assert (found.met, found.why, found.clock, found.measured) == (met, why, "wall", 1.9)
    assert 0.0 < processes.free_processors(1) <= 1.1


def test_the_longest_shape_does_not_make_another_size():
    longer = Setting({**BASE_SIZES, "max_position_embeddings": 2048})
    assert figure_of(bench(cell("ours", [0.7] * 9), cell("bert", [1.0] * 9), setting=longer), 2).met is True


def test_too_few_pairs_judge_nothing():
    few = LEAST_PAIRS - 1
    found = figure_of(bench(cell("ours", [0.1] * few), cell("bert", [1.0] * few)), 2)
    assert (found.met, found.why) == (None, "8 pairs, a figure needs 9")


def test_a_figure_that_was_not_measured_says_why():
    run = bench(cell("ours", [1.0] * 9))
    run.engines.append(EngineFacts("bert", "", 1, True, why="no room"))
    assert figure_of(run, 2).why == "not measured: bert was left out"
    run.engines[-1].why = ""
    run.cells.append(Cell("bert", FORWARD, SHAPES[1], 1, why="its process was killed"))
    assert figure_of(run, 2).why == "not measured: bert: its process was killed"
    assert figure_of(run, 2).measured is None and figure_of(run, 2).met is None


def test_figures_of_what_was_not_asked_for_are_not_there():
    run = bench(cell("ours", [1.0] * 9))
    assert {f.number for f in figures(run, (ATTENTION,), SHAPES, tuple(BY_NAME))} == {4, 8, 9}
    assert not figures(run, (FORWARD, TRAINING), SHAPES, ("bert-stock", "published"))


def test_every_promise_is_of_engines_that_can_keep_it():
    for promise in PROMISES:
        for name in (*promise.over, *promise.under):
            assert promise.task in BY_NAME[name].tasks
        assert promise.sense in ("<=", ">=")
        assert any(promise.asked_at(case, False) for case in SHAPES)
    assert sorted({p.number for p in PROMISES} | {6, 10}) == list(range(1, 12))


def errors(engine, outputs, gradients):
    return [Accuracy(engine, length, 1.0, outputs, gradients) for length in (7, 64)]


def test_errors_are_held_against_those_of_the_published_arithmetic():
    run = bench(accuracy=[*errors("ours", 3e-6, 8e-6), *errors("published", 1e-6, 1e-6)])
    ratios = accuracy_ratios(run.accuracy, "ours")
    assert ratios["outputs"] == pytest.approx([2.94, 2.94], rel=0.01)
    met = {f.figure.rpartition(": ")[2]: f.met for f in figures(run, ("accuracy",), (), tuple(BY_NAME))}
    assert met == {"outputs, geometric mean": False, "gradients, geometric mean": False, "the worst of all": False}
    better = bench(accuracy=[*errors("ours", 1e-6, 1e-6), *errors("published", 1e-6, 1e-6)])
    assert all(f.met for f in figures(better, ("accuracy",), (), tuple(BY_NAME)))
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_errors_without_a_yardstick_are_not_measured():
    found = figures(bench(accuracy=errors("ours", 1e-6, 1e-6)), ("accuracy",), (), tuple(BY_NAME))
    assert {f.why for f in found} == {"not measured: published was not reached"}


def test_memory_is_held_at_its_shape():
    run = bench(memory=[Memory("ours", ATTENTION, Case(1, 2048), 3.0, 10.9)])
    run.memory.append(Memory("ours", ATTENTION_TRAINING, Case(1, 2048), 3.0, 41.0))
    assert [f.met for f in figures(run, ("memory",), SHAPES, ("ours",))] == [True, False]
    assert all("not measured" in f.why for f in figures(bench(), ("memory",), SHAPES, ("ours",)))


# ---- what is planned


def test_a_padded_batch_of_eight_holds_56_percent_real_tokens():
    for length in (128, 512):
        case = Case(8, length, padded=True)
        assert case.tokens / (8 * length) == pytest.approx(0.5625, abs=0.005)
        assert (case.lengths[0], case.lengths[-1]) == (length // 8, length)
    ids, mask = ids_and_mask(Case(2, 24, padded=True), QUICK)
    assert (
        mask.sum(1).tolist() == Case(2, 24, padded=True).lengths and not ids[mask == 0].any() and ids[mask == 1].all()
    )


def test_shapes_are_read_back():
    assert Case.parse("8x128") == SHAPES[1] and SHAPES[1].name == "8x128"
    for text in ("8", "0x128", "8x-1", "8,128", "8x128x2"):
        with pytest.raises(ValueError, match="expected a shape like 8x128"):
            Case.parse(text)


def test_every_task_of_every_engine_is_measured_once_and_beside_ours():
    tasks = [task for what in WHATS.values() for task in what]
    planned = turns(tuple(BY_NAME), tasks, 9)
    count = {}
    for names, of, repeats in planned:
        assert names[0] == "ours" or "ours" in names
        for name in names:
            for task in of:
                count.setdefault((name, task), []).append(repeats)
    for engine in ENGINES:
        for task in set(engine.tasks) & set(tasks):
            assert count.get((engine.name, task)), (engine.name, task)
            assert engine.name == "ours" or len(count[engine.name, task]) == 1
    for promise in PROMISES:  # a figure's engines share rounds, and enough of them
        together = [names for names, of, repeats in planned if promise.task in of and repeats == 9]
        assert any({*promise.over, *promise.under} <= set(names) for names in together)


def test_ours_alone_is_measured_too():
    assert [names for names, *_ in turns(("ours",), [ATTENTION_TRAINING], 9)] == [("ours",)]


def test_what_would_not_fit_is_left_out(monkeypatch):
    case, engine = Case(8, 2048), BY_NAME["published"]
    need = engine.bytes(TRAINING, case, Setting())
    assert need > 12 * engine.bytes(ATTENTION, Case(8, 2048), Setting()) / 2
    assert BY_NAME["ours"].bytes(TRAINING, case, Setting()) == 0
    monkeypatch.setattr(measure, "available_memory", lambda: need)
    assert "would take about" in measure._Run._too_large(need)
    monkeypatch.setattr(measure, "available_memory", lambda: None)
    assert measure._Run._too_large(need) == ""


def test_published_lengths_end_where_their_tables_do():
    long = Case(1, 2048)
    assert not BY_NAME["published"].takes(FORWARD, long) and BY_NAME["published"].takes(ATTENTION, long)
    assert BY_NAME["ours"].takes(FORWARD, long) and not BY_NAME["transformers"].takes(ATTENTION, long)


# ---- every engine computes the same thing


def test_packing_is_undone():
    given = heads(Case(2, 5), QUICK)
    parts = unpacked(packed(*given[:3]), 3, QUICK.sizes["num_attention_heads"])
    assert all((a == b).all() for a, b in zip(parts, given))


def _copied(model, values):
    own = dict(model.named_parameters())
    assert set(own) == set(values)
    for name, parameter in own.items():
        parameter.set_value(values[name])


def _renamed(source, pairs):
    found = {}
    for name, parameter in source.named_parameters():
        for old, new in pairs:
            name = re.sub(old, new, name)
        found[name] = parameter
    return found


@pytest.fixture
def states():
    from paddle_nezha import NeZhaModel
    from paddle_nezha._paddle import paddle
    from parity.bench.backends.ours import config_of

    def make(relative):
        paddle.seed(20)
        model = NeZhaModel(config_of(Setting({**QUICK_SIZES, "initializer_range": 0.2}), relative))
        model.eval()
        ids, mask = map(paddle.to_tensor, ids_and_mask(Case(2, 70, padded=True), QUICK))
        with paddle.no_grad():
            return model, ids, mask, model(ids, attention_mask=mask)

    return make


def _same(theirs, ours, mask):
    seen = mask.numpy().astype(bool)
    np.testing.assert_allclose(np.asarray(theirs[0])[seen], ours[0].numpy()[seen], atol=2e-5)
    np.testing.assert_allclose(np.asarray(theirs[1]), ours[1].numpy(), atol=2e-5)


def test_the_published_arithmetic_is_nezha(states):
    from parity.bench.backends.published import PublishedNeZha

    model, ids, mask, ours = states(True)
    published = PublishedNeZha(QUICK)
    published.eval()
    names = [
        (r"^embeddings\.word_embeddings", "words"), (r"^embeddings\.token_type_embeddings", "segments"),
        (r"^embeddings\.layer_norm", "norm"), (r"^pooler\.dense", "pooler"), (r"^encoder\.layer\.", "layers."),
        (r"attention\.layer_norm", "attention_norm"), (r"attention\.", ""), (r"(\d)\.layer_norm", r"\1.norm"),
    ]  # fmt: skip
    _copied(published, _renamed(model, names))
    _same([part.numpy() for part in published(ids, mask)], ours, mask)


BERT_NAMES = [
    (r"^embeddings\.word_embeddings", "words"), (r"^embeddings\.token_type_embeddings", "segments"),
    (r"^embeddings\.position_embeddings", "positions"),
    (r"^embeddings\.layer_norm", "norm"), (r"^pooler\.dense", "pooler"),
]  # fmt: skip


def test_paddles_bert_is_ours_without_the_relative_part(states):
    from parity.bench.backends.bert import Bert

    model, ids, mask, ours = states(False)
    bert = Bert(QUICK)
    bert.eval()
    names = [
        *BERT_NAMES, (r"^encoder\.layer\.", "encoder.layers."), (r"attention\.(query|key|value)", r"self_attn.\1_proj"),
        (r"self_attn\.query", "self_attn.q"), (r"self_attn\.key", "self_attn.k"), (r"self_attn\.value", "self_attn.v"),
        (r"attention\.dense", "self_attn.out_proj"), (r"attention\.layer_norm", "norm1"), (r"ffn_output", "linear2"),
        (r"ffn", "linear1"), (r"(\d)\.layer_norm", r"\1.norm2"),
    ]  # fmt: skip
    _copied(bert, _renamed(model, names))
    _same([part.numpy() for part in bert(ids, mask)], ours, mask)


def test_the_bert_that_is_exported_from_torch_is_the_same_too(states):
    import torch

    from parity.bench.backends.served import TorchBert

    model, ids, mask, ours = states(False)
    bert = TorchBert(QUICK).eval()
    names = [
        *BERT_NAMES, (r"^encoder\.layer\.", "layers."), (r"attention\.layer_norm", "attention_norm"),
        (r"attention\.", ""), (r"(\d)\.layer_norm", r"\1.norm"),
    ]  # fmt: skip
    tables_ = ("words.weight", "segments.weight", "positions.weight")
    given = {name: torch.from_numpy(value.numpy()) for name, value in _renamed(model, names).items()}
    bert.load_state_dict({n: v.T if v.ndim == 2 and n not in tables_ else v for n, v in given.items()})
    with torch.no_grad():
        found = bert(torch.from_numpy(ids.numpy()), torch.from_numpy(mask.numpy()))
    _same([part.numpy() for part in found], ours, mask)


@pytest.mark.parametrize("name", ["ours", "published"])
def test_one_attention_alone_is_near_its_definition(name):
    from parity.bench.backends import open_backend
    from parity.bench.truth import errors as found

    backend = open_backend(BY_NAME[name], QUICK)
    for length in (7, 70):
        assert max(found(backend, Case(2, length, padded=True), QUICK, 1.0)) < 2e-5


def test_a_form_that_cannot_be_forced_is_unavailable_and_not_an_error(monkeypatch):
    from paddle_nezha import attention
    from parity.bench.backends import Unavailable, open_backend

    monkeypatch.delattr(attention, "using_form", raising=False)
    with pytest.raises(Unavailable, match="using_form"):
        open_backend(BY_NAME["ours-dense"], QUICK)


def test_an_instruction_set_without_the_operator_is_unavailable(monkeypatch):
    from parity.bench.backends import Unavailable, open_backend, ours

    monkeypatch.setattr(ours, "operator_problem", lambda: "no compiler")
    with pytest.raises(Unavailable, match="no compiler"):
        open_backend(BY_NAME["ours-avx2"], QUICK)
    assert not ours.Ours(BY_NAME["ours"], QUICK).packed


def test_without_tuning_an_engine_is_measured_as_it_is(monkeypatch):
    from parity.bench.tuning import NOT_TUNED, tune

    monkeypatch.setitem(sys.modules, "paddle_nezha.tuning", None)
    assert tune().startswith(NOT_TUNED)


# ---- processes


def test_an_engine_begins_as_installed_with_its_own_threads(monkeypatch):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    monkeypatch.setenv("PADDLE_NEZHA_ISA", "portable")
    given = processes.environment(BY_NAME["bert-stock"], 2)
    assert given["OMP_NUM_THREADS"] == "2" and not {"MKL_DEBUG_CPU_TYPE", "PADDLE_NEZHA_ISA"} & set(given)
    assert processes.environment(BY_NAME["ours-avx2"], 1)["PADDLE_NEZHA_ISA"] == "avx2"


def test_what_is_not_installed_is_missing_by_name():
    assert missing(replace(BY_NAME["bert-openvino"], needs=("no-such-thing",))) == "no-such-thing is not installed"
    assert missing(BY_NAME["bert"]) == ""
    with pytest.raises(EngineMissing, match="no-such-thing"):
        EngineProcess(replace(BY_NAME["bert"], needs=("no-such-thing",)), QUICK, False)


def test_an_engine_that_is_killed_or_fails_says_so():
    process = EngineProcess(BY_NAME["bert"], QUICK, tuned=False)
    try:
        with pytest.raises(processes.EngineFailed, match="KeyError: 'nothing'"):
            process.ask("repeat", key="nothing")
        assert process.ask("begin", key="k", task=FORWARD, case={"batch": 1, "length": 4})["calls"] >= 1
        assert set(process.ask("repeat", key="k")) == {"cpu", "wall"}
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="killed, perhaps for lack of memory"):
            process.ask("repeat", key="k")
    finally:
        process.close()


def test_an_engine_that_cannot_begin_gives_its_last_words(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.devnull)
    monkeypatch.setattr(processes, "_CHECKOUT", Path(os.sep))
    with pytest.raises(EngineDied, match="ended with code 1: .*parity"):
        EngineProcess(BY_NAME["bert"], QUICK, tuned=False)


ARGUMENTS = ["bench", "--quick", "--report"]


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """Real processes, a tiny model: what one run wrote."""
    folder = tmp_path_factory.mktemp("bench")
    engines = "ours,bound,bert,published,ours-inference"
    done = subprocess.run(
        [sys.executable, "-m", "parity", *ARGUMENTS, str(folder), "--shapes", "2x12", "--engines", engines],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_run_measures_what_was_asked(quick_run):
    folder, shown = quick_run
    found = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    assert {path.name for path in folder.iterdir()} == {"bench.json", "bench.md", "bench.html"}
    assert found["schema"] == 1 and found["quick"] and not found["stopped"]
    assert {(c["engine"], c["task"]) for c in found["cells"]} == {
        (name, task) for name in ("ours", "bound", "bert", "published") for task in TASKS
    } | {("ours-inference", FORWARD)}
    for each in found["cells"]:
        assert each["why"] == "" and len(each["rounds"]) == len(each["cpu"]) == len(each["wall"]) >= 2
        assert each["clock"] == "cpu" and each["best"] == min(each["cpu"]) and each["threads"] == 1
        assert each["engine"] == "ours" or each["padded"] or each["times_ours"] > 0
    padded = {(c["engine"], c["task"]) for c in found["cells"] if c["padded"]}
    assert padded == {("ours", FORWARD), ("ours", TRAINING), ("bert", FORWARD)}
    assert {f["number"] for f in found["figures"]} >= {1, 2, 3, 4, 7, 10}
    assert all(f["met"] is None for f in found["figures"])  # tiny sizes judge nothing
    assert {row["engine"] for row in found["accuracy"]} == {"ours", "published"}
    assert all(row["output_error"] < 2e-5 for row in found["accuracy"])
    assert "python -m parity bench" in found["command"] and "whole model, forward" in shown


@linux_only
def test_peak_memory_is_read(quick_run):
    found = json.loads((quick_run[0] / "bench.json").read_text(encoding="utf-8"))["memory"]
    assert {row["engine"] for row in found} == {"ours", "bound", "bert", "published"}
    assert all(row["why"] == "" and row["peak_mb"] is not None for row in found)
    # The published buffer [512, 512, 64] is 64 MB, and each of two copies another.
    (published,) = [r["peak_mb"] for r in found if (r["engine"], r["task"]) == ("published", ATTENTION)]
    assert published > 120 > 64 > max(r["peak_mb"] for r in found if r["engine"] == "ours" and r["task"] == ATTENTION)


SCHEMA = {
    "": "schema command created seconds stopped quick environment setting engines cells memory accuracy figures notes",
    "engines": "name title threads tuned facts free_processors why",
    "cells": "engine task batch length padded tokens threads clock calls rounds cpu wall best median tokens_per_second "
    "times_ours why",
    "memory": "engine task batch length held_mb peak_mb why",
    "accuracy": "engine length scale output_error gradient_error why",
    "figures": "number figure at sense bound measured low high pairs clock unit met why",
}


def test_the_schema_is_what_its_page_says(quick_run):
    import parity.bench.result as result

    found = json.loads((quick_run[0] / "bench.json").read_text(encoding="utf-8"))
    for name, keys in SCHEMA.items():
        for item in found[name] if name else [found]:
            assert set(item) == set(keys.split())
        assert all(re.search(rf"\b{key}\b", result.__doc__) for key in keys.split())


def test_an_engine_that_is_missing_leaves_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(BY_NAME, "bert", replace(BY_NAME["bert"], needs=("no-such-thing",)))
    engines = ["--engines", "ours,bert", "--what", "attention", "--shapes", "1x8"]
    assert main([*ARGUMENTS, str(tmp_path), *engines]) == 0
    assert "left out: bert: no-such-thing is not installed" in " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert {c["engine"] for c in found["cells"]} == {"ours"}
    assert {e["name"]: e["why"] for e in found["engines"]}["bert"] == "no-such-thing is not installed"


def test_nothing_measured_is_exit_code_2_with_the_reasons(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(BY_NAME, "bert", replace(BY_NAME["bert"], needs=("no-such-thing",)))
    assert main([*ARGUMENTS, str(tmp_path), "--engines", "bert", "--what", "forward"]) == 2
    assert "parity could not measure: Nothing was measured" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_engine_that_dies_leaves_what_it_measured(tmp_path, monkeypatch):
    ask, count = EngineProcess.ask, []

    def killed_in_its_second_round(self, verb, **message):
        if self.engine.name == "bound" and verb == "repeat":
            count.append(verb)
            if len(count) == 2:
                os.kill(self.pid, signal.SIGKILL)
        return ask(self, verb, **message)

    monkeypatch.setattr(EngineProcess, "ask", killed_in_its_second_round)
    options = ["--engines", "ours,bound", "--what", "attention", "--shapes", "1x8", "--repeats", "3"]
    assert main([*ARGUMENTS, str(tmp_path), *options]) == 0
    found = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    cells = {(c["engine"], c["task"]): c for c in found["cells"]}
    assert len(cells["bound", ATTENTION]["rounds"]) == 1 and "killed" in cells["bound", ATTENTION]["why"]
    assert len(cells["ours", ATTENTION]["rounds"]) == 3 and cells["ours", ATTENTION]["why"] == ""
    assert any("bound: its process was killed" in note for note in found["notes"])
    # What comes next gets a new process.
    assert len(cells["bound", ATTENTION_TRAINING]["rounds"]) == 3


def test_a_stopped_run_keeps_what_was_measured(tmp_path):
    def stop_in_the_second_round(doing):
        if "round 2" in doing:
            raise Stopped(signal.SIGINT)

    options = ["--engines", "ours", "--what", "attention", "--shapes", "1x8", "--repeats", "3"]
    arguments = parser().parse_args([*ARGUMENTS, str(tmp_path), *options])
    with pytest.raises(Stopped):
        command.run(arguments, options, stop_in_the_second_round)
    found = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert found["stopped"] == "stopped by SIGINT" and [c["rounds"] for c in found["cells"]] == [[1]]
    assert "stopped by SIGINT" in (tmp_path / "bench.html").read_text(encoding="utf-8")


def _children(pid):
    with contextlib.suppress(OSError):
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return set()


def _alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _wait_until(condition):
    """Only bounds how long a broken benchmark holds up the tests."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@linux_only
@pytest.mark.parametrize("number, code", [("SIGTERM", 143), ("SIGINT", 130), ("SIGKILL", -9)])
def test_a_stopped_run_leaves_no_process_behind(number, code, tmp_path):
    options = ["--engines", "bert,bert-stock", "--what", "forward", "--repeats", "100000"]
    run = subprocess.Popen(
        [sys.executable, "-m", "parity", *ARGUMENTS, str(tmp_path), *options],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    started = set()
    try:
        _wait_until(lambda: _children(run.pid))
        started = _children(run.pid)
        run.send_signal(getattr(signal, number))
        said = run.communicate(timeout=60)[1]
        assert run.returncode == code
        _wait_until(lambda: not any(map(_alive, started)))
    finally:
        for pid in {run.pid, *started}:
            if _alive(pid):
                os.kill(pid, signal.SIGKILL)
        run.wait()
    assert number == "SIGKILL" or said == f"parity: stopped by {number}.\n"


# ---- the command line


@pytest.mark.parametrize(
    "options, message",
    [
        (["--shapes", "128"], "expected a shape like 8x128"),
        (["--engines", "ours,theirs"], "got 'theirs'"),
        (["--what", ""], "expected names of accuracy, memory"),
        (["--repeats", "0"], "expected a number from 1 on"),
        (["--dropout", "1"], "expected a probability below 1"),
        (["--report", " "], "expected a folder"),
    ],
)
def test_wrong_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *options])
    assert stopped.value.code == 2 and message in " ".join(capsys.readouterr().err.split())


def test_the_defaults_are_the_promised_run():
    arguments = parser().parse_args(["bench"])
    options = command._options(arguments)
    assert options == Options() and options.repeats == LEAST_PAIRS and arguments.report == Path("build/bench")
    setting = command._setting(arguments, options)
    assert (setting.threads, setting.dropout) == (1, 0.0)
    assert setting.sizes == {**BASE_SIZES, "max_position_embeddings": 2048}


def test_help_lists_every_engine_and_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    shown = capsys.readouterr().out
    assert all(engine.name in shown and engine.title in shown for engine in ENGINES)
    assert "python -m parity bench" in shown.partition("examples:")[2]


# ---- reports


def made_up():
    run = bench(cell("ours", [0.7] * 9), cell("bert", [1.0] * 9), cell("published-stock", [5.0] * 3))
    run.cells.append(Cell("paddlenlp", FORWARD, SHAPES[1], 1, why="would not fit"))
    run.memory = [
        Memory("ours", ATTENTION, Case(1, 2048), 3.0, 9.5),
        Memory("bert", ATTENTION, Case(1, 2048), why="no"),
    ]
    run.accuracy = [*errors("ours", 1e-6, 2e-6), Accuracy("published", 7, 1.0, why="it failed")]
    run.figures = figures(run, (FORWARD, "memory", "accuracy"), SHAPES, tuple(BY_NAME))
    return run


def shown(run, **console):
    import io

    from rich.console import Console

    out = io.StringIO()
    show(run, Console(file=out, width=100, **console))
    return out.getvalue()


def test_the_terminal_shows_figures_with_their_verdicts():
    run = made_up()
    text = " ".join(shown(run).split())
    assert "0.70 <= 0.75 met" in text and "9.50 MB <= 11.0 MB met" in text and "MET 2 figures" in text
    run.figures[0] = replace(run.figures[0], met=False, measured=1.2, bound=1.05)
    assert "MISSED 1 of 3 figures" in " ".join(shown(run).split())


def test_each_report_stands_alone_and_lets_no_text_out_of_its_place(tmp_path):
    run = made_up()
    run.stopped = run.command = HOSTILE
    run.notes, run.environment = [HOSTILE], {HOSTILE: HOSTILE, "processor": HOSTILE}
    run.engines[0].facts, run.cells[-1].why, run.figures[0].why = {"form": HOSTILE}, HOSTILE, HOSTILE
    run.memory[1].why = HOSTILE
    write(run, tmp_path)
    page = html.render(run)

    class Page(HTMLParser):
        tags: "list[str]" = []

        def handle_starttag(self, tag, attrs):
            self.tags.append(tag)
            assert not [value for name, value in attrs if name in ("src", "href") or name.startswith("on")]

    reader = Page()
    reader.feed(page)
    assert "script" not in reader.tags and {"svg", "table", "circle", "rect"} <= set(reader.tags)
    assert not re.search(r"<!--\w+-->", page) and "://" not in page and "\x1b" not in page
    assert "prefers-color-scheme: dark" in page and "default-src 'none'" in page
    run.command = ""  # a code span, in which nothing is markup
    assert "<script>" not in markdown.render(run) and "\x1b" not in markdown.render(run) and "\x1b" not in shown(run)
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))["notes"] == [HOSTILE]


def test_markdown_tables_have_as_many_cells_in_each_line():
    width = 0
    for line in markdown.render(made_up()).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert not cells or not width or cells == width, line
        width = cells


def test_a_figures_share_of_its_bound_is_below_one_where_it_is_met():
    below, above = Figure(1, "", "", "<=", 2.0), Figure(5, "", "", ">=", 10.0)
    assert html.share(below, 1.0) == 0.5 and html.share(above, 20.0) == 0.5 and html.share(above, 5.0) == 2.0
    assert html.share(Figure(1, "", "", "<="), 1.0) is None and html.share(below, None) is None


def test_numbers_that_json_lacks_are_null():
    run = bench(accuracy=[Accuracy("ours", 7, 1.0, float("nan"), float("inf"))])
    (row,) = json.loads(run.to_json())["accuracy"]
    assert row["output_error"] is None and row["gradient_error"] is None


def test_colours_tell_whose_an_engine_is():
    assert {html.family(engine.name) for engine in ENGINES} == {"ours", "bound", "bert", "published"}
    assert [html.family(n) for n in ("ours-dense", "bound-inference", "bert-openvino", "transformers")] == [
        "ours", "bound", "bert", "published",
    ]  # fmt: skip


def test_an_empty_run_can_be_shown():
    assert "MEASURED" in shown(bench()) and markdown.render(bench()) and html.render(bench())
    assert tables.headline(bench())[0] == "MEASURED"
