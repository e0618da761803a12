"""The results of fine-tunings: numbers by hand, the worst errors first, and texts that stay texts in the page."""

import json
import math
import re
import shutil
import subprocess
import sys

import pytest
from pages import HOSTILE, Page, as_shown

from paddle_nezha.cli import main
from paddle_nezha.training.report import (
    ReportError,
    read_results,
    read_run,
    render,
    results_summary,
    seed_folders,
)
from paddle_nezha.training.report.answers import MOST_CLASSES
from paddle_nezha.training.report.results import WORST
from paddle_nezha.training.scoring.classes import score_classes
from paddle_nezha.training.scoring.entities import score_entities
from paddle_nezha.training.scoring.spans import score_answer

NAMES = ["neg", "pos"]
METRIC = {"token": "f1", "span": "f1"}


def score(task, rows, names):
    if task == "token":
        return score_entities([row["label"] for row in rows], [row["prediction"] for row in rows])
    if task == "span":
        each = [score_answer(row.get("label", []), row["prediction"]) for row in rows]
        return {name: sum(getattr(one, name) for one in each) / len(each) for name in ("f1", "em")}
    names = names or sorted({row[key] for row in rows for key in ("label", "prediction")})
    truth, given = ([names.index(row[key]) for row in rows] for key in ("label", "prediction"))
    return score_classes(truth, given, [str(name) for name in names])


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_run(folder, task, seed=0, names=None, **splits):
    """A finished run with predictions: dev and test are lists of rows, which get their index."""
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "model" / "task.json").write_text(json.dumps({"task": task, "names": names}))
    described = {"kind": "finetuning", "settings": {"task": task, "seed": seed}, "facts": {}}
    (folder / "run.json").write_text(json.dumps(described))
    write_jsonl(folder / "metrics.jsonl", [{"kind": "step", "step": i, "loss": 1 / i, "tokens": 9} for i in (1, 2, 3)])
    scores = {}
    for split, rows in splits.items():
        rows = [{"index": index, **row} for index, row in enumerate(rows)]
        write_jsonl(folder / f"{split}.predictions.jsonl", rows)
        scores[split] = score(task, rows, names)
    entry = {"seed": seed, **scores, "best_epoch": 1, "epochs": 1, "predictions": f"{split}.predictions.jsonl"}
    write_result(folder, task, [entry])
    return entry


def write_result(folder, task, entries):
    content = {"task": task, "metric": METRIC.get(task, "accuracy"), "seeds": entries}
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")


def write_seeds(folder, task, splits_of_seeds, names=None):
    entries = [
        write_run(folder / f"seed-{seed}", task, seed, names, **splits) for seed, splits in enumerate(splits_of_seeds)
    ]
    write_result(folder, task, entries)
    return folder


def text_row(label, prediction, confidence=0.9, text="好"):
    return {"label": label, "prediction": prediction, "confidence": confidence, "probabilities": [], "text": text}


def page_of(folder):
    runs = [read_run(each) for each in seed_folders(folder) or [folder]]
    return render(runs, read_results(folder))


def cells(page, heading):
    """Rows of cells of the first table after a heading."""
    table = re.search(rf"<h3>{heading}.*?<table.*?<tbody>(.*?)</tbody>", page, re.DOTALL).group(1)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]


def command(*arguments):
    return main(["report", *map(str, arguments)])


# ---- numbers


