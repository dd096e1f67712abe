"""What a listener wants that ends connections without a word, with listeners made of a few lines."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tailrace.kafka.listener import Wants, wanted_by
from tailrace.kafka.ports import free_ports

ANSWER = b"\x00\x00\x00\x04\x00\x00\x00\x01"
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
"""What a server for TLS says to a handshake that it does not like."""


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def for_everybody(connection: socket.socket) -> None:
    """Answers each request; a handshake is none, and ends the connection."""
    while (sent := connection.recv(1000)) and sent[0] == 0:
        connection.sendall(ANSWER)


def for_logins(connection: socket.socket) -> None:
    """Answers the first request only."""
    if connection.recv(1000)[:1] == b"\0":
        connection.sendall(ANSWER)
        connection.recv(1000)


def for_tls(connection: socket.socket) -> None:
    """Speaks TLS, and ends every other connection."""
    if connection.recv(1000)[:1] == b"\x16":
        connection.sendall(ALERT)
        connection.recv(1000)


@pytest.mark.parametrize(
    ("serve", "protocol", "wants"),
    [
        (for_everybody, "PLAINTEXT", None),
        (for_everybody, "SASL_PLAINTEXT", None),
        (for_logins, "PLAINTEXT", Wants.LOGIN),
        (for_logins, "SASL_PLAINTEXT", None),
        (for_tls, "PLAINTEXT", Wants.TLS),
        (for_tls, "SASL_PLAINTEXT", Wants.TLS),
    ],
)
def test_requirements_of_a_listener(serve: Callable[[socket.socket], None], protocol: str, wants: Wants | None) -> None:
    with listener(serve) as address:
        silent = f"127.0.0.1:{free_ports(1)[0]}"
        assert wanted_by(f"{silent}, PLAINTEXT://{address}", protocol) is wants


@pytest.mark.parametrize("servers", ["", "no port", "host:", "127.0.0.1:1", "[::1]:1"])
def test_a_closed_port_has_no_requirements(servers: str) -> None:
    assert wanted_by(servers, "PLAINTEXT") is None
