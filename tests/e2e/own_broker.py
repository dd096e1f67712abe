"""A broker of a test's own, with settings that the shared one lacks."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.kafka.broker import BrokerRecord, broker_command, wait_ready
from tailrace.kafka.server_files import ServerFiles
from tailrace.toolchain.guarded_process import GuardedProcess


@contextlib.contextmanager
def own_broker(folder: Path, port: int, controller_port: int, settings: Mapping[str, str]) -> Iterator[BrokerRecord]:
    """Start a broker in a folder; it is gone afterwards.

    Args:
        folder: Its files.
        port: Where it responds to plain clients.
        controller_port: Of its controller.
        settings: Its further settings, which win over Tailrace's.
    """
    files = ServerFiles(folder)
    files.write(port, controller_port)
    with files.properties.open("a") as properties:
        properties.writelines(f"{key}={value}\n" for key, value in settings.items())  # the last one wins
    command = broker_command(files, lambda _: None, 384)
    with files.output.open("wb") as output, files.output.open("rb") as reader:
        process = GuardedProcess(command, output=output, grace_s=2.0)
        try:
            record = BrokerRecord("own", process.pid, port, controller_port, "program", str(files.folder))
            wait_ready(record, process.poll, reader, 60)
            yield record
        finally:
            process.stop()