def test_one_run_of_classes_in_numbers(tmp_path):
    rows = [
        text_row("neg", "neg", 0.95),
        text_row("pos", "pos", 0.75),
        text_row("pos", "neg", 0.65, "甲"),
        text_row("neg", "pos", 0.85, "乙"),
        text_row("pos", "pos", 0.55),
    ]
    write_run(tmp_path / "run", "sentence", names=NAMES, dev=rows)
    found = read_results(tmp_path / "run")
    one = found.splits["dev"]
    assert (found.seeds, list(found.splits), one.items, one.wrong) == ((0,), ["dev"], 5, 2)
    assert one.confusion.counts == ((1, 1), (1, 2))
    assert [(line.name, line.support, line.predicted, line.sd) for line in one.classes] == [
        ("neg", 2, 2, None),
        ("pos", 3, 3, None),
    ]
    assert math.isclose(one.classes[1].f1, 2 / 3) and math.isclose(one.scores["accuracy"].summary.mean, 0.6)
    # Every answer is alone in its bin: the mean of |right - confidence|.
    assert math.isclose(one.calibration.error, (0.05 + 0.25 + 0.65 + 0.85 + 0.45) / 5)
    assert [(error.inputs["text"], error.label, error.predictions) for error in one.errors] == [
        ("乙", ("neg",), (("pos", 1),)),
        ("甲", ("pos",), (("neg", 1),)),
    ]
    page = page_of(tmp_path / "run")
    assert cells(page, "Scores")[0] == ["Accuracy", "60.00"]
    assert cells(page, "By class")[1] == ["pos", "66.67", "66.67", "66.67", "3", "3"]
    assert cells(page, "Confusion") == [["neg", "1", "1"], ["pos", "1", "2"]]
    assert "Expected calibration error <b>45.00%</b>" in page and "righter than sure" not in page
    assert "2 of 5 texts with an error, the surest first" in page and "Give a test file" in page


def test_seeds_have_mean_spread_and_interval_and_what_most_get_wrong_comes_first(tmp_path):
    def rows(*predictions):
        sure = [0.6, 0.99, 0.7]
        return [text_row("pos", given, sure[i], f"text {i}") for i, given in enumerate(predictions)] + [
            text_row("neg", "neg")
        ]

    answers = [("neg", "pos", "pos"), ("neg", "neg", "pos"), ("neg", "pos", "pos")]
    write_seeds(tmp_path / "runs", "sentence", [{"dev": rows(*a), "test": rows(*a)} for a in answers], NAMES)
    found = read_results(tmp_path / "runs")
    assert (found.seeds, list(found.splits)) == ((0, 1, 2), ["test", "dev"])
    one = found.splits["test"]
    summary = one.scores["accuracy"].summary
    # 0.75, 0.5, 0.75: sd = sqrt(2 / 3 * 1 / 48) * sqrt(3 / 2) = 0.25 / sqrt 3; t of 2 degrees is 4.302653 for 95 %.
    assert math.isclose(summary.mean, 2 / 3) and math.isclose(summary.sd, 0.25 / math.sqrt(3))
    assert math.isclose(summary.mean - summary.low, 4.302653 * summary.sd / math.sqrt(3), rel_tol=1e-6)
    assert summary.high == 1.0  # what an accuracy can be at most
    assert one.scores["accuracy"].seeds == (0.75, 0.5, 0.75)
    assert one.confusion.counts == ((3, 0), (4, 5))
    assert sum(each.count for each in one.calibration.bins) == 12
    assert [(error.index, error.wrong, error.confidence) for error in one.errors] == [
        (0, 3, pytest.approx(0.6)),
        (1, 1, pytest.approx(0.99)),
    ]
    page = page_of(tmp_path / "runs")
    assert cells(page, "Scores")[0] == ["Accuracy", "66.67", "14.43", "30.81 to 100.00", "75.00", "50.00", "75.00"]
    assert [row[-1] for row in cells(page, "Worst errors")] == ["3 of 3", "1 of 3"]
    assert page.count('name="split"') == 2


def test_entities_and_their_errors_in_the_sentence(tmp_path):
    tokens = ["我", "在", "北", "京", "和", "IBM", "AI", "组"]
    labels = ["O", "O", "B-LOC", "I-LOC", "O", "B-ORG", "I-ORG", "O"]
    given = ["B-PER", "O", "B-ORG", "I-ORG", "O", "B-ORG", "O", "O"]
    right = {"label": labels, "prediction": labels, "tokens": tokens}
    missed = {"label": labels, "prediction": ["O"] * 5 + ["B-ORG", "I-ORG", "O"], "tokens": tokens}
    wrong = {"label": labels, "prediction": given, "tokens": tokens}
    write_run(tmp_path / "run", "token", names=["O"], dev=[right, missed, wrong])
    one = read_results(tmp_path / "run").splits["dev"]
    assert list(one.scores) == ["f1", "precision", "recall"]
    assert one.confusion.rows == ("LOC", "ORG", "PER", "no entity")
    assert one.confusion.columns == ("LOC", "ORG", "PER", "wrong ends", "missed")
    assert one.confusion.counts == ((1, 1, 0, 0, 1), (0, 2, 0, 1, 0), (0, 0, 0, 0, 0), (0, 0, 1, 0, 0))
    assert [(line.name, line.support, line.predicted) for line in one.classes] == [
        ("LOC", 3, 1),
        ("ORG", 3, 4),
        ("PER", 0, 1),
        ("", 6, 6),
    ]
    assert [(error.index, [entity.kind for entity, _ in error.entities]) for error in one.errors] == [
        (2, ["invented", "type", "ends"]),
        (1, ["missed"]),
    ]
    page = page_of(tmp_path / "run")
    marked = (
        '<span class="found">我</span>在<span class="missed found">北京</span>和<span class="missed found">IBM</span> '
        '<span class="missed">AI</span>组'
    )
    assert marked in page
    told = "".join(Page(page).text)
    assert "我在北京和IBM AI组" in told and "北京 LOC, found as ORG" in told and "IBM AI ORG, found as IBM ORG" in told
    assert "北京 LOC, missed" in told and "我 PER, where no entity is" in told and "Calibration" not in told


