"""The result of a benchmark as typed objects. ``result.json`` holds the same, key by key.

Every field has a default, so that a result of an older version, or a part of one, can still be read.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

SCHEMA = 1
PERCENTILES: Mapping[str, str] = {"p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
"""The field of each percentile."""


class Reason(StrEnum):
    """Why a run is void."""

    LATE_LOAD = "late-load"
    UNSENT_RECORDS = "unsent-records"
    LATE_PROBE = "late-probe"
    NO_OUTPUT = "no-output"
    LOST_RECORDS = "lost-records"
    REPEATED_RECORDS = "repeated-records"
    STALE_TOPIC = "stale-topic"
    WRONG_RESULTS = "wrong-results"
    FELL_BEHIND = "fell-behind"
    TOO_FEW_BOUNDARIES = "too-few-boundaries"
    FAILED = "failed"


@dataclass(frozen=True)
class LaneResult:
    """Latency from intended send to receipt, in milliseconds, over every measured record.

    A percentile is None if too few samples lie beyond it.
    """

    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    samples: int = 0
    """Distinct measured records that arrived."""
    lost: int = 0
    """Measured records that were sent and never arrived."""
    duplicated: int = 0
    """Arrivals of a measured record after its first."""

    def percentile(self, name: str) -> float | None:
        """Return the percentile of this name, such as ``p99.9``."""
        value: float | None = getattr(self, PERCENTILES[name])
        return value

    def as_json(self) -> dict[str, float | int | None]:
        """Return the lane object of every JSON that Tailrace prints."""
        return asdict(self)


@dataclass(frozen=True)
class Delay:
    """How late the load sent its records, in milliseconds."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Span:
    """One part of a record's path, in milliseconds."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class Timeline:
    """Latency by intended send time, a value for each step of the window."""

    step_s: float = 1.0
    start_s: float = 0.0
    p50_ms: tuple[float | None, ...] = ()
    p99_ms: tuple[float | None, ...] = ()
    max_ms: tuple[float | None, ...] = ()
    count: tuple[int, ...] = ()


@dataclass(frozen=True)
class Boundary:
    """A batch boundary in the window, the pause that a consumer saw, and its parts by Spark's own figures."""

    at_s: float | None = None
    batch: int | None = None
    pause_ms: float | None = None
    parts_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Mean cores and the largest resident memory of a process tree over the window."""

    cpu_cores: float | None = None
    rss_mb: float | None = None


@dataclass(frozen=True)
class Kill:
    """What a kill of the engine cost."""

    at_s: float | None = None
    silent_s: float | None = None
    replayed: int = 0


@dataclass(frozen=True)
class Run:
    """One run of a lane."""

    key: str = ""
    lane: str = ""
    work: str = ""
    rate_per_s: float | None = None
    result: LaneResult = field(default_factory=LaneResult)
    merged: int = 0
    mean_ms: float | None = None
    publish_delay_ms: Delay | None = None
    achieved_rate_per_s: float | None = None
    percentiles: tuple[tuple[float, float], ...] = ()
    timeline: Timeline | None = None
    resources: Mapping[str, Usage] = field(default_factory=dict)
    first_output_s: float | None = None
    lag_per_s: float | None = None
    histogram: str | None = None
    spans_ms: Mapping[str, Span] | None = None
    boundaries: tuple[Boundary, ...] = ()
    kill: Kill | None = None
    output_checked: int = 0
    output_wrong: int = 0
    fell_behind: bool = False
    valid: bool = True
    problems: tuple[str, ...] = ()
    """A sentence for each reason."""
    reasons: tuple[Reason, ...] = ()
    run: int = 0
    order: int = 0
    detail: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a run; keys that it does not know are ignored."""
        read: Self = _decode(cls, value)
        return read

    def to_json(self) -> dict[str, Any]:
        """Return the run as ``result.json`` has it."""
        return _without(asdict(self), "detail")


