"""Small reports made by hand, for the tests of what reads them."""

from parity.result import ARITHMETIC, FORMULA, Report, Row, Worst

HOSTILE = 'a|b `c` <script>alert("&")</script > <!--data--> ]]> *长度* \x1b[31m\x00'


def row(stage="layer.0.query", error=1e-15, passed=True, **changes):
    facts = {"question": FORMULA, "case": "odd-sizes", "head": "model", "dtype": "float64", "form": "dense"}
    return Row(**{**facts, "stage": stage, "error": error, "limit": 1e-10, "passed": passed, **changes})


def arithmetic(stage="layer.0.query", error=3e-7, torch_error=2e-7, ratio=1.1, passed=True, **changes):
    facts = {"question": ARITHMETIC, "dtype": "float32", "limit": 1.5, "samples": 8}
    return row(stage, error, passed, **{**facts, "torch_error": torch_error, "ratio": ratio, **changes})


def report(*rows, **changes):
    facts = {
        "command": "python -m parity run",
        "subject": "seeded cases",
        "environment": {"paddle": "3.3.1", "torch": "2.13.0"},
        "seconds": 61.2,
        "created": "2026-01-01T10:00:00",
    }
    return Report(**{**facts, "rows": list(rows), **changes})


def passing():
    return report(
        row("table", 4e-16, limit=2e-14),
        row("rows", 0.0, limit=0.0),
        row("layer.0.query", 2e-15),
        row("layer.1.query", 5e-15),
        row("layer.1.query", 3e-15, form="blocked"),
        row("grad:encoder.layer.1.attention.query.weight", 7e-15),
        arithmetic("layer.0.query", 3e-7, 2e-7, 1.1),
        arithmetic("layer.1.query", 2e-7, 4e-7, 0.8),
    )


def parting():
    """`scores` parts in one case, its loss is NaN, and another case is well."""
    worst = Worst((0, 3, 1, 2), paddle=0.25, truth=0.5, torch=0.5000001)
    return report(
        row("layer.0.query", 2e-15, case="left-padding"),
        row("layer.0.scores", 0.5, False, case="left-padding", worst=worst, why="the mask came late"),
        row("loss", float("nan"), False, case="left-padding", head="masked_lm"),
        row("layer.0.query", 1e-15),
        cause="the mask",
        notes=["paddlenlp is not installed"],
    )


def hostile():
    """Every text that comes from outside holds what Markdown, XML, HTML and terminals take for their own."""
    return report(
        row("layer.0.scores", 0.5, False, case=HOSTILE, why=HOSTILE),
        row("layer.0.scores", float("inf"), False, case="\udc80 no utf-8"),
        subject=HOSTILE,
        command=HOSTILE,
        environment={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        cause=HOSTILE,
    )
