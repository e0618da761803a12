"""Manual pages to paragraphs of plain text: as much of roff as the pages of `manpages-zh` need."""

import re
from collections.abc import Iterator

# Blocks that hold no text: definitions of macros, comments, tables.
_SKIPPED = {"de": "..", "de1": "..", "am": "..", "ig": "..", "TS": ".TE"}
_BREAKS = frozenset(
    "PP LP P Pp HP TP IP RS RE sp br nf fi EX EE CS CE Vb Ve Bd Ed DS DE Bl El BS BE ce in ti SO SE TQ bp".split()
)
_HEADINGS = frozenset("SH SS Sh Ss".split())
_FONTS = frozenset("B I SM SB R".split())
_ALTERNATING = frozenset("BR BI IR IB RB RI".split())
_MDOC = frozenset(
    "Nm Nd Ar Fl Ql Ic Xr Pa Op Dq Pq Em Tn Ev Sx Va Li Cm Sq Sy Fn Ft Dv Er Ns No Ux Bq Aq Qq Ad Dl D1 Fa Vt An It "
    "Xc Xo Oo Oc Brq Do Dc So Sc Po Pc Ap Ms Lk Mt In Fd Cd".split()
)
_ESCAPES = [
    (re.compile(r'\\".*'), ""),
    (re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\s(?:[-+]?\d+|\[[^]]*\])|\\m\[[^]]*\]"), ""),
    (re.compile(r"\\[hvwlLoxXbZDN](['\"]).*?\1"), ""),
    (re.compile(r"\\\*(?:\[[^]]*\]|\(..|.)|\\n(?:[-+]?(?:\[[^]]*\]|\(..|.))"), ""),
    (re.compile(r"\\\(aq|\\\[aq\]|\\\(cq|\\'"), "'"),
    (re.compile(r"\\\(dq|\\\[dq\]"), '"'),
    (re.compile(r"\\\(oq|\\`"), "`"),
    (re.compile(r"\\\(lq"), "“"),
    (re.compile(r"\\\(rq"), "”"),
    (re.compile(r"\\\(em|\\\[em\]"), "—"),
    (re.compile(r"\\\(en|\\-"), "-"),
    (re.compile(r"\\\(ha"), "^"),
    (re.compile(r"\\\(ti"), "~"),
    (re.compile(r"\\(?:\(..|\[[^]]*\])"), ""),
    (re.compile(r"\\[&|^/,)%:c{}]"), ""),
    (re.compile(r"\\[ ~0]"), " "),
]
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')


def paragraphs(page: str) -> "list[str]":
    """The paragraphs of a manual page, headings among them. Line ends within a paragraph are newlines.

    A page that only points to another (`.so`) has none.
    """
    found: "list[list[str]]" = [[]]
    lines = iter(page.split("\n"))
    for line in lines:
        if not line.strip():
            found.append([])
        elif line[0] not in ".'":
            found[-1].append(line)
        else:
            _request(line[1:].strip(), lines, found)
    plain = ("\n".join(plain_text(line) for line in paragraph) for paragraph in found)
    return [paragraph for paragraph in plain if paragraph.strip()]


def _request(line: str, lines: "Iterator[str]", found: "list[list[str]]") -> None:
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    if name in _SKIPPED:
        _skip_to(_SKIPPED[name], lines)
    elif name in ("if", "ie", "el"):
        _skip_braces(line, lines)
    elif name in _HEADINGS:
        found.extend([[" ".join(_arguments(rest))], []])
    elif name in _BREAKS:
        found.append(_arguments(rest)[:1] if name == "IP" else [])
    elif name in _FONTS:
        found[-1].append(" ".join(_arguments(rest)))
    elif name in _ALTERNATING:
        found[-1].append("".join(_arguments(rest)))
    elif name in _MDOC:
        if name == "It":
            found.append([])
        found[-1].append(" ".join(part for part in _arguments(rest) if part not in _MDOC))


def _skip_to(end: str, lines: "Iterator[str]") -> None:
    for line in lines:
        if line.startswith(end):
            return


def _skip_braces(line: str, lines: "Iterator[str]") -> None:
    """Skips the rest of a conditional block: none of its branches is text of a page in these packages."""
    depth = line.count("\\{") - line.count("\\}")
    while depth > 0:
        line = next(lines, "\\}" * depth)  # a block that is never closed ends with the page
        depth += line.count("\\{") - line.count("\\}")


def _arguments(text: str) -> "list[str]":
    return [quoted.replace('""', '"') or bare for quoted, bare in _ARGUMENT.findall(text)]


def plain_text(line: str) -> str:
    """One line without roff's escapes."""
    line = line.replace("\\e", "\x00").replace("\\\\", "\x00")
    for pattern, replacement in _ESCAPES:
        line = pattern.sub(replacement, line)
    return re.sub(r"\\(.)", r"\1", line).replace("\\", "").replace("\x00", "\\")
