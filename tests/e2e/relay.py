"""A relay in front of a broker, which makes it look older or lets it keep records back."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from conftest import Kafka
from own_broker import own_broker

from tailrace.kafka.ports import LOOPBACK, free_ports

_PRODUCE, _FETCH, _API_VERSIONS = 0, 1, 18
_BEFORE_IDS = {0: 12, 1: 12, 3: 9}
"""The last versions of the requests Produce, Fetch and Metadata that have no topic ids."""
_DESCRIBE_TOPICS = 75
"""A request that older brokers do not know."""


class Relay:
    """Passes requests and replies on.

    Attributes:
        port: Where clients connect.
        has_ids: Whether the broker says that it knows versions of requests with topic ids.
        sends_records: Replies to requests for records wait for it; all others do not.
        acknowledges: Replies to requests with records wait for it.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._server = socket.create_server((LOOPBACK, 0))
        self.port: int = self._server.getsockname()[1]
        self.has_ids = True
        self.sends_records = threading.Event()
        self.sends_records.set()
        self.acknowledges = threading.Event()
        self.acknowledges.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        asked: dict[int, int] = {}
        with client, contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self._broker_port)) as broker:
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            replies = threading.Thread(target=self._reply, args=(broker, client, asked), daemon=True)
            replies.start()
            for request in _frames(client):
                kind, _, number = struct.unpack_from(">hhi", request)
                asked[number] = kind
                _send(broker, request)
            broker.shutdown(socket.SHUT_RDWR)

    def _reply(self, broker: socket.socket, client: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            for reply in _frames(broker):
                kind = asked.pop(*struct.unpack_from(">i", reply), -1)
                if kind == _FETCH:
                    self.sends_records.wait()
                if kind == _PRODUCE:
                    self.acknowledges.wait()
                _send(client, _without_ids(reply) if kind == _API_VERSIONS and not self.has_ids else reply)
            client.shutdown(socket.SHUT_RDWR)


def _frames(source: socket.socket) -> Iterator[bytes]:
    with source.makefile("rb") as stream:
        while size := stream.read(4):
            yield stream.read(*struct.unpack(">i", size))


def _send(target: socket.socket, frame: bytes) -> None:
    target.sendall(struct.pack(">i", len(frame)) + frame)


def _without_ids(reply: bytes) -> bytes:
    """Lower the versions of requests in a broker's reply, of version 3 or later, about what it supports."""
    changed = bytearray(reply)
    error, count = struct.unpack_from(">hB", reply, 4)
    if error:
        return reply
    assert count < 0x80, "more than one byte for the number of requests"
    for number in range(count - 1):
        place = 7 + 7 * number
        kind, lowest, highest = struct.unpack_from(">hhh", reply, place)
        if kind == _DESCRIBE_TOPICS:
            lowest = highest = 99
        struct.pack_into(">hhh", changed, place, kind, lowest, min(highest, _BEFORE_IDS.get(kind, highest)))
    return bytes(changed)


@contextlib.contextmanager
def relayed_kafka(folder: Path) -> Iterator[tuple[Kafka, Relay]]:
    """Start a broker; yield its topics, as direct clients see them, and the relay in front of it."""
    port, relayed_port, controller_port = free_ports(3)
    relay = Relay(relayed_port)
    settings = {
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},RELAYED://{LOOPBACK}:{relayed_port},"
        f"CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},RELAYED://{LOOPBACK}:{relay.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    try:
        with own_broker(folder / "kafka", port, controller_port, settings) as record:
            yield Kafka(record.bootstrap_servers), relay
    finally:
        relay.close()
