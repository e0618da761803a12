"""What a fine-tuned model answers: every task, in order, resumed, and scored as fine-tuning scores."""

import dataclasses
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import paddle_nezha
from paddle_nezha import NeZhaConfig, NeZhaForPretraining, NeZhaTokenizer
from paddle_nezha._paddle import paddle
from paddle_nezha.cli import main
from paddle_nezha.pipelines import predict as predict_module
from paddle_nezha.pipelines.batches import windows
from paddle_nezha.pipelines.predict import Predictor
from paddle_nezha.pipelines.records import PARTS, characters, examples
from paddle_nezha.training.data import readers
from paddle_nezha.training.finetuning.predicting import answers
from paddle_nezha.training.finetuning.settings import FinetuneSettings
from paddle_nezha.training.finetuning.tallies import ClassTally, EntityTally, SpanTally
from paddle_nezha.training.finetuning.tasks import KINDS, Facts
from paddle_nezha.training.finetuning.trainer import finetune
from paddle_nezha.training.processes import Processes
from paddle_nezha.training.scoring.classes import score_classes
from paddle_nezha.training.scoring.entities import score_entities
from paddle_nezha.training.vocabulary import vocabulary_digest
from weights.demo import FOLDER

ROOT = Path(__file__).resolve().parents[2]
CHARACTERS = sorted({*(FOLDER / "sentences.txt").read_text(encoding="utf-8")} - {"\n", " "})
NAMES = {
    "sentence": ["neg", "neutral", "pos"],
    "pair": ["0", "1"],
    "token": ["B-LOC", "B-PER", "I-PER", "O"],
    "span": None,
    "choice": None,
}
TASKS = tuple(NAMES)
# Float32 probabilities and logits below 10, of texts in other company: measured 3e-7. Rows hold six places.
ROUNDING = 2e-6


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    """This process keeps its allocator as the other tests found it."""
    monkeypatch.setenv("PADDLE_NEZHA_TUNE", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A model of each task in a folder `model`, as a run leaves it: random, so that its answers differ by the text."""
    root = tmp_path_factory.mktemp("models")
    tokenizer = NeZhaTokenizer.from_pretrained(FOLDER)
    draw = np.random.default_rng(5)
    for name, classes in NAMES.items():
        task = KINDS[name](
            Facts(name, classes, 96 if name == "span" else 24, 8, 5, vocabulary_digest(tokenizer)), tokenizer
        )
        config = NeZhaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            **task.head_settings(),
        )
        paddle.seed(5)
        model = task.head(config)
        with paddle.no_grad():
            for parameter in model.parameters():
                parameter.set_value(parameter + 0.3 * draw.standard_normal(parameter.shape).astype("float32"))
            if classes:  # no class is likelier than others for all texts
                ids = paddle.to_tensor(draw.integers(10, len(tokenizer), [200, 24]))
                segments = paddle.to_tensor(np.tile(np.repeat([0, int(name == "pair")], 12), [200, 1]))
                logits = model(ids, segments)
                model.classifier.bias.set_value(-logits.reshape([-1, len(classes)]).mean(0))
        folder = root / name / "model"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        task.facts.write(folder)
    return {name: root / name for name in NAMES}


@pytest.fixture
def call(capfdbinary):
    """Runs a command: (exit code, stdout, stderr)."""

    def run(*arguments):
        code = main(["predict", *map(str, arguments)])
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return run


def some(draw, most, least=1):
    return "".join(draw.choices(CHARACTERS, k=draw.randint(least, most)))


def write(task, path, count, seed=0, labels=True):
    """A file of the task in a layout that corpora have; some examples are longer than the model's 24 tokens."""
    draw = random.Random(seed)
    if task in ("sentence", "pair"):
        header = [*(["text_a", "text_b"] if task == "pair" else ["text_a"]), *(["label"] if labels else [])]
        rows = [
            [some(draw, 40) for _ in PARTS[task]] + ([draw.choice(NAMES[task])] if labels else []) for _ in range(count)
        ]
        content = "".join("\t".join(row) + "\n" for row in [header, *rows])
    elif task == "token":
        sentences = [[(c, draw.choice(NAMES[task])) for c in some(draw, 40)] for _ in range(count)]
        lines = [[f"{c} {tag}" if labels else c for c, tag in sentence] for sentence in sentences]
        content = "\n\n".join("\n".join(sentence) for sentence in lines) + "\n"
    elif task == "span":
        paragraphs = []
        for number in range(count):
            context, start = some(draw, 150, 8), draw.randrange(6)
            question = {"id": f"Q{number}", "question": some(draw, 8)}
            if labels:
                question["answers"] = [{"text": context[start : start + 2], "answer_start": start}]
            paragraphs.append({"context": context, "qas": [question]})
        content = json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False)
    else:
        entries = []
        for number in range(count):
            choices = [f"{place}{some(draw, 5)}" for place in range(draw.randint(2, 4))]
            question = {"question": some(draw, 8), "choice": choices, "answer": draw.choice(choices) if labels else ""}
            entries.append([[some(draw, 30), some(draw, 5)], [question], str(number)])
        content = json.dumps(entries, ensure_ascii=False)
    path.write_text(content, encoding="utf-8")
    return path


