"""HTML pages as tests read them, and a text that would be markup in a page that trusts it."""

from html.parser import HTMLParser

HOSTILE = "</td><script>alert('x')</script><img src=\"x\" onerror=alert(1)>&\x00\ud800\u202e\u2067"
VOID = {"meta", "input", "img", "br", "link"}


def as_shown(text):
    """A hostile text as a page tells it: controls are seen, and the order of writing stays."""
    for letter, shown in (("\x00", "\ufffd"), ("\ud800", "?"), ("\u202e", "\\u202e"), ("\u2067", "\\u2067")):
        text = text.replace(letter, shown)
    return text


class Page(HTMLParser):
    """Every start tag has its end tag; counts of tags, and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)
