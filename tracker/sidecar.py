"""The long-running loop of `tracker run`: one thread visits every run in turn, one server shows them all.

Edge. The loop's thread reads, stores and computes; the server's threads only take what it left.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tracker.answers import Answers
from tracker.config import Config, Listen
from tracker.configs import Configs
from tracker.core.errors import TrackerError
from tracker.gate import Gate
from tracker.member import Member, Stopped
from tracker.notify import notify
from tracker.parts import Edges, SidecarClock
from tracker.scheduler import Jobs
from tracker.serve import Server

SLICE_S: Final = 0.5
"""How long one run may read while others wait."""
LOOK_SHARE: Final = 50.0
"""Where runs are many, looking for news of all of them takes at most one part in so many of a core ..."""
_MOST_BETWEEN_LOOKS_S: Final = 15.0
"""... as long as each is looked at that often."""
_TOGETHER_S: Final = 0.001
_CONFIGS_S: Final = 60.0
_LAST_S: Final = 0.3
"""How long one run is read on at most once told to stop."""
_LAST_OF_ALL_S: Final = 1.0
_REST_S: Final = 60.0
"""How long the loop sleeps at most."""
_log = logging.getLogger(__name__)


class Announcer(Protocol):
    """Tells others where the server is: an entry for a scraper's discovery."""

    def listening(self, listen: Listen, runs: Sequence[str], *, tls: bool) -> None:
        """Say where the server listens in fact, and which runs it shows; said again when they change."""
        ...

    def stopping(self) -> None:
        """Say that it goes."""
        ...