def items_of(records, task):
    """Records as a caller hands them over."""
    if task == "token":
        return [list(record.tokens) for record in records]
    return [{part: getattr(record, part) for part in PARTS[task]} for record in records]


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_the_trainer(predictor, records):
    """Rows and scores as fine-tuning makes them of a whole file."""
    task = predictor.task
    made, _ = task.features(records)
    outputs = answers(task, task.objective(predictor.model), made, 4096, Processes(0, 1, False))
    rows = task.rows(records, made, outputs)
    return rows, task.score(rows)


def near(given, truth):
    """Equal, but for the rounding of probabilities and scores."""
    assert type(given) is type(truth)
    if isinstance(truth, float):
        assert abs(given - truth) <= ROUNDING
    elif isinstance(truth, dict):
        assert list(given) == list(truth)
        for key in truth:
            near(given[key], truth[key])
    elif isinstance(truth, list):
        assert len(given) == len(truth)
        for one, other in zip(given, truth):
            near(one, other)
    else:
        assert given == truth


# ---- rows and scores


@pytest.mark.parametrize("task", TASKS)
def test_rows_and_scores_are_those_of_fine_tuning(folders, tmp_path, task):
    file = write(task, tmp_path / "test", 60)
    predictor = Predictor.open(folders[task], tokens_per_batch=24)
    done = predictor.run(predictor.source(file), tmp_path / "out.jsonl")
    records = list(readers.read(task, file, labels=NAMES[task]))
    rows, scores = by_the_trainer(predictor, records)
    assert done.rows == 60 and done.scores == scores
    assert len({json.dumps(row["prediction"]) for row in rows}) > 1  # the answers do depend on the text
    near(read_rows(tmp_path / "out.jsonl"), rows)
    assert len(list(windows(examples(task, items_of(records, task)), 24, characters))) > 1


@pytest.mark.parametrize("task", TASKS)
def test_a_run_of_fine_tuning_is_judged_as_it_judged_itself(call, tmp_path, task):
    tokenizer = NeZhaTokenizer.from_pretrained(FOLDER)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    paddle.seed(4)
    NeZhaForPretraining(NeZhaConfig(vocab_size=len(tokenizer), **small)).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    train, dev = (write(task, tmp_path / split, 24, seed) for seed, split in enumerate(("train", "dev")))
    settings = FinetuneSettings(
        task=task,
        model=str(tmp_path / "start"),
        train=str(train),
        dev=str(dev),
        output=str(tmp_path / "run"),
        max_length=96,
        stride=8,
        epochs=1,
        learning_rate=1e-2,
        curves=False,
    )
    result = finetune(settings)
    code, out, _ = call(tmp_path / "run", "--input", dev, "--output", tmp_path / "out.jsonl", "--json")
    assert code == 0 and json.loads(out)["scores"] == result.dev
    near(read_rows(tmp_path / "out.jsonl"), read_rows(tmp_path / "run" / "dev.predictions.jsonl"))


