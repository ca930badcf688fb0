"""The landing page of the sidecar: a run's state and its ledger as one plain HTML page.

Pure. No outside resource, no script. Text of logs is hostile: everything is escaped, and characters that
would reorder or hide text are shown as question marks.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from reports.ledger import attempts_table, total_table
from reports.status import status_pairs
from reports.tables import Table
from tracker.core.snapshot import Snapshot

REFRESH_S: Final = 15
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
.n { text-align: right; } tfoot td { font-weight: 600; } .scroll { overflow-x: auto; }
.problem { border-left: 4px solid #c33; padding-left: .8rem; }
pre { white-space: pre-wrap; margin: 0; font: inherit; overflow-wrap: anywhere; }
"""


def page(run: str, snapshot: Snapshot | None, problems: Sequence[str], *, version: str) -> str:
    """Return the page of a run; `problems` are what is wrong with the tracker now."""
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="refresh" content="{REFRESH_S}">',
        f"<title>{text(run)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{text(run)}</h1>",
    ]
    parts += [f'<p class="problem">{text(problem)}</p>' for problem in problems]
    if snapshot is None:
        parts.append("<p>No snapshot yet: the sources are being read.</p>")
    else:
        rows = [(name, value) for name, value in status_pairs(snapshot) if name != "run"]
        cells = "".join(
            f'<tr><th scope="row">{text(name)}</th><td><pre>{text(value)}</pre></td></tr>'
            for name, value in rows
        )
        parts.append(f"<table>{cells}</table>")
        parts += [_table(total_table(snapshot)), _table(attempts_table(snapshot))]
    parts.append(
        '<p><a href="/metrics">metrics</a> · <a href="/api/v1/status">status</a> · '
        '<a href="/api/v1/ledger">ledger</a> · <a href="/readyz">readyz</a> · '
        f'<a href="/healthz">healthz</a> · tracker {text(version)}</p></body></html>\n'
    )
    return "".join(parts)


def text(value: str) -> str:
    """Return hostile text as HTML text.

    >>> text("<b>" + chr(0x202E) + "x")
    '&lt;b&gt;?x'
    """
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in value), quote=True)


def _table(table: Table) -> str:
    right = [heading.startswith(">") for heading in table.headings]

    def cells(row: Sequence[str], tag: str) -> str:
        made = [
            f"<{tag}{' class=n' if numeric else ''}>{text(cell)}</{tag}>"
            for cell, numeric in zip(row, right, strict=True)
        ]
        return f"<tr>{''.join(made)}</tr>"

    head = cells([heading.removeprefix(">") for heading in table.headings], "th")
    body = "".join(cells(row, "td") for row in table.rows)
    foot = f"<tfoot>{cells(table.foot, 'td')}</tfoot>" if table.foot is not None else ""
    notes = "".join(f"<p>{text(note)}</p>" for note in table.notes)
    drawn = f"<table><thead>{head}</thead><tbody>{body}</tbody>{foot}</table>"
    return f'<h2>{text(table.title)}</h2><div class="scroll">{drawn}</div>{notes}'


def index(rows: Sequence[tuple[str, str, Snapshot | None, Sequence[str]]], *, version: str) -> str:
    """Return the page of several runs: name, path of its page, snapshot, and what is wrong, of each."""
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="refresh" content="{REFRESH_S}">',
        f"<title>Training runs</title><style>{_STYLE}</style></head><body><h1>Training runs</h1>",
        "<table><thead><tr><th>run</th><th>state</th><th>problems</th></tr></thead><tbody>",
    ]
    for run, path, snapshot, problems in rows:
        state = snapshot.state if snapshot is not None else "no snapshot yet"
        cells = (f'<a href="{text(path)}">{text(run)}</a>', text(state), text("; ".join(problems)))
        parts.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    parts.append(
        '</tbody></table><p><a href="/metrics">metrics</a> · <a href="/api/v1/runs">runs</a> · '
        '<a href="/readyz">readyz</a> · <a href="/healthz">healthz</a> · '
        f"tracker {text(version)}</p></body></html>\n"
    )
    return "".join(parts)
