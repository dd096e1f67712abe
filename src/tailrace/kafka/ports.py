"""Find free ports on the loopback interface, and check whether a port is in use."""

import socket

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return distinct ports that no process listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def is_taken(port: int) -> bool:
    """Return whether a process listens on a loopback port."""
    with socket.socket() as probe:
        # Like a server, ignore sockets in TIME_WAIT that a stopped server left behind.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False
