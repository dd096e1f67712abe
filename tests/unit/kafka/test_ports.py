import socket

import pytest

from tailrace.kafka.ports import LOOPBACK, free_ports, is_taken


def test_free_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as server:
            server.bind((LOOPBACK, port))


@pytest.mark.parametrize("address", [LOOPBACK, "0.0.0.0"])
def test_a_port_is_in_use_while_a_server_listens(address: str) -> None:
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        assert is_taken(port)
    assert not is_taken(port)


def test_an_ended_connection_does_not_occupy_a_port() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)):
            accepted, _ = server.accept()
            # The side that closes first lingers for a minute in TIME_WAIT, on the server's port.
            accepted.close()
    assert not is_taken(port)


def test_the_check_leaves_the_port_free() -> None:
    (port,) = free_ports(1)
    assert not is_taken(port)
    assert not is_taken(port)
