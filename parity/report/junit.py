"""The report as JUnit XML: a suite for each question, a test case for each (case, head, attention form)."""

import math
import re
import xml.etree.ElementTree as ET

from parity.report import summary
from parity.result import Report, Row

# What XML 1.0 cannot hold, not even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    suites: dict[str, dict[tuple[str, str, str], list[Row]]] = {}
    for row in report.rows:
        suites.setdefault(row.question, {}).setdefault((row.case, row.head, row.form), []).append(row)
    root = ET.Element("testsuites", {"name": "parity", "time": f"{report.seconds:.3f}"})
    for question, cases in suites.items():
        root.append(_suite(report, question, cases))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, question: str, cases: "dict[tuple[str, str, str], list[Row]]") -> ET.Element:
    failed = sum(any(not row.passed for row in rows) for rows in cases.values())
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": "0"}
    # The run is timed as a whole; the readers want a time at every level.
    suite = ET.Element("testsuite", {"name": _text(f"parity.{question}"), **counts, "time": "0"})
    if report.created:
        suite.set("timestamp", _text(report.created))
    properties = ET.SubElement(suite, "properties")
    for name, value in [
        ("subject", report.subject),
        ("run", "quick" if report.quick else "whole"),
        ("command", report.command),
        *report.environment.items(),
    ]:
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for (case, head, form), rows in cases.items():
        suite.append(_case(report, question, f"{case} [{head}, {form}]", rows))
    return suite


def _case(report: Report, question: str, name: str, rows: "list[Row]") -> ET.Element:
    case = ET.Element("testcase", {"classname": _text(f"parity.{question}"), "name": _text(name), "time": "0"})
    failed = [row for row in rows if not row.passed]
    if failed:
        lines = [_line(row) + (f" ({row.why})" if row.why else "") for row in failed]
        if report.first_failure is failed[0]:
            lines += [f"{label}: {text}" for label, text in summary.first_failure(report)]
        else:
            lines.append(f"run it again: {summary.rerun(report, failed[0])}")
        message = f"{len(failed)} of {len(rows)} stages part, the first is {_line(failed[0])}"
        failure = ET.SubElement(case, "failure", {"type": "parity", "message": _text(message)})
        failure.text = _text("\n".join(lines))
    ET.SubElement(case, "system-out").text = _text("\n".join(_maxima(rows)))
    return case


def _maxima(rows: "list[Row]") -> "list[str]":
    """What a case comes to; its every row is in parity.json."""
    whole = summary.Family("", tuple(rows))
    lines = [f"{summary.plural(len(rows), 'stage')}, the largest error at {_line(whole.worst)}"]
    if math.isfinite(summary.margin(whole.tightest)) and whole.tightest is not whole.worst:
        lines.append(f"nearest its limit is {_line(whole.tightest)}")
    return lines


def _line(row: Row) -> str:
    return f"{row.stage} ({row.dtype}): {summary.measured_text(row)}"


def _text(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)
