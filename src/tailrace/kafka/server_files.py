"""The files that a single-node Kafka broker (KRaft) starts from."""

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
    """Where one broker's configuration, data and output are."""

    folder: Path
    log: Path | None = None
    """Where topics and metadata are, if not in that folder."""

    @property
    def properties(self) -> Path:
        """Kafka's own configuration."""
        return self.folder / "server.properties"

    @property
    def logging(self) -> Path:
        """How the broker logs."""
        return self.folder / "log4j2.properties"

    @property
    def data(self) -> Path:
        """Topics and metadata."""
        return self.log or self.folder / "data"

    @property
    def output(self) -> Path:
        """What the broker printed since its last start."""
        return self.folder / "broker.log"

    def write(self, port: int, controller_port: int) -> None:
        """Write everything a broker on these ports needs; data that is there stays.

        Raises:
            BrokerStartFailed: The folder for its log in shared memory is a link, or not this user's alone.
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
        """Give an empty data folder its identity, as Kafka's storage tool does.

        The tool costs a JVM start (about 2 s) to write these four lines; a broker without a bootstrap file takes
        its release's own feature levels, which is what a fresh development broker wants.
        """
        meta = self.data / "meta.properties"
        if meta.exists():
            return
        lines = ["version=1", f"cluster.id={_kafka_uuid()}", "node.id=1", f"directory.id={_kafka_uuid()}"]
        half_written = meta.with_suffix(".new")
        half_written.write_text("\n".join(lines) + "\n")
        half_written.replace(meta)


def _make_in_memory(log: Path) -> None:
    """Make the folder of a broker's log in one that this user alone can use."""
    shared = log.parent
    # The second look is the one that counts: with a folder in it, nobody else can remove or replace the shared one.
    if make_private(shared):
        log.mkdir(mode=0o700, exist_ok=True)
    if not make_private(shared) or not make_private(log):
        raise BrokerStartFailed(
            f"a broker's log cannot be kept in {shared}",
            why="it is a symbolic link, another user's folder, or open to other users",
            fix=f"look at it and remove it: ls -ld {shared}",
        )


def _kafka_uuid() -> str:
    """A random id in Kafka's notation: 16 bytes, URL-safe base64, no padding, no leading dash."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else _kafka_uuid()


def _server_properties(data: Path, port: int, controller_port: int) -> str:
    """Kafka's configuration: one node, loopback alone, internal topics of one partition and one copy."""
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
        # A third of a development broker's memory by default, for compacting logs of gigabytes.
        "log.cleaner.dedupe.buffer.size": str(16 * 2**20),
        # Kafka goes by the records' own time: of data that is replayed, older than a week, nothing would be left after
        # five minutes.
        "log.retention.ms": "-1",
        # Otherwise an idle controller writes to disk, and forces it there, twice a second.
        "metadata.max.idle.interval.ms": "0",
        # The defaults (3 and 8) are for servers. On two cores one of each is best: every further thread is one more to
        # wake for a single record (real-time lane of the demo, 2,000 events/s: p50 5 ms against 10 ms with two).
        "num.network.threads": threads,
        "num.io.threads": threads,
    }
    return "".join(f"{key}={_java_text(value)}\n" for key, value in settings.items())


def _java_text(value: str) -> str:
    """A value as Java reads it from a properties file, which is Latin-1 with escapes."""
    return "".join(
        char if char.isascii() and char != "\\" else "".join(f"\\u{unit:04x}" for unit in _utf16(char))
        for char in value
    )


def _utf16(char: str) -> list[int]:
    encoded = char.encode("utf-16-be")
    return [int.from_bytes(encoded[index : index + 2], "big") for index in range(0, len(encoded), 2)]
