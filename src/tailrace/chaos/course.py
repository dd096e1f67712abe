"""The course of a chaos run: load, faults, recoveries, and the drain at the end."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.chaos.faults import FaultTargets, inject
from tailrace.chaos.journal import FaultRecord, Journal
from tailrace.chaos.moments import AFTER_RESTART_S, PHASES, BoundaryWatch, Phase, random_moments
from tailrace.chaos.options import ENDS_PIPELINE, ChaosOptions, Fault, FaultTiming
from tailrace.chaos.receiver import Receiver, Recovery
from tailrace.chaos.screen import ChaosScreen
from tailrace.chaos.small_disk import SmallDisk
from tailrace.chaos.supervised_pipeline import NOT_STARTED, SupervisedPipeline
from tailrace.errors import KafkaError
from tailrace.kafka.restartable_broker import RestartableBroker
from tailrace.kafka.topics import ClientConfig, Offsets, log_ends, partition_counts
from tailrace.measure.schedule import Clock
from tailrace.measure.traffic.load import Flow, Load
from tailrace.pipeline import Mode
from tailrace.prepare.duration import parse_duration_ms

_POLL_EVERY_S = 0.01
_START_TIMEOUT_S = 180.0
_FIRST_OUTPUT_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 60.0
_RECOVERY_TIMEOUT_S = 240.0
_RESPONSE_TIMEOUT_S = 60.0
"""How long a broker may take to respond after a fault."""
_SETTLED_S = 3.0
"""If no output comes for this long, the pipeline has processed everything, or waits for its final stop."""
_FINISH_TIMEOUT_S = 1800.0
_LONGEST_LOAD_S = 7 * 86_400.0
_RECONNECT = {"reconnect.backoff.max.ms": 200}
"""By default a client waits up to 10 s for a broker that was started again."""
_KILLED = {
    Fault.JVM: "Spark's JVM killed",
    Fault.DRIVER: "Python driver killed",
    Fault.BOTH: "Spark's JVM and Python driver killed",
    Fault.WORKERS: "Python workers killed",
    Fault.EXECUTOR: "executor killed",
    Fault.BROKER: "broker killed and started again",
    Fault.BROKER_FROZEN: "broker frozen",
    Fault.DISK_FULL: "checkpoint disk full",
}


_FINISH = (
    ("finished", "processing the last records", "the pipeline did not process the last records"),
    ("compared", "running undisturbed, to compare", "the undisturbed run did not end"),
)
"""The last events of a run: name, what happens until it comes, and the error if it does not come."""


@dataclass(frozen=True)
class Comparison:
    """Offsets of the output topics.

    Attributes:
        finished: The ends of the outputs of the run with faults, which begin at 0.
        begin: Where the outputs of the undisturbed run begin.
        end: Where they end.
    """

    finished: Offsets
    begin: Offsets
    end: Offsets


@dataclass
class _Injected:
    """A fault that was injected."""

    number: int
    fault: Fault
    moment: str
    began: float
    starts: int
    recovery: Recovery


@dataclass
class Course:
    """A run from its first record to the last output.

    Attributes:
        options: The options.
        client: The settings of Kafka clients.
        source: The topic of the load.
        flow: The load.
        pipeline: The pipeline.
        broker: The broker.
        disk: The disk of the checkpoint, if it can be full.
        receiver: The consumer of the outputs.
        journal: What is done.
        screen: Where progress is shown.
    """

    options: ChaosOptions
    client: ClientConfig
    source: str
    flow: Flow
    pipeline: SupervisedPipeline
    broker: RestartableBroker
    disk: SmallDisk | None
    receiver: Receiver
    journal: Journal
    screen: ChaosScreen
    drain_ms: int | None = None
    """From the last record sent to the last output, once it has drained."""
    _began: float = 0.0
    _load_before_s: float = 0.0
    """How long the load had lasted when an earlier command was interrupted."""
    _open: list[_Injected] = field(default_factory=list)
    """Faults from which the pipeline has not recovered yet."""
    _last: _Injected | None = None
    _load: Load | None = None
    _draw: random.Random = field(default_factory=random.Random)

    def run(self) -> None:
        """Send records and inject all faults; return when the outputs have settled."""
        waited, self._load_before_s = time.monotonic(), self.journal.load_s
        self._wait(lambda: self.pipeline.is_running, _START_TIMEOUT_S, NOT_STARTED)
        self.screen.say(f"the pipeline runs after {time.monotonic() - waited:.1f} s")
        clock = Clock.starting_at(time.time_ns(), time.monotonic_ns)
        with Load({**self.client, **_RECONNECT}, self.source, self.flow, clock=clock, limit_s=_LONGEST_LOAD_S) as load:
            self._load = load
            before = self.receiver.received
            self._wait(lambda: self.receiver.received > before, _FIRST_OUTPUT_TIMEOUT_S, "the pipeline wrote nothing")
            self._began = time.monotonic()
            self._inject_all()
            self._wait_until(self.options.seconds - self._load_before_s)
            self._wait(lambda: not self._open, _RECOVERY_TIMEOUT_S, "no new output came after the last fault")
            self._load = None
            now = clock.now_ns()
            load.measure(now, now)
            load.report(_RESPONSE_TIMEOUT_S)
        self._drain()

    def sent(self) -> Offsets:
        """Return the ends of the source; wait for the broker for a while."""
        deadline = time.monotonic() + _RESPONSE_TIMEOUT_S
        while True:
            try:
                return log_ends(self.client, partition_counts(self.client, [self.source]))
            except KafkaError:
                if time.monotonic() > deadline:
                    raise
                self._tick()

    def finish(self) -> Comparison:
        """Let the pipeline process the rest and run undisturbed; return the offsets of both."""
        self.screen.say("Running it once more over all records, without faults, to compare ...")
        self.pipeline.finish()
        for event, doing, failed in _FINISH:
            self._wait(partial(self._has_come, event, doing), _FINISH_TIMEOUT_S, failed)
        ends = [self.pipeline.earliest("finished"), self.pipeline.event("comparing"), self.pipeline.event("compared")]
        return Comparison(*(_offsets(event) for event in ends))

    def _has_come(self, event: str, doing: str) -> bool:
        self.screen.show(doing)
        return self.pipeline.event(event) is not None

    def _inject_all(self) -> None:
        done = len(self.journal.faults)
        left = self.options.kills - done
        moments = random_moments(left, max(0.0, self.options.seconds - self._load_before_s), self._draw)
        for place, number in enumerate(range(done + 1, self.options.kills + 1)):
            moment = self._await_moment(number, moments[place])
            self._inject(number, moment)
            if self.options.at is not FaultTiming.RESTART:
                failed = f"no new output came after fault {number} ({self.options.fault(number - 1)})"
                self._wait(lambda: not self._open, _RECOVERY_TIMEOUT_S, failed)

    def _await_moment(self, number: int, planned_s: float) -> str:
        """Wait until it is time for a fault; return the name of the moment."""
        match self.options.at:
            case FaultTiming.RANDOM:
                self._wait_until(planned_s)
                return str(FaultTiming.RANDOM)
            case FaultTiming.RESTART:
                if self._last is not None:
                    failed = f"{NOT_STARTED} again"
                    self._wait(partial(self._runs_again, self._last.starts), _RECOVERY_TIMEOUT_S, failed)
                    self.pause(self._draw.uniform(0, AFTER_RESTART_S))
                else:
                    self._wait_until(planned_s)
                return str(FaultTiming.RESTART)
            case FaultTiming.BOUNDARY:
                phase = PHASES[(number - 1) % len(PHASES)]
                watch = BoundaryWatch(self._checkpoint, phase, self._interval_s, self._draw)
                limit_s = 3 * self._interval_s + _RECOVERY_TIMEOUT_S
                self._wait(lambda: watch.is_due(time.monotonic()), limit_s, "no checkpoint was written")
                return str(phase) if phase is not Phase.BETWEEN else "between offsets and commit"

    def _runs_again(self, before: int) -> bool:
        return self.pipeline.starts > before and self.pipeline.is_running

    def _inject(self, number: int, moment: str) -> None:
        fault = self.options.fault(number - 1)
        starts, began = self.pipeline.starts, time.monotonic()
        self.screen.say(
            f"fault {number} of {self.options.kills}: {_KILLED[fault]} after {self._load_s:.1f} s ({moment})"
        )
        self.pipeline.tolerates_failures = True
        inject(fault, FaultTargets(self.pipeline, self.broker, self.disk, self.options.outage_s, self.pause))
        self.pipeline.tolerates_failures = False
        if fault in ENDS_PIPELINE:
            failed = "the killed pipeline did not end"
            self._wait(lambda: self.pipeline.has_ended_start(starts), _END_TIMEOUT_S, failed)
        recovery = self.receiver.expect(self.sent()[self.source])
        self._last = _Injected(number, fault, moment, began, starts, recovery)
        self._open.append(self._last)

    def _note_recoveries(self) -> None:
        """Save each fault from which the pipeline has recovered."""
        for each in [each for each in self._open if each.recovery.at is not None]:
            self._open.remove(each)
            recovery_ms = round(1000 * ((each.recovery.at or 0.0) - each.began))
            restarted = self.pipeline.starts > each.starts
            at_s = round(self._load_before_s + each.began - self._began, 1)
            record = FaultRecord(each.number, str(each.fault), each.moment, at_s, recovery_ms, restarted)
            self.journal.add(record, self._load_s)
            self.screen.say(f"  new output {recovery_ms:,} ms after fault {each.number}")

    def _drain(self) -> None:
        """Wait until no output comes any more."""
        ended = time.monotonic()
        self.screen.say(f"the load has ended: {sum(self.sent()[self.source].values()):,} records sent")

        def is_settled() -> bool:
            quiet_s = time.monotonic() - max(self.receiver.last_at, ended)
            return self.pipeline.is_running and quiet_s > _SETTLED_S

        self._wait(is_settled, _FINISH_TIMEOUT_S, "outputs did not settle after the load")
        self.drain_ms = max(0, round(1000 * (self.receiver.last_at - ended)))

    @property
    def _checkpoint(self) -> Path:
        checkpoint = self.pipeline.settings.checkpoint
        return checkpoint if self.disk is None else self.disk.outside(checkpoint)

    @property
    def _interval_s(self) -> float:
        if self.options.mode == Mode.MICROBATCH:
            return 0.0
        return parse_duration_ms(self.options.checkpoint_every, "--checkpoint-every") / 1000

    @property
    def _load_s(self) -> float:
        return self._load_before_s + time.monotonic() - self._began

    def pause(self, seconds: float) -> None:
        """Wait while the run continues."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tick()

    def _wait_until(self, load_s: float) -> None:
        """Wait until the load of this command has lasted this long."""
        self.pause(self._began + load_s - time.monotonic())

    def _wait(self, condition: Callable[[], bool], timeout_s: float, failed: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise self.pipeline.failure(f"{failed} within {timeout_s:.0f} s")
            self._tick()

    def _tick(self) -> None:
        time.sleep(_POLL_EVERY_S)
        self.pipeline.watch()
        self.receiver.require_countable()
        if self._load is not None:
            self._load.require_running()
        self._note_recoveries()
        if self._began:
            done = f"{len(self.journal.faults)} of {self.options.kills} faults"
            self.screen.show(f"{self._load_s:.0f} s, {done}, {self.receiver.received:,} outputs received")


def _offsets(event: dict[str, Any] | None) -> Offsets:
    """Return the offsets in an event; JSON has text for numbers of partitions."""
    if event is None:
        raise AssertionError("the event has come")
    return {topic: {int(number): end for number, end in each.items()} for topic, each in event["ends"].items()}
