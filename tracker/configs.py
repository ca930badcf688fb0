"""Which configs are meant: files, folders and patterns; what can only be wrong between several of them.

Edge: looks for config files, and reads them through the loader that it is given.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tracker.config import Config, ConfigError, Listen, Serve
from tracker.core.errors import TrackerError, shown

_MAGIC: Final = "*?["
Load = Callable[[Path], Config]
Value = TypeVar("Value")


class NoConfigs(TrackerError):
    """A pattern or folder that means no file."""

    def __init__(self, place: str) -> None:
        what = "holds no *.toml" if os.path.isdir(place) else "matches no file"
        super().__init__(f"--config = {shown(place)}: {what}. Give a file, a folder of *.toml, or a pattern")


class Clash(TrackerError):
    """Two configs that cannot live in one process."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a second look at the configs found."""

    new: tuple[Config, ...] = ()
    changed: tuple[Config, ...] = ()
    """Of a run that is known."""
    gone: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    """Why a config was not taken: what it says now counts for nothing, what it said before still does."""


class Configs:
    """The configs of one process. `load` all of them at the start, `look` again later."""

    def __init__(self, places: Sequence[str], load: Load) -> None:
        """`places`: files, folders (every *.toml in it), and patterns such as "runs/*.toml"."""
        self._places = tuple(places)
        self._load = load
        self._known: dict[Path, Config] = {}
        self._stamps: dict[Path, tuple[int, ...]] = {}
        self._refused: set[Path] = set()

    @property
    def loaded(self) -> tuple[Config, ...]:
        """The configs that count now."""
        return tuple(self._known.values())

    @property
    def refused(self) -> frozenset[Path]:
        """The files that say something now that was not taken."""
        return frozenset(self._refused)

    @property
    def may_change(self) -> bool:
        """Whether a folder or pattern is among the places, so that new files may come by themselves."""
        return any(not os.path.isfile(place) for place in self._places)

    def load(self) -> tuple[Config, ...]:
        """Read them all; raises what is wrong with one, or between two."""
        for place in self._places:
            found = files_of(place)
            if not found:
                raise NoConfigs(place)
            for path in found:
                if path not in self._known:
                    self._stamps[path] = _stamp(path)
                    self._known[path] = self._load(path)
        clashes = [
            why for number, one in enumerate(self.loaded) for why in _clashes(one, self.loaded[:number])
        ]
        if clashes:
            raise Clash("\n".join(clashes))
        return self.loaded

    def look(self, *, read_again: bool) -> Changes:
        """Look for files that came or went, and, where asked, for those that say something else now."""
        there = {path: None for place in self._places for path in files_of(place)}
        gone = tuple(path for path in self._known if path not in there)
        for path in gone:
            del self._known[path], self._stamps[path]
        self._refused &= there.keys()
        new: list[Config] = []
        changed: list[Config] = []
        problems: list[str] = []
        for path in there:
            stamp = _stamp(path)
            fresh = path not in self._known
            if self._stamps.get(path) == stamp and (not fresh or path in self._refused):
                if path in self._refused and read_again:
                    pass  # asked for by name: say again what is wrong
                else:
                    continue
            if not fresh and not read_again:
                continue
            self._stamps[path] = stamp
            try:
                config = self._load(path)
                others = [other for known, other in self._known.items() if known != path]
                clashes = list(_clashes(config, others))
                if clashes:
                    raise Clash("\n".join(clashes))
            except (ConfigError, Clash) as error:
                self._refused.add(path)
                problems.append(str(error))
                continue
            self._refused.discard(path)
            self._known[path] = config
            (new if fresh else changed).append(config)
        return Changes(tuple(new), tuple(changed), gone, tuple(problems))


def files_of(place: str) -> list[Path]:
    """Return the files that a place means, sorted: the file itself, a folder's *.toml, a pattern's matches.

    A file whose name looks like a pattern is that file.
    """
    if os.path.isdir(place):
        found = glob.glob(os.path.join(glob.escape(place), "*.toml"))
    elif os.path.lexists(place) or not any(sign in place for sign in _MAGIC):
        return [Path(place).absolute()] if os.path.exists(place) else []
    else:
        found = glob.glob(place, recursive=True)
    return [Path(path).absolute() for path in sorted(found) if os.path.isfile(path)]


def where_to_serve(
    configs: Iterable[Config], *, listen: Listen | None = None, web_config: Path | None = None
) -> Serve:
    """Return how one server for all of them serves; raises Clash where they do not agree.

    What is given here counts for all. A config that says nothing agrees with any other.
    """
    configs, silent = tuple(configs), Serve()
    return Serve(
        listen=listen or _agreed(configs, "listen", silent.listen),
        web_config=web_config or _agreed(configs, "web_config", silent.web_config),
    )


def _agreed(configs: Iterable[Config], name: str, silent: Value) -> Value:
    """Return what the configs that say something say of one key of [serve]."""
    first: Config | None = None
    for config in configs:
        said = getattr(config.serve, name)
        if said == silent:
            continue
        if first is not None and getattr(first.serve, name) != said:
            before, now = shown(str(getattr(first.serve, name))), shown(str(said))
            raise Clash(
                f"serve.{name} = {before} in {first.path}, and {now} in {config.path}: one process has one "
                f"server. Let them agree, or give --{name.replace('_', '-')}"
            )
        first = config
    return silent if first is None else getattr(first.serve, name)


def _clashes(config: Config, others: Iterable[Config]) -> Iterable[str]:
    for other in others:
        if other.settings.run == config.settings.run:
            yield (
                f"run.name = {shown(config.settings.run)}: stands in {other.path} and in {config.path}. Each "
                "run of one process needs a name of its own"
            )
        if os.path.realpath(other.store) == os.path.realpath(config.store):
            yield (
                f"store.path: {other.path} and {config.path} mean one store, {config.store}. Give each run a "
                "store of its own ([store] path)"
            )


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)
