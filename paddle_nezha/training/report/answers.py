"""The results of a fine-tuning within the page: scores, tables, calibration and the worst errors, as HTML."""

from collections.abc import Iterable, Sequence
from typing import Union

from paddle_nezha.training.comparison import OF_SEEDS, shown
from paddle_nezha.training.report.results import (
    ClassLine,
    Confusion,
    Results,
    Score,
    SplitResults,
    WrongItem,
    WrongSentence,
)
from paddle_nezha.training.report.told import count, metric, text
from paddle_nezha.training.scoring.classes import Calibration
from paddle_nezha.training.scoring.entities import WrongEntity, joined

MOST_CLASSES = 30  # in the table of confusions: more do not fit a page
_MOST_LETTERS = 1000  # of a text; JSON has all of it
_SIDE, _EDGE = 260, 42  # of the diagram of calibration: its plot, and the room for numbers


def results_section(results: Results) -> str:
    """All of it; dev and test apart, with a switch between them."""
    splits = list(results.splits)
    switch = "".join(
        f'<input type="radio" name="split" id="split-{split}"{" checked" * (number == 0)}>'
        f'<label for="split-{split}">{split}</label>'
        for number, split in enumerate(splits)
    )
    tiles = "".join(_tiles(split, one, results.metric) for split, one in results.splits.items())
    details = "".join(_split(split, one, results) for split, one in results.splits.items())
    remark = "Dev chose the epoch, so its scores flatter the model."
    if "test" not in splits:
        remark += " Give a test file (--test) for scores that do not."
    if len(results.seeds) > 1:
        remark += f" {OF_SEEDS}"
    return (
        f'<section class="results"><dl>{tiles}</dl><p class="soft">Scores are points, 0 to 100. {remark}</p>'
        f"{switch}{details}</section>"
    )


def _tiles(split: str, one: SplitResults, judged_by: str) -> str:
    score = one.scores.get(judged_by)
    if score is None:
        return ""
    summary, spread = score.summary, ""
    if summary.low is not None and summary.high is not None:
        low, high = shown(summary.low, judged_by), shown(summary.high, judged_by)
        spread = f' <small class="soft">95 % interval {low} to {high}, {count(summary.n, "seed")}</small>'
    return (
        f"<div><dt>{text(split)} {text(metric(judged_by).title)}</dt><dd>{shown(summary.mean, judged_by)}{spread}</dd>"
        "</div>"
    )


def _split(split: str, one: SplitResults, results: Results) -> str:
    seeds, parts = len(results.seeds), [_scores(one.scores, results.seeds)]
    if one.missing is not None:
        parts.append(f'<p class="open">{text(one.missing)}</p>')
    if one.classes is not None:
        parts.append(_classes(one.classes, results.task, seeds))
    if one.outcomes is not None:
        parts.append(_outcomes(one.outcomes))
    if one.confusion is not None:
        parts.append(_confusion(one.confusion, results.task, seeds))
    if one.calibration is not None:
        parts.append(_calibration(one.calibration, seeds))
    blocks = "".join(f"<div>{part}</div>" for part in parts)
    errors = "" if one.missing is not None else _errors(one, results.task, seeds)
    return f'<div class="split {split}"><div class="blocks">{blocks}</div>{errors}</div>'


def _table(form: str, heads: "Iterable[str]", rows: "Iterable[tuple[str, Sequence[str]]]") -> str:
    """Heads and cells are texts, and become safe here."""
    head = "".join(f"<th>{text(each)}</th>" for each in heads)
    body = "".join(
        f"<tr><th>{text(name)}</th>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>" for name, cells in rows
    )
    return f'<div class="wide"><table class="{form}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _scores(scores: "dict[str, Score]", seeds: "Sequence[int]") -> str:
    several = len(seeds) > 1
    heads = ["", "mean", "sd", "95 % interval", *(f"seed {seed}" for seed in seeds)] if several else ["", "score"]
    rows = []
    for name, score in scores.items():
        cells, one = [shown(score.summary.mean, name)], score.summary
        if one.sd is not None and one.low is not None and one.high is not None:
            cells += [shown(one.sd, name), f"{shown(one.low, name)} to {shown(one.high, name)}"]
            cells += [shown(value, name) for value in score.seeds]
        rows.append((metric(name).title, cells))
    return f"<h3>Scores</h3>{_table('numbers', heads, rows)}"


def _classes(lines: "Sequence[ClassLine]", task: str, seeds: int) -> str:
    title = {"token": "By type of entity", "choice": "By place of the choice"}.get(task, "By class")
    spread = [] if seeds == 1 else ["sd of F1"]
    heads = ["", "precision", "recall", "F1", *spread, "labelled", "predicted"]
    rows = []
    for line in lines:
        numbers = [line.precision, line.recall, line.f1, *([] if line.sd is None else [line.sd])]
        predicted = f"{line.predicted:,.0f}" if seeds == 1 else f"{line.predicted:,.1f}"
        rows.append(
            (line.name or "all", [*(f"{100 * number:.2f}" for number in numbers), f"{line.support:,}", predicted])
        )
    return f"<h3>{title}{_over(seeds, 'means')}</h3>{_table('numbers', heads, rows)}"


