"""The report as Markdown, for a CI summary."""

from parity.bench.report import tables
from parity.bench.result import Bench
from parity.report.markdown import code, prose, table


def render(bench: Bench) -> str:
    word, sentence = tables.headline(bench)
    parts = [f"## Speed: {word}", f"{prose(sentence)}.", prose(tables.conditions(bench))]
    if bench.stopped:
        parts.append(f"**The run was {prose(bench.stopped)}; this is what was measured by then.**")
    for each in (
        tables.figures(bench),
        *tables.speeds(bench),
        tables.memory(bench),
        tables.accuracy(bench),
        tables.every_time(bench),
        tables.engines(bench),
    ):
        if each is not None:
            parts.append(f"### {prose(each.title)}")
            if each.remark:
                parts.append(prose(each.remark))
            parts.append(table(list(map(prose, each.header)), [list(map(prose, row)) for row in each.rows]))
    if bench.notes:
        parts += ["### Notes", "\n".join(f"- {prose(note)}" for note in bench.notes)]
    facts = [[prose(name), prose(value)] for name, value in bench.environment.items()]
    parts += ["### Environment", table(["", ""], [*facts, ["command", code(bench.command)]])]
    return "\n\n".join(parts) + "\n"
