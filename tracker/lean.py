"""Loads a package without those parts of the standard library that it names and we never use.

Edge: changes what an import finds, for the length of a block.

Why: a sidecar shares a node with the job, and is promised to stay below 40 MB. prometheus_client brings an
HTTP server of its own, and APScheduler an event loop; with OpenSSL below both that is 8 MB of 39 that
nothing of ours ever calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Nothing:
    """Stands for any class or function of a module that is not there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return False


class _StandIn(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let imports inside the block find empty stand-ins for modules that are not loaded yet.

    Afterwards the names are free again: whoever imports one of them then gets the real one.
    """
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = _StandIn(name)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def without_openssl_hashes() -> None:
    """Let hashlib use Python's own hashes: the same results, without OpenSSL's 3.5 MB."""
    sys.modules.setdefault("_hashlib", None)  # type: ignore[arg-type]
