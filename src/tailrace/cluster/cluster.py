"""Start, stop and find development clusters.

A cluster is a folder in the user's state folder, with a folder for each of its daemons. A cluster that was started by
hand runs until it is stopped. A temporary one ends with the program that started it, even after ``kill -9``.
"""

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

import psutil

from tailrace.cluster.daemon import MASTER, Daemon, master_command
from tailrace.errors import ClusterAlreadyRunning, ClusterNotRunning, ClusterStartFailed, OptionRefused, counted
from tailrace.kafka.ports import LOOPBACK, free_ports, is_taken
from tailrace.toolchain import ensure_java, state_dir
from tailrace.toolchain.detached_process import DetachedProcess
from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.guarded_process import GuardedProcess
from tailrace.toolchain.jars import Announce
from tailrace.toolchain.java import Java
from tailrace.toolchain.process_folder import printed_reason, require_name, send_signal

DEFAULT_NAME = "default"
START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
"""A worker gives its executors 10 s to end."""
_GRACE_S = 5.0
_EXECUTORS_END_S = 3.0
"""How long executors may take to notice that their worker has ended."""
_LEAST_MEMORY_MB = 1024

Spawn = Callable[[Daemon, list[str], Java], "_Started"]


@dataclass(frozen=True)
class ClusterSize:
    """How many workers a cluster has, and what each of them offers to executors."""

    workers: int = 2
    cores: int = 4
    memory: str = "2g"

    def __post_init__(self) -> None:
        if self.workers < 1 or self.cores < 1:
            raise OptionRefused(
                f"a cluster of {self.workers} workers with {self.cores} cores runs nothing", fix="use 1 or more"
            )
        amount = re.fullmatch(r"([0-9]+)([mg])", self.memory.lower())
        if amount is None:
            raise OptionRefused(f"invalid memory {self.memory!r}", fix="write it as 2g or 2048m")
        if int(amount[1]) * (1024 if amount[2] == "g" else 1) < _LEAST_MEMORY_MB:
            raise OptionRefused(
                f"{self.memory} of memory for each worker is too little",
                why="Spark's executors take 1g each, unless spark.executor.memory is set",
                fix="use 1g or more",
            )


@dataclass(frozen=True)
class ClusterRecord:
    """The description of a cluster, stored in its master's folder."""

    name: str
    pid: int
    """The master's process."""
    port: int
    ui_port: int
    workers: int
    cores: int
    """Of each worker, like the memory."""
    memory: str
    owner: str
    """``hand``: runs until it is stopped. ``program``: ends with the process that started it."""
    folder: str

    @property
    def master_url(self) -> str:
        """The address for ``--master``."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str:
        """The master's web page."""
        return f"http://{LOOPBACK}:{self.ui_port}"

    @property
    def size(self) -> ClusterSize:
        """What it was started with."""
        return ClusterSize(self.workers, self.cores, self.memory)

    def daemons(self) -> list[Daemon]:
        """Return the master and the workers, running or not."""
        roles = [MASTER, *(f"worker-{number}" for number in range(1, self.workers + 1))]
        return [Daemon(role, Path(self.folder) / role) for role in roles]

    def state(self) -> dict[str, Any] | None:
        """Return what the master reports about workers and applications; None if it does not answer."""
        connection = http.client.HTTPConnection(LOOPBACK, self.ui_port, timeout=2)
        try:
            connection.request("GET", "/json/")
            report = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return report if isinstance(report, dict) and report.get("url") == self.master_url else None


@dataclass(frozen=True)
class _Started:
    """A daemon that this program has just started."""

    daemon: Daemon
    process: DetachedProcess | GuardedProcess
    output: IO[bytes]
    """Open from the start: a guard removes the folder when its daemon ends."""


class Cluster:
    """A temporary cluster that ends with this program; use it as a context manager."""

    def __init__(self, record: ClusterRecord, started: list[_Started]) -> None:
        self.record = record
        self._started = started

    @property
    def master_url(self) -> str:
        """The address for ``--master``."""
        return self.record.master_url

    def stop(self) -> None:
        """Stop the cluster and remove its files."""
        _stop_started(self._started)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def temporary_cluster(
    announce: Announce, size: ClusterSize | None = None, *, timeout_s: float = START_TIMEOUT_S
) -> Cluster:
    """Start a cluster that ends with this program, even after ``kill -9``; its files are then removed."""
    _remove_stale_clusters()
    name = f"own-{os.getpid()}-{secrets.token_hex(3)}"
    for attempt in (1, 2, 3):
        record = _new_record(name, size or ClusterSize(), "program", *free_ports(2))
        try:
            pid, started = _start(record, _guarded, announce, lambda _: None, timeout_s)
        except ClusterStartFailed as failed:
            # Another process may have taken a port before the master could bind it: try other ports.
            if attempt == 3 or "Address already in use" not in failed.detail:
                raise
        else:
            return Cluster(_with_pid(record, pid), started)
    raise AssertionError("unreachable")