def _over(seeds: int, what: str) -> str:
    return "" if seeds == 1 else f' <small class="soft">{what} over {count(seeds, "seed")}</small>'


def _outcomes(outcomes: "dict[str, float]") -> str:
    rows = [(name, [f"{share:.1%}"]) for name, share in outcomes.items()]
    return f"<h3>Answers</h3>{_table('numbers', ['', 'share'], rows)}"


def _confusion(table: Confusion, task: str, seeds: int) -> str:
    """Colours are shares of the row."""
    kept = _most_confused(table)
    remark = ""
    if len(kept) < len(table.rows):
        remark = (
            f'<p class="soft">The {len(kept)} of {len(table.rows)} classes with the most errors; JSON has all of '
            "them.</p>"
        )
    columns = (
        kept + list(range(len(table.rows), len(table.columns)))
        if len(kept) < len(table.rows)
        else range(len(table.columns))
    )
    head = "".join(f"<th>{text(table.columns[column])}</th>" for column in columns)
    body = []
    for row in kept:
        whole, cells = sum(table.counts[row]), []
        for column in columns:
            number = table.counts[row][column]
            right = table.rows[row] == table.columns[column]
            share = number / whole if whole else 0.0
            form = "none" if not number else "right" if right else "wrong"
            cells.append(f'<td class="{form}" style="--h:{share:.3f}" title="{share:.1%} of {whole:,}">{number:,}</td>')
        body.append(f"<tr><th>{text(table.rows[row])}</th>{''.join(cells)}</tr>")
    what = "entities" if task == "token" else "items"
    over = _over(seeds, "sums")
    return (
        f'<h3>Confusion{over}</h3><div class="wide"><table class="heat"><thead><tr><th class="soft">label ↓ predicted '
        f'→</th>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>{remark}<p class="soft">Numbers count '
        f"{what}; colours are their shares of the row.</p>"
    )


def _most_confused(table: Confusion) -> "list[int]":
    """The rows to show, in their order."""
    size = len(table.rows)
    if size <= MOST_CLASSES:
        return list(range(size))
    wrong = [sum(table.counts[i]) - table.counts[i][i] for i in range(size)]
    wrong = [wrong[i] + sum(table.counts[j][i] for j in range(size) if j != i) for i in range(size)]
    return sorted(sorted(range(size), key=lambda i: -wrong[i])[:MOST_CLASSES])


