"""Raw paragraphs to clean sentences, the same from the same text always."""

import html
import re
import unicodedata
from collections.abc import Iterator

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
LONGEST = 256  # characters of a sentence; a longer one is parted at its commas and blanks
LEAST_HAN = 0.25  # share of a sentence's characters that are Han: below it is a command, a table, another language

_HAN_CHARACTER = re.compile(f"[{HAN}]")
_WIDE = f"[{HAN}\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u201c\u201d\u2018\u2019\u2014\u2026]"
_WIDE_MARK = "[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f\uff08\uff09\u300a\u300b\u3010\u3011\u300c\u300d\u300e\u300f]"
_LINE_END = re.compile(r"[ \t]*\n[ \t]*")
_BETWEEN_WIDE = re.compile(f"(?<={_WIDE})\n(?={_WIDE})")
_BESIDE_MARK = re.compile(f"(?<={_WIDE_MARK}) +| +(?={_WIDE_MARK})")
_BLANKS = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u205f]+")
_NEVER_SHOWN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\ufffc]"
)
# Full-width letters, digits and per cent signs are spelled as everywhere else.
_HALF_WIDTH = {
    wide: wide - 0xFEE0 for wide in (0xFF05, *range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))
}
_POINT = re.compile(r"(?<=[0-9A-Za-z])\uff0e(?=[0-9A-Za-z])")  # a full-width point; elsewhere it ends a sentence
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,500}>|https?://[\x21-\x7e]+")
_LOST = re.compile(r"\?{3,}|\ufffd+|[\ue000-\uf8ff]+")  # characters that some conversion before ours lost

_CLOSING = "”’」』）)】》〉\"'"
_END = re.compile(
    f"[。！？!?；…]+[{_CLOSING}]*"  # "；" and "…" end sentences too: clauses stand for themselves
    f"|(?<=[{HAN}])[.;]+(?=[\\s{HAN}]|$)"
)
_PART = re.compile("[,，、：:]|\\s")
_LEADING = re.compile(r"^[\s?,，。、；：！？;:!…·]+")
_MISREAD = re.compile(
    "锟斤拷|烫烫烫|屯屯屯"
    "|[ÂÃâåæçèéäï][\u0080-\u00bf\u2018-\u201d\u2020-\u2022\u20ac\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2122]"
    "|(?:鐨|锛|銆|鏄|鍦|绗|鈥)[^鐨锛銆鏄鍦绗鈥]{0,4}(?:鐨|锛|銆|鏄|鍦|绗|鈥)"
)


def paragraphs(text: str) -> "Iterator[str]":
    """The lines of a web text, where line ends part paragraphs: written out as ``\\n`` or as indents too."""
    text = html.unescape(text).replace("\\n", "\n").replace("\\r", "\n").replace("\\t", " ")
    text = _MARKUP.sub(" ", text)
    yield from re.split("\n|\u3000\u3000+| {3,}", text)


def joined(paragraph: str) -> str:
    """A paragraph whose lines were broken for width, on one line: no blank where none would be written."""
    return _BETWEEN_WIDE.sub("", _LINE_END.sub("\n", paragraph.strip())).replace("\n", " ")


def sentences(paragraph: str) -> "Iterator[str]":
    """The sentences of a paragraph, each with the marks that close it, at most `LONGEST` characters long."""
    text = unicodedata.normalize("NFC", paragraph).translate(_HALF_WIDTH)
    text = _NEVER_SHOWN.sub("", text.replace("\u3000", " "))
    text = _POINT.sub(".", _BLANKS.sub(" ", text).replace("\n", " ")).replace("\uff0e", "。")
    text = _BESIDE_MARK.sub("", text)
    for piece in _LOST.split(text):
        yield from _ended(piece)


def _ended(text: str) -> "Iterator[str]":
    begin = 0
    for mark in _END.finditer(text):
        yield from _short(text[begin : mark.end()])
        begin = mark.end()
    yield from _short(text[begin:])


def _short(sentence: str) -> "Iterator[str]":
    sentence = _LEADING.sub("", sentence).strip()
    while len(sentence) > LONGEST:
        parts = [mark.end() for mark in _PART.finditer(sentence, LONGEST // 4, LONGEST)]
        end = parts[-1] if parts else LONGEST
        yield sentence[:end].strip()
        sentence = sentence[end:].strip()
    if sentence:
        yield sentence


def is_chinese(sentence: str) -> bool:
    """Whether at least two characters, and a `LEAST_HAN` of all, are Han."""
    count = len(_HAN_CHARACTER.findall(sentence))
    return count >= 2 and count >= LEAST_HAN * len(sentence.replace(" ", ""))


def is_misread(sentence: str) -> bool:
    """Whether the sentence shows the traces of bytes read in a wrong encoding."""
    return bool(_MISREAD.search(sentence))


def key(text: str) -> str:
    """What is compared when two texts are said to be equal: NFKC, lower case, letters and digits alone."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(character for character in folded if character.isalnum())
