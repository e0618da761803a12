"""The report in each of its forms: the numbers are there, outside texts do no harm, NaN is a failure."""

import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reports import HOSTILE, arithmetic, hostile, parting, passing, report, row
from rich.console import Console

import parity
from paddle_nezha.config import NeZhaConfig
from parity.report import html, junit, markdown, prepare, show, summary, write_all
from parity.result import Report, Worst
from parity.stages import HEADS, forward_stages


def shown(of, **console):
    out = io.StringIO()
    show(of, Console(file=out, width=80, **console))
    return out.getvalue()


def lines_of(text, start):
    return [line.split() for line in text.splitlines() if line.startswith(start)]


# ---- families and their order


@pytest.mark.parametrize(
    "stage, family",
    [
        ("loss", "loss"),
        ("layer.11.attention_output", "layer.*.attention_output"),
        ("grad:encoder.layer.3.attention.query.weight", "grad: attention.query"),
        ("grad:encoder.layer.3.attention.query.bias", "grad: attention.query"),
        ("grad:nezha.encoder.layer.0.layer_norm.bias", "grad: layer_norm"),
        ("grad:embeddings.word_embeddings.weight", "grad: word_embeddings"),
        ("grad:cls.predictions.decoder_weight", "grad: predictions.decoder_weight"),
        ("parameter:pooler.dense.bias", "parameter: pooler.dense"),
    ],
)
def test_family_is_the_stage_without_its_layer(stage, family):
    assert summary.family(stage) == family


@pytest.mark.parametrize("head", HEADS)
def test_forward_order_is_the_judges_order(head):
    config = NeZhaConfig(vocab_size=9, hidden_size=4, num_hidden_layers=11, num_attention_heads=1, intermediate_size=3)
    stages = forward_stages(config, head)
    assert summary.forward_order(["grad:pooler.dense.weight", *reversed(stages)]) == [
        *stages,
        "grad:pooler.dense.weight",
    ]


def test_stages_of_all_heads_make_one_forward():
    met = [
        "layer.*.output",
        "mlm.logits",
        "loss",
        "grad: a",
        "pooler",
        "classifier.logits",
        "loss",
        "grad: b",
    ]
    expected = ["layer.*.output", "pooler", "mlm.logits", "classifier.logits", "loss", "grad: a", "grad: b"]
    assert summary.forward_order(met) == expected


def test_family_states_the_maxima_of_its_rows():
    formula, numbers = summary.families(passing()).values()
    by_name = {found.name: found for found in formula}
    assert list(by_name) == ["table", "rows", "layer.*.query", "grad: attention.query"]
    assert by_name["layer.*.query"].cells() == ("layer.*.query", "3", "5.0e-15", "-", "-", "1e-10", "20,000x")
    assert by_name["rows"].cells() == ("rows", "1", "0", "-", "-", "exact", "-")
    assert numbers[0].cells() == ("layer.*.query", "2", "3.0e-07", "4.0e-07", "1.10", "1.5x", "1.4x")


def test_margin_shown_is_that_of_the_row_that_fails():
    """One sample far off fails a row whose mean ratio is fine; a tighter ratio that passes is no news."""
    lucky = arithmetic(error=1e-3, ratio=1.0, passed=False)
    (found,) = summary.families(report(arithmetic(ratio=1.49), lucky))["arithmetic"]
    assert found.tightest is lucky and found.failed == 1


@pytest.mark.parametrize(
    "value, text",
    [
        (math.inf, "-"),
        (3e7, ">1e6x"),
        (31_234.0, "31,000x"),
        (1.44, "1.4x"),
        (1 / 39, "39x over"),
        (0.0, "over"),
    ],
)
def test_margin_in_words(value, text):
    assert summary.margin_text(value) == text


def test_nan_is_the_worst_error_and_fits_no_limit():
    (found,) = summary.families(report(row("loss", 1.0, False), row("loss", math.nan), row("loss")))["formula"]
    assert math.isnan(found.worst.error)
    assert found.cells()[2:] == ("NaN", "-", "-", "1e-10", "over")


# ---- what no number does to a row


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_no_number_passes_nothing(error):
    assert not row(error=error, passed=True).passed
    assert not arithmetic(ratio=error, passed=True).passed


