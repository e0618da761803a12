"""Entities in tagged text: exact ones count, right type and right ends (seqeval finds them in the tags).

Two ways to read tags that do not follow their scheme, as a model's predictions may:

lenient     as conlleval, the CoNLL evaluation, does: an I- (or E-) that follows nothing, or another type, begins an
            entity, and one that meets no end ends where it stops. No scheme is needed. CoNLL figures are of this kind.
strict      what breaks the scheme is no entity: in BIO, I-PER after O is nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

SCHEMES = ("BIO", "IOB1", "BIOES")
MODES = ("lenient", "strict")
# Other letters for the same places: BMES of Chinese word segmentation and BILOU.
_LETTERS = {"M": "I", "L": "E", "U": "S"}

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True, order=True)
class Entity:
    """Tokens start .. end - 1 of row `row` are a `type`."""

    row: int
    start: int
    end: int
    type: str


@dataclass(frozen=True)
class EntityScore:
    """One type. What is 0 / 0 counts as 0; support: entities there are, predicted: entities found."""

    type: str
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class WrongEntity:
    """What went wrong in one place.

    Args:
        kind: "type" (right ends, wrong type), "ends" (overlaps with what there is), "missed", "invented".
        label, prediction: None where there is none.
        label_text, prediction_text: their tokens, "" for none.
    """

    row: int
    kind: str
    label: Optional[Entity]
    prediction: Optional[Entity]
    label_text: str
    prediction_text: str


def is_tag(text: str) -> bool:
    """Whether it is a tag that entities can be found in: O, or a letter of a scheme and mostly a type (B-PER)."""
    letter, dash, kind = text.partition("-")
    if letter == "O":
        return not dash
    return _LETTERS.get(letter, letter) in ("B", "I", "E", "S") and bool(dash) == bool(kind)


def detect_scheme(labels: "Tags") -> str:
    """BIO, IOB1 or BIOES: the one that correct tags follow. Without a sign of another it is BIO.

    Raises:
        ValueError: tags of no scheme, or of two: the rows that show each are named.
    """
    bare: Optional[int] = None  # a row with an I- that begins an entity: IOB1
    extra: Optional[int] = None  # a row with a B- that IOB1 has no use for: BIO
    for row, tags in enumerate(_all_normal(labels)):
        before, before_type = "O", ""
        for tag in tags:
            letter, _, kind = tag.partition("-")
            if letter in "ES":
                return "BIOES"
            fresh = before == "O" or before_type != kind
            if letter == "I" and fresh and bare is None:
                bare = row
            if letter == "B" and fresh and extra is None:
                extra = row
            before, before_type = letter, kind
    if bare is not None and extra is not None:
        raise ValueError(
            f"The labels follow no single scheme: row {bare} begins an entity with I-, as IOB1 does, and row {extra} "
            "with B- where IOB1 has I-. Correct them, or score in lenient mode, which needs no scheme."
        )
    return "BIO" if bare is None else "IOB1"


def find_entities(tags: "Tags", mode: str = "lenient", scheme: Optional[str] = None) -> "list[Entity]":
    """The entities of rows of tags, in their order.

    Args:
        tags: rows of tags such as O, B-PER, I-PER; M- is read as I-, L- as E-, U- as S-. A tag without a type (B) has
            the type "_".
        mode: lenient or strict, as above.
        scheme: BIO, IOB1 or BIOES; strict mode needs it.

    Raises:
        ValueError: another mode or scheme, a tag of none, or strict mode without a scheme.
    """
    from seqeval import scheme as schemes
    from seqeval.metrics.sequence_labeling import get_entities

    rows = _all_normal(tags)
    if mode == "lenient":
        return [
            Entity(number, place + start, place + last + 1, kind)
            for number, row in enumerate(rows)
            for place, stretch in _stretches(row)
            for kind, start, last in get_entities(stretch)
        ]
    kinds = {"BIO": schemes.IOB2, "IOB1": schemes.IOB1, "BIOES": schemes.IOBES}
    if mode != "strict" or scheme not in kinds:
        raise ValueError(
            f"mode must be lenient, or strict with a scheme of {', '.join(SCHEMES)}; got {mode!r} with {scheme!r}."
        )
    if scheme != "BIOES":
        _check_letters(rows, scheme)
    found = schemes.Entities(rows, kinds[scheme]).entities
    return [Entity(number, item.start, item.end, item.tag) for number, row in enumerate(found) for item in row]


def score_entities(
    labels: "Tags", predictions: "Tags", mode: str = "lenient", scheme: Optional[str] = None
) -> "dict[str, float]":
    """Micro precision, recall and F1 over entities, and the F1 of each type.

    Args:
        labels, predictions: N rows of tags, as long as each other.
        mode, scheme: see `find_entities`; without a scheme strict mode takes the one `detect_scheme` sees in labels.

    Returns:
        precision, recall, f1, and f1_TYPE of each type that is there or was found. 0 where there is none.

    Raises:
        ValueError: no rows, rows of different lengths, or what `find_entities` refuses.
    """
    return named_scores(entity_scores(labels, predictions, mode, scheme))


def entity_scores(
    labels: "Tags", predictions: "Tags", mode: str = "lenient", scheme: Optional[str] = None
) -> "list[EntityScore]":
    """Each type, sorted by name, and last the micro average over all, whose type is ""; as `score_entities`."""
    return score_counts(*count_entities(labels, predictions, mode, scheme))


def count_entities(
    labels: "Tags", predictions: "Tags", mode: str = "lenient", scheme: Optional[str] = None
) -> "tuple[Counter[str], Counter[str], Counter[str]]":
    """How many entities of each type are right, there, and found, as `score_entities`; parts of a file add up."""
    truth, given = _both(labels, predictions, mode, scheme)
    right = Counter(item.type for item in set(truth) & set(given))
    return right, Counter(item.type for item in truth), Counter(item.type for item in given)


def score_counts(right: "Counter[str]", there: "Counter[str]", found: "Counter[str]") -> "list[EntityScore]":
    """The table of `entity_scores` from the counts of `count_entities`."""
    table = [_score(kind, right[kind], there[kind], found[kind]) for kind in sorted(set(there) | set(found))]
    return [*table, _score("", sum(right.values()), sum(there.values()), sum(found.values()))]


def named_scores(table: "Sequence[EntityScore]") -> "dict[str, float]":
    """precision, recall, f1 and the F1 of each type, from the table of `entity_scores`."""
    whole = table[-1]
    named = {"precision": whole.precision, "recall": whole.recall, "f1": whole.f1}
    return {**named, **{f"f1_{item.type}": item.f1 for item in table[:-1]}}


def wrong_entities(
    tokens: "Tags", labels: "Tags", predictions: "Tags", mode: str = "lenient", scheme: Optional[str] = None
) -> "list[WrongEntity]":
    """Every place where the entities found are not those there are, in the order of the text.

    Args:
        tokens: N rows, as long as the tags; Latin ones are put together with a space, Chinese ones without.
    """
    _check_rows(tokens, labels, "tokens", "labels")
    truth, given = _both(labels, predictions, mode, scheme)
    missed, invented = sorted(set(truth) - set(given)), sorted(set(given) - set(truth))
    wrong: "list[WrongEntity]" = []

    def note(kind: str, label: Optional[Entity], prediction: Optional[Entity]) -> None:
        texts = [joined(tokens[one.row][one.start : one.end]) if one else "" for one in (label, prediction)]
        place = label or prediction
        assert place is not None
        wrong.append(WrongEntity(place.row, kind, label, prediction, *texts))

    of_row: "dict[int, list[Entity]]" = {}
    for item in invented:
        of_row.setdefault(item.row, []).append(item)
    unmatched = []
    for label in missed:
        same = [x for x in of_row.get(label.row, ()) if (x.start, x.end) == (label.start, label.end)]
        if same:
            of_row[label.row].remove(same[0])
            note("type", label, same[0])
        else:
            unmatched.append(label)
    for label in unmatched:
        over = [x for x in of_row.get(label.row, ()) if x.start < label.end and label.start < x.end]
        if over:
            of_row[label.row].remove(over[0])
        note("ends" if over else "missed", label, over[0] if over else None)
    for rest in of_row.values():
        for item in rest:
            note("invented", None, item)
    return sorted(wrong, key=lambda item: (item.row, (item.label or item.prediction).start))  # type: ignore[union-attr]


def joined(tokens: "Iterable[str]") -> str:
    """Tokens as text: a space between two that meet with Latin letters or digits, none elsewhere."""
    text = ""
    for token in tokens:
        meets = text[-1:].isascii() and text[-1:].isalnum() and token[:1].isascii() and token[:1].isalnum()
        text += " " * meets + token
    return text


def _both(labels: "Tags", predictions: "Tags", mode: str, scheme: Optional[str]) -> "tuple[list[Entity], list[Entity]]":
    if not len(labels):
        raise ValueError("There is nothing to score: no labels came. See that the file that was read has records.")
    _check_rows(labels, predictions, "labels", "predictions")
    if mode == "strict" and scheme is None:
        scheme = detect_scheme(labels)
    return find_entities(labels, mode, scheme), find_entities(predictions, mode, scheme)


def _check_rows(first: "Tags", second: "Tags", one: str, other: str) -> None:
    if len(first) != len(second):
        raise ValueError(
            f"{one} and {other} must have as many rows as each other, but have {len(first)}, {len(second)}."
        )
    for row, (left, right) in enumerate(zip(first, second)):
        if len(left) != len(right):
            raise ValueError(
                f"{one} and {other} must be as long as each other in every row, but row {row} has {len(left)} and "
                f"{len(right)}; tokens cut off at the longest length need a tag as well, such as O."
            )


def _stretches(tags: "Sequence[str]") -> "Iterator[tuple[int, list[str]]]":
    """The first place and the tags of each stretch without an O. No entity reaches over an O, and most tags are one."""
    first = -1
    for place, tag in enumerate(tags):
        if tag == "O":
            if first >= 0:
                yield first, list(tags[first:place])
            first = -1
        elif first < 0:
            first = place
    if first >= 0:
        yield first, list(tags[first:])


def _all_normal(tags: "Tags") -> "list[list[str]]":
    known: "dict[str, str]" = {}
    found = []
    for row, some in enumerate(tags):
        for column, tag in enumerate(some):
            if tag not in known:
                known[tag] = _normal(tag, column, row)
        found.append([known[tag] for tag in some])
    return found


def _normal(tag: str, column: int, row: int) -> str:
    if not is_tag(tag):
        raise ValueError(
            f"Expected a tag such as O, B-PER or I-PER, but token {column} of row {row} has {tag!r}: is that the "
            "column of the tags, and are they spelled LETTER-TYPE?"
        )
    letter, dash, kind = tag.partition("-")
    return _LETTERS.get(letter, letter) + dash + kind


def _check_letters(rows: "list[list[str]]", scheme: str) -> None:
    for number, row in enumerate(rows):
        for tag in row:
            if tag[0] in "ES":
                raise ValueError(f"{scheme} has tags O, B- and I- alone, but row {number} has {tag!r}: is it BIOES?")


def _score(kind: str, right: int, there: int, found: int) -> EntityScore:
    return EntityScore(
        kind,
        right / found if found else 0.0,
        right / there if there else 0.0,
        2 * right / (there + found) if there + found else 0.0,
        there,
        found,
    )
