"""A word to systemd, where it asked for one: ready, stopping, still alive.

Edge. Without NOTIFY_SOCKET in the environment nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send a state such as "READY=1" (see sd_notify(3)); a failure is nobody's concern."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.5)
        sender.sendto(state.encode(), address)
