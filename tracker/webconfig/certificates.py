"""From the certificates that a web config names to what OpenSSL needs for handshakes.

Edge: reads the certificate files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracker import smallfile
from tracker.webconfig.parse import CLIENT_AUTH, VERSIONS, Tls, WebConfigError, WebSettings, parse, text_of

if TYPE_CHECKING:
    import ssl


def load(path: Path) -> WebSettings:
    """Read and check a web config file and the certificates it names; raises WebConfigError."""
    settings = parse(text_of(path), path)
    if settings.tls is not None:
        tls_context(settings.tls, path)
    return settings


def tls_context(tls: Tls, path: Path) -> ssl.SSLContext:
    """Return what OpenSSL needs for handshakes; raises WebConfigError where a certificate is unusable."""
    import ssl

    try:
        return _context(tls, path)
    except ssl.SSLError as error:
        raise WebConfigError(path, [f"tls_server_config: OpenSSL refuses it ({error.reason})"]) from None


def _context(tls: Tls, path: Path) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = getattr(ssl.TLSVersion, VERSIONS[tls.min_version])
    context.maximum_version = getattr(ssl.TLSVersion, VERSIONS[tls.max_version])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # a connection is one request, and scrapers do not come back to a session
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        context.set_ciphers(":".join(tls.cipher_suites))
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, tls, path)
    if tls.client_ca_file is not None:
        try:
            smallfile.check_certificates(tls.client_ca_file)
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise WebConfigError(path, [f"client_ca_file {_said(tls.client_ca_file, error)}"]) from None
        context.verify_mode = getattr(ssl, CLIENT_AUTH[tls.client_auth_type])
    return context


def _load_pair(context: ssl.SSLContext, tls: Tls, path: Path) -> None:
    import ssl

    def locked() -> str:
        raise _Locked

    for name, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        try:
            smallfile.check_certificates(file)
        except OSError as error:
            raise WebConfigError(path, [f"{name} {_said(file, error)}"]) from None
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=locked)
    except _Locked:
        raise WebConfigError(
            path, [f"key_file {tls.key_file}: is locked by a password. Give one without: openssl pkey"]
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            said = f"key_file {tls.key_file}: does not belong to {tls.cert_file}"
        else:
            said = (
                f"{tls.cert_file} and {tls.key_file}: not a certificate and its key in PEM ({error.reason})"
            )
        raise WebConfigError(path, [said]) from None
    except OSError as error:
        raise WebConfigError(path, [_said(tls.cert_file, error)]) from None


class _Locked(Exception):
    """A key needs a password, and nobody is there to give it."""


def _said(file: Path, error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return f"{file}: {f'not PEM ({reason})' if reason else error.strerror or error}"
