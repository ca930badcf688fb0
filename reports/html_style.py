"""The look of every page in a browser: one style sheet, light and dark, desk and phone, screen and print.

Pure: a constant text, made of the table of colours. It names no outside resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from reports.page import Role
from reports.palette import PAPER

_DARK: Final[Mapping[Role, str]] = {
    "ink": "#e7ebf1",
    "muted": "#9da9ba",
    "grid": "#2b333f",
    "run": "#7fb6ea",
    "plan": "#9aa5b5",
    "forecast": "#6fb8f0",
    "good": "#58c7a0",
    "warning": "#f0b357",
    "problem": "#ff8f80",
    "productive": "#5d9fd0",
    "lost": "#e8775c",
    "startup": "#e3ac60",
    "checkpoint": "#93a9c4",
    "evaluation": "#8fc3d8",
    "tail": "#c28c62",
    "pending": "#66727f",
    "idle": "#525d6a",
    "other": "#a583d2",
    "cause_gpu": "#ff7d4a",
    "cause_network": "#6aa9f7",
    "cause_host": "#e57ab8",
    "cause_software": "#f3bd45",
    "cause_storage": "#3fc59f",
    "cause_planned": "#9da9ba",
    "cause_unknown": "#ffffff",
}
"""On a dark page: the hues of the printed one, lighter."""
COLOURS: Final[dict[str, tuple[str, str]]] = {
    "back": ("#f4f6f8", "#0f1319"),
    "paper": ("#ffffff", "#181d26"),
    "link": ("#1a56b0", "#7db2ff"),
    **{role: (PAPER[role], _DARK[role]) for role in PAPER},
}
"""What is drawn in which colour, light and dark: the roles of `reports/page.py`, and the page itself."""
_NO_ROLE: Final = frozenset({"back", "link"})


def _variables(side: int) -> str:
    return "".join(f"--{name}:{pair[side]};" for name, pair in COLOURS.items())


def _roles() -> str:
    return "".join(f".{name}{{color:var(--{name})}}" for name in COLOURS if name not in _NO_ROLE)


def _numeric() -> str:
    cells = ",".join(f".n{n} tr>:nth-child({n})" for n in range(1, 25))
    return f"{cells}{{text-align:right}}"


def _dense(sheet: str) -> str:
    """Return a style sheet without the blanks that only people need."""
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", sheet)).replace(": ", ":").strip()


_SHEET: Final = """
* { box-sizing:border-box }
html { color-scheme:light dark; -webkit-text-size-adjust:100%; scroll-padding-top:1rem }
body {
  margin:0; background:var(--back); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
  font-variant-numeric:tabular-nums; overflow-wrap:break-word;
}
a { color:var(--link) }
a:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline:3px solid var(--link); outline-offset:2px; border-radius:3px;
}
.wrap { max-width:70rem; margin:0 auto; padding:0 1.25rem }
.skip {
  position:absolute; left:-99rem; top:0; background:var(--paper); padding:.6rem 1rem; z-index:2;
}
.skip:focus { left:0 }
.sr {
  position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%);
  white-space:nowrap;
}
header { padding:1.6rem 0 .2rem }
h1 { font-size:1.55rem; line-height:1.2; margin:0; letter-spacing:-.012em; overflow-wrap:anywhere }
.sub { margin:.3rem 0 0; color:var(--muted) }
.now {
  display:flex; flex-wrap:wrap; gap:.3rem .9rem; align-items:center; margin:.7rem 0 0;
  color:var(--muted);
}
.now p { margin:0 }
.pill {
  display:inline-flex; align-items:center; gap:.45em; font-weight:600; color:var(--ink);
  border:1px solid var(--grid); background:var(--paper); border-radius:99px;
  padding:.1rem .75rem .1rem .6rem;
}
.pill::before {
  content:""; width:.6em; height:.6em; border-radius:50%; background:currentColor;
  color:var(--muted);
}
.pill.running::before, .pill.finished::before { color:var(--good) }
.pill.starting::before { color:var(--run) }
.pill.stalled::before, .pill.waiting::before { color:var(--warning) }
.pill.down::before { color:var(--problem); border-radius:0 }
nav ul {
  list-style:none; display:flex; flex-wrap:wrap; gap:.1rem 1.1rem; margin:1.1rem 0 0;
  padding:0 0 .6rem; border-bottom:1px solid var(--grid);
}
nav a { text-decoration:none; padding:.2rem 0; display:inline-block }
nav a:hover { text-decoration:underline }
.verdict {
  font-size:1.3rem; line-height:1.4; letter-spacing:-.008em; margin:1.2rem 0 0;
  padding:1rem 1.2rem; background:var(--paper); border:1px solid var(--grid);
  border-left:5px solid var(--muted); border-radius:6px; text-wrap:pretty;
}
.verdict.good { border-left-color:var(--good) }
.verdict.warning { border-left-color:var(--warning) }
.verdict.problem { border-left-color:var(--problem) }
.verdict.good, .verdict.warning, .verdict.problem, .said.good, .said.warning, .said.problem,
.cards .good, .cards .warning, .cards .problem {
  color:var(--ink);
}
.sign {
  display:inline-flex; justify-content:center; align-items:center; width:1.25em; height:1.25em;
  border-radius:50%; font-size:.72em; font-weight:700; margin-right:.5em; vertical-align:.12em;
  color:var(--paper); background:var(--muted);
}
.sign.good { color:var(--paper); background:var(--good) }
.sign.warning { color:var(--paper); background:var(--warning) }
.sign.problem { color:var(--paper); background:var(--problem) }
.said { border-left:3px solid var(--muted); padding-left:.8rem }
.said.good { border-color:var(--good) }
.said.warning { border-color:var(--warning) }
.said.problem { border-color:var(--problem) }
#lost, .trouble {
  margin:1rem 0 0; padding:.6rem 1rem; border:1px solid var(--warning); border-radius:6px;
  background:var(--paper);
}
.trouble p { margin:.1rem 0 }
section {
  margin:1.4rem 0 0; padding:1.1rem 1.25rem 1.2rem; background:var(--paper);
  border:1px solid var(--grid); border-radius:8px;
}
h2 { font-size:1.12rem; margin:0 0 .7rem; letter-spacing:-.005em }
h3 { font-size:.98rem; margin:1.3rem 0 .4rem }
p { margin:.5rem 0; max-width:52rem }
.verdict { max-width:none }
.cards {
  display:grid; grid-template-columns:repeat(auto-fill,minmax(12.5rem,1fr)); gap:.9rem 1.5rem;
  margin:.4rem 0 .2rem;
}
.cards>div { border-top:2px solid var(--grid); padding-top:.5rem }
.cards>.warning { border-color:var(--warning) }
.cards>.problem { border-color:var(--problem) }
.cards>.good { border-color:var(--good) }
.cards dt { color:var(--muted); font-size:.87rem }
.cards dd { margin:0; font-size:.87rem }
.cards .value { font-size:1.32rem; line-height:1.3; font-weight:620; letter-spacing:-.012em }
.cards .how, .cards .plan { color:var(--muted) }
figure { margin:1rem 0 .4rem }
figcaption { font-weight:600; font-size:.95rem; margin-bottom:.35rem; max-width:52rem }
figure svg { display:block; max-width:100%; height:auto; overflow:visible }
figure svg svg { overflow:hidden }
.narrow { display:none }
.legend {
  list-style:none; display:flex; flex-wrap:wrap; gap:.15rem 1rem; margin:.1rem 0 .5rem; padding:0;
  font-size:.85rem; color:var(--muted);
}
.swatch {
  display:inline-block; width:.8em; height:.8em; border-radius:2px; margin-right:.4em;
  background:currentColor; vertical-align:-.05em;
}
svg text { font-size:12px; font-weight:400 }
svg text { paint-order:stroke; stroke:var(--paper); stroke-width:3px; stroke-linejoin:round }
svg text.paper { stroke:none }
svg text.t { font-weight:600 }
svg text.b { font-weight:600 }
.f { fill:currentColor }
.s { stroke:currentColor; fill:none }
.band { opacity:.2 }
.line { stroke-width:2; stroke-linejoin:round }
.thin { stroke-width:1 }
.rule { stroke-width:1.2 }
.dash { stroke-dasharray:5 4 }
.hollow { stroke-width:1.2 }
.axis { color:var(--muted); stroke-width:1 }
text.plan, text.idle, text.pending, text.grid, text.startup { color:var(--muted) }
.mark { stroke:var(--paper); stroke-width:1 }
.scroll { overflow-x:auto; margin:.6rem 0 }
table { border-collapse:collapse; font-size:.87rem; min-width:min(100%,24rem) }
caption { text-align:left; font-weight:600; font-size:.95rem; padding:0 0 .4rem }
caption span {
  position:sticky; left:0; display:inline-block; width:max-content;
  max-width:calc(min(100vw,70rem) - 4.5rem);
}
.index { width:100% }
.index th, .index td { padding-top:.5rem; padding-bottom:.5rem }
.index .pill { padding-top:0; padding-bottom:0 }
tr>:first-child { position:sticky; left:0; background:var(--paper) }
th, td {
  text-align:left; vertical-align:top; padding:.26rem .85rem .26rem 0;
  border-bottom:1px solid var(--grid); white-space:nowrap;
}
th { font-weight:400 }
thead th { color:var(--muted); border-bottom-color:var(--muted); font-size:.82rem }
tfoot th, tfoot td { font-weight:600; border-bottom:0; border-top:1px solid var(--muted) }
th:last-child, td:last-child { padding-right:.2rem }
tbody tr:hover { background:color-mix(in srgb,var(--grid) 45%,transparent) }
.notes, .notes p { color:var(--muted); font-size:.85rem }
ul.notes { padding-left:1.1rem; margin:.5rem 0; max-width:60rem }
.notes p { margin:.25rem 0 }
.stops { list-style:none; margin:.4rem 0 0; padding:0; font-size:.9rem }
.stops li { border-bottom:1px solid var(--grid) }
.stops summary {
  cursor:pointer; display:grid;
  grid-template-columns:1.1rem 2.4rem 9.5rem minmax(7rem,1fr) minmax(7rem,1fr) 8.5rem;
  gap:.1rem .9rem; padding:.4rem 0; align-items:baseline; list-style:none;
}
.stops summary::-webkit-details-marker { display:none }
.stops summary::before { content:"▸"; color:var(--muted) }
.stops [open]>summary::before { content:"▾" }
.stops summary:hover { background:color-mix(in srgb,var(--grid) 45%,transparent) }
.stops .cause { font-weight:600 }
.stops .cost { text-align:right }
.stops .dim { color:var(--muted) }
.proof { margin:.1rem 0 .8rem 2rem }
.proof dl { display:grid; grid-template-columns:max-content 1fr; gap:.15rem 1rem; margin:.3rem 0 }
.proof dt { color:var(--muted) }
.proof dd { margin:0 }
pre {
  margin:.4rem 0; padding:.6rem .8rem; background:var(--back); border:1px solid var(--grid);
  border-radius:4px; white-space:pre-wrap; overflow-wrap:anywhere;
  font:.85em/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;
  unicode-bidi:plaintext;
}
footer { margin:1.6rem 0 2.5rem; color:var(--muted); font-size:.87rem }
footer ul {
  list-style:none; display:flex; flex-wrap:wrap; gap:.2rem 1.1rem; padding:0; margin:.2rem 0;
}
@media (max-width:48rem) {
  body { font-size:15px }
  .wrap { padding:0 .8rem }
  section { padding:.9rem .85rem 1rem; border-radius:6px }
  .verdict { font-size:1.12rem; padding:.8rem .9rem }
  .wide { display:none }
  .narrow { display:block }
  .narrow svg { width:100%; max-width:30rem }
  .cards { grid-template-columns:repeat(auto-fill,minmax(8.2rem,1fr)); gap:.8rem .9rem }
  .cards .value { font-size:1.15rem }
  .stops summary { grid-template-columns:1.1rem 1.8rem 1fr auto; gap:0 .5rem; padding:.5rem 0 }
  .stops summary>:nth-child(3) { grid-area:2/3/3/5 }
  .stops summary>:nth-child(4) { grid-area:3/3/4/5 }
  .proof { margin-left:0 }
  nav ul { gap:.1rem .9rem }
  nav a, footer a { padding:.3rem 0 }
}
@media print {
  :root { LIGHT }
  html { color-scheme:light }
  body { background:none; font-size:10pt }
  nav, .skip, footer ul, #lost { display:none }
  .wrap { max-width:none; padding:0 }
  section { border:0; padding:0; margin:1.1rem 0 0 }
  .verdict {
    border:0; border-left:4px solid var(--muted); border-radius:0; padding:.2rem 0 .2rem .8rem;
  }
  h2 { border-bottom:1px solid var(--muted); padding-bottom:.15rem }
  h2, h3, figcaption, caption { break-after:avoid }
  figure, tr, .cards>div, .stops li { break-inside:avoid }
  .scroll { overflow:visible }
  table { font-size:7.5pt }
  th, td { padding:.12rem .5rem .12rem 0 }
  .wide { display:block }
  .narrow { display:none }
  * { print-color-adjust:exact; -webkit-print-color-adjust:exact }
}
@media (prefers-reduced-motion:no-preference) {
  a, summary { transition:background-color .12s }
}
"""

STYLE: Final = (
    f":root{{{_variables(0)}}}@media (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}"
    + _roles()
    + _numeric()
    + _dense(_SHEET.replace("LIGHT", _variables(0)))
)
