"""The sidecar's side of reports and messages: sees what is due, and sends children to do it.

Edge. Nothing here waits: a child makes reports, one sends mails, one posts to webhooks, each with a time
limit. What is due is read from the store alone, so a restart repeats nothing and loses nothing.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tracker import daily
from tracker.child import Child
from tracker.config import Config, Webhook
from tracker.core.snapshot import Snapshot
from tracker.gate import Gate
from tracker.interfaces import Clock
from tracker.parts import RunNow
from tracker.post import retry
from tracker.post.events import Event, Told, look
from tracker.post.shapes import event_json
from tracker.scheduler import RunJobs
from tracker.store import (
    Address,
    ChannelState,
    Letter,
    Outbox,
    Reader,
    ReportRow,
    Writer,
    outbox_state,
    report_rows,
)
from tracker.store.errors import StoreError
from tracker.vitals import ChannelVitals, ReportVitals, Vitals

SEND_LIMIT_S: Final = 300.0
LOCK_WAIT_S: Final = 1.0
"""For the store's write lock; where somebody holds it longer, the next snapshot tells."""
GRACE_S: Final = 2.0
"""How long somebody who is sending may go on once told to stop."""
CHECK_S: Final = 3600.0
LOOK_S: Final = 600.0
"""The store is looked at at least that often, whatever the clocks say."""
_DAY_US: Final = 86_400_000_000
_SECOND_US: Final = 1_000_000
_log = logging.getLogger(__name__)