def start_cluster(
    announce: Announce,
    size: ClusterSize,
    *,
    name: str = DEFAULT_NAME,
    port: int = 0,
    ui_port: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    timeout_s: float = START_TIMEOUT_S,
) -> ClusterRecord:
    """Start a cluster that runs until :func:`stop_cluster`; return when all workers have registered.

    Args:
        announce: Called with a message before a step that takes long, such as a download.
        size: Its workers.
        name: Its name.
        port: The master's port; 0 means a free one.
        ui_port: The port of the master's web page; 0 means a free one.
        progress: Called with what is being waited for.
        timeout_s: How long the start may take.
    """
    folder = _folder(name)
    with _changing(announce):
        running = find_cluster(name)
        if running is not None:
            _require_same(running, size, port, ui_port)
            return running
        for wanted in (port, ui_port):
            if wanted and is_taken(wanted):
                raise ClusterStartFailed(
                    f"another process uses port {wanted} on {LOOPBACK}",
                    fix="omit --port and --ui-port to get free ones, or choose others",
                )
        free = free_ports(2)
        record = _new_record(name, size, "hand", port or free[0], ui_port or free[1])
        shutil.rmtree(folder, ignore_errors=True)
        try:
            pid, started = _start(record, _detached, announce, progress, timeout_s)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for each in started:
            each.output.close()
            if isinstance(each.process, DetachedProcess):
                each.process.detach()
        return _with_pid(record, pid)


def stop_cluster(name: str = DEFAULT_NAME, announce: Announce = lambda _: None) -> ClusterRecord:
    """Stop a cluster that :func:`start_cluster` started, with its executors, and remove its files."""
    folder = _folder(name)
    with _changing(announce):
        record = find_cluster(name)
        if record is None:
            shutil.rmtree(folder, ignore_errors=True)
            raise ClusterNotRunning(
                f"no cluster {name!r} is running", fix="list the running clusters: tailrace cluster status"
            )
        if record.owner == "program":
            raise ClusterNotRunning(
                f"cluster {name!r} belongs to a running program and ends with it", fix="stop that program"
            )
        running = [(each, pid) for each in record.daemons() if (pid := each.pid()) is not None]
        executors = [child for _, pid in running for child in _children(pid)]
        for _, pid in running:
            send_signal(pid, signal.SIGTERM)
        for each, pid in running:
            each.folder.await_end(pid, _STOP_TIMEOUT_S)
        # They end with their worker. This is for those whose worker had to be killed.
        _, left = psutil.wait_procs(executors, timeout=_EXECUTORS_END_S)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        return record


def find_cluster(name: str = DEFAULT_NAME) -> ClusterRecord | None:
    """Return the cluster with this name if any of its daemons runs."""
    return _running_in(_folder(name))


def running_clusters() -> list[ClusterRecord]:
    """Return this user's running clusters."""
    folders = sorted(_clusters_folder().glob("*/")) if _clusters_folder().exists() else []
    return [record for folder in folders if (record := _running_in(folder)) is not None]


def _running_in(folder: Path) -> ClusterRecord | None:
    try:
        record = ClusterRecord(**(Daemon(MASTER, folder / MASTER).folder.read_record() or {}))
    except TypeError:
        return None
    return record if any(each.folder.is_running() for each in record.daemons()) else None


def _clusters_folder() -> Path:
    return state_dir() / "clusters"


def _folder(name: str) -> Path:
    return _clusters_folder() / require_name("cluster", name)


@contextlib.contextmanager
def _changing(announce: Announce) -> Iterator[None]:
    """Let one program at a time start or stop clusters."""

    def on_wait(holder: str) -> None:
        announce(f"Waiting for process {holder}, which starts or stops a cluster ...")

    try:
        with exclusive(state_dir() / "clusters.lock", on_wait=on_wait, timeout_s=2 * START_TIMEOUT_S):
            yield
    except LockTimeoutError as busy:
        raise ClusterAlreadyRunning(
            f"process {busy.holder} still starts or stops a cluster",
            fix="wait until it is done: tailrace cluster status",
        ) from busy


