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
_LOOK_EVERY_S = 0.02

Find = Callable[[], list[psutil.Process]]


@dataclass(frozen=True)
class Place:
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
            self.pause(_LOOK_EVERY_S)
        return processes


def inject(fault: Fault, place: Place) -> None:
    """Inject a fault; return when it is over. The pipeline has not recovered then.

    Raises:
        OptionRefused: The pipeline has nothing that this fault could act on.
    """
    _FAULTS[fault](place)


def _kill_jvm(place: Place) -> None:
    _kill(place.wait_for(lambda: _existing(place.pipeline.jvm())), place, "Spark's JVM")


def _kill_driver(place: Place) -> None:
    _kill(place.wait_for(lambda: _existing(place.pipeline.driver())), place, "the Python driver")


def _kill_both(place: Place) -> None:
    jvm = place.wait_for(lambda: _existing(place.pipeline.jvm()))
    _kill([*_existing(place.pipeline.driver()), *jvm], place, "Spark's JVM")


def _kill_workers(place: Place) -> None:
    workers = place.wait_for(place.pipeline.workers)
    if not workers:
        raise OptionRefused(
            "--fault workers: the pipeline has no Python worker",
            why="it calls no Python function",
            fix="use another fault, or another pipeline",
        )
    _kill(workers, place, "a Python worker")


def _kill_executor(place: Place) -> None:
    executors = place.wait_for(place.pipeline.executors)
    if not executors:
        raise OptionRefused(
            "--fault executor: no executor of the pipeline runs on this machine",
            fix=START_CLUSTER,
        )
    _kill(executors[:1], place, "an executor")


def _kill_broker(place: Place) -> None:
    place.broker.kill()
    place.broker.restart()


def _freeze_broker(place: Place) -> None:
    place.broker.freeze()
    try:
        place.pause(place.outage_s)
    finally:
        place.broker.thaw()


def _fill_disk(place: Place) -> None:
    if place.disk is None:
        raise AssertionError("a run with this fault has a small disk")
    place.disk.fill()
    try:
        place.pause(place.outage_s)
    finally:
        place.disk.empty()


def _existing(process: psutil.Process | None) -> list[psutil.Process]:
    return [process] if process is not None else []


def _kill(processes: list[psutil.Process], place: Place, what: str) -> None:
    if not processes:
        raise MeasurementFailed(f"{what} was not found", why="the pipeline may have ended", fix="run it again")
    place.pipeline.note_processes()
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


_FAULTS: Mapping[Fault, Callable[[Place], None]] = {
    Fault.JVM: _kill_jvm,
    Fault.DRIVER: _kill_driver,
    Fault.BOTH: _kill_both,
    Fault.WORKERS: _kill_workers,
    Fault.EXECUTOR: _kill_executor,
    Fault.BROKER: _kill_broker,
    Fault.BROKER_FROZEN: _freeze_broker,
    Fault.DISK_FULL: _fill_disk,
}
