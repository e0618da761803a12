"""Two runs compared: what has become worse is found, what a different processor does to an error is not."""

import dataclasses
import io
import math

import pytest
from reports import arithmetic, hostile, passing, report, row
from rich.console import Console

from parity.regress import ERROR_GREW, FAILED, RATIO_GREW, SHOWN, VANISHED, compare, show_findings
from parity.report import summary

ULP = 2.0**-52


def kinds(old, new, **options):
    common = row("embeddings", 0.0)  # reports with nothing in common are not compared
    return [finding.kind for finding in compare(report(*old, common), report(*new, common), **options)]


def shown(findings, old, new):
    out = io.StringIO()
    show_findings(findings, old, new, Console(file=out, width=100))
    return out.getvalue()


def test_same_run_is_not_worse():
    assert compare(passing(), passing()) == []


@pytest.mark.parametrize(
    "old, new, found",
    [
        (1e-13, 3.9e-13, []),
        (1e-13, 4.1e-13, [ERROR_GREW]),
        (1e-13, 1e-15, []),
        # a few roundings are noise, whatever their quotient; beyond factor times the floor they are not
        (0.0, 15 * ULP, []),
        (0.0, 17 * ULP, [ERROR_GREW]),
        (0.1 * ULP, 15 * ULP, []),
    ],
)
def test_error_grown_inside_the_limit(old, new, found):
    assert kinds([row("pooler", old)], [row("pooler", new)]) == found


def test_floor_is_in_ulps_of_the_rows_dtype():
    old, new = (arithmetic("pooler", error, 1e-6, None, limit=1e-3) for error in (1e-8, 1.5e-6))
    assert kinds([old], [new]) == []
    old, new = (row("pooler", error, limit=1e-3) for error in (1e-8, 1.5e-6))
    assert kinds([old], [new]) == [ERROR_GREW]


def test_factor_is_the_callers():
    assert kinds([row("pooler", 1e-13)], [row("pooler", 3e-13)], factor=2) == [ERROR_GREW]
    with pytest.raises(ValueError, match="at least 1, not 0.5; leave it out for 4"):
        compare(passing(), passing(), factor=0.5)
    with pytest.raises(ValueError, match="at least 1, not nan"):
        compare(passing(), passing(), factor=math.nan)


@pytest.mark.parametrize("stage", ["loss", "nsp.logits", "grad:cls.seq_relationship.bias", "grad:classifier.bias"])
def test_few_numbers_may_have_been_right_by_luck(stage):
    """As wrong as the worst stage of its case was, and factor times that, but no more."""
    case = row("layer.0.query", 5e-14)
    assert kinds([case, row(stage, 0.0)], [case, row(stage, 1e-13)]) == []
    assert kinds([case, row(stage, 0.0)], [case, row(stage, 3e-13)]) == [ERROR_GREW]
    # another case's errors excuse nothing
    other = row("layer.0.query", 5e-14, case="other")
    assert kinds([other, row(stage, 0.0)], [other, row(stage, 1e-13)]) == [ERROR_GREW]


def test_many_numbers_are_held_to_their_own_error():
    case = row("layer.0.query", 5e-14)
    assert kinds([case, row("pooler", 0.0)], [case, row("pooler", 1e-13)]) == [ERROR_GREW]


@pytest.mark.parametrize(
    "old, new, found",
    [
        (0.6, 1.19, []),
        (0.6, 1.21, [RATIO_GREW]),
        (0.1, 0.99, []),  # grown tenfold and still no worse than PyTorch
        (0.9, 1.4, []),
    ],
)
def test_ratio_grown(old, new, found):
    assert kinds([arithmetic("pooler", ratio=old)], [arithmetic("pooler", ratio=new)]) == found


def test_row_that_is_only_reported_may_move():
    reported = {"limit": math.inf, "question": "training"}
    old, new = (arithmetic("weights:pooler", e, 1e-6, r, **reported) for e, r in ((1e-6, 1.0), (1e-4, 100.0)))
    assert kinds([old], [new]) == []
    assert kinds([old], [row("loss")]) == [VANISHED]


def test_new_failure_is_the_gravest_finding_of_its_row():
    assert kinds([row(error=1e-15)], [row(error=1e-3, passed=False)]) == [FAILED]


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_no_number_is_worse_than_any(error):
    assert kinds([row(error=1e-15)], [row(error=error)]) == [FAILED]
    assert kinds([row(error=1.0, passed=False)], [row(error=error)]) == [ERROR_GREW]
    assert kinds([row(error=error)], [row(error=error)]) == []
    assert kinds([row(error=error)], [row(error=1e-15)]) == []