@pytest.mark.parametrize("task", TASKS)
def test_a_list_a_single_one_and_a_file_without_labels_give_the_same(folders, tmp_path, task):
    file = write(task, tmp_path / "test", 50, labels=False)
    predictor = paddle_nezha.pipeline(task, model=folders[task], tokens_per_batch=24)
    done = predictor.run(predictor.source(file), tmp_path / "out.jsonl")
    rows = read_rows(tmp_path / "out.jsonl")
    assert done.scores is None and not any("label" in row for row in rows)
    assert [row["index"] for row in rows] == list(range(50))
    items = items_of(list(readers.read(task, file)), task)
    given = predictor(items)
    for row in [*given, *rows]:
        row.pop("id", None)  # of the file, or of the place in the list
    assert given == rows
    one = items[3] if task != "token" else tuple(items[3])
    alone = predictor(one)
    alone.pop("id", None)
    near(alone, {**rows[3], "index": 0})


def test_labels_change_no_answer(folders, tmp_path):
    for task in TASKS:
        predictor = Predictor.open(folders[task])
        found = []
        for labels in (True, False):
            file = write(task, tmp_path / f"{task}{labels}", 12)
            if not labels:
                items = items_of(list(readers.read(task, file)), task)
                found.append(predictor(items))
            else:
                predictor.run(predictor.source(file), tmp_path / f"{task}.jsonl")
                found.append(read_rows(tmp_path / f"{task}.jsonl"))
        assert [row["prediction"] for row in found[0]] == [row["prediction"] for row in found[1]]


def test_the_task_is_read_from_the_folder(folders):
    for task in TASKS:
        assert paddle_nezha.pipeline(model=folders[task] / "model").task.facts.task == task


def test_tokens_of_a_text_are_its_characters_and_entities_are_spelled_out(folders):
    tag = paddle_nezha.pipeline("token", model=folders["token"])
    rows = tag(["".join(CHARACTERS[place : place + 30]) for place in range(20)] + ["", ["New", "York", "早"]])
    assert [row["tokens"] for row in rows[-2:]] == [[], ["New", "York", "早"]] and rows[-2]["prediction"] == []
    assert sum(len(row["entities"]) for row in rows) > 20
    for row in rows[:-1]:
        assert len(row["prediction"]) == len(row["tokens"])
        for entity in row["entities"]:
            assert entity["text"] == "".join(row["tokens"][entity["start"] : entity["end"]])
            assert row["prediction"][entity["start"]].endswith(entity["type"])


def test_the_best_answers_of_a_span_are_listed(folders):
    context = "".join(CHARACTERS[:40])
    plain = paddle_nezha.pipeline("span", model=folders["span"])(("早", context))
    row = paddle_nezha.pipeline("span", model=folders["span"], n_best=4)(("早", context))
    found = row.pop("n_best")
    assert row == plain and len(found) == 4 and found[0]["text"] == row["prediction"]
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert all(context[one["start"] : one["end"]] == one["text"] for one in found)


def test_no_items_give_no_rows(folders):
    assert [paddle_nezha.pipeline(model=folders[task])([]) for task in TASKS] == [[]] * 5


# ---- sums


def test_sums_give_the_scores_of_all_rows_at_once():
    draw = random.Random(1)
    names = NAMES["sentence"]
    labels, given = ([draw.randrange(3) for _ in range(200)] for _ in range(2))
    rows = [{"label": names[label], "prediction": names[other]} for label, other in zip(labels, given)]
    tags = [[[draw.choice(NAMES["token"]) for _ in range(9)] for _ in range(80)] for _ in range(2)]
    tagged = [{"label": label, "prediction": other} for label, other in zip(*tags)]
    for tally, whole, truth in (
        (lambda: ClassTally(names), rows, score_classes(labels, given, names)),
        (EntityTally, tagged, score_entities(*tags)),
    ):
        first, second = tally(), tally()
        first.add(whole[:30])
        second.restore(json.loads(json.dumps(first.state())))
        second.add([*whole[30:], {"prediction": whole[0]["prediction"]}])
        assert second.scores() == truth


def test_questions_without_an_answer_count_where_others_have_one():
    tally = SpanTally()
    tally.add([{"prediction": "今天"}, {"prediction": ""}])
    assert tally.scored == 0
    tally.add([{"prediction": "早上", "label": ["早上", "上"]}])
    assert tally.scored == 3
    scores = tally.scores()
    assert scores["em"] == 2 / 3 and scores["no_answer_accuracy"] == 1 / 2 and scores["answered_em"] == 1


# ---- the command


