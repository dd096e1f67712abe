"""The options of a chaos run."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from tailrace.errors import OptionRefused
from tailrace.prepare.options import DEFAULT_PROGRESS_EVERY, DeliveryName, RunOptions
from tailrace.spark_jvm import is_on_this_machine

START_CLUSTER = "use a development cluster: tailrace cluster start"


class Fault(StrEnum):
    """What a chaos run does to a pipeline."""

    JVM = "jvm"
    DRIVER = "driver"
    BOTH = "both"
    WORKERS = "workers"
    EXECUTOR = "executor"
    BROKER = "broker"
    BROKER_FROZEN = "broker-frozen"
    DISK_FULL = "disk-full"


ENDS_PIPELINE = frozenset({Fault.JVM, Fault.DRIVER, Fault.BOTH})
"""The faults after which the pipeline is always started again."""


class FaultTiming(StrEnum):
    """When faults happen."""

    RANDOM = "random"
    """At random moments, after the previous recovery."""
    RESTART = "restart"
    """Within two seconds after the pipeline runs again."""
    BOUNDARY = "boundary"
    """Just before, during and just after the write of a checkpoint, one after another."""


@dataclass(frozen=True)
class ChaosOptions:
    """The options of a chaos run, validated.

    Attributes:
        kills: How many faults to inject.
        faults: Which ones, one after another.
        at: When they happen.
        rate: Records per second.
        seconds: How long the load lasts at least; the faults are spread over it.
        outage_s: How long a broker stays frozen or a disk full.
        partitions: Partitions of the source and of each output topic.
        topics: More output topics, if a column names the topic of each row.
        mode: The mode of the pipeline.
        master: The Spark master.
        checkpoint_every: The checkpoint interval in real time.
        progress_every: How often progress is noted in real time.
        delivery: What a start after a crash writes again; None for the pipeline's own default.
        conf: Spark settings.
    """

    kills: int = 5
    faults: tuple[Fault, ...] = (Fault.JVM,)
    at: FaultTiming = FaultTiming.RANDOM
    rate: float = 1000.0
    seconds: float = 60.0
    outage_s: float = 10.0
    partitions: int = 2
    topics: tuple[str, ...] = ()
    mode: str = "realtime"
    master: str | None = None
    checkpoint_every: str = "10s"
    progress_every: str = DEFAULT_PROGRESS_EVERY
    delivery: DeliveryName | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        RunOptions(
            self.mode,  # type: ignore[arg-type]
            checkpoint_every=self.checkpoint_every,
            progress_every=self.progress_every,
            delivery=self.delivery,
            conf=self.conf,
        )
        self._require_restarts()
        if self.master is not None and not is_on_this_machine({"spark.master": self.master}):
            raise OptionRefused(
                f"a chaos run cannot use the cluster at {self.master}",
                why="its Kafka broker accepts connections from this machine only",
                fix=START_CLUSTER,
            )
        if Fault.EXECUTOR in self.faults and not (self.master or "").startswith("spark://"):
            raise OptionRefused(
                "--fault executor needs a cluster",
                why="without one the tasks run in Spark's JVM, which --fault jvm kills",
                fix="tailrace cluster start, then --master spark://HOST:PORT",
            )

    def _require_restarts(self) -> None:
        staying = [each for each in self.faults if each not in ENDS_PIPELINE]
        if self.at is FaultTiming.RESTART and staying:
            raise OptionRefused(
                f"--at restart cannot be used with --fault {staying[0]}",
                why="the pipeline runs on after that fault, so there is no restart",
                fix=f"use --fault with one or more of: {', '.join(sorted(ENDS_PIPELINE))}",
            )

    def fault(self, number: int) -> Fault:
        """Return the kind of the fault with this number, from 0."""
        return self.faults[number % len(self.faults)]

    def fingerprint(self, spec: str, generator: str) -> str:
        """Return a hash that is the same for the same command, so that an interrupted run can continue."""
        text = json.dumps([spec, generator, asdict(self)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def faults_named(text: str) -> tuple[Fault, ...]:
    """Return the faults that ``--fault`` lists.

    Raises:
        OptionRefused: There is no such fault.
    """
    try:
        faults = tuple(Fault(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        faults = ()
    if not faults:
        raise OptionRefused(f"invalid --fault {text!r}", fix=f"use one or more of: {', '.join(Fault)}")
    return faults


def timing_named(text: str) -> FaultTiming:
    """Return the timing that ``--at`` names.

    Raises:
        OptionRefused: There is no such timing.
    """
    try:
        return FaultTiming(text)
    except ValueError:
        raise OptionRefused(f"invalid --at {text!r}", fix=f"use one of: {', '.join(FaultTiming)}") from None
