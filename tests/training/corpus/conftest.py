"""Text, a vocabulary for it, and builds of it in processes of their own."""

import json
import os
import subprocess
import sys

import pytest
from corpus_texts import CHARACTERS, ROOT, written

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# A build as a script makes it.
SCRIPT = """
import json, signal, sys
from paddle_nezha.training.corpus import CorpusError, build_corpus
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = json.loads(sys.argv[1])
    try:
        report = build_corpus(**options, progress=False)
    except CorpusError as error:
        sys.exit(str(error))
    print(report.built, report.kept)
"""


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a vocabulary of 60 tokens."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    letters = [f"{prefix}{char}" for prefix in ("", "##") for char in "abcdefghijk"]
    tokens = [*SPECIAL, *sorted(set(CHARACTERS)), *"，。！", *letters]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def text(tmp_path):
    """A file of 400 documents, some 33,000 characters."""
    path = tmp_path / "text.txt"
    path.write_text(written(seed=1, documents=400), encoding="utf-8")
    return path


@pytest.fixture
def started(tmp_path):
    """Begins a build in a process of its own: ``started(sources=[...], out=..., tokenizer=...)``."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    running = []

    def start(**options):
        process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(options, default=str)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
