"""What a user may choose of a benchmark, and the profiles that choose for them."""

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
"""The shortest warm-up that our own rules allow."""
ENOUGH_RUNS = 3
BOUNDARIES_NEEDED = 3
"""How many batch boundaries a window must hold to show what they cost."""


@dataclass(frozen=True)
class BenchOptions:
    """The choices of a benchmark; the values here are those of the published setting.

    Attributes:
        rate: Events per second.
        seconds: Measured seconds per run.
        warmup: Seconds before that which do not count, by the time a record was meant to be sent.
        payload: Bytes of each event.
        partitions: Partitions of each topic.
        checkpoint_every: How often real time saves its progress.
        trigger_every: How often a micro-batch starts.
        runs: How often every lane is measured.
        shape: How the load is spread over time.
        work: What the lanes compute.
        lanes: Which lanes.
        burst: Events sent at once at the very start, long before the window, so that JVMs compile early.
        boundaries: How many batch boundaries a real-time window must hold.
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
                fix=f"--payload {smallest_payload()} or more",
            )
        if self.checkpoint_ms < REALTIME_MINIMUM_MS:
            raise OptionRefused(
                f"--checkpoint-every {self.checkpoint_every} is below {REALTIME_MINIMUM_MS // 1000} s",
                why="Spark refuses a shorter interval in real time",
                fix=f"--checkpoint-every {REALTIME_MINIMUM_MS // 1000}s or more",
            )
        parse_duration_ms(self.trigger_every, "--trigger-every")
        for name, kind, value in (("--work", Work, self.work), ("--shape", Shape, self.shape)):
            if value not in set(kind):
                raise OptionRefused(f"{name} {value} is not known", fix=f"one of: {', '.join(kind)}")

    @property
    def checkpoint_ms(self) -> int:
        """The checkpoint interval in milliseconds."""
        return parse_duration_ms(self.checkpoint_every, "--checkpoint-every")

    @property
    def trigger_ms(self) -> int:
        """The trigger interval in milliseconds."""
        return parse_duration_ms(self.trigger_every, "--trigger-every")

    def plan(self, rate: float | None = None) -> Plan:
        """The load and the window."""
        flow = Flow(Events(self.payload), rate or self.rate, Shape(self.shape), self.burst)
        return Plan(flow, self.seconds, self.warmup, ByFields(EVENT_NUMBER_FIELD, SENT_FIELD))

    def cell(self, lane: Lane, *, work: Work | None = None, rate: float | None = None, key: str = "") -> CellPlan:
        """One cell of a study with these choices."""
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
        """For the result."""
        given = asdict(self)
        renamed = {"rate": "rate_per_s", "warmup": "warmup_s", "payload": "payload_bytes"}
        return {renamed.get(name, name): value for name, value in given.items()}


PROFILES: Mapping[str, BenchOptions] = {
    "quick": BenchOptions(seconds=20, warmup=10),
    "article": BenchOptions(),
    "full": BenchOptions(warmup=60, seconds=60, checkpoint_every="15s", runs=5, boundaries=BOUNDARIES_NEEDED),
}


def caveats(options: BenchOptions) -> list[str]:
    """What has to be said about figures that are measured with these choices."""
    told = []
    if options.warmup < LONG_ENOUGH_S:
        told.append(
            f"The warm-up of {options.warmup:g} s is shorter than the {LONG_ENOUGH_S} s that a JVM needs to compile on "
            f"a small machine; {options.burst:,} events at once at the very start make up for part of that, in every "
            "lane alike."
        )
    if options.runs < ENOUGH_RUNS:
        told.append(f"Fewer than {ENOUGH_RUNS} runs of each lane: the spread from run to run is not known well.")
    every = f"Real time saves its progress every {options.checkpoint_every}"
    if options.checkpoint_ms > 1000 * options.seconds:
        told.append(
            f"{every}, so a window of {options.seconds:g} s holds no batch boundary, or one by chance: what a boundary "
            "costs is not in these figures. The full profile shows it."
        )
    else:
        told.append(f"{every}, so every window holds batch boundaries. With the default of 5 minutes they are rarer.")
    return told


def options_of(profile: str, changed: Mapping[str, Any]) -> BenchOptions:
    """A profile's choices with the user's own in their place.

    Raises:
        OptionRefused: There is no such profile, or a choice cannot work.
    """
    if profile not in PROFILES:
        raise OptionRefused(f"there is no profile {profile!r}", fix=f"one of: {', '.join(PROFILES)}")
    own = {name: value for name, value in changed.items() if value is not None}
    options = PROFILES[profile]
    if {"checkpoint_every", "seconds"} & own.keys() and "boundaries" not in own:
        # The user's window is the user's: the profile's demand on it holds only for the profile's own.
        own["boundaries"] = 0
    return replace(options, **own)
