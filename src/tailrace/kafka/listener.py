"""What a listener that ends our connections wants: TLS, or a login. It says neither, so it is tried."""

import socket
import ssl
import struct
import time
from contextlib import ExitStack, suppress
from enum import StrEnum

_PATIENCE_S = 0.7
_ALL_S = 1.0
"""After this no further address is tried: a broker that is not there must be known within 5 s."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that every listener answers to everybody."""
_METADATA = struct.pack(">ihhihib", 15, 3, 4, 2, -1, 0, 0)
"""One, of no topic, that a listener answers only to those who have logged in."""


class Wants(StrEnum):
    """What a connection lacks."""

    TLS = "tls"
    LOGIN = "login"


def wanted_by(bootstrap_servers: str, protocol: str) -> Wants | None:
    """Find out what the first listener that takes a connection wants; None if it is nothing of that.

    Args:
        bootstrap_servers: The addresses.
        protocol: The client's ``security.protocol``.
    """
    deadline = time.monotonic() + _ALL_S
    for address in bootstrap_servers.split(","):
        host, _, port = address.rpartition("://")[2].strip().rpartition(":")
        if port.isdigit() and time.monotonic() < deadline:
            # One that takes no connection is as silent as we knew.
            with suppress(OSError):
                return _wanted_at((host.strip("[]"), int(port)), protocol)
    return None


def _wanted_at(place: tuple[str, int], protocol: str) -> Wants | None:
    if not protocol.endswith("SSL") and _speaks_tls(place):
        return Wants.TLS
    if not protocol.startswith("SASL") and _wants_login(place, tls=protocol == "SSL"):
        return Wants.LOGIN
    return None


def _speaks_tls(place: tuple[str, int]) -> bool:
    with socket.create_connection(place, _PATIENCE_S) as plain:
        try:
            with _any_certificate().wrap_socket(plain):
                return True
        except ssl.SSLCertVerificationError:
            return True
        except OSError as refused:
            # One that wants a certificate of ours, too, says so in TLS.
            return isinstance(refused, ssl.SSLError) and "ALERT" in (refused.reason or "")


def _wants_login(place: tuple[str, int], *, tls: bool) -> bool:
    """Whether a listener answers what it answers everybody, and then ends the connection."""
    with ExitStack() as opened:
        connection: socket.socket = opened.enter_context(socket.create_connection(place, _PATIENCE_S))
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
    """One answer; nothing if the connection ends."""
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
    """TLS with whoever answers: nothing is sent that is worth protecting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
