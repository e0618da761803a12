"""Evaluation texts are found in ours, whichever is the longer and however it is written."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest

from weights.tiny import cleaning, leaks

SENTENCE = "他们在一九九八年的春天去了北京。"
OTHER = "另外一个毫不相干并且足够长的句子。"


@pytest.fixture
def find(tmp_path):
    """Finds what leaks of our sentences, given the content of files of one evaluation set."""

    def run(ours, **files):
        (tmp_path / "ours.txt").write_text("\n".join(ours), encoding="utf-8")
        (tmp_path / "data" / "set").mkdir(parents=True)
        for name, content in files.items():
            (tmp_path / "data" / "set" / name.replace("_", ".")).write_bytes(content)
        return leaks.find([tmp_path / "ours.txt"], tmp_path / "data")

    return run


def table(*texts):
    return ("label\ttext_a\n" + "".join(f"1\t{text}\n" for text in texts)).encode()


@pytest.mark.parametrize(
    "theirs",
    [
        SENTENCE,
        "他们 在一九九八年的春天，去了北京",  # spaces and marks
        f"前面还有别的话。{SENTENCE}后面也有。",  # ours in theirs
        "在一九九八年的春天去了北京",  # theirs in ours
        f"很短。{SENTENCE[2:-1]}！",  # a sentence of theirs in ours
    ],
)
def test_a_sentence_of_theirs_is_found(find, theirs):
    found = find([SENTENCE, OTHER], dev_tsv=table(theirs))
    assert found.found == {"set": frozenset([cleaning.key(SENTENCE)])}
    assert found.digests == [leaks.digest(cleaning.key(SENTENCE))]


@pytest.mark.parametrize("theirs", ["去了北京。", SENTENCE[:8] + SENTENCE[9:], SENTENCE[::-1]])
def test_what_is_short_or_only_alike_is_not(find, theirs):
    found = find([SENTENCE, "去了北京。"], dev_tsv=table(theirs))
    assert found.found == {"set": frozenset()} and found.digests == []


def test_every_form_of_evaluation_file_is_read_and_no_training_file(find):
    tagged = "\n".join(f"{character} O" for character in SENTENCE) + "\n\n甲 O\n"
    forms = {
        "dev_txt": tagged.encode(),
        "test_tsv_gz": gzip.compress(table(SENTENCE)),
        "trial_json": json.dumps({"data": [{"context": SENTENCE}]}).encode(),
        "test.b_json": "\n".join(json.dumps({"sentence1": text}) for text in ("甲", SENTENCE)).encode(),
    }
    assert find([SENTENCE], train_tsv=table(SENTENCE), **{"README_md": SENTENCE.encode()}).found == {}
    for name, content in forms.items():
        assert SENTENCE in _texts(name, content), name


def _texts(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name.replace("_", ".")
        path.write_bytes(content)
        return list(leaks.evaluation_texts(path))


def test_the_list_of_the_recipe_is_one_of_digests(tmp_path):
    known = leaks.known()
    assert len(known) > 10 and all(len(line) == 16 and int(line, 16) >= 0 for line in known)
    leaks.write(sorted(known), tmp_path / "leaked.txt")
    assert (tmp_path / "leaked.txt").read_bytes() == leaks.LEAKED.read_bytes()
