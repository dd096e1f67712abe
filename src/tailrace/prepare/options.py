"""How a pipeline is to be run: everything that is not part of its definition."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.errors import OptionRefused
from tailrace.pipeline import Mode
from tailrace.prepare.duration import REALTIME_MINIMUM_MS, parse_duration_ms, require_realtime_interval

DEFAULT_CHECKPOINT_EVERY = "5m"
DEFAULT_TRIGGER_EVERY = "0ms"
DEFAULT_PYTHON_TIMEOUT = "2m"
AUTO = "auto"
STARVED = ("stop", "warn")
_MINIMUM_KEY = "spark.sql.streaming.realTimeMode.minBatchDuration"


def parse_mode(given: Mode | str) -> Mode:
    """The mode that a user's word means."""
    try:
        return Mode(given)
    except ValueError:
        words = " or ".join(repr(str(mode)) for mode in (*Mode, AUTO))
        raise OptionRefused(f"{given!r} is no mode", fix=f"use {words}") from None


def run_options(mode: Mode | str, **given: Any) -> "RunOptions":
    """The choices of a run by a user's words; ``auto`` is real time that may become micro-batch."""
    if mode == AUTO:
        return RunOptions(Mode.REALTIME, auto=True, **given)
    return RunOptions(parse_mode(mode), **given)


@dataclass(frozen=True)
class RunOptions:
    """One run's choices, already checked.

    Attributes:
        mode: Real time or micro-batch.
        bootstrap_servers: The brokers; None means the environment's or the development broker's.
        checkpoint: The checkpoint folder; None means ``.tailrace/checkpoints/<name>``.
        checkpoint_every: Real time: how often progress is saved. Records never wait for it. None means every 5 minutes;
            in a bounded run, which can end only at such a moment, as often as Spark allows.
        trigger_every: Micro-batch: how often a batch starts; 0 means as soon as the last one is done.
        master: Where Spark runs, if a session has to be made.
        conf: Spark settings of the user's.
        once: Whether to process what is there now and end.
        starved: Real time: ``stop`` with an error where a partition is not read any more, or ``warn``.
        python_timeout: How long a Python function may take over the rows it was given before its worker is replaced.
        auto: Whether micro-batch will do where the check finds something against real time.
    """

    mode: Mode
    bootstrap_servers: str | None = None
    checkpoint: str | Path | None = None
    checkpoint_every: str | None = None
    trigger_every: str = DEFAULT_TRIGGER_EVERY
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    starved: str = "stop"
    python_timeout: str = DEFAULT_PYTHON_TIMEOUT
    auto: bool = False

    def __post_init__(self) -> None:
        if self.starved not in STARVED:
            raise OptionRefused(f"starved={self.starved!r} is not known", fix=f"one of: {', '.join(STARVED)}")
        parse_duration_ms(self.trigger_every, "--trigger-every")
        if self.python_timeout_ms <= 0:
            raise OptionRefused("--python-timeout 0 would end every worker at once", fix="--python-timeout 2m")
        if self.checkpoint_every is not None:
            parse_duration_ms(self.checkpoint_every, "--checkpoint-every")
        if self.mode is Mode.REALTIME:
            require_realtime_interval(self.interval_ms, self._shortest_ms)

    def in_microbatch(self) -> "RunOptions":
        """The same in micro-batch."""
        return replace(self, mode=Mode.MICROBATCH, auto=False)

    @property
    def interval_ms(self) -> int:
        """The trigger's duration: a checkpoint interval in real time, the time between batches in micro-batch."""
        if self.mode is Mode.REALTIME:
            if self.once and self.checkpoint_every is None:
                return self._shortest_ms
            return parse_duration_ms(self.checkpoint_every or DEFAULT_CHECKPOINT_EVERY, "--checkpoint-every")
        return parse_duration_ms(self.trigger_every, "--trigger-every")

    @property
    def python_timeout_ms(self) -> int:
        """How long a Python function may take over the rows it was given."""
        return parse_duration_ms(self.python_timeout, "--python-timeout")

    @property
    def _shortest_ms(self) -> int:
        """The shortest time between two checkpoints in real time."""
        minimum = self.conf.get(_MINIMUM_KEY, str(REALTIME_MINIMUM_MS))
        # Spark reads a bare number as milliseconds.
        return parse_duration_ms(f"{minimum}ms" if minimum.isdigit() else minimum, _MINIMUM_KEY)
