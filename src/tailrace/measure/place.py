"""The broker of a benchmark: its own, or the user's."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import list_topics
from tailrace.measure.lane import Announce
from tailrace.measure.run import Bench
from tailrace.toolchain import memory_dir


@contextmanager
def bench_place(bootstrap_servers: str | None, partitions: int, announce: Announce) -> Iterator[Bench]:
    """Start a broker and stop it afterwards, or use the one that the user names.

    The log of its own broker is in memory if there is room: the broker has one thread for all requests, so each of them
    waits when one waits for the disk.

    Raises:
        BrokerUnreachable: The named broker does not answer.
    """
    if bootstrap_servers is None:
        announce("Starting a Kafka broker of its own ...")
        with memory_dir() as memory, temporary_broker(announce, memory=memory) as broker:
            client = plain_client(broker.bootstrap_servers)
            log = "on disk" if memory is None else "in memory"
            yield Bench(broker.bootstrap_servers, client, partitions, broker.scratch, broker.pid, log)
        return
    client = plain_client(bootstrap_servers)
    list_topics(client)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        yield Bench(bootstrap_servers, client, partitions, Path(folder))