class Sidecar:
    """Several runs, followed until the clock says stop."""

    def __init__(
        self,
        configs: Configs,
        *,
        clock: SidecarClock,
        gate: Gate,
        answers: Answers,
        server: Server,
        edges: Callable[[Config], Edges],
        announcers: Sequence[Announcer] = (),
    ) -> None:
        """Put the parts together; `configs` are loaded. `edges` gives what a run needs of the world."""
        self._configs = configs
        self._clock = clock
        self._gate = gate
        self._answers = answers
        self._server = server
        self._edges = edges
        self._announcers = announcers
        self._jobs = Jobs(clock, wake=clock.wake)
        self._own_jobs = self._jobs.of("")
        self._own_jobs.every("configs", _CONFIGS_S, self._look_for_configs)
        self._members: list[Member] = []
        self._reload = False
        self.configs_ok = True
        """Whether the last reading of the configs took all of them."""
        self.configs_read_us = clock.now_us()
        """When all of them were last taken."""

    def reload(self) -> None:
        """Read the configs again as soon as the loop comes to it. May be called from a signal handler."""
        self._reload = True
        self._clock.wake()

    @property
    def runs(self) -> int:
        """How many runs are followed."""
        return len(self._members)

    def run(self) -> None:
        """Serve and follow until told to stop. Raises what makes a start impossible."""
        self._server.start()
        try:
            _log.info("listening on %s", self._server.url)
            exposure = self._server.exposure
            if exposure:
                _log.warning("listening on %s", exposure)
            for config in self._configs.loaded:
                self._add(config)
            if len(self._members) == 1:
                self._members[0].open()  # alone, it is worth no process without its store
            self._announce()
            self._jobs.start()
            notify("READY=1")
            while not self._clock.stopped:
                if self._clock.wait(self._turn()):
                    break
            self._last_words()
        except Stopped:
            pass
        finally:
            self._stop()

    # -- the loop ------------------------------------------------------------------------------------

    def _turn(self) -> float:
        """Visit who is due; return how long to wait for the next one."""
        if self._reload:
            self._reload = False
            self._read_configs(read_again=True)
        if self._own_jobs.due:
            self._own_jobs.run_due()
        for member in [one for one in self._members if one.due]:
            member.visit(most_s=SLICE_S if len(self._members) > 1 else None)
            self._answers.beat()
            if self._clock.stopped:
                return 0.0
        self._let_go()
        self._spread()
        self._answers.beat()
        notify("WATCHDOG=1")
        return self._until_next_s()

    def _until_next_s(self) -> float:
        now_s = self._clock.monotonic_s()
        next_s = min((one.next_s for one in self._members), default=now_s + _REST_S)
        if next_s <= now_s:
            return 0.0
        together_s = _TOGETHER_S * (len(self._members) - 1)  # else each of many takes a turn of its own
        return min(max(next_s - now_s, together_s), _REST_S)

    def _spread(self) -> None:
        """Look less often where runs are many, so that looking costs a bounded share of a core."""
        whole_s = sum(one.rest_cost_s for one in self._members)
        for one in self._members:
            others_s = whole_s - one.rest_cost_s
            one.between_s = min(LOOK_SHARE * others_s, _MOST_BETWEEN_LOOKS_S)

    # -- who is there --------------------------------------------------------------------------------

    def _add(self, config: Config, *, known: bool = False) -> None:
        self._members.append(
            Member(
                config,
                self._edges(config),
                clock=self._clock,
                gate=self._gate,
                jobs=self._jobs.of(config.settings.run),
                publish=self._answers.publish,
                known=known,
            )
        )
        self._count()

    def _drop(self, member: Member) -> None:
        self._members.remove(member)
        member.close()
        self._count()

    def _count(self) -> None:
        for one in self._members:
            one.neighbours = len(self._members) - 1

    def _look_for_configs(self) -> None:
        if self._configs.may_change:
            self._read_configs(read_again=False)

    def _read_configs(self, *, read_again: bool) -> None:
        """Take in the runs whose config came or changed; let those go, later, whose config is gone."""
        found = self._configs.look(read_again=read_again)
        self.configs_ok = not self._configs.refused
        if self.configs_ok:
            self.configs_read_us = self._clock.now_us()
        for problem in found.problems:
            _log.warning("a config was not taken, what was before still counts: %s", problem)
        for path in found.gone:
            for member in self._members:
                if member.config.path == path and member.leaves_s is None:
                    _log.info("%s: its config is gone; it goes in %g s", member.run, _linger_s(member))
                    member.leaves_s = self._clock.monotonic_s() + _linger_s(member)
        for config in (*found.new, *found.changed):
            self._replace(config)
        if read_again:
            _log.info("the configs were read again: %d runs", len(self._members))
        self._announce()

    def _replace(self, config: Config) -> None:
        """Follow a run by this config from now on."""
        same = [one for one in self._members if one.config.path == config.path]
        same += [one for one in self._members if one.run == config.settings.run and one not in same]
        if any(one.config == config for one in same):
            for one in same:
                one.leaves_s = None
            return
        run = config.settings.run
        for one in same:
            self._drop(one)
            if one.run != run:
                self._answers.forget(one.run)
        _log.info("%s: followed by %s", run, config.path)
        self._add(config, known=any(one.run == run for one in same))  # no gap in its series

    def _let_go(self) -> None:
        now_s = self._clock.monotonic_s()
        going = [one for one in self._members if one.leaves_s is not None and now_s >= one.leaves_s]
        for one in going:
            _log.info("%s: no longer followed", one.run)
            self._drop(one)
            self._answers.forget(one.run)
        if going:
            self._announce()

    def _announce(self) -> None:
        runs = tuple(one.run for one in self._members)
        for one in self._announcers:
            try:
                one.listening(self._server.listen, runs, tls=self._server.tls)
            except (OSError, TrackerError) as error:
                _log.warning("%s", error)

    # -- the end -------------------------------------------------------------------------------------

    def _last_words(self) -> None:
        ends_s = self._clock.monotonic_s() + _LAST_OF_ALL_S
        for one in self._members:
            left_s = ends_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            one.last_words(most_s=min(_LAST_S, left_s))

    def _stop(self) -> None:
        notify("STOPPING=1")
        for announcer in self._announcers:
            with contextlib.suppress(OSError, TrackerError):
                announcer.stopping()
        for member in self._members:
            try:
                member.close()
            except Exception:
                _log.exception("%s: was not closed", member.run)
        self._jobs.stop()
        self._server.stop()


def _linger_s(member: Member) -> float:
    return member.config.serve.linger_s
