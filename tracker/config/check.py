"""A parsed config file against the list of keys: values that may be used, and all that is wrong.

Pure. Nothing stops at the first fault: a person who edits by hand wants all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracker.config.keys import SECRETS, SECTIONS, Section
from tracker.core.errors import InvalidValue, TrackerError, nearest, shown


class ConfigError(TrackerError):
    """A config file cannot be used; the message lists every fault found."""

    def __init__(self, path: str, problems: Iterable[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = len(self.problems)
        if count == 1:
            text = f"{path}: {self.problems[0]}"
        else:
            text = "\n  ".join([f"{path}: {count} problems", *self.problems])
        super().__init__(text)


@dataclass(slots=True)
class Checked:
    """One table after checking."""

    values: dict[str, Any] = field(default_factory=dict)
    """Checked values of the keys that were set."""
    others: dict[str, Any] = field(default_factory=dict)
    """Keys of an open table that are somebody else's, as they stood."""


def check_table(section: Section, table: object, problems: list[str], *, where: str = "") -> Checked:
    """Check one table; `where` is its name in messages, such as "source[2]"."""
    where = where or section.name
    checked = Checked()
    if not isinstance(table, Mapping):
        problems.append(f"{where} = {shown(table)}: expected a table. Write {section.header} above its keys")
        return checked
    known = {key.name: key for key in section.keys}
    inner = {name.rpartition(".")[2] for name in SECTIONS if name.rpartition(".")[0] == section.name}
    for name, value in table.items():
        if name in inner:
            continue
        if name in known:
            try:
                checked.values[name] = known[name].kind.read(f"{where}.{name}", value)
            except InvalidValue as error:
                problems.append(str(error))
        elif section.open and name.lower() not in SECRETS:
            checked.others[name] = value
        else:
            problems.append(unknown_key(where, name, section, inner))
    for key in section.keys:
        if key.needed and key.name not in table:
            example = f". Write {key.name} = {key.example} under {section.header}" if key.example else ""
            problems.append(f"{where}.{key.name}: missing, expected {key.kind.expected}{example}")
    return checked


def check_one(document: Mapping[str, Any], section: Section, problems: list[str]) -> Checked | None:
    """Check a table that may stand once; None where it is absent."""
    table = _inside(document, section.name)
    if table is None:
        return None
    if isinstance(table, list):
        problems.append(f"{section.name}: expected one table: {section.header}, in single brackets")
        return None
    return check_table(section, table, problems)


def check_many(document: Mapping[str, Any], section: Section, problems: list[str]) -> list[Checked]:
    """Check a table that may stand many times; messages count from 1."""
    tables = _inside(document, section.name)
    if tables is None:
        return []
    if isinstance(tables, Mapping):
        problems.append(f"{section.name}: expected a list of tables: {section.header}, in double brackets")
        return []
    if not isinstance(tables, list):
        problems.append(f"{section.name} = {shown(tables)}: expected tables. Write {section.header}")
        return []
    return [
        check_table(section, table, problems, where=f"{section.name}[{number}]")
        for number, table in enumerate(tables, start=1)
    ]


def check_top(document: Mapping[str, Any], problems: list[str]) -> None:
    """Report what stands at the top level and is no table of ours."""
    tops = {name.split(".")[0] for name in SECTIONS}
    for name in document:
        if name in tops:
            continue
        homes = [
            s
            for s in SECTIONS.values()
            if s.name != "plan.sources" and any(key.name == name for key in s.keys)
        ]
        if homes and not isinstance(document[name], (Mapping, list)):
            place = " or ".join(dict.fromkeys(home.header for home in homes[:3]))
            problems.append(f"{_quoted(name)}: it stands outside any table. Move it below {place}")
        else:
            hint = nearest(name, tops)
            tables = ", ".join(f"[{top}]" for top in sorted(tops))
            problems.append(f"{_quoted(name)}: unknown table{_then(hint)}. Known: {tables}")


def unknown_key(where: str, name: str, section: Section, inner: Iterable[str] = ()) -> str:
    """Return the sentence about a key that no table of ours has there. Its value is never shown."""
    known = [key.name for key in section.keys] + sorted(inner)
    full = f"{where}.{_quoted(name)}"
    if name.lower() in SECRETS or (section.name == "webhook" and name.lower() == "url"):
        ways = {"report.mail": "password_file", "webhook": "url_file"}
        how = f"name a file instead: {ways[section.name]}" if section.name in ways else "leave it out"
        return f"{full}: secrets never stand in the config, {how}"
    hint = nearest(name, known)
    if not hint:
        homes = [s.header for s in SECTIONS.values() if any(key.name == name for key in s.keys)]
        hint = f"it belongs below {homes[0]}" if homes else ""
    return f"{full}: unknown key{_then(hint)}. Known here: {', '.join(known)}"


def _inside(document: Mapping[str, Any], name: str) -> Any:
    here: Any = document
    for part in name.split("."):
        if not isinstance(here, Mapping):
            return None  # said already, where the outer table was checked
        here = here.get(part)
    return here


def _then(hint: str) -> str:
    """Return a hint as the rest of a sentence that goes on."""
    return f", {hint.rstrip('?')}" if hint else ""


def _quoted(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isalnum() and len(name) <= 80 else shown(name, 80)