def test_json_is_strict_and_comes_back_whole(tmp_path):
    wild = report(row("loss", math.nan), row("pooler", math.inf), arithmetic(torch_error=math.nan, limit=math.inf))
    path = write_all(wild, tmp_path)[0]

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    assert json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)["rows"][0]["error"] == "nan"
    back = Report.from_json(path)
    assert math.isnan(back.rows[0].error) and back.rows[1].error == math.inf
    assert math.isnan(back.rows[2].torch_error) and back.rows[2].limit == math.inf
    assert repr(back) == repr(wild)


def test_json_keeps_the_worst_place(tmp_path):
    assert Report.from_json(write_all(parting(), tmp_path)[0]).rows[1] == parting().rows[1]


def test_json_rounds_what_is_only_looked_at_and_nothing_else(tmp_path):
    worst = Worst((1, 2), paddle=1 / 3, truth=math.nan, torch=2 / 3)
    rows = [row("a", error=1e-15 / 3, worst=worst), row("b", error=1 / 3, passed=False, worst=worst)]
    passed, failed = Report.from_json(write_all(report(*rows), tmp_path)[0]).rows
    assert (passed.error, failed.error) == (1e-15 / 3, 1 / 3)
    assert (passed.worst.paddle, passed.worst.torch) == (0.333333333, 0.666666667)
    assert (failed.worst.paddle, failed.worst.torch) == (1 / 3, 2 / 3)
    assert math.isnan(passed.worst.truth) and passed.worst.index == (1, 2)


def test_json_takes_one_line_a_row_and_leaves_out_what_is_at_its_default():
    first, *lines, last = passing().to_json().splitlines()
    assert len(lines) == len(passing().rows) and last == "]}"
    assert json.loads(lines[0].rstrip(",")) == {
        "question": "formula", "case": "odd-sizes", "head": "model", "dtype": "float64", "form": "dense",
        "stage": "table", "error": 4e-16, "limit": 2e-14, "passed": True,
    }  # fmt: skip
    assert json.loads(report().to_json())["rows"] == []


def test_json_of_earlier_runs_is_read(tmp_path):
    """They wrote every field, with nulls, and indented."""
    from dataclasses import asdict

    raw = {"schema": 1, "passed": False, **asdict(parting())}
    raw["rows"][2]["error"] = "nan"
    del raw["quick"]
    (tmp_path / "old.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    assert repr(Report.from_json(tmp_path / "old.json")) == repr(parting())


def _changed(change):
    raw = json.loads(parting().to_json())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[" * 100_000 + "]" * 100_000, "it is not JSON"),
        ("3", "without a schema"),
        ("[]", "without a schema"),
        ("null", "without a schema"),
        ('{"rows": []}', "without a schema"),
        ('{"schema": 2, "rows": []}', "schema 2, but this judge reads schema 1"),
        (_changed(lambda raw: raw.update(rows=None)), "rows should be a list, not None"),
        (_changed(lambda raw: raw.update(rows=["a"])), "rows[0] should be an object, not 'a'"),
        (_changed(lambda raw: raw.update(extra=1)), "it has 'extra', which no report has"),
        (_changed(lambda raw: raw.pop("subject")), "it lacks 'subject'"),
        (_changed(lambda raw: raw.update(environment=3)), "environment should be an object, not 3"),
        (_changed(lambda raw: raw.update(environment={"a": 3})), "should be a text, not 3"),
        (_changed(lambda raw: raw.update(notes="a")), "notes should be a list, not 'a'"),
        (_changed(lambda raw: raw["rows"][1].update(error=None)), "rows[1].error should be a number"),
        (_changed(lambda raw: raw["rows"][1].update(error=True)), "should be a number, not True"),
        (_changed(lambda raw: raw["rows"][1].update(error="1e-3")), "should be a number, not '1e-3'"),
        (_changed(lambda raw: raw["rows"][1].update(error=10**400)), "too large"),
        (_changed(lambda raw: raw["rows"][1].update(passed=1)), "should be true or false, not 1"),
        (_changed(lambda raw: raw["rows"][1].update(samples=1.5)), "should be a whole number, not 1.5"),
        (_changed(lambda raw: raw["rows"][1].pop("stage")), "rows[1] lacks 'stage'"),
        (_changed(lambda raw: raw["rows"][1].update(strange=1)), "has 'strange', which no report has"),
        (_changed(lambda raw: raw["rows"][1].update(worst={"index": 3})), "lacks 'paddle'"),
        (_changed(lambda raw: raw["rows"][1]["worst"].update(index=3)), "should be a list, not 3"),
    ],
)
def test_what_is_no_report_is_refused_by_name_with_the_remedy(text, complaint, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        Report.from_json(file)
    assert str(caught.value).startswith(f"{file} is ") and complaint in str(caught.value)
    assert "`python -m parity run --report FOLDER`" in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["nothing.json", "."])
