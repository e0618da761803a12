"""Reading a file of texts: one for each line, whatever is in it, and an account of what was odd."""

import gzip
import io
import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_nezha.pipelines import lines
from paddle_nezha.pipelines.lines import Account, Source


@pytest.fixture
def write(tmp_path):
    def make(data, name="texts.txt"):
        (tmp_path / name).write_bytes(data)
        return Source(tmp_path / name)

    return make


def read(source):
    account = Account()
    found = list(source.read(account))
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    assert account.lines == len(found)
    return [line.text for line in found], account


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\n\nb\n", ["a", "", "", "b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),  # a mark of order is one at the very start alone
        ("一\u2028二\x0b三\x85四\n五\r六\n".encode(), ["一\u2028二\x0b三\x85四", "五\r六"]),
    ],
)
def test_lines_end_at_line_feeds_alone(write, data, texts):
    assert read(write(data))[0] == texts


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]), max_size=8)))
def test_what_is_written_is_read(texts):
    account, data = Account(), "".join(text + "\n" for text in texts).encode()
    source = Source("-")
    source._spooled = io.BytesIO(data)
    assert [line.text for line in source.read(account)] == texts


def test_a_gzip_file_is_told_by_its_bytes_and_has_the_same_digest(write):
    data = "一\n二\n".encode()
    plain, packed = (read(write(content, name))[1] for content, name in [(data, "a"), (gzip.compress(data), "b.txt")])
    assert plain.digest == packed.digest and plain.lines == packed.lines == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"\xff\xff" + data[22:]])
def test_a_damaged_gzip_file_is_named(write, damage):
    source = write(damage(gzip.compress(os.urandom(400) + b"\n", mtime=0)), "texts.gz")
    with pytest.raises(ValueError, match=r"texts\.gz, after line \d+: the gzip data is damaged"):
        source.survey()


def test_what_is_odd_is_counted_with_its_first_lines(write):
    bad = [b"\xffgood"] * 7 + [b"a\0b", b"", b"  "] + [b"fine"] * 8
    texts, account = read(write(b"\n".join(bad)))
    assert texts[0] == "\ufffdgood" and texts[7] == "a\0b"
    assert account.remarks() == [
        "bytes that are not UTF-8, dropped: 7 of 18 lines (1, 2, 3, 4, 5, …)",
        "NUL characters, dropped: 1 of 18 lines (8)",
        "empty: 2 of 18 lines (9, 10)",
    ]


@pytest.mark.parametrize("length", [3, 4, 5, 9, 16, 17])
def test_a_line_without_end_fills_no_memory(write, monkeypatch, length):
    monkeypatch.setattr(lines, "LONGEST_TEXT", 4)
    monkeypatch.setattr(lines, "_LONGEST_LINE", 16)
    for letter in ("a", "é", "一", "😀"):
        texts, account = read(write(f"{letter * length}\r\nnext\n".encode()))
        assert texts == [(letter * length)[:4], "next"]
        assert account.count(lines._CUT) == (length > 4)
        assert account.count(lines.NOT_UTF8) == 0  # though a character may be cut through


@pytest.mark.parametrize(("data", "remedy"), [("一\n".encode("utf-16"), "is UTF-16"), ("一二三\n" * 12, "GB18030")])
def test_another_encoding_is_refused_with_the_way_to_convert_it(write, data, remedy):
    source = write(data if isinstance(data, bytes) else data.encode("gbk"))
    with pytest.raises(ValueError, match=rf"{remedy}.*iconv -f"):
        source.survey()


def test_a_few_bad_bytes_do_not_make_another_encoding(write):
    assert write(b"\xff\n" * 9).survey().count(lines.NOT_UTF8) == 9
    assert write(b"\xff\n" * 10 + b"a\n" * 10).survey().count(lines.NOT_UTF8) == 10


def test_jsonl_by_its_name_or_by_a_key(tmp_path):
    rows = [{"text": "一\n二", "title": "t"}, {"text": "", "title": "u"}]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b.txt").write_bytes(data)
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert read(Source(tmp_path / name))[0] == ["一\n二", ""]
    assert read(Source(tmp_path / "b.txt", "title"))[0] == ["t", "u"]
    assert read(Source(tmp_path / "b.txt"))[0] == data.decode().splitlines()


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("{", "no JSON"),
        ("", "an empty line"),
        ("[1]", "a list"),
        ('"a"', "a text"),
        ('{"txt": "a"}', r"the keys txt. Name the key"),
        ('{"text": 1}', "a number there"),
        ('{"text": null}', "null there"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_line_without_a_text_is_named(write, line, got):
    source = write(f'{{"text": "a"}}\n{line}\n'.encode(), "texts.jsonl")
    wanted = r'texts\.jsonl, line 2: expected a JSON object with a text under "text", got '
    with pytest.raises(ValueError, match=wanted + got):
        source.survey()


def test_the_check_sees_every_line(write):
    seen = []
    write(b"a\nb\n").survey(seen.append)
    assert [line.text for line in seen] == ["a", "b"]


def test_what_is_piped_in_can_be_read_again_once_it_is_spooled(monkeypatch, tmp_path):
    for data in (b"a\nb\n", gzip.compress(b"a\nb\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        source = Source("-")
        with source.spooled(tmp_path):
            assert read(source)[0] == read(source)[0] == ["a", "b"]
            assert list(tmp_path.iterdir()) == []