@pytest.fixture
def piped(monkeypatch):
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_plain_lines_from_a_pipe_to_a_pipe(call, piped, folders, tmp_path):
    texts = ["今天早上", "", "下雨，了", "早" * 40]
    data = ("\r\n".join(texts)).encode()
    predictor = Predictor.open(folders["sentence"])
    piped(gzip.compress(data))
    code, out, err = call(folders["sentence"], "--input", "-", "--output", "-")
    assert code == 0 and [json.loads(line) for line in out.splitlines()] == predictor(texts)
    assert "1 examples lost tokens to the 24" in err
    piped(data)
    assert call(folders["sentence"], "--input", "-", "--output", tmp_path / "out.jsonl")[0] == 0
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == out
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_scores_are_printed(call, folders, tmp_path):
    file = write("pair", tmp_path / "test.tsv", 20)
    code, out, _ = call(folders["pair"], "--input", file, "--output", tmp_path / "out.jsonl", "--json")
    told = json.loads(out)
    assert code == 0 and told["rows"] == 20 and told["resumed_at"] == 0
    right = [row["label"] == row["prediction"] for row in read_rows(tmp_path / "out.jsonl")]
    assert told["scores"]["accuracy"] == sum(right) / 20
    shown = f"accuracy {sum(right) / 20:.4f}"
    code, out, _ = call(folders["pair"], "--input", file, "--output", tmp_path / "out.jsonl", "--force")
    assert code == 0 and "out.jsonl: 20 rows\n" in out and shown in out
    code, out, err = call(folders["pair"], "--input", file, "--output", "-")
    assert out == (tmp_path / "out.jsonl").read_text(encoding="utf-8") and shown in err


def test_the_help_says_what_is_printed_and_in_which_order_probabilities_are(capsys):
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "where there are labels, scores are printed" in told
    assert "probabilities are in the order of names in the model's task.json" in told


def test_probabilities_are_in_the_order_of_names_in_task_json(folders):
    row = paddle_nezha.pipeline(model=folders["sentence"])("今天")
    names = json.loads((folders["sentence"] / "model" / "task.json").read_text(encoding="utf-8"))["names"]
    assert dict(zip(names, row["probabilities"]))[row["prediction"]] == row["confidence"] == max(row["probabilities"])


