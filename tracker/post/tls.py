"""Whose certificates are believed, and what is wrong with one that is not.

Edge. Loads `ssl`: only child processes import this.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from tracker import smallfile
from tracker.core.errors import TrackerError


class BadCertificates(TrackerError, OSError):
    """The file of certificates to trust cannot be used."""


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that verifies name and certificate, by the system's authorities or by a file's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is None:
        return context
    alone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    alone.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        smallfile.check_certificates(ca_file)
        alone.load_verify_locations(cafile=str(ca_file))
    except ssl.SSLError:
        raise BadCertificates(f"{ca_file} holds no certificate in PEM form") from None
    except OSError as error:
        raise BadCertificates(f"{ca_file}: {error.strerror or error}") from None
    return alone


def certificate_trouble(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with the other side's certificate, and what to do."""
    said = error.verify_message or "not trusted"
    if "expired" in said:
        return f"its certificate is not valid today ({said}): nothing was sent. It must be renewed there"
    if "mismatch" in said.lower():
        return f"its certificate is for another name ({said}): nothing was sent"
    return f"its certificate is not trusted ({said}): nothing was sent. Name the authority's file in ca_file"
