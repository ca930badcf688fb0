"""What is to be made and sent, kept until it is done: the table of reports, and the outbox.

Edge: SQL, on a writer that waits for the disk at every commit. A letter is queued in the transaction that
records its report, so there is neither a report without its mail nor a mail without its report. Whoever is
killed between two statements leaves a state from which the next one goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from tracker.store.errors import StoreReadOnly
from tracker.store.lock import MODE
from tracker.store.outcomes import REPORTS, ReportRow, as_report
from tracker.store.rows import clean
from tracker.store.writer import Writer

KEPT_US: Final = 30 * 86_400_000_000
"""The content of a letter that nobody waits for is dropped after this long; its row stays."""
_ERROR_CHARS: Final = 500
SendBy = Literal["mail", "webhook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What is sent, the same for all its recipients."""

    message_id: str
    channel: str
    """"mail", or "webhook NAME"."""
    subject: str
    made_us: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One recipient of a letter. Of one kind and day, nobody gets two."""

    kind: str
    day: str
    recipient: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A recipient who waits."""

    address: Address
    message_id: str
    attempts: int
    """Tries so far, the present one included."""
    queued_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a try ended for one recipient."""

    state: str
    """"queued" (again, later), "sent" or "dead"."""
    not_before_us: int = 0
    reason: str = ""
    """One of few words; empty where it succeeded."""
    error: str = ""
    """What the other side said, bounded."""


class Outbox:
    """The outbox of an open store; the writer must have been opened `durable`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    # -- reports -------------------------------------------------------------------------------------

    def claim(
        self,
        kind: str,
        day: str,
        zone: str,
        *,
        as_of_us: int,
        now_us: int,
        retry_us: Callable[[int], int],
    ) -> ReportRow:
        """Begin a report, or begin it again; its row says for which moment. A made one stays made.

        The next try is put off at once, by `retry_us` of the tries so far: whoever dies over this one does
        not die at every turn.
        """
        key = (kind, day, zone)
        with self._writer.transaction() as connection:
            found = connection.execute(f"{REPORTS} WHERE kind = ? AND day = ? AND zone = ?", key).fetchone()
            attempts = 1 if found is None else as_report(found).attempts + 1
            connection.execute(
                """
                INSERT INTO report (as_of_us, state, attempts, begun_us, not_before_us, kind, day, zone)
                VALUES (?, 'making', ?, ?, ?, ?, ?, ?)
                ON CONFLICT (kind, day, zone) DO UPDATE
                   SET state = excluded.state, attempts = excluded.attempts, begun_us = excluded.begun_us,
                       not_before_us = excluded.not_before_us
                 WHERE state <> 'made'
                """,
                (as_of_us, attempts, now_us, now_us + retry_us(attempts), *key),
            )
            return as_report(
                connection.execute(f"{REPORTS} WHERE kind = ? AND day = ? AND zone = ?", key).fetchone()
            )

    def made(
        self,
        row: ReportRow,
        *,
        letter: Letter | None,
        recipients: Iterable[str],
        files: Sequence[str],
        now_us: int,
        problem: str = "",
    ) -> None:
        """Record a report and queue its letter, in one transaction; nothing where it is recorded already."""
        with self._writer.transaction() as connection:
            changed = connection.execute(
                """
                UPDATE report SET state = 'made', made_us = ?, problem = ?, files = ?
                 WHERE kind = ? AND day = ? AND zone = ? AND state <> 'made'
                """,
                (now_us, _short(problem), json.dumps(list(files)), row.kind, row.day, row.zone),
            ).rowcount
            if changed and letter is not None:
                _queue(
                    connection,
                    letter,
                    [Address(kind=row.kind, day=row.day, recipient=one) for one in recipients],
                    now_us,
                )
            _drop_old_bodies(connection, now_us)

    def failed(self, row: ReportRow, problem: str, *, not_before_us: int) -> None:
        """Record that a try failed, and when the next one may come."""
        with self._writer.transaction() as connection:
            connection.execute(
                """
                UPDATE report SET state = 'failed', problem = ?, not_before_us = ?
                 WHERE kind = ? AND day = ? AND zone = ? AND state <> 'made'
                """,
                (_short(problem), not_before_us, row.kind, row.day, row.zone),
            )

    # -- letters -------------------------------------------------------------------------------------

    def queue(
        self,
        letters: Iterable[tuple[Letter, Address]],
        *,
        now_us: int,
        keep: Mapping[str, str] | None = None,
    ) -> None:
        """Queue letters, and keep small texts with them (what was told so far), in one transaction."""
        with self._writer.transaction() as connection:
            for letter, address in letters:
                _queue(connection, letter, [address], now_us)
            connection.executemany(
                "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (keep or {}).items()
            )

    @contextmanager
    def sending(self, by: SendBy) -> Iterator[bool]:
        """Hold the right to send mails, or webhooks, inside the block; False where another one has it."""
        path = self._writer.path.with_name(f"{self._writer.path.name}.sending-{by}")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        except OSError as error:
            raise StoreReadOnly(
                f"{path} cannot be opened ({error.strerror}). Its folder must be writable for who sends."
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            yield False
            return
        try:
            yield True
        finally:
            os.close(fd)

    def interrupted(self, channel: str) -> list[Waiting]:
        """Return those whose sender died while they were being sent. Only who holds `sending` may ask."""
        with self._writer.transaction() as connection:
            return _waiting(connection, "state = 'sending' AND channel = ?", (channel,))

    def take(
        self,
        channel: str,
        *,
        now_us: int,
        until_us: int,
        limit: int,
        wait_us: Callable[[Waiting], int],
    ) -> list[Waiting]:
        """Return recipients who are due, the oldest first, this try counted and the next one put off.

        So whoever dies over a try does not die at every turn. A moment beyond `until_us` was written under
        a wrong clock: it counts as due. `wait_us` says how long until the next try.
        """
        with self._writer.transaction() as connection:
            found = [
                replace(one, attempts=one.attempts + 1)
                for one in _waiting(
                    connection,
                    "state = 'queued' AND channel = ? AND (not_before_us <= ? OR not_before_us > ?)",
                    (channel, now_us, until_us),
                    limit,
                )
            ]
            connection.executemany(
                """
                UPDATE outbox SET attempts = ?, tried_us = ?, not_before_us = ?
                 WHERE kind = ? AND day = ? AND recipient = ?
                """,
                [(one.attempts, now_us, now_us + wait_us(one), *_key(one.address)) for one in found],
            )
        return found

    def postpone(self, channel: str, *, until_us: int) -> None:
        """Let nobody who waits on a channel be tried before a moment; no try is counted."""
        with self._writer.transaction() as connection:
            connection.execute(
                """
                UPDATE outbox SET not_before_us = ?
                 WHERE channel = ? AND state = 'queued' AND not_before_us < ?
                """,
                (until_us, channel, until_us),
            )

    def now_sending(self, addresses: Iterable[Address]) -> None:
        """Mark them as being sent: from here on nobody can know whether they arrived."""
        with self._writer.transaction() as connection:
            connection.executemany(
                """
                UPDATE outbox SET state = 'sending'
                 WHERE kind = ? AND day = ? AND recipient = ? AND state = 'queued'
                """,
                [_key(address) for address in addresses],
            )

    def settle(self, channel: str, results: Mapping[Address, Settled], *, now_us: int) -> None:
        """Record how tries ended; where one succeeded, those who wait need not wait longer."""
        with self._writer.transaction() as connection:
            for address, one in results.items():
                connection.execute(
                    """
                    UPDATE outbox
                       SET state = ?, not_before_us = ?, sent_us = ?, reason = ?, error = ?
                     WHERE kind = ? AND day = ? AND recipient = ? AND state IN ('queued', 'sending')
                    """,
                    (
                        one.state,
                        one.not_before_us,
                        now_us if one.state == "sent" else None,
                        one.reason,
                        _short(one.error),
                        *_key(address),
                    ),
                )
                if one.reason:
                    connection.execute(
                        """
                        INSERT INTO outbox_failure (channel, reason, tries) VALUES (?, ?, 1)
                            ON CONFLICT DO UPDATE SET tries = tries + 1
                        """,
                        (channel, one.reason),
                    )

    def hasten(self, channel: str, reasons: Iterable[str], *, now_us: int) -> None:
        """Let those who wait for these reasons be tried at once: the reason is gone."""
        marks = list(reasons)
        with self._writer.transaction() as connection:
            connection.execute(
                f"""
                UPDATE outbox SET not_before_us = ?
                 WHERE channel = ? AND state = 'queued' AND not_before_us > ?
                   AND reason IN ({", ".join("?" * len(marks))})
                """,
                (now_us, channel, now_us, *marks),
            )

    def letter(self, message_id: str) -> Letter | None:
        """Return a letter with its content; None where that was dropped."""
        with self._writer.transaction() as connection:
            found = connection.execute(
                "SELECT message_id, channel, subject, made_us, body FROM letter WHERE message_id = ?",
                (message_id,),
            ).fetchone()
        if found is None or found[4] is None:
            return None
        names = ("message_id", "channel", "subject", "made_us", "body")
        return Letter(**dict(zip(names, found, strict=True)))

    def sent_since(self, channel: str, since_us: int) -> list[int]:
        """Return the moments of sending after a moment; letters sent together have one."""
        with self._writer.transaction() as connection:
            found = connection.execute(
                "SELECT DISTINCT sent_us FROM outbox WHERE channel = ? AND sent_us > ? ORDER BY sent_us",
                (channel, since_us),
            ).fetchall()
        return [row[0] for row in found]


# -- statements --------------------------------------------------------------------------------------


def _queue(connection: sqlite3.Connection, letter: Letter, addresses: Iterable[Address], now_us: int) -> None:
    """Put a letter in for those who have none of its kind and day yet."""
    connection.execute(
        """
        INSERT INTO letter (message_id, channel, subject, made_us, body) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT DO NOTHING
        """,
        (letter.message_id, letter.channel, clean(letter.subject), letter.made_us, letter.body),
    )
    connection.executemany(
        """
        INSERT INTO outbox
               (kind, day, recipient, channel, message_id, state, queued_us, not_before_us)
        VALUES (?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT DO NOTHING
        """,
        [(*_key(one), letter.channel, letter.message_id, now_us, now_us) for one in addresses],
    )


def _waiting(
    connection: sqlite3.Connection, where: str, values: Sequence[object], limit: int = -1
) -> list[Waiting]:
    found = connection.execute(
        f"""
        SELECT kind, day, recipient, message_id, attempts, queued_us
          FROM outbox
         WHERE {where}
         ORDER BY queued_us, kind, day, recipient
         LIMIT ?
        """,
        (*values, limit),
    ).fetchall()
    return [
        Waiting(
            address=Address(kind=row[0], day=row[1], recipient=row[2]),
            message_id=row[3],
            attempts=row[4],
            queued_us=row[5],
        )
        for row in found
    ]


def _drop_old_bodies(connection: sqlite3.Connection, now_us: int) -> None:
    """Let go of what nobody will send again; the documents lie in the report's folder."""
    connection.execute(
        """
        UPDATE letter SET body = NULL
         WHERE body IS NOT NULL AND made_us < ?
           AND NOT EXISTS (SELECT 1 FROM outbox
                            WHERE outbox.message_id = letter.message_id
                              AND outbox.state IN ('queued', 'sending'))
        """,
        (now_us - KEPT_US,),
    )


def _key(address: Address) -> tuple[str, str, str]:
    return address.kind, address.day, address.recipient


def _short(text: str) -> str:
    plain = clean(text)
    return plain if len(plain) <= _ERROR_CHARS else plain[: _ERROR_CHARS - 1] + "…"
