"""What every page has: its head with the styles, and the script that tells the values under the pointer."""

from paddle_nezha.training.report.curves import BOTTOM, HEIGHT, LEFT, PLOT, TOP

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title><!--title--></title>
<style>
:root {
  --paper: #fcfcfa; --card: #fff; --ink: #1d2327; --soft: #5d686f; --line: #dfe3e4; --faint: #eef1f1;
  --good: #1a7f4b; --bad: #c4252f; --open: #8a5a00;
  --c0: #1667c9; --c1: #c2500f; --c2: #00846a; --c3: #b3488c; --c4: #8c6d00; --c5: #4c5a66;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1b2024; --ink: #e4e8ea; --soft: #98a4ab; --line: #30383d; --faint: #262e33;
    --good: #4cc38a; --bad: #ff7b80; --open: #e3b341;
    --c0: #69acff; --c1: #ff9a5c; --c2: #41d1a8; --c3: #ec9acb; --c4: #e0c04a; --c5: #b5c1ca;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 1400px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC",
    sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { margin: 0; font-size: 2.4rem; line-height: 1.15; letter-spacing: .01em; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.25rem; overflow-wrap: anywhere; }
p { margin: .3rem 0; }
.soft { color: var(--soft); }
.r0 { --c: var(--c0); } .r1 { --c: var(--c1); } .r2 { --c: var(--c2); }
.r3 { --c: var(--c3); } .r4 { --c: var(--c4); } .r5 { --c: var(--c5); }
.one .held, .one .dots { --c: var(--c1); }
i { display: inline-block; width: .7em; height: .7em; border-radius: 50%; background: var(--c); margin-right: .4em; }
.one i { display: none; }
.done { color: var(--good); } .open { color: var(--open); }
.runs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1rem; }
.runs { margin: 1.2rem 0 1.6rem; }
.card, figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; min-width: 0; }
.card { padding: .9rem 1.2rem 1.1rem; }
.card h2 { margin: 0; font-size: 1.1rem; }
.one .card h2 { display: none; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .7rem 0; }
dt { color: var(--soft); font-size: .82rem; }
dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; padding: .22rem 1.4rem .22rem 0; border-bottom: 1px solid var(--line); }
th, td { vertical-align: baseline; }
tbody th { font-weight: 400; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.numbers { min-width: min(100%, 46rem); }
.numbers td, .numbers th + th { text-align: right; white-space: nowrap; padding: .22rem 0 .22rem 1rem; }
input[type=radio] { position: absolute; opacity: 0; }
input[type=radio] + label {
  display: inline-block; padding: .25rem .9rem; border: 1px solid var(--line); cursor: pointer; color: var(--soft);
  background: var(--card); font-size: .9rem; border-radius: 6px; margin-right: .4rem;
}
input[type=radio]:checked + label { color: var(--ink); border-color: var(--ink); font-weight: 600; }
input[type=radio]:focus-visible + label { outline: 2px solid var(--c0); outline-offset: 2px; }
svg.by-tokens, #by-tokens:checked ~ main svg.by-step { display: none; }
#by-tokens:checked ~ main svg.by-tokens { display: block; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .85rem; color: var(--soft); margin: .9rem 0 0; }
.legend svg { display: inline-block; width: auto; height: 12px; vertical-align: -1px; margin-right: .4rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 370px), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .7rem .8rem .5rem; }
figcaption { padding-left: .3rem; }
.read { display: flex; flex-wrap: wrap; gap: 0 1rem; padding-left: .3rem; margin: 0 0 .3rem; }
.read { font-size: .85rem; min-height: 1.5em; }
.one .learnt { color: var(--c0); } .one .measured { color: var(--c1); }
.at { margin-left: auto; padding-right: .3rem; }
.several .at { order: -1; flex-basis: 100%; }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 12.5px; font-family: inherit; }
svg path { fill: none; }
.grid { stroke: var(--faint); } .edge { stroke: var(--soft); }
.raw { stroke: var(--c); opacity: .24; stroke-linejoin: round; }
.several .raw { opacity: .18; }
.mean, .held { stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.held { stroke-dasharray: 5 3.5; }
.dots { stroke: var(--c); stroke-width: 6; stroke-linecap: round; }
.skipped { stroke: var(--bad); stroke-width: 1.6; }
svg .beyond { fill: var(--c); }
.pointer { stroke: var(--ink); opacity: .45; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 2.5rem; }
.tables { align-items: start; }
details { margin-top: 2.2rem; min-width: 0; }
summary { cursor: pointer; font-size: 1.25rem; font-weight: 600; margin-bottom: .4rem; }
details table { width: 100%; }
details td { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .93em; }
details td { overflow-wrap: anywhere; }
.differs th { font-weight: 600; } .differs td { color: var(--open); }
h3 { margin: 1.4rem 0 .4rem; font-size: 1.05rem; }
small { font-size: .82rem; font-weight: 400; }
.results { margin: 1.2rem 0 2.4rem; }
.results dl { margin: .9rem 0; }
.split { display: none; }
#split-test:checked ~ .test, #split-dev:checked ~ .dev { display: block; }
.blocks { display: flex; flex-wrap: wrap; gap: 0 3rem; align-items: flex-start; }
.blocks > div { max-width: 100%; min-width: 0; }
.blocks p { max-width: 28rem; }
.blocks .numbers { min-width: 0; }
.heat { border-collapse: separate; border-spacing: 2px; }
.heat th { border: 0; padding: .2rem .5rem; }
.heat td { border: 0; padding: .3rem .6rem; text-align: right; min-width: 3rem; border-radius: 3px; }
.heat .none { color: var(--soft); background: var(--faint); }
.heat .right { background: rgb(26 160 95 / calc(.08 + .52 * var(--h))); }
.heat .wrong { background: rgb(214 60 50 / calc(.08 + .62 * var(--h))); }
.bins { max-width: 340px; }
.bins .bar { fill: var(--c0); fill-opacity: calc(.15 + .75 * var(--h)); }
.bins .level { stroke: var(--c0); stroke-width: 2; }
.bins .diagonal { stroke: var(--ink); stroke-dasharray: 4 4; opacity: .7; }
.errors { width: 100%; }
.errors td { overflow-wrap: anywhere; min-width: 5rem; }
.said { white-space: pre-wrap; min-width: min(100%, 16rem); max-height: 16rem; overflow-y: auto; }
.said + .said { border-top: 1px dashed var(--line); margin-top: .3rem; padding-top: .3rem; }
.errors ul { margin: .3rem 0; padding-left: 1.2rem; color: var(--soft); }
.errors li b { color: var(--ink); font-weight: 600; }
.missed { border-bottom: 3px solid var(--good); }
.found { background: rgb(214 60 50 / .22); }
@media (max-width: 600px) {
  .numbers { font-size: .8rem; }
  .numbers tbody th, .numbers th + th { white-space: normal; }
  .numbers td, .numbers th + th { padding-left: .5rem; }
  .card { padding: .8rem .8rem 1rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  input[type=radio] + label { display: none; }
  figure, .card, tr { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style></head>
"""

# The values are read back from the curves, whose coordinates have the digits a read-out shows.
SCRIPT = f"""
"use strict";
const LEFT = {LEFT}, PLOT = {PLOT}, TOP = {TOP}, HIGH = {HEIGHT - TOP - BOTTOM}, BOTTOM = {HEIGHT - BOTTOM};
const charts = [...document.querySelectorAll("svg[data-axis]")].map(svg => {{
  const read = svg.parentNode.querySelector(".read");
  return {{ svg, read, kept: [...read.childNodes], axis: svg.dataset.axis, curves: null, pointer: null }};
}});
"""
SCRIPT += """
function curves(chart) {
  chart.curves ??= [...chart.svg.querySelectorAll("path[data-kind]")].map(path => ({
    run: path.dataset.run, kind: path.dataset.kind,
    points: path.getAttribute("d").slice(1).split("L").map(point => point.split(" ").map(Number)),
  }));
  return chart.curves;
}
function value(svg, y) {
  const share = 1 - (y - TOP) / HIGH, [low, high] = svg.dataset.y.split(" ").map(Number);
  const x = svg.dataset.log === "1" ? low * (high / low) ** share : low + share * (high - low);
  if (svg.dataset.form === "share") return (100 * x).toFixed(1) + "%";
  if (Math.abs(x) >= 1000) return Math.round(x).toLocaleString("en");
  return x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential(2) : x.toPrecision(4);
}
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle; else high = middle;
  }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
}
function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function show(axis, x) {
  for (const chart of charts.filter(each => each.axis === axis)) {
    const at = Math.round((x - LEFT) / PLOT * Number(chart.svg.dataset.x));
    const told = [];
    for (const curve of curves(chart)) {
      if (x > curve.points.at(-1)[0] + 2) continue;
      const span = element("span", undefined, curve.kind === "training" ? "learnt" : "measured");
      const shown = value(chart.svg, nearest(curve.points, x)[1]);
      span.append(element("i", undefined, "r" + curve.run), curve.kind + " ", element("b", shown));
      told.push(span);
    }
    told.push(element("span", `${axis} ${at.toLocaleString("en")}`, "soft at"));
    chart.read.replaceChildren(...told);
    if (!chart.pointer) {
      chart.pointer = document.createElementNS("http://www.w3.org/2000/svg", "path");
      chart.pointer.setAttribute("class", "pointer");
      chart.svg.append(chart.pointer);
    }
    chart.pointer.setAttribute("d", `M${x.toFixed(1)} ${TOP}V${BOTTOM}`);
  }
}
function hide() {
  for (const chart of charts) {
    chart.read.replaceChildren(...chart.kept);
    chart.pointer?.remove();
    chart.pointer = null;
  }
}
for (const { svg, axis } of charts) {
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (x < LEFT || x > LEFT + PLOT) hide(); else show(axis, x);
  });
  svg.addEventListener("pointerleave", hide);
}
"""