def test_entities_of_several_seeds_are_added_up_and_counted_at_each_place(tmp_path):
    def rows(first, second):
        tokens, labels = ["北", "京"], ["B-LOC", "I-LOC"]
        return [{"label": labels, "prediction": given, "tokens": tokens} for given in (first, second)]

    right, none, other = ["B-LOC", "I-LOC"], ["O", "O"], ["B-ORG", "I-ORG"]
    answers = [rows(right, none), rows(none, none), rows(other, none)]
    write_seeds(tmp_path / "runs", "token", [{"dev": each} for each in answers])
    one = read_results(tmp_path / "runs").splits["dev"]
    assert one.confusion.counts == ((1, 1, 0, 4), (0, 0, 0, 0), (0, 0, 0, 0))
    # F1 of LOC: 2 / 3 (one right of two, none invented), 0 and 0; a type that a seed never found counts as 0 there.
    assert [(line.name, line.f1) for line in one.classes] == [("LOC", pytest.approx(2 / 9)), ("ORG", 0), ("", 2 / 9)]
    found = [(error.index, [(entity.kind, times) for entity, times in error.entities]) for error in one.errors]
    assert found == [(1, [("missed", 3)]), (0, [("missed", 1), ("type", 1)])]
    assert "missed ×3" in "".join(Page(page_of(tmp_path / "runs")).text)


def test_spans_of_least_overlap_come_first_and_no_answer_is_told(tmp_path):
    rows = [
        {"id": "a", "label": ["北京大学"], "prediction": "北京大学", "question": "一"},
        {"id": "b", "label": ["北京大学", "北京"], "prediction": "大学", "question": "二"},
        {"id": "c", "label": ["清华"], "prediction": "", "question": "三"},
        {"id": "d", "prediction": "", "question": "四"},
    ]
    write_run(tmp_path / "run", "span", dev=rows)
    one = read_results(tmp_path / "run").splits["dev"]
    assert one.outcomes == {"exact": 0.5, "overlaps": 0.25, "wrong": 0.25}
    # 2 of 2 and of 4 characters: F1 = 2 * 2 / 6.
    assert [(error.inputs, error.label, error.f1) for error in one.errors] == [
        ({"question": "三"}, ("清华",), 0.0),
        ({"question": "二"}, ("北京大学", "北京"), pytest.approx(2 / 3)),
    ]
    assert one.classes is None and one.confusion is None and one.calibration is None
    rows = cells(page_of(tmp_path / "run"), "Worst errors")
    assert "no answer" in rows[0][3] and [row[-1] for row in rows] == ["0.00", "66.67"]


def test_choices_are_counted_from_one(tmp_path):
    rows = [
        {"id": "a", "label": 1, "prediction": 0, "confidence": 0.5, "answer": "读书", "question": "他在做什么？"},
        {"id": "b", "label": 0, "prediction": 0, "confidence": 0.6, "answer": "上课", "question": "她呢？"},
    ]
    write_run(tmp_path / "run", "choice", dev=rows)
    one = read_results(tmp_path / "run").splits["dev"]
    assert [(error.inputs, error.label, error.predictions) for error in one.errors] == [
        ({"question": "他在做什么？"}, ("2",), (("1: 读书", 1),))
    ]
    assert one.confusion.rows == ("1", "2") and one.confusion.counts == ((1, 0), (1, 0))


