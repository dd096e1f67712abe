"""The configuration files of a single-node Kafka broker (KRaft)."""

import base64
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import BrokerStartFailed
from tailrace.kafka.ports import LOOPBACK
from tailrace.toolchain.directories import make_private

_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = CONSOLE
appender.console.type = Console
appender.console.name = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class ServerFiles:
    """The paths of one broker's configuration, data and output."""

    folder: Path
    log: Path | None = None
    """The folder of topics and metadata, if it is not inside ``folder``."""

    @property
    def properties(self) -> Path:
        """Kafka's configuration file."""
        return self.folder / "server.properties"

    @property
    def logging(self) -> Path:
        """The broker's Log4j configuration file."""
        return self.folder / "log4j2.properties"

    @property
    def data(self) -> Path:
        """The folder of topics and metadata."""
        return self.log or self.folder / "data"

    @property
    def output(self) -> Path:
        """The broker's output since its last start."""
        return self.folder / "broker.log"

    def write(self, port: int, controller_port: int) -> None:
        """Write the configuration of a broker on these ports; keep existing data.

        Raises:
            BrokerStartFailed: The log folder in shared memory is a link, or other users can access it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.log is None:
            self.data.mkdir(exist_ok=True)
        else:
            _make_in_memory(self.log)
        self.properties.write_text(_server_properties(self.data, port, controller_port))
        self.logging.write_text(_LOGGING)
        self._format_storage()

    def _format_storage(self) -> None:
        """Format an empty data folder like Kafka's storage tool.

        The tool needs a JVM start (about 2 s) to write these four lines. A broker without a bootstrap file uses the
        feature levels of its release, which is right for a new development broker.
        """
        meta = self.data / "meta.properties"
        if meta.exists():
            return
        lines = ["version=1", f"cluster.id={_kafka_uuid()}", "node.id=1", f"directory.id={_kafka_uuid()}"]
        temporary = meta.with_suffix(".new")
        temporary.write_text("\n".join(lines) + "\n")
        temporary.replace(meta)


def _make_in_memory(log: Path) -> None:
    """Create the folder of a broker's log inside a folder that only this user can access."""
    shared = log.parent
    # The second check is decisive: once the shared folder is not empty, no other user can remove or replace it.
    if make_private(shared):
        log.mkdir(mode=0o700, exist_ok=True)
    if not make_private(shared) or not make_private(log):
        raise BrokerStartFailed(
            f"cannot use {shared} for the broker's log",
            why="it is a symbolic link, another user's folder, or open to other users",
            fix=f"check its owner and mode, then remove it: ls -ld {shared}",
        )


def _kafka_uuid() -> str:
    """Return a random id in Kafka's format: 16 bytes, URL-safe base64, no padding, no leading dash."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else _kafka_uuid()


def _server_properties(data: Path, port: int, controller_port: int) -> str:
    """Return Kafka's configuration: one node, loopback only, internal topics with one partition and one replica."""
    threads = str(max(1, (os.cpu_count() or 1) // 2))
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        # The default takes a third of a development broker's memory, to compact logs of gigabytes.
        "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
        # Kafka's retention uses the timestamps of records: replayed data older than a week would be deleted after five
        # minutes.
        "log.retention.ms": "-1",
        # Otherwise an idle controller writes and syncs to disk twice a second.
        "metadata.max.idle.interval.ms": "0",
        # The defaults (3 and 8) suit servers. On two cores one of each is best: each further thread is one more to wake
        # for a single record (real-time lane of the demo, 2,000 events/s: p50 5 ms against 10 ms with two).
        "num.network.threads": threads,
        "num.io.threads": threads,
    }
    return "".join(f"{key}={_java_text(value)}\n" for key, value in settings.items())


def _java_text(value: str) -> str:
    """Escape a value for a Java properties file, which is Latin-1 with escapes."""
    return "".join(
        char if char.isascii() and char != "\\" else "".join(f"\\u{unit:04x}" for unit in _utf16(char))
        for char in value
    )


def _utf16(char: str) -> list[int]:
    encoded = char.encode("utf-16-be")
    return [int.from_bytes(encoded[index : index + 2], "big") for index in range(0, len(encoded), 2)]
