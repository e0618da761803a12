"""The proof of every published checkpoint, made where there is a network: fetched, digested, computed and judged.

The record it writes is the only list of digests there is: no checksum of the official files was ever published.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import paddle_nezha
from paddle_nezha.checkpoint.verify import Check, Findings
from paddle_nezha.commands.checkpoints import told
from paddle_nezha.hub import list_entries, resolve
from paddle_nezha.hub.places import OFFLINE_VARIABLE
from paddle_nezha.verification import verify
from weights.demo import FOLDER, SENTENCES

ROOT = Path(__file__).resolve().parent.parent
EQUAL, PARTS = 0, 1  # exit codes of the judge


def verify_all(names: "list[str]", record: Path, *, offline: bool = False, reports: Optional[Path] = None) -> int:
    """Verifies checkpoints one after another and writes the record, whatever comes of them.

    Args:
        names: published ones; none means all.
        record: the JSON file to write.
        offline: use what is cached, and open no connection.
        reports: a folder for the judge's own reports.

    Returns:
        0 when all are right, 1 when one is wrong, 2 when one could not be had or judged.
    """
    if offline:
        os.environ[OFFLINE_VARIABLE] = "1"  # for the judge's process too
    known = {entry.name: entry for entry in list_entries()}
    code = 0
    checkpoints: "dict[str, Any]" = {}
    for name in names or known:
        print(f"== {name}", flush=True)
        try:
            findings = verify(name)
            if findings.right:
                findings.checks.append(_judged(resolve(name), reports / name if reports else None))
        except (OSError, ValueError) as error:
            print(f"could not: {error}", flush=True)
            checkpoints[name] = {"right": None, "error": str(error)}
            code = 2
            continue
        print("\n".join(told(findings)), flush=True)
        provenance = {key: getattr(known[name], key) for key in ("address", "licence", "provenance")}
        checkpoints[name] = {**provenance, **findings.to_dict()}
        code = max(code, _code(findings))
    _write(record, checkpoints)
    return code


def _code(findings: Findings) -> int:
    if not findings.right:
        return 1
    return 2 if any(check.name == "parity" and check.passed is None for check in findings.checks) else 0


def _judged(folder: Path, report: Optional[Path]) -> Check:
    """The judge's verdict on the checkpoint reading real text, from a process of its own."""
    command = [sys.executable, "-m", "parity", "run", "--weights", str(folder), "--text", str(FOLDER / SENTENCES)]
    done = subprocess.run(
        [*command, *(("--report", str(report)) if report else ())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode not in (EQUAL, PARTS):
        return Check("parity", None, f"the judge could not: {done.stderr.strip()[-2000:]}")
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("EQUAL", "PARTS"))]
    return Check("parity", done.returncode == EQUAL, verdicts[-1] if verdicts else done.stdout.strip()[-2000:])


def _write(record: Path, checkpoints: "dict[str, Any]") -> None:
    content = {
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "paddle_nezha": paddle_nezha.__version__,
        "python": platform.python_version(),
        "checkpoints": checkpoints,
    }
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    print(f"record: {record}", flush=True)
