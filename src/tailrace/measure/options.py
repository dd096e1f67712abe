"""The options of a benchmark, and the ones with a name: profiles and named studies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tailrace.errors import OptionRefused
from tailrace.measure.lane import Lane, Trigger
from tailrace.measure.measurement import Plan
from tailrace.measure.run import CellPlan
from tailrace.measure.schedule import Shape
from tailrace.measure.traffic.load import Flow
from tailrace.measure.traffic.probe import ByFields
from tailrace.measure.traffic.records import EVENT_NUMBER_FIELD, SENT_FIELD, Events, smallest_payload
from tailrace.measure.works import Work
from tailrace.prepare.duration import REALTIME_MINIMUM_MS, parse_duration_ms

LONG_ENOUGH_S = 60
"""The shortest warm-up that the method allows."""
ENOUGH_RUNS = 3
BOUNDARIES_NEEDED = 3
"""How many batch boundaries a window must hold to show what they cost."""


@dataclass(frozen=True)
class BenchOptions:
    """The options of a benchmark. The defaults are the published setting.

    Attributes:
        rate: Events per second.
        seconds: Measured seconds per run.
        warmup: Seconds before the window, by intended send time.
        payload: Bytes of each event.
        partitions: Partitions of each topic.
        checkpoint_every: The checkpoint interval in real time.
        trigger_every: The trigger interval of micro-batch.
        runs: The number of runs of every lane.
        shape: The load over time.
        work: What the lanes compute.
        lanes: The lanes to measure.
        burst: Events sent at once before the warm-up, so that JVMs compile early.
        boundaries: The least number of batch boundaries in a real-time window.
    """

    rate: float = 2000
    seconds: float = 60
    warmup: float = 15
    payload: int = 128
    partitions: int = 2
    checkpoint_every: str = "5m"
    trigger_every: str = "500ms"
    runs: int = 1
    shape: str = "constant"
    work: str = "stateless"
    lanes: tuple[str, ...] = ("floor", "microbatch", "realtime")
    burst: int = 20_000
    boundaries: int = 0

    def __post_init__(self) -> None:
        if self.payload < smallest_payload():
            raise OptionRefused(
                f"--payload {self.payload} is too small",
                why="an event holds its number, key, amount and send time",
                fix=f"use --payload {smallest_payload()} or more",
            )
        if self.checkpoint_ms < REALTIME_MINIMUM_MS:
            raise OptionRefused(
                f"--checkpoint-every {self.checkpoint_every} is below {REALTIME_MINIMUM_MS // 1000} s",
                why="Spark refuses a shorter interval in real time",
                fix=f"use --checkpoint-every {REALTIME_MINIMUM_MS // 1000}s or more",
            )
        parse_duration_ms(self.trigger_every, "--trigger-every")
        for name, kind, value in (("--work", Work, self.work), ("--shape", Shape, self.shape)):
            if value not in set(kind):
                raise OptionRefused(f"invalid {name} {value}", fix=f"use one of: {', '.join(kind)}")

    @property
    def checkpoint_ms(self) -> int:
        """The checkpoint interval in milliseconds."""
        return parse_duration_ms(self.checkpoint_every, "--checkpoint-every")

    @property
    def trigger_ms(self) -> int:
        """The trigger interval in milliseconds."""
        return parse_duration_ms(self.trigger_every, "--trigger-every")

    def plan(self, rate: float | None = None) -> Plan:
        """Return the load and the window."""
        flow = Flow(Events(self.payload), rate or self.rate, Shape(self.shape), self.burst)
        return Plan(flow, self.seconds, self.warmup, ByFields(EVENT_NUMBER_FIELD, SENT_FIELD))

    def cell(self, lane: Lane, *, work: Work | None = None, rate: float | None = None, key: str = "") -> CellPlan:
        """Return one cell of a study with these options."""
        is_realtime = lane.trigger is Trigger.REALTIME
        batched = lane.trigger is Trigger.MICROBATCH
        title = f"{lane.title}, {self.trigger_every}" if batched else lane.title
        return CellPlan(
            lane,
            work or Work(self.work),
            self.plan(rate),
            self.checkpoint_ms / 1000,
            self.trigger_ms,
            key or lane.name,
            title,
            {"trigger": self.trigger_every} if batched else {},
            self.boundaries if is_realtime else 0,
        )

    def as_settings(self) -> dict[str, Any]:
        """Return the options as the result has them."""
        given = asdict(self)
        renamed = {"rate": "rate_per_s", "warmup": "warmup_s", "payload": "payload_bytes"}
        return {renamed.get(name, name): value for name, value in given.items()}


PROFILES: Mapping[str, BenchOptions] = {
    "quick": BenchOptions(seconds=20, warmup=10),
    "article": BenchOptions(),
    "full": BenchOptions(warmup=60, seconds=60, checkpoint_every="15s", runs=5, boundaries=BOUNDARIES_NEEDED),
}


def caveats(options: BenchOptions) -> list[str]:
    """Return what a reader must know about figures with these options."""
    notes = []
    if options.warmup < LONG_ENOUGH_S:
        notes.append(
            f"The warm-up of {options.warmup:g} s is shorter than the {LONG_ENOUGH_S} s that a JVM needs to compile on "
            f"a small machine. A burst of {options.burst:,} events at the start makes up for part of that, in "
            "every lane."
        )
    if options.runs < ENOUGH_RUNS:
        notes.append(f"With fewer than {ENOUGH_RUNS} runs of each lane, the spread between runs is uncertain.")
    every = f"Real time saves its progress every {options.checkpoint_every}"
    if options.checkpoint_ms > 1000 * options.seconds:
        notes.append(
            f"{every}, so a window of {options.seconds:g} s contains at most one batch boundary, by chance. These "
            "figures do not show the cost of a boundary; the full profile does."
        )
    else:
        notes.append(
            f"{every}, so every window contains batch boundaries. With the default of 5 minutes they are rarer."
        )
    return notes


def options_of(profile: str, changed: Mapping[str, Any]) -> BenchOptions:
    """Return a profile with the user's own options.

    Raises:
        OptionRefused: There is no such profile, or an option cannot work.
    """
    if profile not in PROFILES:
        raise OptionRefused(f"there is no profile {profile!r}", fix=f"use one of: {', '.join(PROFILES)}")
    own = {name: value for name, value in changed.items() if value is not None}
    options = PROFILES[profile]
    if {"checkpoint_every", "seconds"} & own.keys() and "boundaries" not in own:
        # The profile requires boundaries only in its own window.
        own["boundaries"] = 0
    return replace(options, **own)


@dataclass(frozen=True)
class NamedStudy:
    """A study that everybody runs with the same parameters.

    Attributes:
        name: The word after ``tailrace bench study``.
        question: What it answers.
        minutes: How long it takes, about.
        arguments: The arguments of ``tailrace bench``.
    """

    name: str
    question: str
    minutes: int
    arguments: tuple[str, ...]


def _study(name: str, question: str, minutes: int, arguments: str) -> NamedStudy:
    return NamedStudy(name, question, minutes, tuple(arguments.split()))


_KINDS = (
    "realtime-builtin,realtime-udf,realtime-udf-arrow,realtime-pandas,realtime-pandas-iter,realtime-arrow,"
    "realtime-map-pandas,realtime-map-arrow"
)
_SLOW = "engines --works python --rates 10 --warmup 30 --seconds 300 --runs 1"

STUDIES = {
    study.name: study
    for study in (
        _study("article", "Kafka alone, micro-batch and real time: the README's figures", 5, "--profile article"),
        _study(
            "full",
            "the same with all rules of the method: long warm-up, batch boundaries, five runs",
            45,
            "--profile full",
        ),
        _study("sweep", "latency against the trigger interval of micro-batch", 10, "sweep"),
        _study("rates", "the highest rate with p99 below a bound", 10, "rates"),
        _study("gap", "what a checkpoint costs in real time, and what a crash replays", 20, "gap"),
        _study("engines", "other engines at the same work, with defaults and tuned", 120, "engines"),
        _study(
            "engines-warm",
            "the keyed aggregate at 2,000 events/s when every engine is warm",
            30,
            "engines --works aggregate --rates 2000 --burst 60000 --warmup 40 --seconds 15 "
            "--lanes realtime,realtime-timer,quix,flink-tuned,kafka-streams-tuned,quix-tuned",
        ),
        _study(
            "aggregate",
            "the keyed aggregate in real time: Spark's defaults against Tailrace's",
            10,
            "--work aggregate --lanes realtime-stock,realtime --rate 500 --runs 3",
        ),
        _study(
            "python",
            "every kind of Python function against a built-in expression, two runs",
            35,
            f"engines --works python --rates 2000 --burst 20000 --warmup 70 --seconds 15 --runs 2 --lanes {_KINDS}",
        ),
        _study(
            "python-slow",
            "functions on rows at 10 events/s; start python-slow-batches at the same time",
            30,
            f"{_SLOW} --lanes realtime-builtin,realtime-udf,realtime-udf-arrow,realtime-pandas,realtime-pandas-iter",
        ),
        _study(
            "python-slow-batches",
            "functions on batches at 10 events/s; start python-slow at the same time",
            30,
            f"{_SLOW} --lanes realtime-builtin,realtime-arrow,realtime-map-pandas,realtime-map-arrow",
        ),
        _study(
            "python-rates",
            "a plain and a vectorised function at rising rates, with stock settings and other engines",
            30,
            "engines --works python --rates 2000,4000,6000,8000,9000,12000,18000,24000 --burst 20000 --warmup 60 "
            "--seconds 15 --runs 1 "
            "--lanes realtime-builtin,realtime-udf,realtime-pandas,python-five,quix,pyflink-thread",
        ),
        _study(
            "python-limit",
            "the highest rates of a plain and a vectorised function, with stock settings",
            17,
            "engines --works python --rates 6000,9000,12000,18000,24000,27000,30000,36000 --burst 20000 --warmup 60 "
            "--seconds 15 --runs 1 --lanes realtime-udf,realtime-pandas,python-five",
        ),
        _study(
            "shared-tasks",
            "24 partitions: one task for each against four tasks for all",
            10,
            "--partitions 24 --work stateless --lanes realtime,realtime-shared --rate 2000 --warmup 20 --seconds 20 "
            "--runs 5",
        ),
        _study(
            "delivery",
            "what effectively-once delivery costs: against at-least-once, and against Spark's own sink",
            15,
            "--work stateless --lanes realtime,realtime-at-least-once,realtime-spark-sink --rate 2000 --warmup 20 "
            "--seconds 20 --runs 5",
        ),
        _study("lineage", "what lineage costs: the demo's pipeline with and without it", 6, "lineage"),
        _study("static-table", "what a static table in a broadcast join costs at each checkpoint", 4, "static-table"),
    )
}
"""By name, in the order of ``tailrace bench study --list``."""


def study_named(name: str) -> NamedStudy:
    """Return the study of this name.

    Raises:
        OptionRefused: There is no such study.
    """
    if name not in STUDIES:
        raise OptionRefused(f"there is no study {name!r}", fix=f"use one of: {', '.join(STUDIES)}")
    return STUDIES[name]
