"""The outbox: a report and its mail are recorded together, and no kill loses or invents one."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hands import Hands
from tests.mail_server import Box, mail_server
from tests.post_kills import BEGIN_US, DAY_US, HOUR_US, TO, config_in, document
from tests.store_help import make_store
from tracker.config import Config
from tracker.core.errors import TrackerError
from tracker.post.make import NotMade, Rendered, make
from tracker.post.send import send_mails
from tracker.reporting import daily_of_store
from tracker.store import (
    Address,
    Letter,
    Outbox,
    Reader,
    Settled,
    Store,
    outbox_state,
    report_failures,
    report_rows,
)
from tracker.store.outbox import KEPT_US

ROOT = Path(__file__).parents[1]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path)


@pytest.fixture
def outbox(store: Path) -> Iterator[Outbox]:
    with Store.open_writer(store, durable=True) as writer:
        yield Outbox(writer)


@pytest.fixture
def clock() -> Hands:
    return Hands(BEGIN_US)


@pytest.fixture
def box() -> Box:
    return Box()


def made(
    outbox: Outbox, config: Config, clock: Hands, *, day: str = "2026-01-05", render: Any = document
) -> str:
    return make(outbox, config, kind="daily", day=day, zone="UTC", as_of_us=BEGIN_US - HOUR_US, clock=clock,
                render=render)  # fmt: skip


def send(outbox: Outbox, config: Config, clock: Hands) -> None:
    assert config.report is not None
    assert config.report.mail is not None
    send_mails(outbox, config.report.mail, clock=clock)


def rows(store: Path) -> list[tuple[str, ...]]:
    with Reader(store) as reader:
        found = reader._all("SELECT kind, day, recipient, state, reason FROM outbox ORDER BY day, recipient")
    return [tuple(row) for row in found]


def state(store: Path) -> Any:
    with Reader(store) as reader:
        (found,) = outbox_state(reader, lately_us=0)
        return found


# -- made and queued --------------------------------------------------------------------------------------


def test_a_report_and_its_letters_are_recorded_together(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """Documents in the folder, one row a recipient, and the content kept."""
    config = config_in(tmp_path, 25, "resend")
    assert made(outbox, config, clock) == ""

    (row,) = report_rows_of(store)
    assert (row.state, row.attempts, row.as_of_us) == ("made", 1, BEGIN_US - HOUR_US)
    assert row.files == ("llama-13b-2026-01-05.txt",)
    assert (tmp_path / "out" / row.files[0]).read_text() == f"As of {BEGIN_US - HOUR_US}.\n"
    assert rows(store) == [("daily", "2026-01-05", to, "queued", "") for to in TO]


def report_rows_of(store: Path) -> Any:
    with Reader(store) as reader:
        return report_rows(reader)


def test_a_report_made_twice_is_recorded_once(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """Even where both had begun: the second changes nothing, and is the same letter."""
    config = config_in(tmp_path, 25, "resend")

    def twice(*arguments: Any) -> Rendered:
        made(outbox, config, clock)  # another one was quicker
        return document(*arguments)

    made(outbox, config, clock, render=twice)
    made(outbox, config, clock)

    assert len(report_rows_of(store)) == 1
    assert len(rows(store)) == 2
    with Reader(store) as reader:
        assert reader._all("SELECT count(*) FROM letter") == [(1,)]


def test_one_kind_and_day_reach_a_recipient_once_whatever_the_zone(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """The zone was changed in the config: the day is told already."""
    config = config_in(tmp_path, 25, "resend")
    made(outbox, config, clock)
    make(outbox, config, kind="daily", day="2026-01-05", zone="Asia/Tokyo", as_of_us=BEGIN_US, clock=clock,
         render=document)  # fmt: skip

    assert len(report_rows_of(store)) == 2
    assert len(rows(store)) == 2


def test_a_report_that_fails_is_recorded_and_tried_for_the_same_moment(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """The failure can be read by the next report."""
    config = config_in(tmp_path, 25, "resend")

    def fails(*_: Any) -> Rendered:
        raise NotMade("the PDF took longer than 300 s")

    with pytest.raises(NotMade, match="longer than 300 s; tried again in 1 min"):
        made(outbox, config, clock, render=fails)
    (row,) = report_rows_of(store)
    assert (row.state, row.problem) == ("failed", "the PDF took longer than 300 s")
    assert row.not_before_us == BEGIN_US + 60_000_000
    with Reader(store) as reader:
        assert [r.problem for r in report_failures(reader, since_us=0, until_us=BEGIN_US)] == [row.problem]
        assert report_failures(reader, since_us=0, until_us=row.as_of_us) == []  # itself it does not tell of
    make(outbox, config, kind="daily", day="2026-01-05", zone="UTC", as_of_us=BEGIN_US + 9, clock=clock,
         render=document)  # fmt: skip

    (row,) = report_rows_of(store)
    assert (row.state, row.attempts, row.as_of_us, row.problem) == ("made", 2, BEGIN_US - HOUR_US, "")


def test_the_next_report_tells_what_went_wrong(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands, box: Box
) -> None:
    """That one failed for good, and that a recipient was given up; the one after that does not."""
    failed = outbox.claim("daily", "2026-01-04", "UTC", as_of_us=BEGIN_US - DAY_US, now_us=clock.us,
                          retry_us=lambda _: 1)  # fmt: skip
    outbox.failed(failed, "no room on the disk.", not_before_us=clock.us)
    box.refuse = {TO[0]: "550 no such user"}
    with mail_server(box) as port:
        config = config_in(tmp_path, port, "resend")
        made(outbox, config, clock)
        send(outbox, config, clock)

    assert daily_of_store(config, as_of_us=BEGIN_US + HOUR_US).health.problems == (
        "The daily report of 2026-01-04 could not be made: no room on the disk.",
        "mail: 1 given up: 550 no such user.",
    )
    assert daily_of_store(config, as_of_us=BEGIN_US + 3 * DAY_US).health.problems == ()


def test_a_folder_that_cannot_be_written_does_not_keep_the_mail_up(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """It is told in the mail; without mail it is a failure."""
    config = config_in(tmp_path, 25, "resend")
    (tmp_path / "out").write_text("a file")
    problem = made(outbox, config, clock)

    assert problem == (
        f"report.directory = '{tmp_path}/out': expected a folder, and {tmp_path}/out is no folder. "
        f"Move {tmp_path}/out away, or name another folder"
    )
    (row,) = report_rows_of(store)
    assert (row.state, row.files) == ("made", ())
    with Reader(store) as reader:
        body = reader._all("SELECT body FROM letter")[0][0]
    assert b"This report is not in its folder: report.directory" in body
    assert config.report is not None
    assert config.report is not None
    silent = replace(config, report=replace(config.report, mail=None))
    with pytest.raises(TrackerError, match="is no folder"):
        made(outbox, silent, clock, day="2026-01-06")


# -- sent -------------------------------------------------------------------------------------------------


def test_each_recipient_has_a_state_of_his_own(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands, box: Box
) -> None:
    """One gets it, one is refused for good; who is told to wait gets it later, alone."""
    box.refuse = {TO[0]: "550 no such user", TO[1]: "451 later"}
    with mail_server(box) as port:
        config = config_in(tmp_path, port, "resend")
        made(outbox, config, clock)
        send(outbox, config, clock)
        assert [row[3:] for row in rows(store)] == [("dead", "recipient"), ("queued", "busy")]
        box.refuse = {}
        send(outbox, config, clock)
        assert box.mails == []  # not before its time
        clock.us += 5 * 60_000_000
        send(outbox, config, clock)

    assert [row[3:] for row in rows(store)] == [("dead", "recipient"), ("sent", "")]
    assert [to for _, to, _ in box.mails] == [[TO[1]]]
    found = state(store)
    assert (found.queued, found.sent, found.dead, found.failures) == (0, 1, 1, {"recipient": 1, "busy": 1})
    assert found.problem == f"not to {TO[0]}: 550 no such user"


def test_what_hit_every_letter_is_over_once_one_is_sent(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands, box: Box
) -> None:
    """After a day without a server nobody waits for another day."""
    config = config_in(tmp_path, 1, "resend")  # nobody listens on port 1
    made(outbox, config, clock)
    for _ in range(12):
        send(outbox, config, clock)
        clock.us += 2 * HOUR_US
    assert {row[3:] for row in rows(store)} == {("queued", "network")}
    with mail_server(box) as port:
        config = config_in(tmp_path, port, "resend")
        made(outbox, config, clock, day="2026-01-06")
        send(outbox, config, clock)
        send(outbox, config, clock)

    assert len(box.mails) == 2
    assert state(store).queued == 0


def test_a_letter_that_nobody_took_for_a_week_is_given_up(
    tmp_path: Path, store: Path, outbox: Outbox, clock: Hands
) -> None:
    """And counted."""
    config = config_in(tmp_path, 1, "resend")
    made(outbox, config, clock)
    for _ in range(25):
        send(outbox, config, clock)
        clock.us += DAY_US

    assert {row[3:] for row in rows(store)} == {("dead", "expired")}


def test_a_wait_written_under_a_wrong_clock_is_none(
    tmp_path: Path, outbox: Outbox, clock: Hands, box: Box
) -> None:
    """The clock stood a year ahead for a moment."""
    with mail_server(box) as port:
        made(outbox, config_in(tmp_path, port, "resend"), clock)
        clock.us += 365 * DAY_US
        send(outbox, config_in(tmp_path, 1, "resend"), clock)
        clock.us -= 365 * DAY_US
        send(outbox, config_in(tmp_path, port, "resend"), clock)

    assert len(box.mails) == 1


def test_content_is_dropped_a_month_after_nobody_waits(outbox: Outbox, store: Path) -> None:
    """Of those that wait it stays."""
    address = Address(kind="daily", day="1", recipient="a")
    waiting = Address(kind="daily", day="2", recipient="a")
    for number, one in enumerate((address, waiting)):
        letter = Letter(message_id=f"<{number}>", channel="mail", subject="s", made_us=BEGIN_US, body=b"x")
        outbox.queue([(letter, one)], now_us=BEGIN_US)
    outbox.settle("mail", {address: Settled(state="sent")}, now_us=BEGIN_US)
    row = outbox.claim("daily", "3", "UTC", as_of_us=0, now_us=BEGIN_US, retry_us=lambda _: 1)
    outbox.made(row, letter=None, recipients=(), files=(), now_us=BEGIN_US + KEPT_US + 1)

    assert outbox.letter("<0>") is None
    assert outbox.letter("<1>") is not None


def test_two_senders_do_not_send_at_once(outbox: Outbox, store: Path) -> None:
    """The second finds the right taken, and gives way; mails and webhooks do not hinder each other."""
    with (
        Store.open_writer(store, durable=True) as other,
        outbox.sending("mail") as first,
        Outbox(other).sending("mail") as second,
        Outbox(other).sending("webhook") as third,
    ):
        assert (first, second, third) == (True, False, True)
    with outbox.sending("mail") as again:
        assert again


# -- killed -----------------------------------------------------------------------------------------------


def killed(what: str, folder: Path, port: int, policy: str, *more: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.post_kills", what, str(folder), str(port), policy, *more],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["resend", "hold"])
def test_killed_at_every_statement_a_day_is_delivered_all_the_same(
    tmp_path: Path, box: Box, policy: str
) -> None:
    """Each store by itself: made once, for one moment; sent once, or twice under the same Message-ID.

    With "hold" never twice, and who may not have got it is told.
    """
    with mail_server(box) as port:
        count = killed("statements", tmp_path, port, policy)
    copies = Counter(
        (ident, to) for ident, (_, tos, _) in zip(box.ids(), box.mails, strict=True) for to in tos
    )

    assert count > 25
    assert len(set(box.ids())) >= count - 2
    assert max(copies.values()) == (2 if policy == "resend" else 1)
    assert sum(n == 2 for n in copies.values()) <= 12  # killed between the server's 250 and our commit
    for number in range(1, count + 1):
        store = tmp_path / f"{number:03}" / "tracker.db"
        (report,) = report_rows_of(store)
        assert report.state == "made"
        assert report.as_of_us in (BEGIN_US - HOUR_US, BEGIN_US + 2 * HOUR_US)  # begun, or not even that
        found = rows(store)
        assert len(found) == 2
        allowed = {("sent", "")} if policy == "resend" else {("sent", ""), ("dead", "uncertain")}
        assert {row[3:] for row in found} <= allowed


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "count"), [("resend", "400"), ("hold", "60")])
def test_days_under_kill_9(tmp_path: Path, box: Box, policy: str, count: str) -> None:
    """Every day delivered; what came twice came under the same Message-ID, and with "hold" nothing did."""
    with mail_server(box) as port:
        kills = killed("days", tmp_path, port, policy, count)
    store = tmp_path / "tracker.db"
    found = rows(store)
    days = {row[1] for row in found}
    sent = {row[1] for row in found if row[3] == "sent"}
    copies = Counter(box.ids())
    arrived = {ident.split(".")[2] for ident in copies}

    assert kills > int(count) // 20
    assert len(days) >= int(count)
    assert {row.state for row in report_rows_of(store)} == {"made"}
    assert len(copies) == len(arrived)  # a day has one Message-ID
    if policy == "resend":
        assert sent == arrived == days
    else:
        assert max(copies.values()) == 1
        assert {row[4] for row in found if row[3] != "sent"} <= {"uncertain"}
        assert len(days - arrived) <= len({row[1] for row in found if row[3] == "dead"})
