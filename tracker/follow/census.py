"""Which files are there: one look at names and status, and what became of those that are missing.

Edge: lists folders and asks for status; reads nothing. A name that disappears is not yet a loss:
the file may have been renamed out of the patterns, may be readable through a descriptor that is
still open, or may be hidden by a file system that does not answer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from tracker.follow.cursor import Cursor, signed
from tracker.follow.files import File, Key, Poll, Pool, file_at, key_of
from tracker.follow.glob import Pattern, Scan, unrotated

_LINGER_DELETED_S: Final = 5.0
"""How long a deleted file is read on once it is quiet: while it is held, its space is not free."""
_LINGER_RENAMED_S: Final = 60.0
"""The same for a file that left the patterns."""
_FOLDERS_SEARCHED: Final = 64


class Census:
    """Every regular file that the patterns mean, by inode."""

    def __init__(
        self, patterns: list[str], root: Path, *, rotated: bool, pool: Pool, skip: Collection[Path] = ()
    ) -> None:
        self.files: dict[Key, File] = {}
        self.patterns = [Pattern(text, root, rotated=rotated, skip=skip) for text in patterns]
        self.scan = Scan()
        self.renames = 0
        """Files that feed a stream and changed their name."""
        self.looks = 0
        self._root = os.fsencode(root.absolute())
        self._pool = pool

    def look(self, poll: Poll) -> list[File]:
        """Update ``files``; return those that are gone, still in it."""
        self.looks += 1
        self.scan = Scan()
        for number, pattern in enumerate(self.patterns):
            for path, status in pattern.files(self.scan):
                self._meet(path, status, number, poll)
        missed = [file for file in self.files.values() if file.round != self.looks]
        gone = self._gone(missed, poll) if missed else []
        for file in self.files.values():
            if file.path is not file.previous_path:
                if file.previous_path not in {None, file.path} and file.stream is not None:
                    self.renames += 1
                file.previous_path = file.path
                file.family = unrotated(os.path.basename(file.path))
        return gone

    def shown(self, path: bytes) -> str:
        """Return a path as text for people: relative below the root, odd bytes escaped."""
        return path.removeprefix(self._root + b"/").decode("utf-8", "backslashreplace")

    def search(self, orphans: Iterable[Cursor], homes: Mapping[int, int] | None, poll: Poll) -> None:
        """Find files of stored streams that a rename took out of the patterns unseen.

        ``homes``: the pattern of each stream; one without is not searched for. None: not known.
        """
        wanted: dict[bytes, dict[int, int | None]] = {}
        for one in orphans:
            home = None if homes is None or one.stream_id is None else homes.get(one.stream_id)
            if homes is not None and home is None:
                continue
            if not one.copy and (one.device, one.inode) not in self.files:
                folder = os.path.dirname(os.path.join(self._root, os.fsencode(one.path)))
                wanted.setdefault(folder, {})[one.inode] = home
        for folder, inodes in sorted(wanted.items())[:_FOLDERS_SEARCHED]:
            for inode, path in _names_of(folder, inodes):
                if any(pattern.skips(path) for pattern in self.patterns[:1]):
                    continue
                try:
                    status = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode) and key_of(status) not in self.files:
                    self._meet(path, status, inodes[inode], poll)
                    self.files[key_of(status)].outside = True

    def _meet(self, path: bytes, status: os.stat_result, pattern: int | None, poll: Poll) -> None:
        key = key_of(status)
        file = self.files.get(key)
        if file is None:
            self.files[key] = file = file_at(path, status, pattern=pattern, now_us=poll.now_us)
        elif file.round == self.looks:  # a hard link, or a symbolic link and what it leads to
            if file.path != file.previous_path and (
                path == file.previous_path or _rank(path) < _rank(file.path)
            ):
                file.path = path
        elif path != file.path:
            file.path, file.pattern = path, pattern
        file.round = self.looks
        file.gone_s, file.outside = None, False
        self._update(file, status)

    def _update(self, file: File, status: os.stat_result) -> None:
        shrunk = status.st_size < file.size
        if file.update(status) and (shrunk or file.packed):
            file.stop_task()
            if file.packed:
                self._pool.close(file)

    def _gone(self, missed: list[File], poll: Poll) -> list[File]:
        """Return the files that cannot be found or read any more."""
        nameless: list[File] = []
        for file in missed:
            if self._hidden(file.path):
                file.round = self.looks  # nothing is known; nothing has changed
            elif not (file.outside and self._still_there(file, file.path)):
                nameless.append(file)
        wanted: dict[bytes, dict[int, File]] = {}
        for file in nameless:
            if file.gone_s is None and file.stream is not None:
                wanted.setdefault(os.path.dirname(file.path), {})[file.key[1]] = file
        for folder, inodes in wanted.items():
            for inode, path in _names_of(folder, inodes):
                self._still_there(inodes[inode], path)
        return [file for file in nameless if file.round != self.looks and not self._lingers(file, poll.now_s)]

    def _still_there(self, file: File, path: bytes) -> bool:
        """See whether the file is at a path that no pattern means."""
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        if key_of(status) != file.key or not stat.S_ISREG(status.st_mode):
            return False
        file.path, file.round, file.outside = path, self.looks, True
        self._update(file, status)
        return True

    def _lingers(self, file: File, now_s: float) -> bool:
        """Keep reading a file without a name through the descriptor that is still open."""
        status = self._pool.status(file)
        if status is None or file.stream is None:
            return False
        if file.update(status) or file.gone_s is None:
            file.gone_s = now_s
        patience = _LINGER_RENAMED_S if status.st_nlink else _LINGER_DELETED_S
        return now_s - file.gone_s < patience

    def _hidden(self, path: bytes) -> bool:
        """Tell whether a path could not be looked at, because its file system does not answer."""
        silent = self.scan.silent
        return bool(silent) and (path in silent or any(path.startswith(folder + b"/") for folder in silent))


def _rank(path: bytes) -> tuple[bool, bytes]:
    name = os.path.basename(path)
    return (unrotated(name) != name, path)


def _names_of(folder: bytes, inodes: Iterable[int]) -> list[tuple[int, bytes]]:
    """Return the entries of a folder that have one of these (signed) inodes."""
    wanted = set(inodes)
    try:
        with os.scandir(folder) as entries:
            return [(number, entry.path) for entry in entries if (number := signed(entry.inode())) in wanted]
    except OSError:
        return []
