"""A run's page: what is drawn is what was written, no text in it is markup, and folders that are no run are refused."""

import json
import math
import re
import shutil
from argparse import ArgumentParser
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import HOSTILE, Page, as_shown

from paddle_nezha.commands import report as commands_report
from paddle_nezha.training.report import (
    MOST_RUNS,
    ReportError,
    Series,
    metric,
    read_run,
    render,
    smoothed,
    summary,
    thinned,
    write_report,
)


def step_line(step, **values):
    line = {"kind": "step", "step": step, "loss": 9.0 / step, "learning_rate": 1e-3, "gradient_norm": 1.5}
    return {**line, "updated": True, "tokens": 100, "seconds": 0.5, "tokens_per_second": 200.0, **values}


def eval_line(step, **values):
    return {"kind": "eval", "step": step, **values}


def write_run(folder, lines, steps=None, finished=False, **settings):
    folder.mkdir()
    described = {"kind": "pretraining", "settings": {"steps": steps, **settings}, "facts": {"paddle": "3.3.1"}}
    (folder / "run.json").write_text(json.dumps(described), encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if finished:
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
    return folder


def charts(page):
    """The SVG of every chart, which is XML as well, by metric and axis."""
    found = {}
    for text in re.findall(r"<svg class=.*?</svg>", page):
        chart = ElementTree.fromstring(text)
        name = re.search(r"\((\w+)\) by", chart.get("aria-label")).group(1)
        found[name, chart.get("data-axis")] = chart
    return found


def path(chart, form):
    """The points of the first path of a form, as x and y [n]."""
    d = next(each for each in chart.iter("path") if each.get("class").split()[0] == form).get("d")
    return np.array([[float(number) for number in point.split()] for point in d[1:].split("L")]).T


def value_of(chart, y):
    """The inverse of the chart's scale, as the page's script computes it."""
    low, high = map(float, chart.get("data-y").split())
    share = 1 - (y - 12) / (240 - 12 - 30)
    return low * (high / low) ** share if chart.get("data-log") == "1" else low + share * (high - low)


# ---- what is drawn


def test_the_curves_are_the_values_over_steps_and_over_tokens(tmp_path):
    losses, tokens = [4.0, 2.0, 3.0, 1.0], [10, 30, 20, 40]
    lines = [step_line(i + 1, loss=loss, tokens=count) for i, (loss, count) in enumerate(zip(losses, tokens))]
    run = read_run(write_run(tmp_path / "run", [*lines, eval_line(3, loss=2.5)], steps=4))
    found = charts(render([run]))
    for axis, places in (("step", [1, 2, 3, 4]), ("tokens", [10, 40, 60, 100])):
        chart = found["loss", axis]
        x, y = path(chart, "raw")
        # A place has one decimal of 372 units for the axis, a height two of 198.
        np.testing.assert_allclose((x - 54) / 372 * float(chart.get("data-x")), places, atol=0.06 / 372 * places[-1])
        np.testing.assert_allclose(value_of(chart, y), losses, atol=0.006 / 198 * 4)
        x, y = path(chart, "held")
        np.testing.assert_allclose((x - 54) / 372 * places[-1], places[2], atol=0.06 / 372 * places[-1])
        np.testing.assert_allclose(value_of(chart, y), 2.5, atol=0.006 / 198 * 4)


def test_the_mean_forgets_half_after_its_half_life_and_starts_as_the_first_value():
    steps = np.array([1.0, 2.0, 4.0, 6.0])
    means = smoothed(Series(steps, np.array([8.0, math.nan, 2.0, math.inf])), half_life=3.0)
    # At step 4 the first value is three steps old: (8 / 2 + 2) / (1 / 2 + 1).
    np.testing.assert_allclose(means, [8.0, 8.0, 4.0, 4.0], rtol=1e-15)
    assert np.isnan(smoothed(Series(steps[:1], np.array([math.nan])), 3.0)).all()


def test_thinning_keeps_the_extremes_of_every_column(seed=3):
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.uniform(0, 900.0, 5000)), rng.normal(size=5000)
    kept = thinned(x, y, 1000.0, 40)
    assert (np.diff(kept) > 0).all() and len(kept) <= 80
    for column in range(40):
        inside = (x >= 25.0 * column) & (x < 25.0 * (column + 1))
        mine = kept[inside[kept]]
        if inside.any():
            assert {y[inside].min(), y[inside].max()} == set(y[mine])
        else:
            assert not len(mine)


