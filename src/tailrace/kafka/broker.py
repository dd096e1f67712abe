"""A real Apache Kafka broker for development: one KRaft node, on loopback only.

Each broker has its own folder in the user's state folder. The broker's process holds a file lock while it runs, and the
lock tells whether a broker runs. So a reused process id cannot cause a mistake, and a killed broker needs no manual
clean-up.
"""

import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

from tailrace.errors import (
    BrokerAlreadyRunning,
    BrokerNotRunning,
    BrokerStartFailed,
    KafkaError,
    PortTaken,
)
from tailrace.kafka.client import plain_client
from tailrace.kafka.ports import LOOPBACK, free_ports, is_taken
from tailrace.kafka.server_files import ServerFiles
from tailrace.kafka.topics import list_topics
from tailrace.toolchain import ClassArchive, Java, ensure_jars, ensure_java, jar_paths, state_dir
from tailrace.toolchain.detached_process import DetachedProcess
from tailrace.toolchain.directories import make_private
from tailrace.toolchain.guarded_process import GuardedProcess
from tailrace.toolchain.jars import Announce
from tailrace.toolchain.process_folder import FolderBusyError, ProcessFolder, printed_reason, require_name, send_signal

DEFAULT_NAME = "default"
STARTING_TEMPORARY = "Starting a temporary Kafka broker ..."
START_TIMEOUT_S = 30.0
HEAP_MB = 384
"""Enough for a development broker: Kafka caches mostly in the operating system's page cache."""


@dataclass(frozen=True)
class BrokerRecord:
    """The description of a broker, stored next to its data."""

    name: str
    pid: int
    port: int
    controller_port: int
    owner: str
    """``hand``: runs until it is stopped. ``program``: ends with the process that started it."""
    folder: str

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to."""
        return f"{LOOPBACK}:{self.port}"


class Broker:
    """A temporary broker that ends with this program; use it as a context manager."""

    def __init__(self, record: BrokerRecord, process: GuardedProcess) -> None:
        self.record = record
        self._process = process

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to."""
        return self.record.bootstrap_servers

    @property
    def pid(self) -> int:
        """The root of the broker's process tree."""
        return self._process.pid

    @property
    def scratch(self) -> Path:
        """A folder for temporary files; it is removed together with the broker."""
        folder = Path(self.record.folder) / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def stop(self) -> None:
        """Stop the broker and remove its data."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def temporary_broker(announce: Announce, *, heap_mb: int = HEAP_MB, memory: Path | None = None) -> Broker:
    """Start a broker that ends with this program, even after ``kill -9``; its data is then removed.

    Args:
        announce: Called with a message before a step that takes long.
        heap_mb: The heap of the broker's JVM.
        memory: The parent folder for the broker's log; by default the log is in the broker's folder.
    """
    name = f"own-{os.getpid()}-{secrets.token_hex(3)}"
    _remove_stale_brokers(_brokers_folder(), memory)
    files = ServerFiles(_brokers_folder() / name, memory / name if memory is not None else None)
    removed = [files.folder, files.data]
    command = broker_command(files, announce, heap_mb)
    for attempt in (1, 2, 3):
        port, controller_port = free_ports(2)
        with _locked(files.folder) as lock:
            files.write(port, controller_port)
            # Open for reading now: the guard removes the folder with this file when the broker ends.
            with files.output.open("wb") as output:
                reader = files.output.open("rb")
                process = GuardedProcess(command, output=output, grace_s=2.0, remove=removed, keep_open=[lock])
            record = BrokerRecord(name, process.pid, port, controller_port, "program", str(files.folder))
            _write_record(record)
        with reader:
            try:
                wait_ready(record, process.poll, reader, START_TIMEOUT_S)
            except BrokerStartFailed as failed:
                process.stop()
                # Another process may have taken a port before the broker could bind it: try other ports.
                if attempt == 3 or "Address already in use" not in failed.detail:
                    raise
            except BaseException:
                process.stop()
                raise
            else:
                return Broker(record, process)
    raise AssertionError("unreachable")


def start_broker(
    announce: Announce,
    *,
    name: str = DEFAULT_NAME,
    port: int = 0,
    controller_port: int = 0,
    fresh: bool = False,
    heap_mb: int = HEAP_MB,
    timeout_s: float = START_TIMEOUT_S,
) -> BrokerRecord:
    """Start a broker that runs until :func:`stop_broker`; with ``fresh``, delete earlier data first."""
    files = ServerFiles(_folder(name))
    running = find_broker(name)
    if running is not None:
        if fresh or port not in (0, running.port):
            raise BrokerAlreadyRunning(
                f"broker {name!r} is running at {running.bootstrap_servers}",
                fix=f"tailrace broker stop --name {name}, then start it again; or choose another --name",
            )
        return running
    for wanted in (port, controller_port):
        if wanted and is_taken(wanted):
            raise PortTaken(
                f"another process uses port {wanted} on {LOOPBACK}",
                fix="omit --port to get a free one, or choose another port",
            )
    command = broker_command(files, announce, heap_mb)
    free = free_ports(2)
    port, controller_port = port or free[0], controller_port or free[1]
    # Under the lock: other processes see either the complete new broker or none.
    with _locked(files.folder) as lock:
        _process_folder(files.folder).forget_record()
        if fresh:
            shutil.rmtree(files.data, ignore_errors=True)
        files.write(port, controller_port)
        with files.output.open("wb") as output:
            process = DetachedProcess(command, output=output, keep_open=[lock])
        record = BrokerRecord(name, process.pid, port, controller_port, "hand", str(files.folder))
        try:
            _write_record(record)
            with files.output.open("rb") as reader:
                wait_ready(record, process.poll, reader, timeout_s)
        except BaseException:
            process.stop()
            raise
    process.detach()
    return record


def stop_broker(name: str = DEFAULT_NAME, *, discard: bool = False, timeout_s: float = 15.0) -> BrokerRecord:
    """Stop a broker that :func:`start_broker` started; with ``discard``, delete its data too."""
    record = find_broker(name)
    folder = _folder(name)
    if record is None:
        if discard and folder.exists():
            shutil.rmtree(folder)
        raise BrokerNotRunning(
            f"no broker {name!r} is running" + ("; its data is removed" if discard else ""),
            fix="list the running brokers: tailrace broker status",
        )
    if record.owner == "program":
        raise BrokerNotRunning(
            f"broker {name!r} belongs to a running program and ends with it",
            fix="stop that program",
        )
    send_signal(record.pid, signal.SIGTERM)
    _process_folder(folder).await_end(record.pid, timeout_s)
    if discard:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def find_broker(name: str = DEFAULT_NAME) -> BrokerRecord | None:
    """Return the running broker with this name, or None."""
    folder = _folder(name)
    return _read_record(folder) if _process_folder(folder).is_running() else None


def running_brokers() -> list[BrokerRecord]:
    """Return this user's running brokers."""
    folders = sorted(_brokers_folder().glob("*/")) if _brokers_folder().exists() else []
    records = (_read_record(folder) for folder in folders if _process_folder(folder).is_running())
    return [record for record in records if record is not None]


