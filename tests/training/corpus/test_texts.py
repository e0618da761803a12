"""Documents out of files of every kind, and what is told of those that are not as they should be."""

import gzip
import json
import os
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_nezha.training.corpus import CorpusError, texts
from paddle_nezha.training.corpus.texts import (
    Problems,
    find_sources,
    read_documents,
    refuse_other_encodings,
    split_sentences,
)

TEXT = "今天很好。\n我们去公园。\n\n第二篇。\n"
DOCUMENTS = [["今天很好。", "我们去公园。"], ["第二篇。"]]


@pytest.fixture
def read(tmp_path):
    """Documents of a file with this content, and what was counted: ``read(b"...", name="a.jsonl")``."""

    def run(content, name="a.txt", longest=10**6, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        problems = Problems()
        [source] = find_sources([path], problems)
        documents = list(read_documents(source, problems, longest=longest, **options))
        assert source.documents == len(documents) and source.bytes == path.stat().st_size
        run.examples = {kind: [place.removeprefix(f"{path}") for place in places] for kind, places in
                        problems.examples.items()}  # fmt: skip
        return documents, problems.counts

    return run


def test_a_sentence_a_line_and_blank_lines_between_documents(read):
    assert read(TEXT) == (DOCUMENTS, {})
    assert read(f"\n \n\u3000\n{TEXT}\n\n\n  ") == (DOCUMENTS, {})
    assert read(TEXT.rstrip("\n")) == (DOCUMENTS, {})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
def test_byte_order_marks(read, encoding):
    kind = "byte_order_marks" if encoding == "utf-8" else "wide_files"
    assert read(f"\ufeff{TEXT}".encode(encoding)) == (DOCUMENTS, {kind: 1})


def test_line_ends_of_other_systems(read):
    assert read(TEXT.replace("\n", "\r\n")) == (DOCUMENTS, {"windows_line_ends": 1})
    assert read("一\r二\r\r三") == ([["一", "二", "三"]], {})
    assert read("一\r\r\n二\r\r\n") == ([["一", "二"]], {"windows_line_ends": 1})
    assert read("一\u2028二\x0b三\x85四\n") == ([["一\u2028二\x0b三\x85四"]], {})


def test_bytes_that_are_no_text(read):
    content = b"ok\n\xe4\xbb\n\xff\xfe\xfdx\ngood\xed\xa0\x80\n" + "\ufffd\n\xff".encode()
    documents, counts = read(content)
    assert documents == [["ok", "\ufffd", "\ufffdx", "good\ufffd", "\ufffd", "\xff"]]
    assert counts == {"invalid_lines": 3} and read.examples == {"invalid_lines": [":2", ":3", ":4"]}
    half = "\ufeff今\n".encode("utf-16-le") + b"\x00\xd8\n\x00" + b"x"
    assert read(half) == ([["今", "\ufffd", "\ufffd"]], {"wide_files": 1, "invalid_lines": 2})


FOREIGN = [
    (
        "gb18030",
        "今天很好。\n去公园。\n\n",
        "If it is GBK or GB18030, convert it: iconv -f GB18030 -t UTF-8 FILE > NEW",
    ),
    (
        "utf-16-le",
        "今天很好。\n去公园。\n\n",
        "UTF-16 without a byte order mark. Convert it: iconv -f UTF-16LE -t UTF-8",
    ),
    ("utf-16-be", "今天很好。\n去公园。\n\n", "or -f UTF-16BE, if no text"),
    ("utf-16-le", "good.\nso so.\n\n", "iconv -f UTF-16LE -t UTF-8 FILE > NEW"),
    ("gb18030", '{"text": "今天很好。"}\n', "iconv -f GB18030 -t UTF-8 FILE > NEW"),
]


@pytest.mark.parametrize("encoding, part, remedy", FOREIGN)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_in_another_encoding(tmp_path, encoding, part, remedy, pack):
    path = tmp_path / ("a.jsonl" if part.startswith("{") else "a.txt")
    path.write_bytes(pack((part * 20).encode(encoding)))
    [source] = find_sources([path], Problems())
    with pytest.raises(CorpusError) as told:
        refuse_other_encodings([source])
    assert str(told.value).startswith(f"expected UTF-8 in {path} (") and remedy in str(told.value)
    assert (source.bytes, source.sha256) == (0, "")
    with pytest.raises(CorpusError) as told:
        list(read_documents(source, Problems(), longest=10**6))
    assert str(told.value).startswith(f"expected UTF-8 in {path} (") and remedy in str(told.value)


def test_every_file_in_another_encoding_is_named_with_what_it_needs(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").write_bytes(("今天很好。\n" * 10).encode("gb18030"))
    (tmp_path / "9.txt").write_bytes(("今天很好。\n" * 10).encode("utf-16-le"))
    with pytest.raises(
        CorpusError, match=r"0\.txt \(10 of its first 10 lines are not\), .*2\.txt .* and 2 more"
    ) as told:
        refuse_other_encodings(find_sources([tmp_path], Problems()))
    assert "9.txt" in str(told.value) and "GB18030" in str(told.value) and "UTF-16LE" in str(told.value)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\n" * 9,
        b"\xff\n" * 10 + b"ok\n \n" * 10,
        ("\ufeff" + "今天\n" * 20).encode("utf-16-le"),
        "今天很好。\0\n".encode() * 20,
        "今".encode() * 100_000,  # of which a look into the beginning cuts a character
    ],
    ids=["few lines", "half of the lines", "a byte order mark", "NUL in UTF-8", "one long line"],
)
def test_what_is_no_other_encoding(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    sources = find_sources([path], Problems())
    refuse_other_encodings(sources)
    assert list(read_documents(sources[0], Problems(), longest=10**6))


def test_nul(read):
    assert read("a\0b\n\0\nc\n") == ([["ab"], ["c"]], {"nul_lines": 2})


def test_empty_and_blank_files(read):
    assert read(b"") == ([], {"empty_files": 1})
    assert read(b"\n \n") == ([], {})


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt", "A.TXT.GZ"])
def test_gzip_is_told_by_its_content(read, name):
    assert read(gzip.compress(TEXT.encode()), name) == (DOCUMENTS, {})
    assert read(TEXT, name) == (DOCUMENTS, {})
    two = gzip.compress(TEXT.encode()) + b"\0" * 100 + gzip.compress("续\n".encode())
    assert read(two, name) == ([DOCUMENTS[0], ["第二篇。", "续"]], {})


def test_gzip_cut_short_or_damaged(read):
    noise = random.Random(3)
    lines = "".join(f"第{noise.random()}句\n" for _ in range(50_000))
    packed = gzip.compress(lines.encode())
    documents, counts = read(packed[: len(packed) // 2])
    assert counts == {"damaged_gzip": 1} and read.examples == {"damaged_gzip": [": it ends before its end mark"]}
    assert documents[0][:-1] == lines.split("\n")[: len(documents[0]) - 1] and len(documents[0]) > 10_000
    broken = packed[:-3000] + b"\xff" * 10 + packed[-2990:]
    assert read(broken)[1]["damaged_gzip"] == 1
    assert read(gzip.compress(TEXT.encode()) + b"rubbish") == (DOCUMENTS, {"damaged_gzip": 1})


def test_jsonl(read):
    lines = [
        json.dumps({"text": "他说：“好！”我走了。\n再见", "id": 1}, ensure_ascii=False),
        json.dumps({"text": "单句"}),
        "",
        "{no json",
        '["text"]',
        '{"body": "x"}',
        '{"text": 5}',
        '{"text": "\\n "}',
        '{"text": "a\\u0000b\\ud800c"}',
        "[" * 100_000,
    ]
    documents, counts = read("\r\n".join(lines), "a.jsonl")
    assert documents == [["他说：“好！”", "我走了。", "再见"], ["单句"], ["ab\ufffdc"]]
    assert counts == {
        "windows_line_ends": 1, "not_json": 3, "no_text": 2, "empty_records": 1, "nul_lines": 1, "invalid_lines": 1,
    }  # fmt: skip
    assert read.examples["not_json"] == [":4", ":5", ":10"] and read.examples["no_text"] == [":6", ":7"]
    assert read(gzip.compress(b'{"body": "x"}'), "b.ndjson.gz", text_field="body") == ([["x"]], {})


def test_lines_of_any_length(read, monkeypatch):
    monkeypatch.setattr(texts, "LONGEST_LINE", 10)
    monkeypatch.setattr(texts, "LONGEST_RECORD", 30)
    monkeypatch.setattr(texts, "_PIECE", 7)
    assert read("今" * 25 + "\n短\n" + "b" * 10 + "\n") == (
        [["今" * 10, "今" * 10, "今" * 5, "短", "b" * 10]],
        {"cut_lines": 1},
    )
    assert read.examples == {"cut_lines": [":1"]}
    assert read("x\n" + " " * 25 + "\ny") == ([["x", "y"]], {"cut_lines": 1})
    content = '{"text": "' + "a" * 50 + '"}\n{"text": "b"}\n{"text": "' + "c" * 17 + '"}\n'
    assert read(content, "a.jsonl") == ([["b"], ["c" * 17]], {"long_records": 1})


def test_a_monster_is_not_held(tmp_path):
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(200):
            file.write(b"a" * 1_000_000)
    problems = Problems()
    [source] = find_sources([path], problems)
    tracemalloc.start()
    sizes = [sum(map(len, document)) for document in read_documents(source, problems, longest=2_000_000)]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == 200_000_000 and max(sizes) <= 2_000_000
    assert problems.counts == {"cut_lines": 1, "cut_documents": 1}
    assert held < 16_000_000


def test_long_documents_are_cut_between_sentences(read):
    assert read("一二三\n四五\n六\n七八九十一\n\n二\n", longest=4) == (
        [["一二三"], ["四五", "六"], ["七八九十一"], ["二"]],
        {"cut_documents": 1},
    )
    assert read.examples == {"cut_documents": [":2"]}


def test_split_sentences():
    assert split_sentences("“去吧。”他说……好！？（真的。）\r\nv3.14 is out. OK\n\n；") == [
        "“去吧。”",
        "他说……",
        "好！？",
        "（真的。）",
        "v3.14 is out. OK",
        "；",
    ]


@given(st.text(st.sampled_from("今a。！？…”)\n\r \u3000"), max_size=60))
@settings(deadline=None)
def test_splitting_loses_nothing_but_blanks(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@given(
    st.lists(st.sampled_from(["今天", "\n", "\r\n", "\0", " ", "\xff", "😀", "\n\n"]), max_size=40), st.integers(1, 9)
)
@settings(deadline=None)
def test_how_it_is_read_changes_nothing(tmp_path_factory, parts, piece):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_bytes(b"".join(part.encode("latin-1" if part == "\xff" else "utf-8") for part in parts))

    def documents():
        problems = Problems()
        [source] = find_sources([path], problems)
        try:
            return list(read_documents(source, problems, longest=5)), problems.described()
        except CorpusError as error:  # ten bad lines and more
            return str(error), problems.described()

    whole = documents()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_PIECE", piece)
        assert documents() == whole


def test_sources_in_folders(tmp_path):
    for name in ("b/z.txt", "b/a.jsonl.gz", "a.ndjson", "c.TXT", "notes.md", ".hidden.txt", ".git/x.txt", "out/y.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "b" / "z.txt")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    problems = Problems()
    named = [tmp_path, tmp_path / "notes.md", tmp_path / "b" / "z.txt", tmp_path / "none"]
    found = find_sources(named, problems, beside=tmp_path / "out")
    names = [source.name.removeprefix(f"{tmp_path}/") for source in found]
    assert names == ["a.ndjson", "c.TXT", "link.txt", "b/a.jsonl.gz", "notes.md"]
    assert [source.kind for source in found] == ["jsonl", "text", "text", "jsonl", "text"]
    assert problems.counts == {
        "other_files": 1, "unreadable": 2, "duplicate_sources": 2, "folders_without_texts": 1,
    }  # fmt: skip
    assert "No such file" in problems.examples["unreadable"][0]


def test_a_source_that_was_named_must_be_there(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    os.mkfifo(tmp_path / "pipe.txt")
    named = [tmp_path / name for name in ("a.txt", "lost.txt", "pipe.txt", "folder")]
    with pytest.raises(CorpusError) as told:
        find_sources(named, Problems())
    assert str(told.value) == (
        f"expected sources that can be read, got {named[1]}: No such file or directory, {named[2]}: not a regular "
        f"file, {named[3]}: No such file or directory. Name files and folders that are there, or leave these out"
    )


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    problems = Problems()
    [source] = find_sources([path], problems)
    path.unlink()
    assert list(read_documents(source, problems, longest=100)) == []
    assert problems.counts == {"unreadable": 1}