def _require_same(running: ClusterRecord, size: ClusterSize, port: int, ui_port: int) -> None:
    """Raise an error unless the running cluster is what was asked for."""
    dead = [each.role for each in running.daemons() if not each.folder.is_running()]
    if not dead and running.size == size and port in (0, running.port) and ui_port in (0, running.ui_port):
        return
    raise ClusterAlreadyRunning(
        f"cluster {running.name!r} is running at {running.master_url}",
        why=f"{' and '.join(dead)} ended" if dead else f"it has {in_words(running.size)}, or another port",
        fix=f"tailrace cluster stop --name {running.name}, then start it again; or choose another --name",
    )


def in_words(size: ClusterSize) -> str:
    """Return a size as text."""
    return f"{counted(size.workers, 'worker')} with {counted(size.cores, 'core')} and {size.memory} each"


def _new_record(name: str, size: ClusterSize, owner: str, port: int, ui_port: int) -> ClusterRecord:
    return ClusterRecord(name, 0, port, ui_port, **asdict(size), owner=owner, folder=str(_folder(name)))


def _with_pid(record: ClusterRecord, pid: int) -> ClusterRecord:
    return ClusterRecord(**asdict(record) | {"pid": pid})


def _start(
    record: ClusterRecord, spawn: Spawn, announce: Announce, progress: Callable[[str], None], timeout_s: float
) -> tuple[int, list[_Started]]:
    """Start the daemons and wait until all workers have registered; return the master's process id, too."""
    java = ensure_java(announce)
    master, *workers = record.daemons()
    started: list[_Started] = []
    deadline = time.monotonic() + timeout_s

    def wait(is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            for each in started:
                if each.process.poll() is not None:
                    raise _start_failed(record, each, "ended during its start")
            if time.monotonic() > deadline:
                raise _start_failed(record, started[-1], f"was not ready within {timeout_s:.0f} s")
            time.sleep(0.05)

    def all_registered() -> bool:
        there = (record.state() or {}).get("aliveworkers", 0)
        progress(f"Starting Spark's master and workers: {there} of {record.workers} workers have registered ...")
        return bool(there == record.workers)

    try:
        progress("Starting Spark's master ...")
        started.append(spawn(master, master_command(record.port, record.ui_port), java))
        pid = started[0].process.pid
        master.folder.write_record(asdict(_with_pid(record, pid)))
        # A worker that finds no master tries again only after some seconds.
        wait(lambda: is_taken(record.port))
        for each in workers:
            command = each.worker_command(record.cores, record.memory, record.master_url)
            started.append(spawn(each, command, java))
            each.folder.write_record({"pid": started[-1].process.pid})
        wait(all_registered)
    except BaseException:
        _stop_started(started)
        raise
    return pid, started


def _detached(daemon: Daemon, command: list[str], java: Java) -> _Started:
    """Start a daemon that outlives this program."""
    daemon.write_files()
    with daemon.folder.locked() as lock, daemon.output.open("wb") as output:
        reader = daemon.output.open("rb")
        process = DetachedProcess(command, output=output, keep_open=[lock], env=daemon.environment(java))
    return _Started(daemon, process, reader)


def _guarded(daemon: Daemon, command: list[str], java: Java) -> _Started:
    """Start a daemon that ends with this program."""
    daemon.write_files()
    with daemon.folder.locked() as lock, daemon.output.open("wb") as output:
        reader = daemon.output.open("rb")
        process = GuardedProcess(
            command,
            output=output,
            grace_s=_GRACE_S,
            remove=[daemon.path],
            remove_empty=[daemon.path.parent],
            keep_open=[lock],
            env=daemon.environment(java),
        )
    return _Started(daemon, process, reader)


def _stop_started(started: list[_Started]) -> None:
    """Stop daemons that this program started, the workers first: the master would replace their executors."""
    for each in reversed(started):
        each.process.stop()
        each.output.close()


def _start_failed(record: ClusterRecord, started: _Started, what: str) -> ClusterStartFailed:
    """Return the error with the reason that the daemon printed."""
    printed = started.output.read().decode(errors="replace")
    return ClusterStartFailed(
        f"{started.daemon.role} of cluster {record.name!r} {what}",
        why=printed_reason(printed),
        fix="run with --verbose to see its output",
        detail=printed,
    )


def _children(pid: int) -> list[psutil.Process]:
    """Return the processes below a daemon."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _remove_stale_clusters() -> None:
    """Remove the files of temporary clusters whose guards were lost, for example in a crash of the machine."""
    for folder in _clusters_folder().glob("own-*/"):
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - folder.stat().st_mtime > START_TIMEOUT_S
            if old and not any(Daemon(each.name, each).folder.is_running() for each in folder.glob("*/")):
                shutil.rmtree(folder, ignore_errors=True)
