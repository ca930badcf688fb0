"""Stand-ins for what a package brings and we never use: there for its import, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tracker.lean import without, without_openssl_hashes
without_openssl_hashes()
import tracker.exporter, tracker.scheduler
print(*sorted({"ssl", "_ssl", "asyncio", "http.server", "wsgiref"} & sys.modules.keys()))
import ssl, http.server, asyncio, hashlib
print(ssl.create_default_context().verify_mode.name, http.server.HTTPServer.__name__, asyncio.run.__name__)
print(hashlib.sha256(b"x").hexdigest() == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
with without("ssl"):
    pass
print(sys.modules["ssl"] is ssl)
"""


def test_what_is_left_out_is_there_for_whoever_needs_it_later() -> None:
    """TLS, an HTTP server, an event loop: all real, and hashes the same with and without OpenSSL."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["", "CERT_REQUIRED HTTPServer run", "True", "True"]


def test_a_stand_in_takes_any_name_and_is_empty() -> None:
    """As a base class, as a function, as a default value."""
    program = (
        "from tracker.lean import without\n"
        "with without('wsgiref'):\n"
        "    import wsgiref\n"
        "    class Child(wsgiref.Anything): pass\n"
        "print(bool(wsgiref.make(1, a=2)), Child.__mro__[1].__name__, hasattr(wsgiref, '__path__'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False Anything False\n"
