"""A real Apache Kafka broker for development: one KRaft node, on loopback alone.

A broker lives in a folder of its own below the user's state folder. That it runs is known by a file lock which
the broker's process itself holds for as long as it lives: no process id can be mistaken for another, and a killed
broker leaves nothing that must be cleaned up by hand.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
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
    OptionRefused,
    PortTaken,
)
from tailrace.kafka.client import plain_client
from tailrace.kafka.ports import LOOPBACK, free_ports, is_taken
from tailrace.kafka.server_files import ServerFiles
from tailrace.kafka.topics import list_topics
from tailrace.toolchain import ClassArchive, Java, ensure_jars, ensure_java, jar_paths, state_dir
from tailrace.toolchain.directories import make_private
from tailrace.toolchain.guarded_process import GuardedProcess
from tailrace.toolchain.jars import Announce

DEFAULT_NAME = "default"
START_TIMEOUT_S = 30.0
_PROBES_END_S = 5.0
"""How long a start waits for other processes to finish looking whether the broker runs."""
HEAP_MB = 384
"""Enough for a development broker: most of what Kafka caches is in the operating system's pages."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class BrokerRecord:
    """What is known of a broker, as written beside its data."""

    name: str
    pid: int
    port: int
    controller_port: int
    owner: str
    """``hand``: stays until it is stopped. ``program``: ends with the process that started it."""
    folder: str

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to."""
        return f"{LOOPBACK}:{self.port}"


class Broker:
    """A broker that this program started and that ends with it; use it as a context manager."""

    def __init__(self, record: BrokerRecord, process: GuardedProcess) -> None:
        self.record = record
        self._process = process

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to."""
        return self.record.bootstrap_servers

    @property
    def pid(self) -> int:
        """The root of its process tree."""
        return self._process.pid

    @property
    def scratch(self) -> Path:
        """A folder for whatever is needed as long as the broker and no longer: it goes when the broker goes."""
        folder = Path(self.record.folder) / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def stop(self) -> None:
        """End the broker and remove its data."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def own_broker(announce: Announce, *, heap_mb: int = HEAP_MB, memory: Path | None = None) -> Broker:
    """Start a broker that is gone, data and all, when this program ends, even by ``kill -9``.

    Args:
        announce: Told what takes long.
        heap_mb: Memory of its JVM.
        memory: Where to make a folder for its log; it is in the broker's own by default.
    """
    name = f"own-{os.getpid()}-{secrets.token_hex(3)}"
    _remove_left_over(_brokers_folder(), memory)
    files = ServerFiles(_brokers_folder() / name, memory / name if memory is not None else None)
    removed = [files.folder, files.data]
    command = _command(files, announce, heap_mb)
    for attempt in (1, 2, 3):
        port, controller_port = free_ports(2)
        with _held_lock(files.folder) as lock:
            files.write(port, controller_port)
            # Read through a handle of our own: the guard removes the folder, this file included, when the broker ends.
            with files.output.open("wb") as output:
                reader = files.output.open("rb")
                process = GuardedProcess(command, output=output, grace_s=2.0, remove=removed, keep_open=[lock])
            record = BrokerRecord(name, process.pid, port, controller_port, "program", str(files.folder))
            _write_record(record)
        with reader:
            try:
                _wait_ready(record, process.poll, reader, START_TIMEOUT_S)
            except BrokerStartFailed as failed:
                process.stop()
                # Between finding a free port and binding it another process may take it: try other ports.
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
    """Start a broker that stays until :func:`stop_broker`; its data is kept unless ``fresh`` throws it away."""
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
                f"port {wanted} on {LOOPBACK} is taken by another process",
                fix="leave --port out to get a free one, or choose another",
            )
    command = _command(files, announce, heap_mb)
    free = free_ports(2)
    port, controller_port = port or free[0], controller_port or free[1]
    # Everything below happens under the lock: another process that starts or looks sees all of it or nothing.
    with _held_lock(files.folder) as lock:
        (files.folder / "broker.json").unlink(missing_ok=True)
        if fresh:
            shutil.rmtree(files.data, ignore_errors=True)
        files.write(port, controller_port)
        with files.output.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,
            )
        record = BrokerRecord(name, process.pid, port, controller_port, "hand", str(files.folder))
        try:
            _write_record(record)
            with files.output.open("rb") as reader:
                _wait_ready(record, process.poll, reader, timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
    # The broker outlives us on purpose; without this, Python warns of a process that nobody waited for.
    process.returncode = 0
    return record


def stop_broker(name: str = DEFAULT_NAME, *, discard: bool = False, timeout_s: float = 15.0) -> BrokerRecord:
    """Stop a broker that was started by hand; its data stays unless ``discard`` throws it away."""
    record = find_broker(name)
    folder = _folder(name)
    if record is None:
        if discard and folder.exists():
            shutil.rmtree(folder)
        raise BrokerNotRunning(
            f"no broker {name!r} is running" + ("; its data is removed" if discard else ""),
            fix="tailrace broker status lists the running ones",
        )
    if record.owner == "program":
        raise BrokerNotRunning(
            f"broker {name!r} belongs to a running program and ends with it",
            fix="stop that program",
        )
    _signal(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _is_locked(folder):
        if time.monotonic() > deadline:
            _signal(record.pid, signal.SIGKILL)
            deadline += timeout_s
        time.sleep(0.05)
    if discard:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def find_broker(name: str = DEFAULT_NAME) -> BrokerRecord | None:
    """The running broker of that name."""
    folder = _folder(name)
    return _read_record(folder) if _is_locked(folder) else None


def running_brokers() -> list[BrokerRecord]:
    """Every broker of this user's that is running."""
    folders = sorted(_brokers_folder().glob("*/")) if _brokers_folder().exists() else []
    records = (_read_record(folder) for folder in folders if _is_locked(folder))
    return [record for record in records if record is not None]