def test_a_long_run_keeps_its_spike_and_the_page_stays_small(tmp_path):
    lines = [step_line(i, loss=20.0 if i == 13577 else 2.0 + i % 7 / 10, mlm_loss=1.0 + i % 5) for i in range(1, 20001)]
    run = read_run(write_run(tmp_path / "run", lines, steps=20000))
    page = render([run])
    chart = charts(page)["loss", "step"]
    x, y = path(chart, "raw")
    assert len(x) <= 2 * 372 and y.min() == y[np.argmin(abs(x - (54 + 372 * 13577 / 20000)))] == 12.0
    beyond = [each for each in chart.iter("path") if each.get("class") == "beyond r0"]
    assert [each.find("title").text for each in beyond] == ["1 value beyond the axis or not finite"]
    triangle = float(re.match(r"M([\d.]+) ", beyond[0].get("d")).group(1))
    assert abs(triangle - (54 + 372 * 13577 / 20000)) <= 0.55  # in the middle of its column, with one decimal
    many = render([run] * MOST_RUNS)
    assert len(page) < len(many) < 2e6


def test_the_page_stays_small_with_many_numbers_of_many_runs(tmp_path):
    names = [f"number_{i}" for i in range(40)]
    lines = [step_line(i, **{name: float(i * 7919 % 101) for name in names}) for i in range(1, 1001)]
    run = read_run(write_run(tmp_path / "run", lines))
    assert len(render([run] * MOST_RUNS)) < 2e6


def test_skipped_steps_and_values_that_are_no_numbers_are_marked(tmp_path):
    lines = [step_line(i) for i in range(1, 11)]
    lines[3] = step_line(4, loss="nan", gradient_norm="inf", updated=False)
    lines[6] = step_line(7, gradient_norm=None, updated=False)
    found = charts(render([read_run(write_run(tmp_path / "run", lines))]))
    for name, lost in (("loss", 1), ("gradient_norm", 1), ("tokens_per_second", 0)):
        chart = found[name, "step"]
        marks = {each.get("class"): each for each in chart.iter("path") if each.find("title") is not None}
        assert marks["skipped"].find("title").text == "2 skipped steps" and marks["skipped"].get("d").count("M") == 2
        assert ("beyond r0" in marks) == bool(lost)
    assert path(found["gradient_norm", "step"], "raw").shape[1] == 8
    assert path(found["loss", "step"], "raw").shape[1] == 9


def test_numbers_of_any_name_and_kind_are_drawn(tmp_path):
    lines = [step_line(i, odd_f1=i / 10) for i in range(1, 5)] + [{"kind": "test", "step": 4, "odd_f1": 0.25}]
    lines = [{k: v for k, v in line.items() if k != "tokens"} for line in lines]
    page = render([read_run(write_run(tmp_path / "run", lines))])
    chart = charts(page)["odd_f1", "step"]
    assert [each.get("data-kind") for each in chart.iter("path") if each.get("data-kind")] == ["training", "test"]
    assert "<b>Odd f1</b>" in page
    assert {axis for _, axis in charts(page)} == {"step"} and "tokens of each are not known" in page


@pytest.mark.parametrize(
    "name, title, form, best",
    [
        ("mlm_accuracy", "Masked LM accuracy", "share", "max"),
        ("dev_accuracy", "Dev accuracy", "share", "max"),
        ("span_loss", "Span loss", "number", "min"),
        ("unseen_accuracy", "Accuracy, texts not in train", "share", "max"),
        ("unseen_mcc", "Matthews correlation, texts not in train", "number", "max"),
        ("temperature", "Temperature", "number", None),
        ("_", "_", "number", None),
    ],
)
def test_what_a_name_tells(name, title, form, best):
    known = metric(name)
    assert (known.title, known.form, known.best) == (title, form, best)


