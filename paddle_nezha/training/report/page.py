"""The page: a run, or several over one another, in one HTML file that needs nothing else."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from paddle_nezha._files import PathLike, replaced
from paddle_nezha.training.report.answers import results_section
from paddle_nezha.training.report.curves import AXES, charts, legend
from paddle_nezha.training.report.results import Results
from paddle_nezha.training.report.runs import ReportError, Run
from paddle_nezha.training.report.style import HEAD, SCRIPT
from paddle_nezha.training.report.summary import half_life_of, summary
from paddle_nezha.training.report.told import LEARNING, OTHER, duration, in_order, metric, text, told

PAGE = "report.html"
MOST_RUNS = 6  # as many colours as can be told apart


def write_report(runs: "Sequence[Run]", out: PathLike, results: Optional[Results] = None) -> Path:
    """Draws runs into one HTML file, and gives its path; arguments as of `render`.

    Raises:
        ReportError: there are none, or more than can be told apart.
        OSError: it cannot be written.
    """
    page = render(runs, results)
    with replaced(out) as path:
        Path(path).write_text(page, encoding="utf-8")
    return Path(out)


def render(runs: "Sequence[Run]", results: Optional[Results] = None) -> str:
    """The page of one run, or of up to six over one another.

    Args:
        results: of the fine-tuning that the runs are the seeds of; told before the curves.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ReportError(
            f"Expected 1 to {MOST_RUNS} runs, got {len(runs)}: more colours cannot be told apart. Draw fewer at a time."
        )
    names, half_life = _names(runs), half_life_of(runs)
    axes = AXES if all(run.total("tokens") is not None for run in runs) else AXES[:1]
    title = names[0] if len(runs) == 1 else f"{len(runs)} runs"
    if results is not None:
        title = results.folder.resolve().name
    switch = '<p class="soft">By step: the tokens of each are not known.</p>'
    if len(axes) > 1:
        switch = (
            '<input type="radio" name="axis" id="by-step" checked><label for="by-step">by step</label>'
            '<input type="radio" name="axis" id="by-tokens"><label for="by-tokens">by tokens seen</label>'
        )
    cards = [_card(index, run, name, half_life) for index, (run, name) in enumerate(zip(runs, names))]
    kinds = " and ".join(dict.fromkeys(str(run.description["kind"]) for run in runs))
    return (
        HEAD.replace("<!--title-->", text(title), 1)
        + f'<body class="{"one" if len(runs) == 1 else "several"}"><header><p class="soft">{text(kinds)}, drawn by '
        f"paddle_nezha</p><h1>{text(title)}</h1></header>"
        + ("" if results is None else results_section(results))
        + f'<section class="runs">{"".join(cards)}</section>{_left_out(runs, results)}{switch}<main>'
        f"{legend(runs, names, half_life)}{charts(runs, axes, half_life)}</main>"
        f"{_settings(runs, names)}<script>{SCRIPT}</script></body></html>\n"
    )


def _left_out(runs: "Sequence[Run]", results: Optional[Results]) -> str:
    if results is None or len(results.seeds) <= len(runs):
        return ""
    return (
        f'<p class="soft">Curves of {len(runs)} of {len(results.seeds)} seeds, as more cannot be told apart; '
        "<code>paddle-nezha report</code> draws the others from their own folders.</p>"
    )


def _names(runs: "Sequence[Run]") -> "list[str]":
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def _card(index: int, run: Run, name: str, half_life: float) -> str:
    numbers = summary(run, half_life)
    about = "≈ " if numbers["estimated"] else ""
    word, _, rest = run.state.partition(": ")
    facts = [("steps", f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else ""))]
    if numbers["tokens"] is not None:
        facts.append(("tokens seen", f"{about}{numbers['tokens']:,}"))
    if numbers["hours"] is not None:
        facts.append(("time in steps", f"{about}{duration(3600 * numbers['hours'])}"))
    if numbers["tokens_per_second"] is not None:
        facts.append(("mean tokens/s", f"{numbers['tokens_per_second']:,.0f}"))
    facts.append(("skipped steps", f"{numbers['skipped_steps']:,}"))
    tiles = "".join(f"<div><dt>{text(fact)}</dt><dd>{text(value)}</dd></div>" for fact, value in facts)
    state = f'<b class="{"done" if run.is_finished else "open"}">{text(word)}</b> {text(rest)}'
    heading = f"<h2><i class=r{index}></i>{text(name)}</h2>"
    return (
        f'<article class="card">{heading}<p>{state}; last line {run.written:%Y-%m-%d %H:%M}</p>'
        f"<dl>{tiles}</dl>{_values(numbers['values'])}</article>"
    )


def _values(values: "dict[str, dict[str, dict[str, float]]]") -> str:
    """Training beside the other kinds: a row for each number of learning."""
    training = values.get("training", {})
    others = {kind: found for kind, found in values.items() if kind != "training"}
    names = dict.fromkeys(name for found in (*others.values(), training) for name in found)
    names = {name: None for name in in_order(names) if metric(name).section in (LEARNING, OTHER)}
    if not names:
        return ""
    heads = ["", "training, mean"]
    for kind in others:
        heads += [f"{kind.replace('_', ' ')}, last", "best", "at step"]
    rows = []
    for name in names:
        form = metric(name).form
        cells = [told(training[name]["last"], form) if name in training else ""]
        for found in others.values():
            value = found.get(name, {})
            cells += [told(value[key], form) if key in value else "" for key in ("last", "best")]
            cells.append(f"{value['best_step']:,}" if "best_step" in value else "")
        rows.append((metric(name).title, cells))
    head = "".join(f"<th>{text(each)}</th>" for each in heads)
    body = "".join(f"<tr><th>{text(t)}</th>{''.join(f'<td>{text(c)}</td>' for c in cells)}</tr>" for t, cells in rows)
    return f'<div class="wide"><table class="numbers"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _settings(runs: "Sequence[Run]", names: "Sequence[str]") -> str:
    tables = []
    for title, described in (
        ("Settings", [_flat(run.description.get("settings")) for run in runs]),
        ("Facts", [_flat({k: v for k, v in run.description.items() if k != "settings"}) for run in runs]),
    ):
        rows = []
        for key in dict.fromkeys(key for each in described for key in each):
            values = [each.get(key, "") for each in described]
            differs = ' class="differs"' if len(set(values)) > 1 else ""
            cells = "".join(f"<td>{text(value)}</td>" for value in values)
            rows.append(f"<tr{differs}><th>{text(key)}</th>{cells}</tr>")
        heads = "".join(f"<th><i class=r{i}></i>{text(name)}</th>" for i, name in enumerate(names))
        head = f"<thead><tr><th></th>{heads}</tr></thead>" if len(runs) > 1 else ""
        tables.append(
            f'<details open><summary>{title}</summary><div class="wide"><table>{head}<tbody>{"".join(rows)}</tbody>'
            "</table></div></details>"
        )
    return f'<section class="tables">{"".join(tables)}</section>'


def _flat(described: Any, before: str = "") -> "dict[str, str]":
    """Nested objects as dotted keys, and values as a person would write them."""
    found: "dict[str, str]" = {}
    for key, value in described.items() if isinstance(described, dict) else ():
        name = f"{before}{key}"
        if isinstance(value, dict) and value:
            # What is under `facts` is among facts already.
            found.update(_flat(value, "" if name == "facts" else f"{name}."))
        else:
            found[name] = (
                value if isinstance(value, str) else "–" if value is None else json.dumps(value, ensure_ascii=False)
            )
    return found