def test_many_classes_and_many_errors_leave_a_page_that_can_be_read(tmp_path):
    names = [f"class {i}" for i in range(MOST_CLASSES + 15)]
    rows = [text_row(name, name) for name in names] + [
        text_row(names[-1], names[3], 0.5 + i / 1000, "长" * 1500) for i in range(200)
    ]
    write_run(tmp_path / "run", "sentence", names=names, dev=rows)
    one = read_results(tmp_path / "run").splits["dev"]
    assert len(one.confusion.rows) == len(names) and len(one.errors) == WORST and one.wrong == 200
    page = page_of(tmp_path / "run")
    shown = [row[0] for row in cells(page, "Confusion")]
    assert len(shown) == MOST_CLASSES and {names[3], names[-1]} <= set(shown)
    assert "200 of 245 texts with an error; the first 30 of them, the surest first" in page
    assert "(500 letters more)" in page and len(page) < 300_000


def test_a_model_without_errors_says_so(tmp_path):
    write_run(tmp_path / "run", "sentence", names=NAMES, dev=[text_row("neg", "neg"), text_row("pos", "pos")])
    assert "None: no text of 2 has an error" in page_of(tmp_path / "run")


# ---- texts of others


@pytest.mark.parametrize("task", ["sentence", "pair", "token", "span", "choice"])
def test_texts_names_and_answers_stay_texts(tmp_path, task):
    def row(said):
        if task == "token":
            return {"label": [f"B-{said}", "O"], "prediction": ["O", f"B-{said}"], "tokens": [said, said]}
        if task == "span":
            return {"id": said, "label": [said + "一"], "prediction": said + "二", "question": said}
        if task == "choice":
            return {"id": "", "label": 0, "prediction": 1, "confidence": 0.5, "answer": said, "question": said}
        pair = {"pair": said} if task == "pair" else {}
        return {**text_row(said, said + "x", text=said), **pair}

    def written(folder, said):
        names = [said, said + "x"] if task in ("sentence", "pair") else None
        write_run(folder, task, names=names, dev=[row(said)])
        return Page(page_of(folder))

    plain, hostile = written(tmp_path / "plain", "plain"), written(tmp_path / "<b>&", HOSTILE)
    assert hostile.tags == plain.tags
    assert [name for name, _ in hostile.attributes] == [name for name, _ in plain.attributes]
    told = "".join(hostile.text)
    assert as_shown(HOSTILE) in told
    assert not {"\x00", "\u202e", "\u2067"} & set(told)


def test_the_page_needs_nothing_else(tmp_path):
    write_seeds(tmp_path / "runs", "sentence", [{"dev": [text_row("neg", "pos")]}] * 2, NAMES)
    page = Page(page_of(tmp_path / "runs"))
    assert page.tags.count("script") == 1 and not {"link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]


# ---- files that are not as they should be


def two_seeds(folder):
    rows = [text_row("neg", "pos"), text_row("pos", "pos")]
    return write_seeds(folder, "sentence", [{"dev": rows}] * 2, NAMES)


def damage(folder, line):
    (folder / "seed-1" / "dev.predictions.jsonl").write_text(line, encoding="utf-8")


GOOD = json.dumps({"index": 0, **text_row("neg", "pos")})


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: damage(f, "{]\n"), r"seed-1.dev\.predictions\.jsonl, line 1: expected a prediction of a sentence"),
        (lambda f: damage(f, GOOD + "\n3\n"), r"line 2: expected a prediction .* remove result\.json"),
        (lambda f: damage(f, '{"index": 0, "prediction": "pos", "confidence": 1}\n'), r"line 1: .*'label'"),
        (lambda f: damage(f, GOOD.replace("0.9", "9")), r"line 1: .*confidence is 9"),
        (lambda f: damage(f, GOOD.replace("0.9", "NaN")), r"line 1: .*confidence is nan"),
        (lambda f: damage(f, ""), r"seed-1.dev\.predictions\.jsonl is empty\. Let its run"),
        (lambda f: damage(f, GOOD + "\n"), r"has other items or labels than .*seed-0.*Report each of them by itself"),
        (lambda f: (f / "result.json").write_text("[]"), r"result\.json is no result of a fine-tuning"),
        (lambda f: (f / "seed-0" / "model" / "task.json").write_text("3"), r"task\.json is damaged"),
    ],
)
def test_damaged_files_are_named_with_what_to_do(tmp_path, change, message):
    folder = two_seeds(tmp_path / "runs")
    change(folder)
    with pytest.raises(ReportError, match=message):
        read_results(folder)


