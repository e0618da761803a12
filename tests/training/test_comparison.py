"""Two folders of runs, the sentence about them, and the command that says it."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle_nezha.commands import compare
from paddle_nezha.training.comparison import compare_runs, read_runs
from paddle_nezha.training.scoring.entities import score_entities
from paddle_nezha.training.statistics import mcnemar

ROOT = Path(__file__).resolve().parents[2]
ITEMS = 400


@pytest.fixture
def runs(tmp_path):
    """A factory of folders: ``runs("a", {0: right, 1: right})``, right being how many of 400 test items are right.

    Those that are right are the first, so that a better run is right wherever a worse one is.
    """

    def make(name, right, predictions=True, labels=None, **changes):
        folder = tmp_path / name
        labels = [i % 3 for i in range(ITEMS)] if labels is None else labels
        seeds = []
        for seed, count in right.items():
            run = {"seed": seed, "dev": {"accuracy": count / ITEMS - 0.01}, "test": {"accuracy": count / ITEMS}}
            if predictions:
                run["predictions"] = f"seed-{seed}/test.predictions.jsonl"
                given = [label if i < count else (label + 1) % 3 for i, label in enumerate(labels)]
                write(folder / run["predictions"], labels, given)
            seeds.append(run)
        folder.mkdir(exist_ok=True)
        result = {"task": "sentence", "metric": "accuracy", "seeds": seeds, **changes}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        return folder

    return make


def write(path, labels, predictions):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        json.dumps({"index": i, "label": label, "prediction": given, "text": "好"})
        for i, (label, given) in enumerate(zip(labels, predictions))
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compared(first, second, *options):
    return compare_runs(read_runs(first), read_runs(second), *options)


def command(capsys, *arguments):
    parser = argparse.ArgumentParser()
    compare.add(parser.add_subparsers())
    options = parser.parse_args(["compare", *map(str, arguments)])
    code = options.run(options)
    return code, capsys.readouterr()


GOOD, POOR = {0: 366, 1: 370, 2: 362, 3: 368, 4: 364}, {0: 345, 1: 350, 2: 343, 3: 347, 4: 340}


def test_better_beyond_noise_of_both_kinds(runs):
    found = compared(runs("good", GOOD), runs("poor", POOR))
    assert found.differs and found.seeds.paired and found.items.test == "permutation" and not found.notes
    # Differences of the seeds 21, 20, 19, 21, 24 of 400: 5.25 points, sd 1.87 items, t of 4 degrees 2.776.
    assert found.sentence == (
        "good is better than poor by 5.25 ± 0.58 points on test accuracy (5 seeds each, paired, p < 0.001; "
        f"over 400 test items {100 * found.items.low:.2f} to {100 * found.items.high:.2f} points, p < 0.001)."
    )
    assert found.difference == pytest.approx(0.0525)
    assert found.summaries[0]["dev"].mean == pytest.approx(366 / 400 - 0.01)
    back = compared(runs("poor", POOR), runs("good", GOOD))
    assert back.sentence[:60] == found.sentence[:60] and back.difference == pytest.approx(-found.difference)
    ends = back.sentence.partition("items ")[2].split(" points")[0]
    assert ends == f"{-100 * back.items.high:.2f} to {-100 * back.items.low:.2f}"


def test_within_noise_of_seeds(runs):
    found = compared(runs("a", {0: 360, 1: 350, 2: 356}), runs("b", {0: 352, 1: 353, 2: 355}))
    assert found.differs is False and found.seeds.more_seeds > 0
    assert found.sentence.startswith("The difference is within noise: a is ahead of b by 0.50 ± 3.46 ")
    assert f"; if it is real, about {found.seeds.more_seeds} more seeds of each would tell." in found.sentence


def test_within_noise_of_test_items(runs):
    """Each seed gains the same few items: sure over seeds, and not sure for another test file."""
    found = compared(runs("a", dict.fromkeys(range(7), 352)), runs("b", dict.fromkeys(range(7), 350)))
    assert found.seeds.p == 2**-6 and found.items.p > 0.05 and found.differs is False
    assert found.sentence.endswith("; more seeds would not tell, more test items would.")


def test_single_runs(runs):
    found = compared(runs("a", {0: 370}), runs("b", {0: 350}))
    assert found.seeds is None and found.items.test == "McNemar" and found.differs
    assert found.items.p == mcnemar([1] * 20, [0] * 20) == 2 * 0.5**20
    assert found.sentence.startswith("a is better than b by 5.00 points on test accuracy (1 run each, over 400 test ")
    assert found.sentence.endswith("p < 0.001); what other seeds would do is not known.")
    near = compared(runs("c", {0: 351}), runs("d", {0: 350}))
    assert near.differs is False and near.sentence.endswith(
        "; several seeds of each, or more test items, would tell more."
    )


def test_nothing_to_test_with(runs):
    found = compared(runs("a", {0: 370}, predictions=False), runs("b", {0: 350, 1: 340}, predictions=False))
    assert found.differs is None and len(found.notes) == 2
    assert found.sentence == (
        "Nothing can be said yet: a is ahead of b by 6.25 points on test accuracy, but there is no second run on each "
        "side and no comparison item by item; train three seeds of each or more."
    )


def test_equal_runs(runs):
    found = compared(runs("a", {0: 350, 1: 360}), runs("b", {0: 350, 1: 360}))
    assert found.differs is False
    assert found.sentence == (
        "a and b are equal on test accuracy (2 seeds each, paired, p = 1; over 400 test items 0.00 to 0.00 points, "
        "p = 1)."
    )


def test_the_same_folder_twice_and_equal_single_runs(runs):
    folder = runs("a", {0: 350})
    again = folder.parent / "b" / ".." / "a"
    (folder.parent / "b").mkdir()
    assert compared(folder, again).sentence == (
        f"Both are runs of {folder}, so there is nothing to compare: name the folder of others."
    )
    seed = runs("a/seed-0", {0: 350})
    for pair in ((folder, seed), (seed, folder)):
        assert compared(*pair).sentence.startswith(f"Both are runs of {folder}, so")
    found = compared(runs("c", {0: 350}, predictions=False), runs("d", {0: 350}, predictions=False))
    assert found.sentence.startswith("Nothing can be said yet: c and d are equal on test accuracy, but there is no ")


def test_no_interval_leaves_what_a_score_can_be(runs):
    """Two runs far apart: the t interval of their mean is 12.7 times its standard error to either side."""
    for metric, ends in (
        ("accuracy", (0, 1)),
        ("f1_PER", (0, 1)),
        ("mcc", (-1, 1)),
        ("unseen_mcc", (-1, 1)),
        ("mse", (0, None)),
    ):
        seeds = [{"seed": i, "dev": {metric: 0.3 + i / 2}} for i in range(2)]
        found = read_runs(runs(metric, {}, seeds=seeds, metric=metric)).summaries(metric)["dev"]
        uncut = 0.55 + 12.706204736432095 * 0.25
        assert found.low == ends[0] and found.high == pytest.approx(ends[1] or uncut)


def test_other_seeds_are_compared_unpaired(runs):
    found = compared(runs("a", GOOD), runs("b", {seed + 1: right for seed, right in list(POOR.items())[:3]}))
    assert not found.seeds.paired and found.seeds.n == (5, 3)
    assert "5 and 3 seeds, unpaired, p" in found.sentence
    assert "the seeds are not the same on both sides" in found.notes[0]


def test_the_order_of_the_seeds_does_not_matter(runs):
    turned = dict(reversed(POOR.items()))
    assert compared(runs("a", GOOD), runs("b", POOR)).seeds == compared(runs("a", GOOD), runs("c", turned)).seeds


@pytest.mark.parametrize(
    "change, note",
    [
        (lambda folder: (folder / "seed-1/test.predictions.jsonl").unlink(), "not every seed has its file"),
        (lambda folder: write(folder / "seed-1/test.predictions.jsonl", [0], [0]), "tested on different files"),
        (lambda folder: write(folder / "seed-1/test.predictions.jsonl", [1] * 400, [1] * 400), "on different files"),
        (
            lambda folder: write(folder / "seed-1/test.predictions.jsonl", [i % 3 for i in range(400)], [0] * 400),
            r"seed-1.test.predictions.jsonl makes accuracy 0.3350, the result says 0.9250",
        ),
    ],
)
def test_items_that_do_not_pair_are_left_out_and_told(change, note, runs):
    first, second = runs("a", GOOD), runs("b", POOR)
    change(first)
    found = compared(first, second)
    assert found.items is None and found.seeds is not None and found.differs
    assert len(found.notes) == 1 and re.search(note, found.notes[0])


def test_unlabelled_items_are_left_out(runs):
    first, second = runs("a", {0: 3}), runs("b", {0: 3})
    for folder in (first, second):
        write(folder / "seed-0/test.predictions.jsonl", [None] * 4, [1] * 4)
    assert "not all of them have a label" in compared(first, second).notes[1]


def test_dev_where_there_is_no_test(runs):
    bare = [{"seed": seed, "dev": {"accuracy": 0.9 + seed / 100}, "test": None} for seed in range(3)]
    found = compared(runs("a", {}, seeds=bare), runs("b", POOR))
    assert found.split == "dev" and found.items is None and "on dev accuracy" in found.sentence
    assert "dev scores chose the checkpoints" in found.notes[0]
    assert compared(runs("c", GOOD), runs("d", POOR), None, "dev").split == "dev"


def test_a_metric_that_is_better_lower_is_no_points(runs):
    seeds = [
        [{"seed": i, "dev": {}, "test": {"mse": start + i / 10, "accuracy": 1}} for i in range(3)]
        for start in (1.0, 3.01)
    ]
    one, other = (runs(name, {}, seeds=each, metric="mse") for name, each in zip("ab", seeds))
    sentence = compared(other, one).sentence
    assert sentence.startswith("The difference is within noise: a is ahead of b by 2.01 ± 0 on test mse (3 seeds each")
    assert compared(one, other, "accuracy").metric == "accuracy"


def test_entities_and_answers_item_by_item(runs):
    labels = [["B-PER", "I-PER", "O"]] * 60
    for name, right in (("a", 50), ("b", 30)):
        given = [label if i < right else ["O", "I-PER", "O"] for i, label in enumerate(labels)]
        score = {"f1": score_entities(labels, given)["f1"]}
        seeds = [{"seed": 0, "dev": score, "test": score, "predictions": "p.jsonl"}]
        write(runs(name, {}, task="token", metric="f1", seeds=seeds) / "p.jsonl", labels, given)
        given = ["北京" if i < right else "京" for i in range(60)]
        score = {"em": right / 60, "f1": (right + (60 - right) * 2 / 3) / 60}
        seeds = [{"seed": 0, "dev": score, "test": score, "predictions": "p.jsonl"}]
        write(runs(name * 2, {}, task="span", metric="f1", seeds=seeds) / "p.jsonl", [["北京", "上海"]] * 60, given)
    folder = runs("last", {0: 1}).parent
    tags = compared(folder / "a", folder / "b")
    assert (tags.items.test, tags.items.items, tags.differs) == ("permutation", 60, True)
    answers = compared(folder / "aa", folder / "bb")
    assert answers.items.test == "permutation" and answers.differs and "by 11.11 points on test f1" in answers.sentence
    assert compared(folder / "aa", folder / "bb", "em").items.test == "McNemar"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"task": "token"}, "a is of the task sentence, .*b of token"),
        ({"metric": "mcc"}, "a was judged by accuracy, .*b by mcc: say which with --metric"),
        ({"seeds": []}, "must hold seeds, each of them once, but holds \\[\\]"),
        ({"seeds": [{"seed": 1}, {"seed": 1}]}, "each of them once, but holds \\[1, 1\\]"),
        ({"seeds": [{"dev": {}}]}, "is no result of a fine-tuning \\(KeyError: 'seed'\\); run it anew"),
        ({"seeds": [{"seed": 0, "test": {"mcc": 0.5}}]}, "has accuracy on test or on dev; all of them have no metric"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes, message, runs):
    first = runs("a", {0: 1, 1: 2})
    second = runs("b", {0: 1, 1: 2}, **changes)
    with pytest.raises(ValueError, match=message):
        compared(first, second)


def test_a_metric_that_some_have_not_is_refused_with_those_they_have(runs):
    with pytest.raises(ValueError, match="has f1 on test or on dev; all of them have accuracy"):
        compared(runs("a", {0: 1}), runs("b", {0: 1}), "f1")


def test_broken_files_are_named(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.result.json is missing: give the output folder of a fine-tun"):
        read_runs(tmp_path / "nothing")
    folder = runs("a", {0: 1})
    (folder / "seed-0/test.predictions.jsonl").write_text('{"index": 0, "label": 1, "prediction": 1}\n{"index": 1}\n')
    with pytest.raises(ValueError, match=r"predictions.jsonl, line 2: expected JSON with index, label and prediction"):
        compared(folder, folder)
    (folder / "seed-0/test.predictions.jsonl").write_text('{"index": 0, "label": 1, "prediction": 1}\n' * 2)
    with pytest.raises(ValueError, match="line 2: index 0 comes a second time"):
        compared(folder, folder)
    (folder / "result.json").write_text("[1]")
    with pytest.raises(ValueError, match="result.json is no result of a fine-tuning"):
        read_runs(folder)


def test_unseen_texts_are_compared_where_they_are_the_same(runs):
    def marked(name, right, known):
        folder = runs(name, {0: right, 1: right})
        for seed in (0, 1):
            path = folder / f"seed-{seed}" / "test.predictions.jsonl"
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows[:known]:
                row["in_train"] = True
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = json.loads((folder / "result.json").read_text())
        for seed in result["seeds"]:
            seed["test"]["unseen_accuracy"] = (right - known) / (ITEMS - known)
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    one = marked("one", 360, 100)
    found = compared(one, marked("other", 330, 100), "unseen_accuracy")
    assert found.items.items == ITEMS - 100 and found.items.difference == pytest.approx(30 / 300)
    with pytest.raises(ValueError, match="unseen_accuracy is over other texts in .*one than in .*elsewhere"):
        compared(one, marked("elsewhere", 330, 50), "unseen_accuracy")


def test_folders_of_one_name_are_told_apart(runs):
    found = compared(runs("x/run", {0: 1}), runs("y/run", {0: 1}))
    assert found.names[0].endswith("x/run") and found.names[1].endswith("y/run")


def test_the_command_prints_a_table_and_the_sentence(runs, capsys):
    first, second = runs("good", GOOD), runs("poor", POOR)
    code, out = command(capsys, first, second)
    lines = out.out.splitlines()
    assert code == 0 and len(lines) == 5
    assert lines[1].startswith(
        "good  test  91.50 ± 0.79 (sd of 5 seeds), 95 % interval 90.52 to 92.48, from 90.50 to 9"
    )
    assert lines[2].startswith("poor  dev   85.25 ± ")
    assert lines[-1] == compared(first, second).sentence


def test_the_command_prints_json(runs, capsys):
    code, out = command(capsys, runs("good", GOOD), runs("poor", {0: 300}), "--json")
    content = json.loads(out.out)
    assert code == 0 and content["seeds"] is None and content["items"]["test"] == "permutation"
    assert content["summaries"][0]["test"]["n"] == 5 and content["summaries"][1]["test"]["sd"] is None
    assert content["differs"] is True and content["sentence"].startswith("good is better than poor by 16.50 points")
    assert "5 and 1 runs, over 400 test items" in content["sentence"]


def test_without_scipy_the_message_gives_the_install_line(runs):
    first, second = runs("good", GOOD), runs("poor", POOR)
    code = f"""
import argparse, sys
sys.modules["scipy"] = None
from paddle_nezha.commands import compare
parser = argparse.ArgumentParser()
compare.add(parser.add_subparsers())
options = parser.parse_args(["compare", {str(first)!r}, {str(second)!r}])
assert not {{"paddle", "sklearn", "seqeval"}} & set(sys.modules)
sys.exit(options.run(options))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "paddle-nezha: comparing needs scipy: pip install 'paddle_nezha[train]'\n"


def test_a_thousand_items_and_ten_seeds_take_a_moment(runs):
    rng = np.random.default_rng(3)
    found = compared(
        runs("a", {i: int(n) for i, n in enumerate(rng.integers(300, 320, 10))}),
        runs("b", {i: int(n) for i, n in enumerate(rng.integers(300, 320, 10))}),
    )
    assert found.seeds.n == (10, 10) and found.items.rounds == 10_000
