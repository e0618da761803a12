"""What was odd about labelled files and yet no reason to refuse them: how often, and where first."""

from paddle_nezha._files import PathLike

_PLACES = 3


class Notes:
    """Counts by kind, in the order of their first appearance."""

    def __init__(self) -> None:
        self.counts: "dict[str, int]" = {}
        self.places: "dict[str, list[str]]" = {}

    def add(self, what: str, file: PathLike, line: int, at: str = "") -> None:
        """
        Args:
            at: which part of the line, of files that may be one line.
        """
        self.counts[what] = self.counts.get(what, 0) + 1
        places = self.places.setdefault(what, [])
        if len(places) < _PLACES:
            places.append(f"{file}:{line} ({at})" if at else f"{file}:{line}")

    def sentences(self) -> "list[str]":
        """One for each kind: "empty texts: 12 (dev.tsv:3, dev.tsv:8, dev.tsv:9, ...)"."""
        told = []
        for what, count in self.counts.items():
            more = ", ..." if count > len(self.places[what]) else ""
            told.append(f"{what}: {count:,} ({', '.join(self.places[what])}{more})")
        return told