def _signal(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended by itself in this very moment."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _brokers_folder() -> Path:
    return state_dir() / "brokers"


def _folder(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise OptionRefused(f"{name!r} cannot be a broker's name", fix="use letters, digits, dot, dash and underscore")
    return _brokers_folder() / name


def _command(files: ServerFiles, announce: Announce, heap_mb: int) -> list[str]:
    """The command line of the broker's JVM."""
    java = ensure_java(announce)
    jars = ensure_jars(java, ["broker"], announce)["broker"]
    return [
        str(java.executable),
        *broker_archive(java).options(),
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        # Nearly all that a broker allocates is gone with its request: the larger the young part, the fewer its pauses.
        f"-Xmn{heap_mb * 3 // 4}m",
        # A concurrent collector's threads would take the cores of a small machine from what is being measured. The
        # serial one stood still for 14 to 22 ms at a time at 2,000 events/s, this one for 3 to 4 ms.
        "-XX:+UseParallelGC",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={files.logging.as_uri()}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        "kafka.Kafka",
        str(files.properties),
    ]


def broker_archive(java: Java) -> ClassArchive:
    """The archive of the classes that a broker loads, on that Java."""
    return ClassArchive("broker", java, tuple(jar_paths("broker")))


def write_broker_archive(announce: Announce) -> None:
    """Write the class archive of the broker, if it is not there, and wait for it.

    Raises:
        ArchiveNotWrittenError: Java refused to write it.
    """
    archive = broker_archive(ensure_java(announce))
    if not archive.is_written and not archive.is_off:
        announce("Saving Kafka's loaded classes, so that brokers start faster: some seconds, once ...")
        archive.write(os.pathsep.join(map(str, archive.files)))


@contextlib.contextmanager
def _held_lock(folder: Path) -> Iterator[int]:
    """The lock that says this broker runs. The process started inside inherits it; we let go of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "running.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take_lock(lock, folder)
        yield lock
    finally:
        os.close(lock)


def _take_lock(lock: int, folder: Path) -> None:
    """Take the exclusive lock; wait for probes of other processes, which share it for a moment."""
    deadline = time.monotonic() + _PROBES_END_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            if _is_locked(folder) or time.monotonic() > deadline:
                raise BrokerAlreadyRunning(
                    f"broker {folder.name!r} is being started by another process",
                    fix="tailrace broker status",
                ) from taken
            time.sleep(0.01)
        else:
            return


def _is_locked(folder: Path) -> bool:
    """Whether a broker's process is alive and holds the lock of this folder.

    The probe's own lock is shared: with an exclusive one, two processes that probe at once would each take the other
    for a running broker.
    """
    try:
        lock = os.open(folder / "running.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _write_record(record: BrokerRecord) -> None:
    path = Path(record.folder) / "broker.json"
    half_written = path.with_suffix(".new")
    half_written.write_text(json.dumps(asdict(record)))
    half_written.replace(path)


def _read_record(folder: Path) -> BrokerRecord | None:
    try:
        return BrokerRecord(**json.loads((folder / "broker.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _remove_left_over(brokers: Path, memory: Path | None) -> None:
    """Remove what a program's broker left behind when the machine, guard and all, went down."""
    for log in memory.glob("own-*/") if memory is not None and make_private(memory) else ():
        # A broker's folder is made before its log.
        if not log.is_symlink() and not (brokers / log.name).exists():
            shutil.rmtree(log, ignore_errors=True)
    for folder in brokers.glob("own-*/"):
        record = _read_record(folder)
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - folder.stat().st_mtime > 60
            if old and not _is_locked(folder) and (record is None or record.owner == "program"):
                shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(record: BrokerRecord, poll: Callable[[], int | None], printed: IO[bytes], timeout_s: float) -> None:
    """Wait until the broker answers; raise with its own words if it ends or takes too long."""
    config = plain_client(record.bootstrap_servers)
    deadline = time.monotonic() + timeout_s
    while True:
        if poll() is not None:
            raise _start_failed(record, printed, "ended while it started")
        if is_taken(record.port):
            with contextlib.suppress(KafkaError):
                list_topics(config)
                return
        if time.monotonic() > deadline:
            raise _start_failed(record, printed, f"was not ready within {timeout_s:.0f} s")
        time.sleep(0.05)


def _start_failed(record: BrokerRecord, output: IO[bytes], what: str) -> BrokerStartFailed:
    """The error with the broker's own reason in it."""
    printed = output.read().decode(errors="replace")
    by_hand = (
        f"its output is in {Path(record.folder) / 'broker.log'}; data that it cannot read goes with: "
        f"tailrace broker start --name {record.name} --fresh"
    )
    return BrokerStartFailed(
        f"broker {record.name!r} {what}",
        why=_own_words(printed),
        fix=by_hand if record.owner == "hand" else "--verbose shows everything that it printed",
        detail=printed,
    )


def _own_words(printed: str) -> str:
    """The line in which Kafka or Java says what is wrong."""
    for telling in (
        r"^Caused by: [\w.$]+: (.+)$",
        r"^[\w.$]+(?:Exception|Error): (.+)$",
        r"(?:ERROR|FATAL|Error:) (.+)$",
    ):
        if found := re.findall(telling, printed, re.MULTILINE):
            return str(found[-1]).strip()
    return (printed.strip().splitlines() or ["it printed nothing"])[-1]
