"""Kills a sidecar again and again while logs are written, and compares its store with an undisturbed one.

Edge: starts processes, writes files. Three stores of the same logs: the one whose sidecar is killed, one
whose sidecar follows the same writing undisturbed, one that is read once when all is written.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.content import content, differences, rows
from tests.torture.nursery import Nursery
from tests.torture.sidecar import Sidecar, ask
from tests.torture.stage import Plot, Stage
from tracker import app
from tracker.core.book import Book
from tracker.core.documents import interruptions_document, ledger_document, status_document
from tracker.core.summary import snapshot
from tracker.store import Reader

LONG_AFTER_US = 1_800_000_000_000_000
_FORESEES = 0.1
"""Share of the lives that make forecasts too."""
_WRONG = 0.1
"""Share of the lives in which the clock is wrong by up to an hour, and is set right."""
_FRESH = 0.1
"""Share of the lives that are processes of their own from the first instruction on."""
_QUESTION_EVERY = 12
_REPORT_EVERY = 60


@dataclass(slots=True)
class Tally:
    """What was done, and what came of it."""

    plot: str
    seed: int
    kills: int = 0
    fresh: int = 0
    """Of them, of processes that were not forked from one that had loaded the modules."""
    early: int = 0
    """Kills before it listened."""
    stepped: int = 0
    """Lives in which the clock was set."""
    frozen: int = 0
    """Times it was stopped with SIGSTOP for a while."""
    killed_frozen: int = 0
    scrapes: int = 0
    questions: int = 0
    """`tracker status` and `tracker ledger` beside it."""
    reports: int = 0
    rows: int = 0
    """In the end."""
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Sum up."""
        for name in (
            "kills",
            "fresh",
            "early",
            "stepped",
            "frozen",
            "killed_frozen",
            "scrapes",
            "questions",
            "reports",
            "rows",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults


class _Scraper(threading.Thread):
    """Scrapes the present life until it ends; notes pages that are no pages, and counters that fall."""

    def __init__(self, sidecar: Sidecar) -> None:
        super().__init__(daemon=True)
        self.sidecar = sidecar
        self.scrapes = 0
        self.faults: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            answer = self.sidecar.get("/metrics", limit_s=5.0)
            if answer is None or self.over.is_set():
                continue
            status, text = answer
            self.scrapes += 1
            if status != 200 or "# TYPE training_net_tokens gauge" not in text:
                self.faults.append(f"/metrics answered {status}: {text[:200]!r}")


def torture(
    folder: Path,
    plot: Plot,
    *,
    seed: int,
    kills: int,
    life_s: float = 1.2,
    reports: bool = True,
    nursery: Nursery | None = None,
) -> Tally:
    """Play one run under so many kills; return what was done and every difference."""
    chance = random.Random(f"kills/{seed}")
    tally = Tally(plot=plot.name, seed=seed)
    stage = Stage(plot, folder, seed=seed)
    stage.configs()
    whole = Sidecar(folder, "whole.toml", foresees=False)
    sidecar: Sidecar | None = None
    try:
        each = -(-len(stage.todo) // max(1, kills - 1))
        for number in range(kills):
            foresees, fresh = chance.random() < _FORESEES, chance.random() < _FRESH
            wrong = not fresh and nursery is not None and chance.random() < _WRONG
            clock_s = chance.uniform(-3600, 3600) if wrong else 0.0
            sidecar = Sidecar(folder, foresees=foresees, nursery=None if fresh else nursery, clock_s=clock_s)
            tally.stepped += wrong
            tally.fresh += fresh or nursery is None
            _one_life(sidecar, stage, chance, tally, each, life_s)
            if number % _QUESTION_EVERY == 2:
                _question(folder, tally)
            if reports and number % _REPORT_EVERY == 14:
                _report(folder, tally)
            if chance.random() < 0.2:
                stage.release()
        sidecar = Sidecar(folder)
        stage.finish()
        sidecar.until(lambda: sidecar is not None and sidecar.url is not None, "to listen")
        time.sleep(0.3)
        for life in (sidecar, whole):
            status = life.stop()
            if status != 0:
                tally.faults.append(f"SIGTERM ended it with {status}: {life.said[-500:]}")
        _compare(folder, tally)
    finally:
        for one in (sidecar, whole):
            if one is not None:
                one.end()
    return tally


def _one_life(
    sidecar: Sidecar, stage: Stage, chance: random.Random, tally: Tally, each: int, life_s: float
) -> None:
    """Let it live for a random while, from its very first moment or once it listens, then kill it."""
    scraper = _Scraper(sidecar)
    scraper.start()
    try:
        if chance.random() < 0.25:
            stage.play(each, chance.uniform(0.01, life_s))
        else:
            for _ in range(500):
                if sidecar.url is not None or sidecar.process.poll() is not None:
                    break
                stage.play(1, 0.05)
            _listening(sidecar, stage, chance, tally, each, life_s)
        tally.early += sidecar.url is None
        if sidecar.process.poll() not in (None, -9):
            said = sidecar.said[-800:]
            tally.faults.append(f"it ended by itself with {sidecar.process.returncode}: {said}")
    finally:
        scraper.over.set()
        if sidecar.process.poll() is None:
            sidecar.kill()
        tally.kills += 1
        scraper.join(10)
        tally.scrapes += scraper.scrapes
        tally.faults += scraper.faults
    if "Traceback" in sidecar.said:
        tally.faults.append(f"it printed a traceback: {sidecar.said[-1500:]}")


def _listening(
    sidecar: Sidecar, stage: Stage, chance: random.Random, tally: Tally, each: int, life_s: float
) -> None:
    """Write beside it; one time in eight it is frozen for a while, and may be killed in that state."""
    seconds = chance.uniform(0.0, life_s) if chance.random() < 0.9 else chance.uniform(life_s, 3 * life_s)
    if chance.random() >= 1 / 8:
        stage.play(each, seconds)
        return
    stage.play(each // 2, seconds)
    tally.frozen += 1
    dies = chance.random() < 0.5
    asleep_s = chance.uniform(0.2, 2.0)

    def meanwhile() -> None:
        stage.play(each // 2, asleep_s)
        if dies:
            sidecar.kill()

    sidecar.freeze(meanwhile)
    tally.killed_frozen += dies
    if not dies:
        stage.play(1, chance.uniform(0.05, 0.5))


def _question(folder: Path, tally: Tally) -> None:
    for command in ("status", "ledger"):
        status, out, err = ask(folder, command, "--config", "run.toml", "--json")
        tally.questions += 1
        if status != 0:
            if "no store" in err and not (folder / "tracker.db").exists():
                continue
            tally.faults.append(f"tracker {command} ended with {status}: {err[-500:]}")
        elif json.loads(out)["schema"] != 1:
            tally.faults.append(f"tracker {command} printed something else: {out[:200]}")


def _report(folder: Path, tally: Tally) -> None:
    status, _, err = ask(folder, "report", "--config", "run.toml", "--out", "report.pdf")
    tally.reports += 1
    if status != 0:
        tally.faults.append(f"tracker report ended with {status}: {err[-500:]}")


def _compare(folder: Path, tally: Tally) -> None:
    """Take last lines, then hold the three stores against each other, row by row and document by document."""
    (folder / "once.toml").write_text((folder / "run.toml").read_text().replace('"tracker.db"', '"once.db"'))
    found = {}
    for name in ("whole", "run", "once"):
        app.ingest_once(app.load_config(folder / f"{name}.toml"), final=True)
        found[name] = content(folder / {"run": "tracker.db"}.get(name, f"{name}.db"))
    tally.rows += rows(found["run"])
    for other in ("whole", "once"):
        tally.faults += [f"beside {other}: {said}" for said in differences(found["run"], found[other])]
    said = {name: _documents(folder / f"{name}.toml") for name in found}
    for other in ("whole", "once"):
        tally.faults += [
            f"the {document} as JSON differs from {other}: {_where(text, said[other][document])}"
            for document, text in said["run"].items()
            if text != said[other][document]
        ]
    checked, _, err = ask(folder, "db", "check", str(folder / "tracker.db"))
    if checked != 0:
        tally.faults.append(f"tracker db check: {err[-500:]}")


def _documents(path: Path) -> dict[str, str]:
    """Return status, ledger and interruptions as the commands print them, as of a moment long after."""
    config = app.load_config(path)
    with Reader(config.store) as reader, reader.snapshot():
        rejects = sum(reader.reject_counts().values())
        one = snapshot(Book(config.settings), reader, as_of_us=LONG_AFTER_US, rejects=rejects)
    made = {
        "status": status_document(one), "ledger": ledger_document(one),
        "interruptions": interruptions_document(one),
    }  # fmt: skip
    return {name: json.dumps(document, indent=1) for name, document in made.items()}


def _where(one: str, other: str) -> str:
    for number, (a, b) in enumerate(zip(one.splitlines(), other.splitlines(), strict=False), 1):
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
            return f"line {number}: {a[max(0, at - 120) : at + 80]!r} / {b[max(0, at - 120) : at + 80]!r}"
    return "one is longer"


def clean(folder: Path) -> None:
    """Remove a folder that nothing works in any more."""
    shutil.rmtree(folder, ignore_errors=True)
