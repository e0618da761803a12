"""An output that grows beside its place: what a stop leaves, and who may go on with it."""

import json

import pytest

from paddle_nezha.pipelines.resumable import resumable

SETTINGS = {"pooling": "mean", "input": "abc"}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.bin"


def stopped(out, data=b"abc", settings=SETTINGS, surroundings=None):
    """A run that ends half-way, having appended a line for each byte."""
    with pytest.raises(KeyboardInterrupt):
        with resumable(out, settings, surroundings or {}) as growing:
            for place in range(len(data)):
                growing.append(data[place : place + 1], 1)
            raise KeyboardInterrupt


def test_it_bears_its_name_when_it_is_complete(out, tmp_path):
    with resumable(out, SETTINGS, {}) as growing:
        growing.append(b"abc", 2)
        assert names(tmp_path) == ["out.bin.part", "out.bin.part.json"]
    assert names(tmp_path) == ["out.bin"] and out.read_bytes() == b"abc"


def test_a_stopped_one_is_gone_on_with(out, tmp_path, caplog):
    caplog.set_level("INFO", "paddle_nezha")
    stopped(out)
    assert "The first 3 lines are kept" in caplog.text and not out.exists()
    with resumable(out, SETTINGS, {}) as growing:
        assert (growing.lines, growing.size, growing.resumed) == (3, 3, 3)
        growing.append(b"d", 1)
    assert out.read_bytes() == b"abcd" and names(tmp_path) == ["out.bin"]


def test_what_the_note_does_not_count_is_cut_off(out, tmp_path):
    stopped(out)
    with open(tmp_path / "out.bin.part", "ab") as part:
        part.write(b"torn")
    with resumable(out, SETTINGS, {}) as growing:
        growing.append(b"d", 1)
    assert out.read_bytes() == b"abcd"


def test_a_part_shorter_than_its_note_is_begun_anew(out, tmp_path, caplog):
    stopped(out)
    (tmp_path / "out.bin.part").write_bytes(b"a")
    with resumable(out, SETTINGS, {}) as growing:
        assert growing.lines == 0
    assert "shorter than its note says" in caplog.text and out.read_bytes() == b""


def test_other_settings_are_refused_with_what_differs(out):
    stopped(out)
    with pytest.raises(
        FileExistsError, match=r"another pooling \(mean, now cls\); another top \(None, now 3\)\. .*--force"
    ):
        with resumable(out, {**SETTINGS, "pooling": "cls", "top": 3}, {}):
            pass
    with resumable(out, SETTINGS, {}) as growing:  # and nothing was lost by asking
        assert growing.lines == 3


def test_force_begins_anew_only_what_has_other_settings(out):
    stopped(out)
    with resumable(out, SETTINGS, {}, force=True) as growing:
        assert growing.lines == 3
    stopped_again = {**SETTINGS, "pooling": "cls"}
    out.unlink()
    stopped(out)
    with resumable(out, stopped_again, {}, force=True) as growing:
        assert growing.lines == growing.size == 0
    assert out.read_bytes() == b""


def test_other_surroundings_are_said_and_gone_on_in(out, caplog):
    stopped(out, surroundings={"threads": "1"})
    with resumable(out, SETTINGS, {"threads": "2"}) as growing:
        assert growing.lines == 3
    assert "another threads (1, now 2): last bits may differ" in caplog.text


def test_a_complete_output_is_replaced_by_force_alone_and_at_the_end(out):
    out.write_bytes(b"old")
    with pytest.raises(FileExistsError, match="is there already: name another file, or replace it with --force"):
        with resumable(out, SETTINGS, {}):
            pass
    with resumable(out, SETTINGS, {}, force=True) as growing:
        growing.append(b"new", 1)
        assert out.read_bytes() == b"old"
    assert out.read_bytes() == b"new"


def test_what_is_not_ours_is_not_written_over(out, tmp_path):
    (tmp_path / "out.bin.part").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError, match="nothing says what of"):
        with resumable(out, SETTINGS, {}):
            pass
    (tmp_path / "out.bin.part.json").write_text(json.dumps({"lines": "many"}))
    with pytest.raises(FileExistsError, match="not what this program wrote"):
        with resumable(out, SETTINGS, {}):
            pass
    assert (tmp_path / "out.bin.part").read_bytes() == b"somebody's"


def test_nothing_is_left_of_a_run_that_fails_before_its_first_line(out, tmp_path):
    with pytest.raises(ValueError):
        with resumable(out, SETTINGS, {}) as growing:
            growing.append(b"header", 0)
            raise ValueError
    assert names(tmp_path) == []


def test_a_second_writer_is_refused(out):
    pytest.importorskip("fcntl")
    with resumable(out, SETTINGS, {}) as growing:
        growing.append(b"a", 1)
        with pytest.raises(BlockingIOError, match="Another process is writing"):
            with resumable(out, SETTINGS, {}):
                pass
        growing.append(b"b", 1)
    assert out.read_bytes() == b"ab"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="name the file"):
        with resumable(tmp_path, SETTINGS, {}):
            pass