@pytest.mark.parametrize("values", [[0.0] * 4, [2.5] * 4, [-1.0] * 4, ["nan"] * 4, [1e-30, 1e30, 1.0, 2.0]])
def test_constant_missing_and_wild_values_have_an_axis(tmp_path, values):
    lines = [step_line(i + 1, loss=v, gradient_norm=v) for i, v in enumerate(values)]
    page = render([read_run(write_run(tmp_path / "run", lines))])
    for chart in charts(page).values():
        low, high = map(float, chart.get("data-y").split())
        assert low < high
        assert "nan" not in "".join(each.get("d") for each in chart.iter("path"))


# ---- the summary


def test_the_summary_adds_up_and_finds_the_best(tmp_path):
    lines = [step_line(i, tokens=3600, seconds=36.0) for i in range(1, 101)]
    lines += [
        eval_line(50, mlm_loss=2.0, mlm_accuracy=0.5, odd=1.0),
        eval_line(100, mlm_loss=2.5, mlm_accuracy="nan", odd=3.0),
    ]
    told = summary(read_run(write_run(tmp_path / "run", lines, steps=100, finished=True)))
    assert (told["tokens"], told["hours"], told["tokens_per_second"]) == (360000, 1.0, 100.0)
    assert (told["state"], told["finished"], told["estimated"]) == ("finished: 100 steps", True, False)
    held_out = told["values"]["held_out"]
    assert held_out["mlm_loss"] == {"last": 2.5, "best": 2.0, "best_step": 50}
    assert held_out["mlm_accuracy"]["best_step"] == 50 and math.isnan(held_out["mlm_accuracy"]["last"])
    assert held_out["odd"] == {"last": 3.0}
    assert told["values"]["training"]["learning_rate"]["last"] == 1e-3


def test_a_line_stands_for_the_steps_before_it_that_were_not_written(tmp_path):
    lines = [eval_line(4, loss=1.0), step_line(10, tokens=5), step_line(20, tokens=7)]
    run = read_run(write_run(tmp_path / "run", lines, steps=20))
    told = summary(run)
    assert told["tokens"] == 120 and told["estimated"]
    page = render([run])
    assert "≈ 120" in page
    x, _ = path(charts(page)["loss", "tokens"], "held")
    assert abs(x[0] - (54 + 372 * 4 * 5 / 120)) <= 0.06  # one decimal


@pytest.mark.parametrize(
    "steps, finished, state",
    [
        (9, True, "not finished: at step 3 of 9"),  # a model of before the run was made longer
        (9, False, "not finished: at step 3 of 9"),
        (3, False, "not finished: all 3 steps made, the model not written"),
        (3, True, "finished: 3 steps"),
        (None, False, "not finished: at step 3"),
        (None, True, "finished: 3 steps"),
    ],
)
def test_the_state(tmp_path, steps, finished, state):
    lines = [step_line(i) for i in (1, 2, 3)]
    assert read_run(write_run(tmp_path / "run", lines, steps=steps, finished=finished)).state == state


# ---- the page


def test_the_page_is_whole_and_needs_nothing_else(tmp_path):
    folder = write_run(
        tmp_path / "run", [step_line(i, mlm_loss=3.0 / i) for i in range(1, 30)], steps=99, optimizer="lamb"
    )
    text = render([read_run(folder)])
    page = Page(text)
    assert page.tags.count("script") == 1 and "figure" in page.tags
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert text.count("http") == text.count("http-equiv") + text.count("http://www.w3.org/2000/svg")
    told = " ".join(page.text)
    assert all(word in told for word in ("optimizer", "lamb", "paddle", "3.3.1", "29 of 99", "half-life 1 step"))


def test_texts_of_others_are_texts(tmp_path):
    plain = [step_line(i, number=1.0) for i in (1, 2)] + [{"kind": "told", "step": 2, "number": 1.0}]
    hostile = [step_line(i, **{HOSTILE: 1.0}) for i in (1, 2)] + [{"kind": HOSTILE, "step": 2, HOSTILE: 1.0}]
    expected = Page(render([read_run(write_run(tmp_path / "plain", plain, key="value", nested={"a": [1]}))]))
    folder = write_run(tmp_path / "<b>&", hostile, **{HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}})
    write_report([read_run(folder)], tmp_path / "page.html")
    found = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert found.tags == expected.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in expected.attributes]
    assert as_shown(HOSTILE) in found.text