def _calibration(found: Calibration, seeds: int) -> str:
    bins = [each for each in found.bins if each.count]
    total = sum(each.count for each in bins)
    confidence = sum(each.count * each.confidence for each in bins) / total
    accuracy = sum(each.count * each.accuracy for each in bins) / total
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _x(share), _y(share)
        parts.append(f'<path class="grid" d="M{_EDGE} {y:.1f}h{_SIDE}"/>')
        parts.append(f'<text x="{_EDGE - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
        parts.append(f'<text x="{x:.1f}" y="{_SIDE + 26}" text-anchor="middle">{share:.0%}</text>')
    for each in bins:
        left, right, top = _x(each.low) + 1, _x(each.high) - 1, _y(each.accuracy)
        told = f"confidence {each.confidence:.1%}, right {each.accuracy:.1%}, {each.count:,} answers"
        parts.append(
            f'<path class="bar" d="M{left:.1f} {_y(0):.1f}V{top:.1f}H{right:.1f}V{_y(0):.1f}z" '
            f'style="--h:{each.count / total:.3f}"><title>{told}</title></path>'
            f'<path class="level" d="M{left:.1f} {top:.1f}H{right:.1f}"/>'
        )
    parts.append(f'<path class="diagonal" d="M{_x(0):.1f} {_y(0):.1f}L{_x(1):.1f} {_y(1):.1f}"/>')
    parts.append(f'<path class="edge" d="M{_EDGE} {_y(0):.1f}h{_SIDE}"/>')
    size = f"0 0 {_EDGE + _SIDE + 20} {_SIDE + 34}"
    side = "surer than right" if confidence > accuracy else "righter than sure"
    return (
        f"<h3>Calibration{_over(seeds, 'answers')}</h3><p>Expected calibration error <b>{found.error:.2%}</b> "
        f'<span class="soft">({len(found.bins)} bins of equal width)</span></p><svg class="bins" viewBox="{size}" '
        f'role="img" aria-label="Share of right answers by confidence">{"".join(parts)}</svg>'
        f'<p class="soft">Upwards the share of right answers, to the right the confidence; on the line both are equal. '
        f"Darker bars hold more answers. Mean confidence {confidence:.1%}, right {accuracy:.1%}: {side} by "
        f"{abs(confidence - accuracy):.1%}.</p>"
    )


def _x(share: float) -> float:
    return _EDGE + _SIDE * share


def _y(share: float) -> float:
    return 8 + _SIDE * (1 - share)


# ---- errors


def _errors(one: SplitResults, task: str, seeds: int) -> str:
    unit = {"token": "sentence", "span": "question", "choice": "question"}.get(task, "text")
    whole = f"{one.wrong:,} of {count(one.items, unit)} with an error" + (" in any seed" if seeds > 1 else "")
    if not one.errors:
        return f'<h3>Worst errors</h3><p class="done">None: no {unit} of {one.items:,} has an error.</p>'
    if task == "token":
        first, table = "those with the most wrong entities first", _sentences(one.errors, seeds)
    else:
        first = "the least overlap first" if task == "span" else "the surest first"
        table = _items(one.errors, task, seeds)
    if seeds > 1 and task != "span":
        first = f"those that most seeds have first, then {first.removesuffix(' first')}" if task != "token" else first
    shows = f"; the first {len(one.errors)} of them, {first}" if len(one.errors) < one.wrong else f", {first}"
    return f'<h3>Worst errors</h3><p class="soft">{whole}{shows}.</p>{table}'


def _items(errors: "Sequence[Union[WrongItem, WrongSentence]]", task: str, seeds: int) -> str:
    asked = "question" if task in ("span", "choice") else "text"
    number = "F1" if task == "span" else "confidence"
    answer = {"span": "given answers", "choice": "right choice"}.get(task, "label")
    heads = ["index", asked, answer, "prediction", number, *(["seeds"] if seeds > 1 else [])]
    head = "".join(f"<th>{each}</th>" for each in heads)
    rows = []
    for error in errors:
        assert isinstance(error, WrongItem)
        value = error.f1 if error.f1 is not None else error.confidence or 0.0
        cells = [
            "".join(f'<div class="said">{_said(each)}</div>' for each in error.inputs.values()),
            "".join(f"<div>{_said(each)}</div>" for each in error.label) or _nothing(),
            "".join(
                f"<div>{_said(each) if each else _nothing()}{_times(times, seeds)}</div>"
                for each, times in error.predictions
            ),
            f"{100 * value:.2f}" if task == "span" else f"{value:.1%}",
        ]
        if seeds > 1:
            cells.append(f"{error.wrong} of {seeds}")
        rows.append(f"<tr><th>{error.index}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return (
        f'<div class="wide"><table class="errors"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div>"
    )


def _said(words: str) -> str:
    """A text of the data, apart from what stands around it whatever way it is written."""
    cut = f" … ({len(words) - _MOST_LETTERS:,} letters more)" if len(words) > _MOST_LETTERS else ""
    return f'<bdi lang="zh">{text(words[:_MOST_LETTERS])}</bdi>' + (f'<span class="soft">{cut}</span>' if cut else "")


def _nothing() -> str:
    return '<span class="soft">no answer</span>'


def _times(times: int, seeds: int) -> str:
    return f' <small class="soft">×{times}</small>' if seeds > 1 else ""


def _sentences(errors: "Sequence[Union[WrongItem, WrongSentence]]", seeds: int) -> str:
    rows = []
    for error in errors:
        assert isinstance(error, WrongSentence)
        entries = "".join(f"<li>{_entity(one, times, seeds)}</li>" for one, times in error.entities)
        rows.append(
            f'<tr><th>{error.index}</th><td><div class="said"><bdi lang="zh">{_marked(error)}</bdi></div>'
            f"<ul>{entries}</ul></td></tr>"
        )
    return (
        '<p class="soft"><span class="missed">Labelled</span> and <span class="found">found</span> entities where they '
        'differ.</p><div class="wide"><table class="errors"><thead><tr><th>index</th><th>sentence</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _entity(error: WrongEntity, times: int, seeds: int) -> str:
    label = f"{_said(error.label_text)} <b>{text(error.label.type)}</b>" if error.label else ""
    found = f"{_said(error.prediction_text)} <b>{text(error.prediction.type)}</b>" if error.prediction else ""
    told = {
        "type": f"{label}, found as <b>{text(error.prediction.type) if error.prediction else ''}</b>",
        "ends": f"{label}, found as {found}",
        "missed": f"{label}, missed",
        "invented": f"{found}, where no entity is",
    }[error.kind]
    return told + _times(times, seeds)


def _marked(sentence: WrongSentence) -> str:
    """The sentence, with what is labelled and what was found marked where one is not the other."""
    forms = [""] * len(sentence.tokens)
    for error, _ in sentence.entities:
        for entity, form in ((error.label, "missed"), (error.prediction, "found")):
            if entity is not None:
                for i in range(entity.start, entity.end):
                    forms[i] = forms[i] if form in forms[i] else f"{forms[i]} {form}".strip()
    parts, before, last = [], "", ""
    for token, form in zip(sentence.tokens, forms):
        space = joined((last, token))[len(last) : -len(token) or None]
        if form != before:
            parts.append("</span>" * bool(before) + space + (f'<span class="{form}">' if form else ""))
            before = form
        else:
            parts.append(space)
        parts.append(text(token))
        last = token
    return "".join(parts) + "</span>" * bool(before)