def test_old_failure_that_stays_is_no_news():
    assert kinds([row(error=1e-3, passed=False)], [row(error=1e-3, passed=False)]) == []


@pytest.mark.parametrize("field", ["question", "case", "head", "dtype", "form", "stage"])
def test_row_vanishes_when_any_part_of_its_name_changes(field):
    old = row("pooler")
    assert kinds([old], [dataclasses.replace(old, **{field: "training"})]) == [VANISHED]


def test_rows_only_in_the_new_run_are_fine():
    assert kinds([row("pooler")], [row("pooler"), row("loss", 1.0, False)]) == []


def test_of_two_rows_with_one_name_the_worse_counts():
    assert kinds([row("pooler")], [row("pooler"), row("pooler", 1e-12)]) == [ERROR_GREW]
    assert kinds([row("pooler")], [row("pooler", 1e-12), row("pooler")]) == [ERROR_GREW]


@pytest.mark.parametrize("old, new", [(report(), passing()), (passing(), report())])
def test_nothing_is_compared_with_nothing(old, new):
    with pytest.raises(ValueError, match="report has no rows to compare; make one with `python -m parity run"):
        compare(old, new)


def test_findings_are_shown_with_both_numbers_and_the_verdict_last():
    old = report(row("pooler", 1e-13), arithmetic("pooler", ratio=0.6), row("loss", 1e-15))
    new = report(row("pooler", 5e-13), arithmetic("pooler", ratio=1.3), row("loss", 1.0, False))
    new.environment["paddle"] = "3.4.0"
    text = shown(compare(old, new), old, new)
    assert "odd-sizes [model, dense] formula float64 pooler: 1.0e-13 -> 5.0e-13 (5.0x), limit 1e-10" in text
    assert "0.60 -> 1.30, limit 1.5x; PyTorch's own error 2.0e-07 -> 2.0e-07" in " ".join(text.split())
    assert "passed with error 1.0e-15; limit 1e-10; now error 1.0e+00; limit 1e-10" in " ".join(text.split())
    assert "paddle differs: 3.3.1 -> 3.4.0" in text
    assert text.splitlines()[-1] == "WORSE  3 findings; 3 stages compared"


def test_vanished_case_takes_one_line_and_long_lists_are_cut():
    gone = [row(f"layer.{i}.query") for i in range(30)]
    old, new = report(row("loss"), *gone), report(row("loss"))
    text = shown(compare(old, new), old, new)
    assert "odd-sizes [model, dense] formula float64: 30 stages, layer.0.query to layer.29.query" in text
    worse = report(row("loss"), *(dataclasses.replace(one, error=1e-11) for one in gone))
    assert f"... and {30 - SHOWN} more" in shown(compare(old, worse), old, worse)


def test_good_news_is_said_too():
    assert shown([], passing(), passing()).strip() == "NOT WORSE  no error has grown; 8 stages compared"


def test_hostile_names_are_shown_as_text():
    old = hostile()
    new = report(row(), old.rows[1])
    assert "\x1b" not in shown(compare(old, new), old, new)


def test_reports_with_nothing_in_common_are_not_compared():
    old, new = (
        report(row(case="deep"), row(case="relu"), row(case="one"), row(case="two")),
        report(row(head="masked_lm")),
    )
    with pytest.raises(ValueError) as caught:
        compare(old, new)
    assert str(caught.value) == (
        "the two reports have nothing in common: the old one is of seeded cases (deep, relu, one and 1 more; model; "
        "float64), the new one of seeded cases (odd-sizes; masked_lm; float64). Compare two runs of the same cases."
    )


def test_what_is_only_reported_is_counted_apart_as_in_the_verdict():
    both = report(row(), row("loss"), row("weights:pooler", limit=math.inf, question="training"))
    assert shown([], both, both).strip() == "NOT WORSE  no error has grown; 2 stages compared (1 more only reported)"
    assert summary.verdict(both)[1].startswith("2 stages judged (1 more only reported)")


def test_a_quick_run_beside_a_whole_one_is_told():
    old, new = report(row()), report(row(), quick=True)
    assert "run differs: whole -> quick" in shown([], old, new)