def test_a_report_that_cannot_be_read_says_how_to_make_one(name, tmp_path):
    with pytest.raises(OSError, match=r"cannot be read \(.*\): expected the parity.json of a run; make one with"):
        Report.from_json(tmp_path / name)


# ---- the command that repeats one stage


@pytest.mark.parametrize(
    "command, start",
    [
        ("python -m parity run", "python -m parity run "),
        (
            "python -m parity run --weights 'my model' --report out",
            "python -m parity run --weights 'my model' ",
        ),
        ("python -m parity run --case other --stage=loss --quick", "python -m parity run --quick "),
        ("pytest tests/parity", "python -m parity run "),
        ("python -m parity run 'open", "python -m parity run "),
    ],
)
def test_rerun_narrows_the_runs_own_command(command, start):
    again = summary.rerun(report(command=command), row("layer.1.scores", case="two words"))
    assert again == f"{start}--case 'two words' --stage layer.1.scores"


# ---- the terminal


def test_terminal_states_maxima_and_ends_with_the_verdict():
    text = shown(passing())
    assert text.splitlines()[-1] == "EQUAL  8 stages judged, all within their limits (1 case, 1 head, 61 s)"
    formula, numbers = lines_of(text, "layer.*.query")
    assert formula == ["layer.*.query", "3", "5.0e-15", "1e-10", "20,000x", "ok"]
    assert numbers == ["layer.*.query", "2", "3.0e-07", "4.0e-07", "1.10", "1.5x", "1.4x", "ok"]


def test_terminal_names_the_first_stage_that_parts():
    text = shown(parting())
    for fact in (
        "layer.0.scores",
        "left-padding",
        "[0, 3, 1, 2]",
        "0.25",
        "0.5000001",
        "error 5.0e-01; limit 1e-10",
        "the mask came late",
        "likely cause",
        "note: paddlenlp is not installed",
    ):
        assert fact in text
    assert "--case left-padding --stage layer.0.scores" in re.sub(r"[\s│]+", " ", text)
    assert text.splitlines()[-1].startswith("PARTS  2 of 4 stages judged beyond the limit")


def test_terminal_without_rows_is_no_success():
    assert shown(report()).splitlines()[-1].startswith("NOTHING JUDGED")


def test_rows_without_a_limit_are_not_counted_as_judged():
    reason = summary.verdict(report(row(), row("parameter:a", limit=math.inf)))[1]
    assert reason.startswith("1 stage judged (1 more only reported), all within")


def test_every_form_of_a_quick_run_says_that_it_was_one():
    quick = report(row(), quick=True)
    assert "(a quick run of 1 case, 1 head, 61 s)" in " ".join(shown(quick).split())
    for text in (markdown.render(quick), html.render(quick)):
        assert "a quick run of 1 case" in text
    properties = {one.get("name"): one.get("value") for one in ET.fromstring(junit.render(quick)).iter("property")}
    assert properties["run"] == "quick"
    assert '"quick":true' in quick.to_json()
    for text in (shown(passing()), markdown.render(passing()), html.render(passing()), passing().to_json()):
        assert "quick" not in text


# ---- the row nearest its limit, and what may be beyond the ordinary one


def allowing():
    """Two rows of one family: the larger ratio has the larger limit, and is further from it."""
    return report(
        arithmetic("grad:encoder.layer.0.layer_norm.bias", ratio=2.5, limit=6.0, why="a sum over 1024 tokens"),
        arithmetic("grad:encoder.layer.0.layer_norm.weight", ratio=1.4),
        arithmetic("weights:pooler", ratio=40.0, limit=math.inf, why="reported, not judged"),
    )


def test_ratio_limit_and_margin_are_of_one_row():
    found = summary.families(allowing())["arithmetic"][0]
    assert found.cells()[4:] == ("1.40", "1.5x", "1.1x")


def test_allowances_are_told_under_the_table_of_every_form():
    told = (
        "1 row may exceed 1.5x: a sum over 1024 tokens; the worst is 2.50 of 6x, "
        "at grad:encoder.layer.0.layer_norm.bias (odd-sizes, model)."
    )
    assert summary.allowances(summary.families(allowing())["arithmetic"]) == [told]
    assert told in " ".join(shown(allowing()).split())
    assert "| ok |\n\n" + told.replace("_", "\\_") in markdown.render(allowing())
    assert told in Page(html.render(allowing())).text
    for text in (shown(passing()), markdown.render(passing()), html.render(passing())):
        assert "may exceed" not in text