@pytest.mark.parametrize("prediction", [["B-LOC"], ["nonsense", "O"]])
def test_tags_that_do_not_fit_are_refused(tmp_path, prediction):
    row = {"label": ["B-LOC", "O"], "prediction": ["O", "O"], "tokens": ["北", "京"]}
    write_run(tmp_path / "run", "token", dev=[row])
    write_jsonl(tmp_path / "run" / "dev.predictions.jsonl", [{"index": 0, **row, "prediction": prediction}])
    with pytest.raises(ReportError, match="differ in length|Expected a tag such as"):
        read_results(tmp_path / "run")


def test_without_predictions_there_are_scores_and_the_reason(tmp_path, capsys):
    folder = two_seeds(tmp_path / "runs")
    (folder / "seed-1" / "dev.predictions.jsonl").unlink()
    assert command(folder) == 0
    assert "seed-1" in capsys.readouterr().out.split("dev   ")[-1]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "is missing, so there are scores alone" in page and "Worst errors" not in page
    assert cells(page, "Scores")[0][:2] == ["Accuracy", "50.00"]


# ---- the command


def test_seeds_that_are_not_finished_are_told_apart(tmp_path, capsys):
    folder = two_seeds(tmp_path / "runs")
    (folder / "result.json").unlink()  # written after the last seed
    shutil.rmtree(folder / "seed-1" / "model")
    (folder / "seed-1" / "result.json").unlink()
    (folder / "seed-2").mkdir()
    (folder / "seed-2" / "run.json").write_text('{"kind": "finetuning"}')  # no step yet
    assert command(folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["finished"] for run in told["runs"]] == [True, False] and told["results"]["seeds"] == [0]
    shutil.rmtree(folder / "seed-0")
    assert command(folder, "--json") == 0
    assert "results" not in json.loads(capsys.readouterr().out)


def test_the_json_tells_what_the_page_tells(tmp_path, capsys):
    folder = two_seeds(tmp_path / "runs")
    assert command(folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(folder / "report.html") and len(told["runs"]) == 2
    one = told["results"]["splits"]["dev"]
    assert one["scores"]["accuracy"]["seeds"] == {"0": 0.5, "1": 0.5} and one["scores"]["accuracy"]["mean"] == 0.5
    assert one["confusion"]["counts"] == [[0, 2], [0, 2]] and len(one["calibration"]["bins"]) == 15
    assert one["errors"][0]["predictions"] == [{"prediction": "pos", "seeds": 2}]
    assert json.loads(json.dumps(results_summary(read_results(folder))))["task"] == "sentence"


def test_more_seeds_than_colours_have_curves_of_the_first(tmp_path, capsys):
    folder = write_seeds(tmp_path / "runs", "sentence", [{"dev": [text_row("neg", "pos")]}] * 8, NAMES)
    assert [each.name for each in seed_folders(folder)] == [f"seed-{i}" for i in range(8)]
    assert command(folder) == 0
    assert "(sd of 8 seeds)" in capsys.readouterr().out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Curves of 6 of 8 seeds" in page and page.count('<article class="card">') == 6
    assert len(cells(page, "Scores")[0]) == 4 + 8


def test_a_folder_of_seeds_among_several_runs_is_refused(tmp_path, capsys):
    folder = two_seeds(tmp_path / "runs")
    assert command(folder, folder / "seed-0", "--out", tmp_path / "page.html") == 2
    assert "holds several seeds: report it by itself" in capsys.readouterr().err


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path):
    folder = two_seeds(tmp_path / "runs")
    code = (
        "import sys\n"
        "sys.modules['sklearn'] = None\n"  # as if it were not installed
        "from paddle_nezha.cli import main\n"
        f"code = main(['report', {str(folder)!r}])\n"
        "assert 'paddle' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "need sklearn: pip install 'paddle_nezha[train]'" in found.stderr