def test_several_runs_lie_over_one_another_and_their_differences_are_told(tmp_path):
    for name, rate in (("a", 0.1), ("b", 0.2)):
        write_run(tmp_path / name, [step_line(i) for i in range(1, 9)], learning_rate=rate, seed=5)
    page = render([read_run(tmp_path / "a"), read_run(tmp_path / "b")])
    chart = charts(page)["loss", "step"]
    assert [each.get("data-run") for each in chart.iter("path") if each.get("data-run")] == ["0", "1"]
    assert re.findall(r'<tr class="differs"><th>(.*?)</th>', page) == ["learning_rate"]
    with pytest.raises(ReportError, match=r"Expected 1 to 6 runs, got 7: .* fewer at a time"):
        render([read_run(tmp_path / "a")] * 7)


# ---- folders that are no run


def damage(folder, text):
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: shutil.rmtree(f), r"is no folder\. Expected a run's: the `output`"),
        (lambda f: (f / "run.json").unlink(), r"no run\.json; it holds metrics\.jsonl\. Give the folder"),
        (lambda f: (f / "run.json").write_text("{"), r"run\.json is not JSON .* Start the run anew"),
        (lambda f: (f / "run.json").write_text("[1]"), r"describes no run: expected an object with `kind`"),
        (lambda f: (f / "metrics.jsonl").unlink(), r"has written no step yet: .* Wait for its first steps"),
        (lambda f: damage(f, "{]\n"), r"metrics\.jsonl, line \d+: expected what a run writes, .* remove the line"),
        (lambda f: damage(f, "3\n"), r"metrics\.jsonl, line \d+: expected"),
        (lambda f: damage(f, '{"kind": "step"}\n'), r"metrics\.jsonl, line \d+: expected"),
        (lambda f: damage(f, '{"kind": "step", "step": "x"}\n'), r"metrics\.jsonl, line \d+: expected"),
        (
            lambda f: damage(f, '{"kind": "step", "step": 1, "loss": 1}\n'),
            r"go back: two processes .* from a checkpoint",
        ),
    ],
)
def test_what_is_no_run_is_refused_with_what_to_do(tmp_path, change, message):
    folder = write_run(tmp_path / "run", [step_line(1), step_line(2)])
    change(folder)
    with pytest.raises(ReportError, match=message):
        read_run(folder)


def test_half_a_line_of_a_killed_run_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run", [step_line(1), step_line(2)])
    damage(folder, '{"kind": "step", "st')
    assert read_run(folder).step == 2


# ---- the command


def run_command(*arguments):
    parser = ArgumentParser()
    commands_report.add(parser.add_subparsers())
    options = parser.parse_args(["report", *map(str, arguments)])
    return options.run(options)


def test_the_command_writes_into_the_run_and_says_how_to_go_on(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [step_line(1)], steps=2)
    assert run_command(folder) == 0
    told = capsys.readouterr().out
    assert "not finished: at step 1 of 2" in told and "goes on from its last checkpoint, or begins anew" in told
    assert sorted(each.name for each in folder.iterdir()) == ["metrics.jsonl", "report.html", "run.json"]
    assert (folder / "report.html").read_text(encoding="utf-8") == render([read_run(folder)])


def test_the_command_in_json_and_with_several_runs(tmp_path, capsys):
    for name in "ab":
        write_run(tmp_path / name, [step_line(1, loss="nan")], steps=1, finished=True)
    assert run_command(tmp_path / "a", tmp_path / "b", "--json") == 2
    assert "--out FILE" in json.loads(capsys.readouterr().out)["error"]
    assert run_command(tmp_path / "a", tmp_path / "b", "--json", "--out", tmp_path / "both.html") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(tmp_path / "both.html") and (tmp_path / "both.html").exists()
    assert [run["state"] for run in told["runs"]] == ["finished: 1 step"] * 2
    assert told["runs"][0]["values"]["training"]["loss"]["last"] == "nan"
