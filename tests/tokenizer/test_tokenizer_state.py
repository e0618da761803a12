"""No call changes another: threads, forks, pickles, and imports that need no framework."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["今天很好", "一二三四五六七八九十", "好"]
CALLS = [
    {},
    {"truncation": True, "max_length": 5},
    {"padding": "max_length", "max_length": 9},
    {"truncation": True, "max_length": 6, "stride": 1, "return_overflowing_tokens": True},
    {"return_offsets_mapping": True, "add_special_tokens": False},
]


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_calls_leave_no_state(tokenizer):
    before = [tokenizer(TEXTS, **options) for options in CALLS]
    assert [tokenizer(TEXTS, **options) for options in reversed(CALLS)][::-1] == before
    texts = list(TEXTS)
    tokenizer(texts, texts, padding=True)
    assert texts == TEXTS


def test_threads_do_not_disturb_each_other(tokenizer):
    expected = [tokenizer(TEXTS, **options) for options in CALLS]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: tokenizer(TEXTS, **CALLS[number % 5]), range(200)))
    assert all(answer == expected[number % 5] for number, answer in enumerate(answers))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_are_independent(own_tokenizer, copied):
    own_tokenizer.add_tokens(["新疫苗"])
    twin = copied(own_tokenizer)
    own_tokenizer.add_tokens(["很好"])
    assert twin("今天新疫苗很好").input_ids[3:-1] == [21128, *twin.convert_tokens_to_ids(["很", "好"])]
    assert (len(twin), len(own_tokenizer)) == (21129, 21130)


def test_encodings_are_copied_with_their_words(tokenizer):
    encoded = tokenizer(["今天", "好"], is_split_into_words=True)
    twin = pickle.loads(pickle.dumps(copy.deepcopy(encoded)))
    assert twin == encoded and twin.word_ids() == [None, 0, 0, 1, None]


FORK = """
import os, signal, sys
from paddle_nezha.tokenizer import NeZhaTokenizer
tokenizer = NeZhaTokenizer(sys.argv[1])
texts = ["今天很好"] * 500
expected = tokenizer(texts)            # starts the thread pool the child will lack
child = os.fork()
if child == 0:
    signal.alarm(20)                   # a hanging child is killed, and the parent sees it
    os._exit(0 if tokenizer(texts) == expected else 3)
_, status = os.waitpid(child, 0)
assert status == 0, f"child ended with status {status}"
assert tokenizer(texts) == expected
print(os.environ.get("TOKENIZERS_PARALLELISM"))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("setting", [None, "true", "false"])
def test_a_forked_worker_works_in_silence(vocab_file, setting, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    done = run(FORK, str(vocab_file), **({} if setting is None else {"TOKENIZERS_PARALLELISM": setting}))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(setting)


WITHOUT_FRAMEWORKS = """
import sys
sys.modules["paddle"] = sys.modules["torch"] = None    # what `import` finds where neither is installed
from paddle_nezha.tokenizer import NeZhaTokenizer
tokenizer = NeZhaTokenizer(sys.argv[1])
print(tokenizer("好", return_tensors="np").input_ids.shape)
for kind in ("pd", "pt"):
    try:
        tokenizer("好", return_tensors=kind)
    except ImportError as error:
        print(kind, error)
"""


def test_no_framework_is_needed(vocab_file):
    done = run(WITHOUT_FRAMEWORKS, str(vocab_file))
    assert done.returncode == 0, done.stderr
    shape, *messages = done.stdout.splitlines()
    assert shape == "(1, 3)"
    assert "pip install" in done.stdout and "not installed" in messages[0]
    assert messages[-1].startswith("pt return_tensors='pt' needs torch")
