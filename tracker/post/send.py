"""Sends what the outbox holds and is due: mails in one conversation, events of a webhook together.

Edge: only child processes run this. Every outcome is recorded before the next letter is tried; whoever is
killed in between leaves rows that say how far it got.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracker.config import Mail, Webhook
from tracker.interfaces import Clock
from tracker.post import retry
from tracker.post.hook import post
from tracker.post.retry import Outcome
from tracker.post.shapes import body
from tracker.post.smtp import MailServer, ServerTrouble
from tracker.store import Address, Letter, Outbox, Settled, Waiting

AT_ONCE: Final = 200
"""Recipients taken in one go; the rest is due again at once."""
_HOUR_US: Final = 3_600_000_000
_UNCERTAIN: Final = Outcome(
    kind="uncertain", reason="uncertain", text="the sender was stopped before the answer was recorded"
)


@dataclass(slots=True)
class Sent:
    """What came of one go."""

    sent: int = 0
    failed: int = 0

    def count(self, results: Iterable[Settled]) -> None:
        """Add outcomes."""
        for one in results:
            if one.state == "sent":
                self.sent += 1
            else:
                self.failed += 1


def webhook_channel(name: str) -> str:
    """Return the channel of a webhook in the outbox."""
    return f"webhook {name}"


def never() -> bool:
    """Tell that there is no reason to stop early."""
    return False


def send_mails(outbox: Outbox, mail: Mail, *, clock: Clock, enough: Callable[[], bool] = never) -> Sent:
    """Send the mails that are due. One conversation serves them all; `enough` is asked between two."""
    done = Sent()
    with outbox.sending("mail") as mine:
        if not mine:
            return done
        post_office = _Office(outbox, "mail", mail.on_uncertain, clock, done)
        waiting = post_office.take()
        server: MailServer | None = None
        try:
            for message_id, group in _by_letter(waiting):
                if enough():
                    break
                letter = outbox.letter(message_id)
                if letter is None:
                    post_office.settle(group, _expired_content())
                    continue
                if server is None or not server.open:
                    server = MailServer(mail)
                    try:
                        server.__enter__()
                    except ServerTrouble as trouble:
                        left = [one for one in waiting if one.address not in post_office.settled]
                        post_office.settle(left, trouble.outcome)
                        break
                _send_one(post_office, server, mail, letter, group)
        finally:
            if server is not None:
                server.close()
    return done


def _send_one(
    office: _Office, server: MailServer, mail: Mail, letter: Letter, group: Sequence[Waiting]
) -> None:
    by_recipient = {one.address.recipient: one for one in group}

    def uncertain(taken: Sequence[str]) -> None:
        office.outbox.now_sending([by_recipient[one].address for one in taken])

    outcomes = server.send(letter.body, mail.sender, list(by_recipient), uncertain_from_here=uncertain)
    office.settle_each({one: outcomes[name] for name, one in by_recipient.items()})


def send_events(
    outbox: Outbox,
    hooks: Iterable[Webhook],
    *,
    run: str,
    clock: Clock,
    enough: Callable[[], bool] = never,
) -> Sent:
    """Post the events that are due, to each webhook by itself; `enough` is asked between two."""
    done = Sent()
    with outbox.sending("webhook") as mine:
        if not mine:
            return done
        for hook in hooks:
            if enough():
                break
            _send_to(outbox, hook, run, clock, done)
    return done


def _send_to(outbox: Outbox, hook: Webhook, run: str, clock: Clock, done: Sent) -> None:
    channel = webhook_channel(hook.name)
    office = _Office(outbox, channel, hook.on_uncertain, clock, done)
    now_us = clock.now_us()
    lately = outbox.sent_since(channel, now_us - _HOUR_US)
    if len(lately) >= hook.most_per_hour and lately[-1] <= now_us:
        outbox.postpone(channel, until_us=lately[-hook.most_per_hour] + _HOUR_US)
        return
    waiting = office.take()
    known = [(one, letter) for one in waiting if (letter := outbox.letter(one.message_id)) is not None]
    gone = [one for one in waiting if one not in [pair[0] for pair in known]]
    if gone:
        office.settle(gone, _expired_content())
    if not known:
        return
    events: list[dict[str, Any]] = [json.loads(letter.body) for _, letter in known]
    events.sort(key=lambda event: str(event["at"]))
    outcome = post(
        hook,
        body(hook.shape, run, events),
        identity=str(events[-1]["id"]),
        uncertain_from_here=lambda: outbox.now_sending([one.address for one, _ in known]),
    )
    office.settle([one for one, _ in known], outcome)


class _Office:
    """Takes from one channel of the outbox and records what came of it."""

    def __init__(self, outbox: Outbox, channel: str, on_uncertain: str, clock: Clock, done: Sent) -> None:
        self.outbox = outbox
        self.settled: set[Address] = set()
        self._channel = channel
        self._hold = on_uncertain == "hold"
        self._clock = clock
        self._done = done

    def take(self) -> list[Waiting]:
        """Return who is due, after settling those whose sender died, and those who waited too long."""
        interrupted = self.outbox.interrupted(self._channel)
        if interrupted:
            self.settle(interrupted, _UNCERTAIN)
            self.settled.clear()
        now_us = self._clock.now_us()
        found = self.outbox.take(
            self._channel,
            now_us=now_us,
            until_us=now_us + retry.FURTHEST_US,
            limit=AT_ONCE,
            wait_us=lambda one: retry.wait_us(one.message_id, one.attempts),
        )
        late = [one for one in found if retry.expired(one.queued_us, one.attempts, now_us)]
        if late:
            text = "it waited for a week, and nobody took it"
            self.settle(late, Outcome(kind="never", reason="expired", text=text))
        return [one for one in found if one not in late]

    def settle(self, group: Iterable[Waiting], outcome: Outcome) -> None:
        """Record one outcome for several."""
        self.settle_each(dict.fromkeys(group, outcome))

    def settle_each(self, outcomes: dict[Waiting, Outcome]) -> None:
        """Record outcomes; where one was sent, what kept the others is gone."""
        now_us = self._clock.now_us()
        results = {one.address: self._result(one, outcome, now_us) for one, outcome in outcomes.items()}
        self.outbox.settle(self._channel, results, now_us=now_us)
        self.settled |= results.keys()
        self._done.count(results.values())
        if any(one.state == "sent" for one in results.values()):
            self.outbox.hasten(self._channel, retry.OF_THE_SERVER, now_us=now_us)

    def _result(self, one: Waiting, outcome: Outcome, now_us: int) -> Settled:
        if outcome.kind == "sent":
            return Settled(state="sent")
        if outcome.kind == "never" or (outcome.kind == "uncertain" and self._hold):
            return Settled(state="dead", reason=outcome.reason, error=outcome.text)
        wait_us = max(retry.wait_us(one.message_id, one.attempts), outcome.wait_us or 0)
        return Settled(
            state="queued", not_before_us=now_us + wait_us, reason=outcome.reason, error=outcome.text
        )


def _by_letter(waiting: Sequence[Waiting]) -> Iterable[tuple[str, list[Waiting]]]:
    groups: dict[str, list[Waiting]] = {}
    for one in waiting:
        groups.setdefault(one.message_id, []).append(one)
    return groups.items()


def _expired_content() -> Outcome:
    return Outcome(kind="never", reason="expired", text="its content is no longer kept")
