"""A file through a model: its input is never what it writes, and what cannot be written is said by its name."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from paddle_nezha.pipelines.lines import Source
from paddle_nezha.pipelines.records import RecordSource
from paddle_nezha.pipelines.resumable import resumable, written_names
from paddle_nezha.pipelines.running import Job, run_file, run_stream

JOB = Job(lambda lines: b"".join(b"%d\n" % line.number for line in lines), {}, {}, 4096)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "in.txt").write_text("一\n二\n", encoding="utf-8")
    return tmp_path / "in.txt"


def link(kind, target, name):
    if kind == "itself":
        return target
    if kind == "another spelling":
        return target.parent / ".." / target.parent.name / target.name
    made = target.with_name(name)
    (os.symlink if kind == "symlink" else os.link)(target, made)
    return made


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["itself", "another spelling", "symlink", "hard link"])
def test_the_input_is_not_written_over(text, kind, force):
    out = link(kind, text, "out.txt")
    for source in (Source(text), RecordSource(text, "sentence")):
        with pytest.raises(ValueError, match=r"(out|in)\.txt is the input itself \(.*in\.txt\): name another file"):
            run_file(JOB, source, out, force=force)
    assert text.read_text(encoding="utf-8") == "一\n二\n" and not os.path.exists(f"{out}.part")


def test_an_input_that_changes_while_it_is_read_leaves_nothing(text, caplog):
    out = text.with_name("out.txt")
    text.write_text("一\n" * 40_000, encoding="utf-8")  # more than is read at once

    def answer(lines):
        with open(text, "a", encoding="utf-8") as file:
            file.write("三\n")
        return b"x\n" * len(lines)

    with caplog.at_level("INFO", "paddle_nezha"), pytest.raises(ValueError, match="changed while it was read, so noth"):
        run_file(Job(answer, {}, {}, 1), Source(text), out, progress=False)
    assert not caplog.messages and [path.name for path in text.parent.iterdir()] == ["in.txt"]
    assert run_file(JOB, Source(text), out, progress=False).account.lines > 40_000


def test_a_fault_that_comes_while_it_is_read_is_a_change_too(text):
    text.write_text("一\n" * 40_000, encoding="utf-8")

    def answer(lines):
        with open(text, "ab") as file:
            file.write(b"\xff\xfe\n")
        return b"x\n" * len(lines)

    with pytest.raises(ValueError, match="changed while it was read, so nothing is kept"):
        run_file(Job(answer, {}, {}, 1), Source(text), text.with_name("out.txt"), progress=False)
    assert [path.name for path in text.parent.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_nor_by_what_is_written_on_the_way(text, place):
    name = written_names(text.with_name("out"))[place]
    text.rename(name)
    with pytest.raises(ValueError, match="is the input itself"):
        run_file(JOB, Source(name), text.with_name("out"), force=True)
    assert name.read_text(encoding="utf-8") == "一\n二\n"


def test_nor_a_file_of_a_folder_or_of_several(tmp_path):
    pair = [tmp_path / "source.txt", tmp_path / "target.txt"]
    pair[0].write_text("海 钓\n", encoding="utf-8")
    pair[1].write_text("O O\n", encoding="utf-8")
    for path in (tmp_path, pair):
        with pytest.raises(ValueError, match="is the input itself"):
            run_file(JOB, RecordSource(path, "token"), pair[1], force=True)
    assert pair[1].read_text(encoding="utf-8") == "O O\n"


@pytest.mark.parametrize("make", [lambda: Source("-"), lambda: RecordSource("-", "sentence")])
def test_nor_what_is_piped_in_from_a_file(text, monkeypatch, make):
    with open(text, encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with pytest.raises(ValueError, match=r"is the input itself \(standard input\)"):
            run_file(JOB, make(), text, force=True)


def test_standard_output_is_not_appended_to_its_own_input(text, monkeypatch):
    with open(text, "a", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(ValueError, match="standard output is the input itself"):
            run_stream(JOB, Source(text))
    assert text.read_text(encoding="utf-8") == "一\n二\n"


def test_another_file_of_the_same_content_is_written_over(text):
    out = text.with_name("out.txt")
    out.write_bytes(text.read_bytes())
    run_file(JOB, Source(text), out, force=True)
    assert out.read_bytes() == b"1\n2\n"


def test_what_is_no_regular_file_is_not_replaced(text, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match=r"pipe is no regular file.*or - for standard output"):
        run_file(JOB, Source(text), tmp_path / "pipe", force=True)


def test_inputs_that_are_no_files_are_named(text, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    out = tmp_path / "out"
    for path, told in (
        (tmp_path, "expected a file of texts, got a folder"),
        (tmp_path / "no.txt", r"no\.txt: no such file"),
        (tmp_path / "pipe", r"pipe: expected a file that can be read more than once.*standard input \(-\)"),
    ):
        with pytest.raises((OSError, ValueError), match=told):
            run_file(JOB, Source(path), out)
    assert not out.exists()


# ---- a full disk


@pytest.fixture
def small_files():
    """Files longer than this many bytes cannot be written, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("size", [5000, 100_000])  # less than what Python keeps back, and more
def test_a_full_disk_is_told_with_the_file_and_gone_on_from(tmp_path, small_files, caplog, size):
    out = tmp_path / "out"
    caplog.set_level("INFO", "paddle_nezha")
    with pytest.raises(OSError, match=r"File too large: '.*out\.part'"):
        with resumable(out, {}, {}) as growing:
            growing.append(b"a" * 1000, 1)
            small_files(3000)
            growing.append(b"b" * size, 1)
    small_files(-1)
    assert names(tmp_path) == ["out.part", "out.part.json"]
    assert f"The first 1 lines are kept in {out}.part; the same command goes on from there" in caplog.text
    with resumable(out, {}, {}) as growing:
        assert (growing.lines, growing.size) == (1, 1000)
        growing.append(b"c", 1)
    assert out.read_bytes() == b"a" * 1000 + b"c"


def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(tmp_path, small_files):
    small_files(10)  # less than the note
    with pytest.raises(OSError, match=r"File too large: '.*out\.part"):
        with resumable(tmp_path / "out", {}, {}):
            pass
    assert names(tmp_path) == []


def test_what_is_piped_in_may_be_more_than_the_disk_holds(tmp_path, monkeypatch, small_files):
    (tmp_path / "in").write_bytes(b"a" * 100_000)
    for source in (Source("-"), RecordSource("-", "sentence")):
        with open(tmp_path / "in", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            small_files(3000)
            with pytest.raises(OSError, match=f"File too large: '{re.escape(str(tmp_path))}'"):
                with source.spooled(tmp_path):
                    pass
            small_files(-1)


def test_a_full_standard_output_is_named(text, monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    file = open("/dev/full", "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", file)
    with pytest.raises(OSError, match="No space left on device: 'standard output'"):
        run_stream(JOB, Source(text))
    with pytest.raises(OSError):  # it tries once more
        file.close()


def test_a_signal_right_behind_the_first_note_costs_nothing(tmp_path, monkeypatch):
    """The note is on the disk, and the object that has written it does not know yet."""
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        if json.loads(Path(target).read_text())["lines"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "out", {}, {}) as growing:
        monkeypatch.setattr(os, "replace", interrupted)
        growing.append(b"abc", 1)
    monkeypatch.undo()
    with resumable(tmp_path / "out", {}, {}) as growing:
        assert growing.lines == 1
    assert (tmp_path / "out").read_bytes() == b"abc"
