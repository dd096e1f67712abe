"""The faults, one function each."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from tailrace.chaos.options import START_CLUSTER, Fault
from tailrace.chaos.small_disk import SmallDisk
from tailrace.chaos.supervised_pipeline import SupervisedPipeline
from tailrace.errors import MeasurementFailed, OptionRefused
from tailrace.kafka.restartable_broker import RestartableBroker

_FIND_TIMEOUT_S = 20.0
_POLL_EVERY_S = 0.02

Find = Callable[[], list[psutil.Process]]


@dataclass(frozen=True)
class FaultTargets:
    """What faults act on.

    Attributes:
        pipeline: The pipeline.
        broker: Its broker.
        disk: The disk of its checkpoint, if that can be full.
        outage_s: How long a fault lasts that ends by itself.
        pause: Waits for some seconds while the run continues.
    """

    pipeline: SupervisedPipeline
    broker: RestartableBroker
    disk: SmallDisk | None
    outage_s: float
    pause: Callable[[float], None]

    def wait_for(self, find: Find) -> list[psutil.Process]:
        """Return the processes to kill, as soon as there are any; none after a while."""
        deadline = time.monotonic() + _FIND_TIMEOUT_S
        while not (processes := find()) and time.monotonic() < deadline:
            self.pause(_POLL_EVERY_S)
        return processes


def inject(fault: Fault, targets: FaultTargets) -> None:
    """Inject a fault; return when it is over. The pipeline has not recovered then.

    Raises:
        OptionRefused: The pipeline has nothing that this fault could act on.
    """
    _FAULTS[fault](targets)


def _kill_jvm(targets: FaultTargets) -> None:
    _kill(targets.wait_for(lambda: _existing(targets.pipeline.jvm())), targets, "Spark's JVM")


def _kill_driver(targets: FaultTargets) -> None:
    _kill(targets.wait_for(lambda: _existing(targets.pipeline.driver())), targets, "the Python driver")


def _kill_both(targets: FaultTargets) -> None:
    jvm = targets.wait_for(lambda: _existing(targets.pipeline.jvm()))
    _kill([*_existing(targets.pipeline.driver()), *jvm], targets, "Spark's JVM")


def _kill_workers(targets: FaultTargets) -> None:
    workers = targets.wait_for(targets.pipeline.workers)
    if not workers:
        raise OptionRefused(
            "--fault workers: the pipeline has no Python worker",
            why="it calls no Python function",
            fix="use another fault, or another pipeline",
        )
    _kill(workers, targets, "a Python worker")


def _kill_executor(targets: FaultTargets) -> None:
    executors = targets.wait_for(targets.pipeline.executors)
    if not executors:
        raise OptionRefused(
            "--fault executor: no executor of the pipeline runs on this machine",
            fix=START_CLUSTER,
        )
    _kill(executors[:1], targets, "an executor")


def _kill_broker(targets: FaultTargets) -> None:
    targets.broker.kill()
    targets.broker.restart()


def _freeze_broker(targets: FaultTargets) -> None:
    targets.broker.freeze()
    try:
        targets.pause(targets.outage_s)
    finally:
        targets.broker.thaw()


def _fill_disk(targets: FaultTargets) -> None:
    if targets.disk is None:
        raise AssertionError("a run with this fault has a small disk")
    targets.disk.fill()
    try:
        targets.pause(targets.outage_s)
    finally:
        targets.disk.empty()


def _existing(process: psutil.Process | None) -> list[psutil.Process]:
    return [process] if process is not None else []


def _kill(processes: list[psutil.Process], targets: FaultTargets, what: str) -> None:
    if not processes:
        raise MeasurementFailed(f"{what} was not found", why="the pipeline may have ended", fix="run it again")
    targets.pipeline.note_processes()
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


_FAULTS: Mapping[Fault, Callable[[FaultTargets], None]] = {
    Fault.JVM: _kill_jvm,
    Fault.DRIVER: _kill_driver,
    Fault.BOTH: _kill_both,
    Fault.WORKERS: _kill_workers,
    Fault.EXECUTOR: _kill_executor,
    Fault.BROKER: _kill_broker,
    Fault.BROKER_FROZEN: _freeze_broker,
    Fault.DISK_FULL: _fill_disk,
}