def _brokers_folder() -> Path:
    return state_dir() / "brokers"


def _folder(name: str) -> Path:
    return _brokers_folder() / require_name("broker", name)


def broker_command(files: ServerFiles, announce: Announce, heap_mb: int) -> list[str]:
    """Return the command line of the broker's JVM."""
    java = ensure_java(announce)
    jars = ensure_jars(java, ["broker"], announce)["broker"]
    return [
        str(java.executable),
        *broker_archive(java).options(),
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        # Most objects die with their request: the larger the young generation, the fewer the GC pauses.
        f"-Xmn{heap_mb * 3 // 4}m",
        # The threads of a concurrent collector would take CPU time from what is measured on a small machine. The serial
        # collector paused for 14 to 22 ms at 2,000 events/s, this one for 3 to 4 ms.
        "-XX:+UseParallelGC",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={files.logging.as_uri()}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        "kafka.Kafka",
        str(files.properties),
    ]


def broker_archive(java: Java) -> ClassArchive:
    """Return the class archive for a broker on this Java."""
    return ClassArchive("broker", java, tuple(jar_paths("broker")))


def write_broker_archive(announce: Announce) -> None:
    """Write the class archive for brokers, unless it exists, and wait for it.

    Raises:
        ArchiveNotWrittenError: Java did not write it.
    """
    archive = broker_archive(ensure_java(announce))
    if not archive.is_written and not archive.is_off:
        announce("Writing a class archive so that brokers start faster: some seconds, once ...")
        archive.write(os.pathsep.join(map(str, archive.files)))


def _process_folder(folder: Path) -> ProcessFolder:
    return ProcessFolder(folder, "broker.json")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the lock of a running broker."""
    try:
        with _process_folder(folder).locked() as lock:
            yield lock
    except FolderBusyError as busy:
        raise BrokerAlreadyRunning(
            f"another process is starting broker {folder.name!r}",
            fix="wait until it runs: tailrace broker status",
        ) from busy


def _write_record(record: BrokerRecord) -> None:
    _process_folder(Path(record.folder)).write_record(asdict(record))


def _read_record(folder: Path) -> BrokerRecord | None:
    try:
        return BrokerRecord(**(_process_folder(folder).read_record() or {}))
    except TypeError:
        return None


def _remove_stale_brokers(brokers: Path, memory: Path | None) -> None:
    """Remove the files of temporary brokers whose guard was lost, for example in a crash of the machine."""
    for log in memory.glob("own-*/") if memory is not None and make_private(memory) else ():
        # A broker's folder is created before its log.
        if not log.is_symlink() and not (brokers / log.name).exists():
            shutil.rmtree(log, ignore_errors=True)
    for folder in brokers.glob("own-*/"):
        record = _read_record(folder)
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - folder.stat().st_mtime > 60
            if old and not _process_folder(folder).is_running() and (record is None or record.owner == "program"):
                shutil.rmtree(folder, ignore_errors=True)


def wait_ready(record: BrokerRecord, poll: Callable[[], int | None], printed: IO[bytes], timeout_s: float) -> None:
    """Wait until the broker responds; raise an error with its output if it ends or takes too long."""
    config = plain_client(record.bootstrap_servers)
    deadline = time.monotonic() + timeout_s
    while True:
        if poll() is not None:
            raise _start_failed(record, printed, "ended during its start")
        if is_taken(record.port):
            with contextlib.suppress(KafkaError):
                list_topics(config)
                return
        if time.monotonic() > deadline:
            raise _start_failed(record, printed, f"was not ready within {timeout_s:.0f} s")
        time.sleep(0.05)


def _start_failed(record: BrokerRecord, output: IO[bytes], what: str) -> BrokerStartFailed:
    """Return the error with the reason that the broker printed."""
    printed = output.read().decode(errors="replace")
    persistent_fix = (
        f"read {Path(record.folder) / 'broker.log'}; if the data is damaged, delete it: "
        f"tailrace broker start --name {record.name} --fresh"
    )
    return BrokerStartFailed(
        f"broker {record.name!r} {what}",
        why=printed_reason(printed),
        fix=persistent_fix if record.owner == "hand" else "run with --verbose to see the broker's output",
        detail=printed,
    )