def test_what_has_no_label_is_answered_and_not_scored(call, folders, tmp_path):
    rows = [{"context": "今", "question": "天", "choices": ["早", "上"], "label": label} for label in (0, None, 1)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    code, out, err = call(folders["choice"], "--input", file, "--output", tmp_path / "out.jsonl", "--json")
    assert code == 0 and json.loads(out)["scores"]["accuracy"] == 0.5  # the same question, labelled both ways
    assert "2 of 3 examples have a label, and the scores are of these" in err
    assert len(read_rows(tmp_path / "out.jsonl")) == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("texts.txt", "今天早上\n下雨，了\n"),
        ("texts.jsonl", '{"text": "今天早上"}\n{"text": "下雨，了"}\n'),
        ("texts.csv", "text\n今天早上\n下雨，了\n"),
    ],
)
def test_sentences_are_tagged_as_the_pipeline_tags_them(call, folders, tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    code, out, err = call(folders["token"], "--input", tmp_path / name, "--output", "-")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and rows == paddle_nezha.pipeline(model=folders["token"])(["今天早上", "下雨，了"])
    assert ("each taken for a sentence" in err) == (name == "texts.txt")


def test_lines_of_sentences_or_of_tokens_are_told_and_can_be_forced(call, folders, tmp_path):
    (tmp_path / "lines").write_text("今天\n早上好\n", encoding="utf-8")
    for options, tokens in (((), [["今", "天"], ["早", "上", "好"]]), (("--layout", "conll"), [["今天", "早上好"]])):
        code, out, err = call(folders["token"], "--input", tmp_path / "lines", "--output", "-", *options)
        assert code == 0 and [json.loads(line)["tokens"] for line in out.splitlines()] == tokens
        assert ("lines, each taken for a sentence of characters; --layout conll" in err) == (not options)


@pytest.mark.parametrize(
    ("task", "content", "columns"),
    [
        ("sentence", "label\ttext_a\n?\t今天\npos\t早上\n", '{"text": "text_a"}'),
        ("sentence", "17\t今天早上\n18\t早上好\n", '{"text": 1}'),  # an id, taken for the label
        ("pair", "17\t今天早上\t早上好\n18\t早上\t今天\n", '{"text": 1, "pair": 2}'),
        ("pair", '{"text_a": "今", "text_b": "早", "label": "x"}\n' * 2, '{"text": "text_a", "pair": "text_b"}'),
        ("token", "今 B-X\n\n天 O\n", '{"tokens": 0}'),
    ],
)
def test_labels_that_are_none_of_the_models_can_be_left_out(call, folders, tmp_path, task, content, columns):
    file = tmp_path / "rows"
    file.write_text(content, encoding="utf-8")
    code, _, err = call(folders[task], "--input", file, "--output", "-")
    assert code == 2 and f"Labels are for scores alone: leave labels out, --columns '{columns}'" in err
    assert "training file" not in err
    code, out, _ = call(folders[task], "--input", file, "--output", "-", "--columns", columns)
    assert code == 0 and len(out.splitlines()) == 2


def test_columns_can_be_named(call, folders, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": "今天", "b": "x"}\n{"a": "早上", "b": "y"}\n', encoding="utf-8")
    for columns in ('{"text": "a"}', "{text: a}"):
        code, out, _ = call(folders["sentence"], "--input", file, "--output", "-", "--columns", columns)
        assert code == 0 and [json.loads(line)["text"] for line in out.splitlines()] == ["今天", "早上"]
    for columns in ("{", "a"):
        code, _, err = call(folders["sentence"], "--input", file, "--output", "-", "--columns", columns)
        assert code == 2 and "expected a mapping such as {text: review}" in err


@pytest.mark.parametrize("task", TASKS)
def test_a_table_holds_the_same(call, folders, tmp_path, task):
    file = write(task, tmp_path / "test", 9)
    options = ("--n-best", "2") if task == "span" else ()
    call(folders[task], "--input", file, "--output", tmp_path / "out.jsonl", *options)
    call(folders[task], "--input", file, "--output", tmp_path / "out.tsv", "--format", "tsv", *options)
    header, *lines = (tmp_path / "out.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    columns = header.split("\t")
    rows = read_rows(tmp_path / "out.jsonl")
    assert len(lines) == len(rows) == 9 and set(rows[0]) == set(columns)
    for line, row in zip(lines, rows):
        for name, cell in zip(columns, line.split("\t")):
            value = row[name]
            assert cell == value if isinstance(value, str) else json.loads(cell) == value


def test_tabs_and_line_ends_do_not_break_a_table(folders, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"text": "今\t天\n早\r上"}) + "\n", encoding="utf-8")
    predictor = Predictor.open(folders["sentence"])
    predictor.run(predictor.source(file), tmp_path / "out.tsv", form="tsv")
    header, row = (tmp_path / "out.tsv").read_bytes().decode().splitlines()
    assert row.split("\t")[-1] == "今 天 早 上" and len(row.split("\t")) == len(header.split("\t"))


# ---- what is refused


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("sentence", "text_a\tlabel\n今天\tpos\n早上\tgood\n", "test:3: unknown label 'good': expected one of neg"),
        ("sentence", "text_a\tlabel\n今天\tpos\n早上\n", "test:3: expected 2 columns (text_a, label), got 1"),
        ("sentence", "", "test:1: expected examples, got an empty file"),
        ("pair", "一\n二\n", "test:1: expected text and pair"),
        ("token", "今 O\n天 O O\n", "test:2: expected 2 columns"),
        ("token", "今 B-X\n", "test:1: unknown label 'B-X'"),
        (
            "span",
            '{"data": [{"paragraphs": [{"qas": []}]}]}',
            "test:1 (data[0].paragraphs[0]): expected an object with",
        ),
        (
            "choice",
            '{"context": "今", "question": "天", "choices": ["早"]}\n',
            "test:1: expected a list of two choices",
        ),
        ("span", "a\tb\n", "got the layout 'tsv', which is for sentence or pair"),
    ],
)
def test_bad_files_are_refused_before_anything_is_written(call, folders, tmp_path, task, content, message):
    (tmp_path / "test").write_text(content, encoding="utf-8")
    code, _, err = call(folders[task], "--input", tmp_path / "test", "--output", tmp_path / "out.jsonl")
    assert code == 2 and message in err
    assert [path.name for path in tmp_path.iterdir()] == ["test"]


