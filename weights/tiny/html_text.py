"""Web pages to paragraphs of plain text, by the standard library's parser."""

from html.parser import HTMLParser
from typing import Optional

_BLOCKS = frozenset(
    "p div h1 h2 h3 h4 h5 h6 li ul ol dl dt dd table tr td th caption br hr section article blockquote".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_SKIPPED_TAGS = frozenset("head script style pre header footer aside nav noscript button title form".split())
_SKIPPED_MARKS = frozenset(
    # DocBook's navigation and tables of contents; LibreOffice's page furniture and its samples of programs
    "navheader navfooter toc index-label DEBUG DonationFrame SearchFrame bascode pycode sqlcode code".split()
)


def documents(page: str, parted_by: "tuple[str, ...]" = ()) -> "list[list[str]]":
    """The documents of a page, each a list of paragraphs. Line ends within a paragraph are newlines.

    Args:
        page: HTML or XHTML.
        parted_by: the headings ("h1", "h2") a new document begins with; without any the page is one.
    """
    reader = _Reader(parted_by)
    reader.feed(page)
    reader.close()
    reader.end_paragraph()
    return [document for document in reader.documents if document]


class _Reader(HTMLParser):
    def __init__(self, parted_by: "tuple[str, ...]") -> None:
        super().__init__(convert_charrefs=True)
        self.parted_by = parted_by
        self.documents: "list[list[str]]" = [[]]
        self.parts: "list[str]" = []
        self.skipping: "list[str]" = []  # the open elements from the skipped one inwards

    def handle_starttag(self, tag: str, attributes: "list[tuple[str, Optional[str]]]") -> None:
        if tag in _BLOCKS and not self.skipping:
            self.end_paragraph()
            if tag in self.parted_by:
                self.documents.append([])
        if tag in _VOID:
            return
        marks = {mark for name, value in attributes if name in ("class", "id") for mark in (value or "").split()}
        # `<code class="filename">` and the like stand within sentences
        skipped = tag in _SKIPPED_TAGS or (tag in _BLOCKS and marks & _SKIPPED_MARKS)
        if self.skipping or skipped:
            self.skipping.append(tag)

    def handle_startendtag(self, tag: str, attributes: "list[tuple[str, Optional[str]]]") -> None:
        if tag in _BLOCKS and not self.skipping:
            self.end_paragraph()

    def handle_endtag(self, tag: str) -> None:
        if self.skipping:
            if tag in self.skipping:  # elements left open end with the one around them
                while self.skipping.pop() != tag:
                    pass
        elif tag in _BLOCKS:
            self.end_paragraph()

    def handle_data(self, data: str) -> None:
        if not self.skipping:
            self.parts.append(data)

    def end_paragraph(self) -> None:
        """Ends the open paragraph; blank ones are none."""
        text = "".join(self.parts).strip()
        self.parts = []
        if text:
            self.documents[-1].append(text)
