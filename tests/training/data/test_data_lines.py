"""Lines of files as they come: line ends, marks, gzip; and everything that is no UTF-8 text, refused by its name."""

import gzip
import os
import re
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_nezha.training.data.lines import TextFile
from paddle_nezha.training.data.records import DataError

CHINESE = "1\t房间很大，服务也好。\n0\t我们不会再来了，早餐的味道很差。\n"
TRADITIONAL = "1\t這間酒店的環境不錯，我們會再來。\n0\t房間太小，價錢也貴。\n"


def lines(path):
    return list(TextFile(path).lines())


@pytest.mark.parametrize("content", ["一\n二\n", "一\n二", "一\r\n二\r\n", "\ufeff一\n二\n", "\ufeff一\r\n二"])
def test_line_ends_and_a_byte_order_mark_make_no_difference(write, content):
    assert lines(write("a.txt", content)) == [(1, "一"), (2, "二")]
    assert lines(write("a.txt.gz", gzip.compress(content.encode()))) == [(1, "一"), (2, "二")]


def test_gzip_is_told_by_content_and_not_by_name(write):
    assert lines(write("a.txt", gzip.compress("一\n".encode()))) == [(1, "一")]
    assert lines(write("a.gz", "一\n")) == [(1, "一")]


@pytest.mark.parametrize("inner", ["\u2028", "\x85", "\x0b", "\x0c", "\u3000", "\ufeff", "\r"])
def test_nothing_but_a_line_feed_ends_a_line(write, inner):
    assert lines(write("a.txt", f"一{inner}二\n三\n")) == [(1, f"一{inner}二"), (2, "三")]


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\0\n\r\ufeff", exclude_categories=["Cs"]))))
def test_every_text_comes_back(write, texts):
    path = write("a.txt", "开头\n" + "".join(f"{text}\n" for text in texts))
    assert [line for _, line in lines(path)] == ["开头", *texts]


@pytest.mark.parametrize(
    "content, encoding, named",
    [
        (CHINESE, "gbk", "GB18030"),
        (CHINESE, "gb18030", "GB18030"),
        (TRADITIONAL, "big5", "BIG5"),
        (CHINESE, "utf-16", "UTF-16"),
        (CHINESE, "utf-32", "UTF-32"),
        (CHINESE, "utf-16-le", "UTF-16LE"),
        (CHINESE, "utf-16-be", "UTF-16BE"),
    ],
)
@pytest.mark.parametrize("times", [1, 3000])  # more than is looked at, cut within a character
def test_another_encoding_is_named_with_the_command_that_converts_it(write, content, encoding, named, times):
    path = write("train.tsv", (content * times).encode(encoding))
    with pytest.raises(DataError, match=re.escape(f"iconv -f {named} -t UTF-8")) as error:
        lines(path)
    assert str(error.value).startswith(f"{path}:1: expected UTF-8")
    with pytest.raises(DataError, match=f"-f {named} "):
        lines(write("train.tsv.gz", gzip.compress(path.read_bytes())))


def test_a_bad_byte_in_utf8_is_shown_with_its_line(write):
    path = write("a.tsv", ("1\t好\n" * 4).encode() + b"0\t\xe5\xa5\n")
    with pytest.raises(DataError, match=r"a\.tsv:5: .*0xe5 at place 2, and no other encoding fits.*Mend"):
        lines(path)


def test_nul_is_refused_with_its_line(write):
    with pytest.raises(DataError, match=r"a\.tsv:2: .*NUL at character 3, and no other.*Mend"):
        lines(write("a.tsv", "1\t好\n0\t坏\0坏\n"))


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_refused(write, content):
    with pytest.raises(DataError, match=r"a\.tsv:1: expected examples, got an empty file\. Write"):
        TextFile(write("a.tsv", content))


def test_damaged_gzip_is_refused(write):
    whole = gzip.compress(("好\n" * 100_000).encode(), compresslevel=0)
    for kept in (20, len(whole) - 9):  # within what is looked at first, and beyond
        with pytest.raises(DataError, match=r"a\.gz:\d+: the gzip data is damaged \(.*Fetch"):
            lines(write("a.gz", whole[:kept]))


def test_other_formats_are_refused_by_their_name(tmp_path, write):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("sheet", "1")
    with pytest.raises(DataError, match="a zip archive or an Excel workbook. Export"):
        TextFile(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match="a Parquet file"):
        TextFile(write("a.parquet", b"PAR1\0\0"))


def test_line_ends_of_old_macs_are_refused(write):
    with pytest.raises(DataError, match=r"a\.tsv:1: the lines end in CR alone.*tr "):
        lines(write("a.tsv", "1\t好\r0\t坏\r"))


def test_a_missing_file_is_refused_with_what_there_is(write, tmp_path):
    write("dev.tsv", "1\t好\n")
    with pytest.raises(DataError, match=r"train\.tsv: no such file\. .* holds dev\.tsv\. Correct"):
        TextFile(tmp_path / "train.tsv")
    with pytest.raises(DataError, match="Nor is there a folder"):
        TextFile(tmp_path / "data" / "train.tsv")
    with pytest.raises(DataError, match="got a folder"):
        TextFile(tmp_path)


def test_what_can_be_read_only_once_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no regular file"):
        TextFile(tmp_path / "pipe")


def test_lines_are_read_one_by_one(write):
    found = TextFile(write("a.tsv", "1\t好\n".encode() + b"\xff\xff\n")).lines()
    assert next(found) == (1, "1\t好")
    with pytest.raises(DataError, match=":2:"):
        next(found)