@pytest.mark.parametrize(("data", "message"), [(b"", "an empty file"), ("今天".encode("gbk") * 9, "standard input:1:")])
def test_what_is_piped_in_is_refused_by_its_name(call, piped, folders, tmp_path, data, message):
    piped(data)
    code, _, err = call(folders["sentence"], "--input", "-", "--output", tmp_path / "out.jsonl")
    assert code == 2 and message in err and list(tmp_path.iterdir()) == []


def test_two_files_cannot_be_piped_in(call, piped, folders):
    piped(b"a\n")
    code, _, err = call(folders["token"], "--input", "-", "--output", "-", "--layout", "two-file")
    assert code == 2 and "needs two files" in err


def test_folders_that_will_not_do_are_refused(folders, tmp_path):
    with pytest.raises(ValueError, match="was fine-tuned for pair, not sentence"):
        paddle_nezha.pipeline("sentence", model=folders["pair"])
    with pytest.raises(ValueError, match="has no task.json, so it is no fine-tuned model"):
        paddle_nezha.pipeline("sentence", model=FOLDER)
    with pytest.raises(ValueError, match="No model was named"):
        paddle_nezha.pipeline("sentence")
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}" / "model").mkdir(parents=True)
        (tmp_path / f"seed-{seed}" / "model" / "task.json").write_text("{}")
    with pytest.raises(ValueError, match="holds several models: name one of seed-0, seed-1 in it"):
        paddle_nezha.pipeline("sentence", model=tmp_path)
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="stopped is a run that has left no model yet: the command that began it goes"):
        paddle_nezha.pipeline("sentence", model=tmp_path / "stopped")
    with pytest.raises(ValueError, match="n_best must be 0 or more, and is for span alone"):
        paddle_nezha.pipeline("pair", model=folders["pair"], n_best=3)
    with pytest.raises(ValueError, match="form must be one of jsonl, tsv"):
        predictor = Predictor.open(folders["pair"])
        predictor.run(predictor.source(tmp_path), tmp_path / "out", form="csv")


def test_a_folder_given_as_the_task_is_told_where_it_goes(folders):
    with pytest.raises(ValueError, match=r"Name a folder so: pipeline\(model='.*sentence'\)"):
        paddle_nezha.pipeline(str(folders["sentence"]))


def test_a_converted_model_answers_the_same(folders, tmp_path, capsys):
    answers = [paddle_nezha.pipeline(model=folders["sentence"])(["早上好", "书"])]
    for to in ("paddle", "pdparams", "hf", "torch"):
        assert main(["convert", str(folders["sentence"] / "model"), str(tmp_path / to), "--to", to]) == 0
        answers.append(paddle_nezha.pipeline(model=tmp_path / to)(["早上好", "书"]))
    assert all(one == answers[0] for one in answers[1:])


def test_a_tokenizer_that_cuts_otherwise_is_another(folders, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folders["sentence"] / "model", folder)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in ("do_lower_case", "tokenize_chinese_chars"):
        path.write_text(json.dumps({**content, name: not content[name]}), encoding="utf-8")
        with pytest.raises(ValueError, match="not the one that the model was fine-tuned with"):
            Predictor.open(folder)