@pytest.mark.parametrize("of", [passing, parting, hostile])
def test_terminal_fits_80_columns_and_writes_no_colour_to_a_file(of, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text = shown(of())
    assert "\x1b" not in text and "\x00" not in text
    assert max(Console(width=200).measure(line).maximum for line in text.splitlines()) <= 80


def test_terminal_colours_only_where_it_may(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32mEQUAL" in shown(passing(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;32m" not in shown(passing(), force_terminal=True, color_system="standard")


def test_terminal_writes_what_its_encoding_has():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    show(hostile(), Console(file=out, width=80))
    out.flush()
    assert b"\\u957f" in raw.getvalue()


# ---- Markdown


def test_markdown_states_the_verdict_and_the_maxima():
    text = markdown.render(passing())
    assert text.startswith("## Parity: EQUAL\n\n8 stages judged")
    assert "| `layer.*.query` | 3 | 5.0e-15 | 1e-10 | 20,000x | ok |" in text
    assert "beyond the limit" not in text


def test_markdown_tells_how_many_failures_it_leaves_out():
    many = report(*(row(f"layer.{i}.query", 1.0, False) for i in range(markdown.SHOWN_FAILURES + 7)))
    text = markdown.render(many)
    listed = [line for line in text.splitlines() if "error 1.0e+00; limit 1e-10 |" in line and "odd-sizes" in line]
    assert len(listed) == markdown.SHOWN_FAILURES
    assert "and 7 more, in parity.html and parity.json" in text


def test_markdown_tables_keep_their_shape_under_hostile_names():
    text = markdown.render(hostile())
    assert "\x1b" not in text and "\x00" not in text
    widths = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        lines = block.splitlines()
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1, block
    assert widths
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside_code and "&lt;script&gt;" in outside_code


# ---- JUnit


def test_junit_counts_agree_with_what_it_holds():
    root = ET.fromstring(junit.render(parting()))
    assert root.tag == "testsuites"
    for holder in (root, *root.iter("testsuite")):
        assert int(holder.get("tests")) == len(list(holder.iter("testcase")))
        assert int(holder.get("failures")) == len(list(holder.iter("failure")))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert list(cases) == [
        "left-padding [model, dense]",
        "left-padding [masked_lm, dense]",
        "odd-sizes [model, dense]",
    ]
    failure = cases["left-padding [model, dense]"].find("failure")
    assert "1 of 2 stages part, the first is layer.0.scores" in failure.get("message")
    assert "likely cause: the mask" in failure.text and "the mask came late" in failure.text
    other = cases["left-padding [masked_lm, dense]"]
    assert "error NaN" in other.find("failure").text and "--stage loss" in other.find("failure").text
    assert cases["odd-sizes [model, dense]"].find("failure") is None


def test_junit_has_a_suite_for_each_question_and_a_case_for_each_form():
    root = ET.fromstring(junit.render(passing()))
    assert [suite.get("name") for suite in root] == ["parity.formula", "parity.arithmetic"]
    assert [case.get("name") for case in root[0].iter("testcase")] == [
        "odd-sizes [model, dense]",
        "odd-sizes [model, blocked]",
    ]
    assert root[1].find("testcase/system-out").text == (
        "2 stages, the largest error at layer.0.query (float32): "
        "error 3.0e-07, PyTorch's own 2.0e-07, ratio 1.10; limit 1.5x"
    )
    dense = root[0].find("testcase/system-out").text
    assert dense.startswith("5 stages, the largest error at grad:encoder.layer.1.attention.query.weight (float64)")
    assert dense.splitlines()[1:] == ["nearest its limit is table (float64): error 4.0e-16; limit 2e-14"]
    assert root[0].find("properties/property[@name='paddle']").get("value") == "3.3.1"


def test_junit_survives_hostile_names():
    root = ET.fromstring(junit.render(hostile()))
    name = next(root.iter("testcase")).get("name")
    assert name.startswith(HOSTILE.replace("\x1b", "\\x1b").replace("\x00", "\\x00"))


# ---- HTML


class Page(HTMLParser):
    """Elements by name with their attributes, and the text outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text, self._inside = [], [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text += data


@pytest.mark.parametrize("of", [passing, parting, hostile, report])
def test_html_holds_every_row_and_asks_nothing_of_the_network(of):
    page = Page(html.render(of()))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object", "base")]
    assert not [name for _, attrs in page.elements for name in attrs if name in ("src", "href", "srcset", "action")]
    policy = next(attrs for _, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")
    data = json.loads(page.scripts[0], parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert sum(len(group[-1]) for group in data["groups"]) == len(of().rows)


def test_html_leaves_no_marker_unfilled():
    assert not re.findall(r"<!--\w+-->", html.render(passing()))


def test_html_data_says_what_the_rows_say():
    data = html.data(parting())
    texts, limits = data["texts"], data["limits"]
    (*key, model_rows), (*loss_key, (loss,)), _ = data["groups"]
    assert [texts[i] for i in key] == ["formula", "left-padding", "model", "float64", "dense"]
    assert [texts[i] for i in loss_key] == ["formula", "left-padding", "masked_lm", "float64", "dense"]
    assert texts[loss[0]] == "loss" and loss[1] == "nan" and limits[loss[2]] == (1e-10, "1e-10") and loss[3] == 0
    query, scores = model_rows
    assert texts[query[0]] == "layer.0.query" and texts[data["family"][query[0]]] == "layer.*.query"
    assert query[1:] == [2e-15, scores[2], 1, None, 1, texts.index("")]  # nothing empty is kept at the end
    scores = dict(zip(html.COLUMNS, scores))
    assert scores["place"] == [0, 3, 1, 2] and texts[scores["why"]] == "the mask came late"
    assert texts[scores["more"]].startswith("Paddle 0.25, truth 0.5, PyTorch 0.5000001\nrun it again: python -m parity")
    assert [texts[i] for i in data["stages"]] == ["layer.0.query", "layer.0.scores", "loss"]


def test_html_rounds_no_number_of_a_row_that_parts():
    """Rounded, 1.5004 would be within 1.5."""
    (group,) = html.data(report(arithmetic(ratio=1.5004, passed=False), arithmetic(ratio=1.4996)))["groups"]
    assert [dict(zip(html.COLUMNS, cells))["ratio"] for cells in group[-1]] == [1.5004, 1.5]


def test_html_script_reads_the_columns_python_writes():
    page = (Path(parity.__file__).parent / "report" / "page.html").read_text(encoding="utf-8")
    names = re.search(r"for \(const \[([a-z =,]+)\] of rows\)", page)[1].replace(" = null", "").split(", ")
    assert tuple(names) == html.COLUMNS


def test_html_shows_hostile_names_as_text():
    page = Page(html.render(hostile()))
    assert HOSTILE in page.text.replace("\ufffd", "\x00")  # HTML has no NUL; the parser may put its stand-in there
    assert HOSTILE in json.loads(page.scripts[0])["texts"]
    assert not set("<>&") & set(page.scripts[0])  # browsers end a script at less than this parser does


# ---- files


def test_write_all_leaves_four_files_and_nothing_else(tmp_path):
    folder = tmp_path / "new" / "报告"
    paths = write_all(hostile(), folder)
    assert [path.name for path in paths] == ["parity.json", "parity.md", "parity.xml", "parity.html"]
    assert sorted(folder.iterdir()) == sorted(paths)
    assert "\\udc80 no utf-8" in paths[3].read_text(encoding="utf-8")


def test_prepare_makes_the_folder_and_leaves_nothing_in_it(tmp_path):
    prepare(tmp_path / "new" / "报告")
    assert list((tmp_path / "new" / "报告").iterdir()) == []


def test_prepare_refuses_what_write_all_could_not_write(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "taken" / "parity.json").mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        with pytest.raises(OSError, match="cannot be written.*; give --report a folder that can be written"):
            prepare(folder)


def test_write_all_keeps_the_old_file_when_it_cannot_finish(tmp_path, monkeypatch):
    before = write_all(passing(), tmp_path)[0].read_text(encoding="utf-8")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("parity.report.os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_all(parting(), tmp_path)
    assert (tmp_path / "parity.json").read_text(encoding="utf-8") == before
    assert len(list(tmp_path.iterdir())) == 4


def test_reports_need_no_framework():
    code = "import sys, parity.report, parity.regress; print(*{'paddle', 'torch'} & set(sys.modules))"
    root = Path(parity.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