class Errands:
    """All that one run sends out by itself; a part of its member."""

    def __init__(self, config: Config, *, clock: Clock, gate: Gate) -> None:
        self.problem = ""
        """What is wrong now; empty where nothing is."""
        self._config = config
        self._clock = clock
        self._gate = gate
        self._report = Child("the report", clock=clock)
        self._mail = Child("sending mail", clock=clock, orphaned=signal.SIGTERM)
        self._hooks = Child("posting to webhooks", clock=clock, orphaned=signal.SIGTERM)
        self._told: dict[str, Told] | None = None
        self._seen: Snapshot | None = None
        self._woken = True
        self._next_us = 0
        self._looked_us = 0
        self._looked_s = float("-inf")
        self._rows: list[ReportRow] = []
        self._channels: list[ChannelState] = []
        self._waits = False
        """Whether a report is due and awaits its turn among the heavy children."""
        self._trouble = ""
        """Why the last use of the store failed; empty where it did not."""
        self._store_errors = 0

    @property
    def busy(self) -> bool:
        """Whether a child is at work or about to be: then look again soon."""
        at_work = self._report.busy or self._mail.busy or self._hooks.busy
        return at_work or self._gate.is_open_for(self)

    def attend(self, jobs: RunJobs) -> None:
        """Ask to be woken: at each schedule's time, and every hour. What is then due, the store says."""
        if self._schedules:
            jobs.every("report_check", CHECK_S, self.wake)
        for one in self._schedules:
            jobs.daily(f"report_{one.name}", one.at, one.zone, self.wake)

    def wake(self) -> None:
        """Let the next turn look at what is due."""
        self._woken = True

    def turn(self, now: RunNow) -> None:
        """Do what can be done without waiting."""
        for child in (self._report, self._mail, self._hooks):
            if child.poll():
                self._woken = True
                if child.problem:
                    _log.warning("%s: %s", self._config.settings.run, child.problem)
        sends = now.store_up and not now.leaving
        if sends:
            self._send_out(now)
        if not (self._report.busy or (sends and self._waits)):
            self._gate.leave(self)

    def _send_out(self, now: RunNow) -> None:
        """Begin what is due."""
        try:
            if now.settled and now.snapshot is not None and now.snapshot is not self._seen:
                self._tell(now.snapshot)
            if self._to_look() or (self._waits and now.settled and self._gate.enter(self)):
                self._look(settled=now.settled)
        except StoreError as error:
            self._next_us = self._clock.now_us() + 10 * _SECOND_US
            self._waits = False
            self._store_errors += 1
            if str(error) != self._trouble:
                _log.warning("%s: %s", self._config.settings.run, error)
            self._trouble = str(error)
        self.problem = "; ".join(self._problems())

    def told(self, vitals: Vitals) -> Vitals:
        """Return what is known of the tracker, with how reports and messages stand.

        What fails here is a use of the store as good as any: where the run rests it may be the only one.
        """
        return replace(
            vitals,
            channels=self.channel_vitals(),
            reports=self.report_vitals(),
            store_up=vitals.store_up and not self._trouble,
            store_errors=vitals.store_errors + self._store_errors,
        )

    def _problems(self) -> list[str]:
        found = [self._trouble, self._report.problem, self._mail.problem, self._hooks.problem]
        found += [f"{c.channel}: {c.problem}" for c in self._channels if c.problem]
        found += [
            f"the {row.kind} report of {row.day} is not made yet: {row.problem}"
            for row in self._current()
            if row.state == "failed" and row.problem not in self._report.problem
        ]
        return list(dict.fromkeys(text for text in found if text))

    def channel_vitals(self) -> tuple[ChannelVitals, ...]:
        """Return how each way out stands."""
        found = {state.channel: state for state in self._channels}
        names = [_channel(hook) for hook in self._config.webhooks]
        if self._config.report is not None and self._config.report.mail is not None:
            names.insert(0, "mail")
        for name in names:
            found.setdefault(name, ChannelState(channel=name))
        return tuple(
            ChannelVitals(
                channel=one.channel,
                queued=one.queued,
                sent=one.sent,
                dead=one.dead,
                oldest_us=one.oldest_us,
                last_sent_us=one.last_sent_us,
                failures=one.failures,
            )
            for _, one in sorted(found.items())
        )

    def report_vitals(self) -> tuple[ReportVitals, ...]:
        """Return how each schedule stands."""
        now_us = self._clock.now_us()
        current = {row.kind: row for row in self._current() if row.state != "made"}
        made = {row.kind: row.made_us for row in self._rows if row.made_us is not None}
        return tuple(
            ReportVitals(
                schedule=one.name,
                last_made_us=made.get(one.name),
                failed_tries=_failed_tries(current.get(one.name)),
                next_us=self._next_report(one, now_us),
            )
            for one in self._schedules
        )

    def _next_report(self, schedule: daily.Schedule, now_us: int) -> int | None:
        """Return when the next report is due, or was where it is not made yet; None after the last one."""
        if self._told_all(schedule):
            return None
        slot = daily.newest(schedule, now_us)
        done = any(row.state == "made" and (row.kind, row.day) == (slot.kind, slot.day) for row in self._rows)
        return daily.following(schedule, now_us) if done else slot.at_us

    def _told_all(self, schedule: daily.Schedule) -> bool:
        """Tell whether a run that is over has had its last report: nobody wants one a day for ever."""
        run = self._seen
        if run is None or not run.attempts:
            return False
        now_us, until_us = self._clock.now_us(), self._config.until_us
        if until_us is not None and now_us >= until_us:
            end_us = until_us
        elif run.state == "finished":
            end_us = max(line.end_us or line.start_us for line in run.attempts)
        else:
            return False
        return any(
            row.state == "made" and row.kind == schedule.name and row.as_of_us >= end_us for row in self._rows
        )

    def close(self) -> None:
        """End the children; what they had begun is done at the next start.

        Whoever is sending may finish that one letter: else nobody would know whether it arrived.
        """
        self._mail.ask_to_stop()
        self._hooks.ask_to_stop()
        self._report.close()
        self._gate.leave(self)
        self._mail.close(grace_s=GRACE_S)
        self._hooks.close(grace_s=GRACE_S)

    # -- what happened to the run --------------------------------------------------------------------

    def _tell(self, snapshot: Snapshot) -> None:
        """Queue what happened, together with the note that it was told.

        A state counts once two snapshots agree on it: a clock that was set, or a file that is late, is gone
        by then.
        """
        before, self._seen = self._seen, snapshot
        hooks = self._config.webhooks
        if not hooks or before is None or before.state != snapshot.state:
            return
        if self._told is None:
            with Reader(self._config.store) as reader:
                kept = {hook.name: reader.meta(_told_key(hook)) for hook in hooks}
            self._told = {name: Told.from_json(json.loads(text)) for name, text in kept.items() if text}
        now_us = self._clock.now_us()
        keep: dict[str, str] = {}
        letters: list[tuple[Letter, Address]] = []
        fresh = dict(self._told)
        for hook in hooks:
            told, events = look(self._told.get(hook.name), snapshot, behind_plan_days=hook.behind_plan_days)
            if told != self._told.get(hook.name):
                keep[_told_key(hook)] = json.dumps(told.to_json())
                fresh[hook.name] = told
            letters += [_letter(event, hook, now_us) for event in events if event.name in hook.events]
        if keep or letters:
            with Writer(self._config.store, durable=True, wait_s=LOCK_WAIT_S) as writer:
                Outbox(writer).queue(letters, now_us=now_us, keep=keep)
            self._woken = self._woken or bool(letters)
        self._told = fresh

    # -- what is due ---------------------------------------------------------------------------------

    def _to_look(self) -> bool:
        """Tell whether it is time; a wall clock that was set is always a reason."""
        now_us = self._clock.now_us()
        set_back = now_us < self._looked_us
        long_ago = self._clock.monotonic_s() - self._looked_s >= LOOK_S
        return self._woken or set_back or long_ago or now_us >= self._next_us

    def _look(self, *, settled: bool) -> None:
        now_us = self._clock.now_us()
        with Reader(self._config.store) as reader:
            self._rows = report_rows(reader, since_day=_day(now_us - 40 * _DAY_US))
            self._channels = outbox_state(reader, lately_us=now_us - 2 * _DAY_US)
        self._trouble = ""
        self._woken = self._waits = False
        self._looked_us, self._looked_s = now_us, self._clock.monotonic_s()
        moments = [now_us + int(LOOK_S * 1e6)]
        moments += self._reports(now_us, settled=settled)
        moments += self._letters(now_us)
        self._next_us = max(min(moments), now_us + _SECOND_US)

    def _reports(self, now_us: int, *, settled: bool) -> list[int]:
        """Begin the first report that is owed; return when to look again."""
        rows = [_row(row) for row in self._rows]
        moments = []
        for schedule in self._schedules:
            if self._told_all(schedule):
                continue
            due = daily.owed(schedule, rows, now_us=now_us)
            if due is None:
                moments.append(daily.next_look(schedule, rows, now_us=now_us))
            elif self._report.busy:
                continue
            elif self._report.rests_s > 0:
                moments.append(now_us + int(self._report.rests_s * 1e6))
            elif not settled or not self._gate.enter(self):
                self._waits = True
            else:
                assert self._config.report is not None
                self._report.begin(
                    [
                        "tracker.cli.report_child",
                        str(self._config.path),
                        due.slot.kind,
                        due.slot.day,
                        due.slot.zone,
                        str(self._config.moment_us(due.as_of_us)),
                    ],
                    folder=self._config.folder,
                    limit_s=2 * self._config.report.time_limit_s + 60.0,
                )
                if not self._report.busy:  # it could not even be started
                    self._gate.leave(self)
                    moments.append(now_us + _SECOND_US)
        return moments

    def _letters(self, now_us: int) -> list[int]:
        """Begin to send what is due; return when to look again."""
        moments = []
        ways: Mapping[str, tuple[Child, Callable[[str], bool]]] = {
            "mail": (self._mail, lambda channel: channel == "mail" and self._mails),
            "webhook": (self._hooks, lambda channel: channel in map(_channel, self._config.webhooks)),
        }
        for name, (child, mine) in ways.items():
            waiting = [one.next_us for one in self._channels if one.next_us is not None and mine(one.channel)]
            if not waiting or child.busy:
                continue
            if child.rests_s > 0:
                moments.append(now_us + int(child.rests_s * 1e6))
                continue
            next_us = min(waiting)
            if now_us < next_us <= now_us + retry.FURTHEST_US:
                moments.append(next_us)
                continue
            child.begin(
                ["tracker.cli.post_child", str(self._config.path), name],
                folder=self._config.folder,
                limit_s=SEND_LIMIT_S,
            )
            if not child.busy:
                moments.append(now_us + _SECOND_US)
        return moments

    @property
    def _mails(self) -> bool:
        return self._config.report is not None and self._config.report.mail is not None

    @property
    def _schedules(self) -> tuple[daily.Schedule, ...]:
        return self._config.report.schedules if self._config.report is not None else ()

    def _current(self) -> list[ReportRow]:
        """Return the row of each schedule's newest moment, where there is one."""
        now_us = self._clock.now_us()
        slots = {(slot.kind, slot.day) for slot in (daily.newest(one, now_us) for one in self._schedules)}
        return [row for row in self._rows if (row.kind, row.day) in slots]


def _row(row: ReportRow) -> daily.Row:
    return daily.Row(
        kind=row.kind,
        day=row.day,
        zone=row.zone,
        state=row.state,
        as_of_us=row.as_of_us,
        not_before_us=row.not_before_us,
    )


def _failed_tries(row: ReportRow | None) -> int:
    if row is None:
        return 0
    return row.attempts if row.state == "failed" else row.attempts - 1


def _letter(event: Event, hook: Webhook, now_us: int) -> tuple[Letter, Address]:
    body: dict[str, Any] = event_json(event)
    letter = Letter(
        message_id=f"{event.id} {hook.name}",
        channel=_channel(hook),
        subject=event.name,
        made_us=now_us,
        body=json.dumps(body).encode(),
    )
    return letter, Address(kind=f"event {event.name}", day=event.id, recipient=hook.name)


def _channel(hook: Webhook) -> str:
    return f"webhook {hook.name}"


def _told_key(hook: Webhook) -> str:
    return f"told {hook.name}"


def _day(at_us: int) -> str:
    return daily.date_of(at_us).isoformat()