def test_the_vocabulary_must_be_that_of_fine_tuning(folders, tmp_path, caplog, capsys):
    folder = tmp_path / "model"
    shutil.copytree(folders["sentence"] / "model", folder)
    facts = Facts.read(folder)
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    swapped = [*lines[:-2], lines[-1], lines[-2]]  # as many, and two of them other words
    (folder / "vocab.txt").write_text("\n".join(swapped) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not the one that the model was fine-tuned with"):
        Predictor.open(folder)
    assert main(["verify", str(folder)]) == 1
    assert "WRONG  vocabulary: not the one that the model was fine-tuned with" in capsys.readouterr().out
    dataclasses.replace(facts, vocabulary=None).write(folder)  # as the message says
    Predictor.open(folder)
    content = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    del content["vocabulary"]  # a model of before there was one
    (folder / "task.json").write_text(json.dumps(content), encoding="utf-8")
    assert not caplog.messages
    (folder / "vocab.txt").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    Predictor.open(folder)
    assert "has 777 tokens and the model embeddings for 778" in caplog.text


def test_facts_of_another_model_are_refused(folders, tmp_path):
    for path in (folders["sentence"] / "model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    Facts("sentence", ["a", "b"], 24, 8, 5).write(tmp_path)
    with pytest.raises(ValueError, match="names 2 classes, and the model has 3: take the files of one run"):
        Predictor.open(tmp_path)
    Facts("essay", ["a", "b"], 24, 8, 5).write(tmp_path)
    with pytest.raises(ValueError, match="expected a task out of sentence, pair, token, span, choice, but got 'essay'"):
        Predictor.open(tmp_path)


@pytest.mark.parametrize(
    ("task", "items", "message"),
    [
        ("sentence", [3.5, None], "item 2: expected a text as text, got None"),
        ("sentence", [b"abc"], "item 1: expected a text as text, got b'abc'"),
        ("pair", [("早", ["今"])], r"item 1: expected a text as pair, got \['今'\]"),
        ("sentence", ["早", "a\0"], "the list:2: expected text, got NUL"),
        ("sentence", None, "expected an example or a list of them, got None"),
        ("pair", 3, "expected an example or a list of them, got 3"),
        ("sentence", b"abc", "expected an example or a list of them, got b'abc'"),
        (
            "sentence",
            {"txt": "早"},
            "item 1: expected text, as a tuple in this order or a dict of these keys, got the",
        ),
        ("pair", ["早", "今"], "item 1: expected text and pair, .* got '早'"),
        ("pair", ("早", "今", "天"), "item 1: expected text and pair, .* got 3 of them"),
        ("token", [["早", 3]], "item 1: expected a text, whose characters are its tokens, or a list of tokens"),
        ("span", [{"question": "早"}], "item 1: expected question and context, .* got the keys question"),
        ("choice", ("今", "早", ["天"]), "the list:1: expected a list of two choices or more"),
    ],
)
def test_items_of_another_kind_are_refused(folders, task, items, message):
    with pytest.raises(ValueError, match=message):
        paddle_nezha.pipeline(model=folders[task])(items)


# ---- stopped and killed


@pytest.mark.parametrize(
    ("task", "form"), [("sentence", "jsonl"), ("pair", "tsv"), ("token", "tsv"), ("span", "jsonl"), ("choice", "jsonl")]
)
def test_a_stopped_run_goes_on_with_rows_and_scores(folders, tmp_path, monkeypatch, task, form):
    file, out = write(task, tmp_path / "test", 90), tmp_path / "out"
    predictor = Predictor.open(folders[task], tokens_per_batch=24)
    whole = predictor.run(predictor.source(file), tmp_path / "whole", form=form)
    calls = []

    def stopping(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(predict_module, "answers", stopping)
        predictor.run(predictor.source(file), out, form=form)
    with pytest.raises(FileExistsError, match="begun with another form"):
        predictor.run(predictor.source(file), out, form="tsv" if form == "jsonl" else "jsonl")
    done = predictor.run(predictor.source(file), out, form=form)
    assert 0 < done.resumed < done.rows == 90
    assert (done.scores, done.remarks) == (whole.scores, whole.remarks)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


CHILD = """
import sys
from paddle_nezha import pipeline
predict = pipeline(model=sys.argv[1], tokens_per_batch=24)
predict.run(predict.source(sys.argv[2]), sys.argv[3])
"""


def counted(note):
    try:
        return json.loads(note.read_text())["lines"]
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_a_killed_run_goes_on_and_gives_the_same_bytes(folders, tmp_path, kills):
    file, out = write("sentence", tmp_path / "texts.tsv", 600 * kills), tmp_path / "out.jsonl"
    note, before, killed = tmp_path / "out.jsonl.part.json", 0, 0
    command = [sys.executable, "-W", "ignore", "-c", CHILD, *map(str, (folders["sentence"], file, out))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(kills):
        child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while child.poll() is None and counted(note) == before:
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        before = counted(note)
    assert killed >= min(kills, 5)
    assert subprocess.run(command, env=environment, stderr=subprocess.DEVNULL).returncode == 0
    predictor = Predictor.open(folders["sentence"], tokens_per_batch=24)
    predictor.run(predictor.source(file), tmp_path / "whole.jsonl")
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
