"""Which file system a path lies on, whether SQLite's write-ahead log is safe there, and what room it has.

Edge: reads /proc/self/mountinfo, and asks how much room is left. A write-ahead log needs memory shared
by all who open the file, which a file system shared by several hosts cannot give; there the store uses a
rollback journal.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
LEAST_ROOM: Final = 10_000_000
"""Bytes: a transaction and the write-ahead log need some; with less the next commit may fail."""

SHARED: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "cvmfs", "dfs", "fhgfs", "gfs", "gfs2", "glusterfs",
        "gpfs", "lustre", "lustre_lite", "mmfs", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs",
        "pvfs2", "quobyte", "smb", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
    }
)  # fmt: skip
"""Types that other hosts may have mounted too. `fuse` and `fuse.*` count too: what they serve is hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """Where a path lies."""

    kind: str
    """As the kernel names it: "ext4", "nfs4", "fuse.sshfs"; empty where the system does not say."""
    mounted_on: str

    @property
    def shared(self) -> bool:
        """Tell whether other hosts may have it mounted, or nobody can know."""
        return self.kind in SHARED or self.kind == "fuse" or self.kind.startswith("fuse.")


def file_system(path: Path, *, mounts: Path = MOUNTS) -> FileSystem:
    """Return the file system of a path (which need not exist yet). An unknown system counts as local."""
    try:
        table = mounts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return FileSystem(kind="", mounted_on="")
    return look_up(table, os.path.realpath(path))


def free_bytes(folder: Path) -> int:
    """Return how much this user may still write in a folder."""
    return shutil.disk_usage(folder).free


def no_room(path: Path) -> str:
    """Return a sentence where the disk of a store is full; empty where it is not, or nobody can say."""
    folder = path.parent
    try:
        free = free_bytes(folder)
    except OSError:
        return ""
    if free >= LEAST_ROOM or not os.access(folder, os.W_OK):
        return ""
    return (
        f"only {free / 1e6:.1f} MB free in {folder}: too little for the store, so what happened lately may "
        "be missing. Make room: it is then read from the logs, as long as they are there"
    )


def look_up(table: str, real_path: str) -> FileSystem:
    r"""Return the mount that holds an absolute path, by the text of a mountinfo table.

    >>> table = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /home rw shared:7 - nfs4 srv:/home rw\n"
    >>> look_up(table, "/home/me/tracker.db").kind, look_up(table, "/homes/x").kind
    ('nfs4', 'ext4')
    """
    best = FileSystem(kind="", mounted_on="")
    for line in table.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        inside = real_path == point or real_path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best.mounted_on):  # later lines hide earlier ones
            best = FileSystem(kind=right.split(" ", 1)[0], mounted_on=point)
    return best


def _unescaped(field: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
