"""Find out whether a Kafka listener that closes connections requires TLS or a login.

The listener does not say so; this module tries both.
"""

import socket
import ssl
import struct
import time
from contextlib import ExitStack, suppress
from enum import StrEnum

_TIMEOUT_S = 0.7
_TOTAL_S = 1.0
"""No further address is tried after this time: an unreachable broker must be reported within 5 s."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that every listener answers without a login."""
_METADATA = struct.pack(">ihhihib", 15, 3, 4, 2, -1, 0, 0)
"""A request for no topic, which a listener with logins answers only after a login."""


class Wants(StrEnum):
    """What the listener requires and the client does not use."""

    TLS = "tls"
    LOGIN = "login"


def wanted_by(bootstrap_servers: str, protocol: str) -> Wants | None:
    """Return what the first reachable listener requires; None if it is neither TLS nor a login.

    Args:
        bootstrap_servers: The addresses of the brokers.
        protocol: The client's ``security.protocol``.
    """
    deadline = time.monotonic() + _TOTAL_S
    for address in bootstrap_servers.split(","):
        host, _, port = address.rpartition("://")[2].strip().rpartition(":")
        if port.isdigit() and time.monotonic() < deadline:
            # An unreachable address tells nothing: try the next one.
            with suppress(OSError):
                return _wanted_at((host.strip("[]"), int(port)), protocol)
    return None


def _wanted_at(address: tuple[str, int], protocol: str) -> Wants | None:
    if not protocol.endswith("SSL") and _speaks_tls(address):
        return Wants.TLS
    if not protocol.startswith("SASL") and _wants_login(address, tls=protocol == "SSL"):
        return Wants.LOGIN
    return None


def _speaks_tls(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, _TIMEOUT_S) as plain:
        try:
            with _any_certificate().wrap_socket(plain):
                return True
        except ssl.SSLCertVerificationError:
            return True
        except OSError as refused:
            # A listener that requires a client certificate answers with a TLS alert.
            return isinstance(refused, ssl.SSLError) and "ALERT" in (refused.reason or "")


def _wants_login(address: tuple[str, int], *, tls: bool) -> bool:
    """Return whether a listener answers the public request and then closes the connection."""
    with ExitStack() as opened:
        connection: socket.socket = opened.enter_context(socket.create_connection(address, _TIMEOUT_S))
        if tls:
            connection = opened.enter_context(_any_certificate().wrap_socket(connection))
        connection.sendall(_API_VERSIONS)
        if not _answer(connection):
            return False
        connection.sendall(_METADATA)
        try:
            return not _answer(connection)
        except ConnectionError:
            return True


def _answer(connection: socket.socket) -> bytes:
    """Read one response; return no bytes if the connection closes."""
    size = _exactly(connection, 4)
    return _exactly(connection, struct.unpack(">i", size)[0]) if size else b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            return b""
        read += more
    return read


def _any_certificate() -> ssl.SSLContext:
    """Return a TLS context that accepts every certificate; no secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