@dataclass(frozen=True)
class LaneSummary(LaneResult):
    """All runs of a lane in one."""

    lane: str = ""
    title: str = ""
    work: str = ""
    rate_per_s: float | None = None
    merged: int = 0
    runs: int = 0
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    valid: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """How many times the latency of one lane is that of another."""

    work: str = ""
    rate_per_s: float | None = None
    slow: str = ""
    fast: str = ""
    percentile: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0


@dataclass(frozen=True)
class Unavailable:
    """A lane that could not be set up."""

    lane: str = ""
    title: str = ""
    what: str = ""
    why: str = ""


@dataclass(frozen=True)
class SweepPoint:
    """One trigger interval of a sweep."""

    trigger_ms: int = 0
    key: str = ""


@dataclass(frozen=True)
class Rung:
    """One rate of a ladder."""

    rate_per_s: float = 0.0
    key: str = ""
    sustained: bool = False
    why: str = ""


@dataclass(frozen=True)
class Ladder:
    """All rates of a lane and the highest that it sustains."""

    highest_per_s: float | None = None
    ladder: tuple[Rung, ...] = ()


@dataclass(frozen=True)
class Rates:
    """The ladders of all lanes, by name."""

    bound_ms: float | None = None
    lanes: Mapping[str, Ladder] = field(default_factory=dict)


@dataclass(frozen=True)
class GapInterval:
    """The pauses at one checkpoint interval, and what a kill replays."""

    work: str = ""
    checkpoint_every_s: float | None = None
    key: str = ""
    pauses_ms: tuple[float, ...] = ()
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    overhead_percent: float | None = None
    replay_records: float | None = None
    replay_bound_records: float | None = None
    recovery_s: float | None = None


@dataclass(frozen=True)
class Gap:
    """All checkpoint intervals of a study of them."""

    intervals: tuple[GapInterval, ...] = ()


@dataclass(frozen=True)
class Machine:
    """The machine of a benchmark."""

    cpu: str | None = None
    cores: int | None = None
    memory_gib: float | None = None
    system: str | None = None


@dataclass(frozen=True)
class Result:
    """The result of a benchmark."""

    schema: int | None = None
    tool: str | None = None
    clients: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    machine: Machine | None = None
    study: str | None = None
    profile: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    lanes: Mapping[str, LaneSummary] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    declined: tuple[str, ...] = ()
    valid: bool = False
    verdict: tuple[str, ...] = ()
    started: str | None = None
    took_s: float | None = None
    command: str | None = None
    sweep: tuple[SweepPoint, ...] | None = None
    rates: Rates | None = None
    gap: Gap | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what ``result.json`` holds; keys that it does not know are ignored."""
        read: Self = _decode(cls, value)
        return read

    def to_json(self) -> dict[str, Any]:
        """Return what ``result.json`` holds."""
        saved = _without(asdict(self), "sweep", "rates", "gap")
        return {**saved, "runs": [run.to_json() for run in self.runs]}


def _without(value: dict[str, Any], *optional: str) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each is not None or name not in optional}


@cache
def _types(kind: type[Any]) -> Mapping[str, Any]:
    types = get_type_hints(kind)
    return {each.name: types[each.name] for each in fields(kind)}


def _decode(kind: Any, value: Any) -> Any:
    """Read a value of this type from JSON; null is the default of the field that it is in."""
    if value is None:
        return None
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, not {type(value).__name__}")
        types = _types(kind)  # type: ignore[arg-type]
        known = {name: value[name] for name in types if value.get(name) is not None}
        return kind(**{name: _decode(types[name], each) for name, each in known.items()})  # type: ignore[operator]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode(next(each for each in arguments if each is not type(None)), value)
    if origin is tuple:
        repeated = len(arguments) == 2 and arguments[1] is Ellipsis
        return tuple(_decode(arguments[0], each) for each in value) if repeated else tuple(value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {str(name): _decode(arguments[1], each) for name, each in value.items()}
    return Reason(value) if kind is Reason else value
