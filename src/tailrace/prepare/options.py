"""The options of a run: one definition for ``tr.start``, ``tr.run``, ``tr.check`` and the commands."""

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, get_args

from tailrace.errors import OptionRefused
from tailrace.pipeline import Mode
from tailrace.prepare.duration import (
    REALTIME_MINIMUM_MS,
    parse_duration_ms,
    require_progress_interval,
    require_realtime_interval,
)
from tailrace.tuning import SHUFFLE_PARTITIONS

ModeName = Literal["realtime", "microbatch", "auto"]
StarvedAction = Literal["stop", "warn"]
DataLossAction = Literal["fail", "warn"]
DeliveryName = Literal["effectively-once", "at-least-once"]
DEFAULT_CHECKPOINT_EVERY = "5m"
DEFAULT_PROGRESS_EVERY = "1s"
_MINIMUM_KEY = "spark.sql.streaming.realTimeMode.minBatchDuration"
_DOC_WIDTH = 112
_PLACEHOLDER = "options: The options of the run."
"""The line of a docstring that the descriptions of the options replace."""

P = ParamSpec("P")
What = TypeVar("What")
Result = TypeVar("Result")


def _help(text: str, metavar: str | None = None) -> dict[str, str | None]:
    """Describe an option, for the commands and for ``help()``."""
    return {"help": text, "metavar": metavar}


@dataclass(frozen=True)
class RunOptions:
    """The options of one run, validated. The description of each field is its documentation."""

    mode: Mode | ModeName = field(
        default="realtime",
        metadata=_help("The mode; auto means real time, or micro-batch if the check finds an error in real time."),
    )
    _: KW_ONLY
    bootstrap_servers: str | None = field(
        default=None,
        metadata=_help(
            "The Kafka brokers. Default: TAILRACE_BOOTSTRAP_SERVERS, then the running development broker.", "HOST:PORT"
        ),
    )
    checkpoint: str | Path | None = field(
        default=None, metadata=_help("The checkpoint folder. Default: .tailrace/checkpoints/<name>.", "DIR")
    )
    checkpoint_every: str | None = field(
        default=DEFAULT_CHECKPOINT_EVERY,
        metadata=_help(
            "Real time: how often to save progress, 5s at least. Records are written as they arrive, not at the next "
            "checkpoint; each checkpoint pauses the output briefly.",
            "DURATION",
        ),
    )
    progress_every: str = field(
        default=DEFAULT_PROGRESS_EVERY,
        metadata=_help(
            "Real time: how often to note which records are done, for a start after a crash; 100ms at least. The "
            "output does not pause. Only for queries without state or a shuffle.",
            "DURATION",
        ),
    )
    trigger_every: str = field(
        default="0ms",
        metadata=_help(
            "Micro-batch: how often a batch starts; 0ms starts one as soon as the last one ends.", "DURATION"
        ),
    )
    master: str | None = field(
        default=None,
        metadata=_help(
            "The Spark master, if no Spark is running yet. Default: this machine, with the slots needed.", "URL"
        ),
    )
    conf: Mapping[str, str] = field(
        default_factory=dict, metadata=_help("Spark settings; they win over Tailrace's own.", "KEY=VALUE")
    )
    once: bool = field(
        default=False,
        metadata=_help(
            "Process the records that exist now, then end. The first run of a pipeline starts at the earliest record, "
            "unless the source's `starting` is a timestamp or offsets."
        ),
    )
    starved: StarvedAction = field(
        default="stop",
        metadata=_help("Real time: if a partition is no longer read, stop with an error or log a warning."),
    )
    tasks: int | Literal["auto"] | None = field(
        default=None,
        metadata=_help(
            "Real time: the most tasks that read each source; its partitions share them. auto: at most 4 per core on "
            "the Spark that Tailrace starts on this machine, elsewhere as many as fit. Default: one for each "
            "partition.",
            "N|auto",
        ),
    )
    shuffle_partitions: int | None = field(
        default=None,
        metadata=_help(
            "How many tasks read each shuffle; a checkpoint keeps its number. Default: as many as read the sources.",
            "N",
        ),
    )
    on_data_loss: DataLossAction | None = field(
        default=None,
        metadata=_help(
            "If unread records are gone, because their topic was created again or has deleted them: end with an error, "
            "or log a warning and continue with the records that are left. Default: fail, or warn for a source with "
            "failOnDataLoss=false."
        ),
    )
    delivery: DeliveryName | None = field(
        default=None,
        metadata=_help(
            "After a crash: write only the results that the output topics do not contain yet (effectively-once), or "
            "write again what came after the last saved progress (at-least-once). Default: effectively-once where the "
            "query allows it."
        ),
    )
    stop_timeout: str = field(
        default="10s",
        metadata=_help(
            "How long a stop may take to finish the records that were read and save them. After that, or with 0s, it "
            "stops at once, and the next start processes them again.",
            "DURATION",
        ),
    )
    python_timeout: str = field(
        default="2m",
        metadata=_help("How long one call of a Python function may take before its worker is replaced.", "DURATION"),
    )

    def __post_init__(self) -> None:
        _require_choice("mode", str(self.mode), get_args(ModeName))
        _require_choice("starved", self.starved, get_args(StarvedAction))
        if self.on_data_loss is not None:
            _require_choice("on_data_loss", self.on_data_loss, get_args(DataLossAction))
        if self.delivery is not None:
            _require_choice("delivery", self.delivery, get_args(DeliveryName))
        object.__setattr__(self, "conf", self._settings())
        object.__setattr__(self, "tasks", _task_count(self.tasks))
        parse_duration_ms(self.trigger_every, "--trigger-every")
        parse_duration_ms(self.stop_timeout, "--stop-timeout")
        require_progress_interval(self.progress_every_ms)
        if self.python_timeout_ms <= 0:
            raise OptionRefused("--python-timeout 0 would end every worker at once", fix="--python-timeout 2m")
        if self.checkpoint_every is not None:
            parse_duration_ms(self.checkpoint_every, "--checkpoint-every")
        if self.realtime:
            require_realtime_interval(self.interval_ms, self._shortest_ms)

    def _settings(self) -> dict[str, str]:
        """Return the Spark settings, with the one that ``shuffle_partitions`` stands for."""
        settings = dict(self.conf or {})
        if self.shuffle_partitions is None:
            return settings
        if self.shuffle_partitions < 1:
            raise OptionRefused(
                f"invalid shuffle_partitions={self.shuffle_partitions}",
                fix="--shuffle-partitions 2",
            )
        number = str(self.shuffle_partitions)
        if settings.setdefault(SHUFFLE_PARTITIONS, number) != number:
            other = f"{SHUFFLE_PARTITIONS}={settings[SHUFFLE_PARTITIONS]}"
            raise OptionRefused(f"shuffle_partitions={number} contradicts {other}", fix="give only one of them")
        return settings

    @property
    def auto(self) -> bool:
        """Whether micro-batch is used if the check finds an error in real time."""
        return self.mode == "auto"

    @property
    def planned_mode(self) -> Mode:
        """The mode to plan for; ``auto`` plans for real time first."""
        return Mode.MICROBATCH if self.mode == Mode.MICROBATCH else Mode.REALTIME

    @property
    def realtime(self) -> bool:
        """Whether to plan for real time."""
        return self.planned_mode is Mode.REALTIME

    def in_microbatch(self) -> "RunOptions":
        """Return the same options in micro-batch."""
        return replace(self, mode=Mode.MICROBATCH)

    @property
    def interval_ms(self) -> int:
        """The trigger's interval: between checkpoints in real time, between batch starts in micro-batch."""
        if self.realtime:
            return parse_duration_ms(self.checkpoint_every or DEFAULT_CHECKPOINT_EVERY, "--checkpoint-every")
        return parse_duration_ms(self.trigger_every, "--trigger-every")

    @property
    def progress_every_ms(self) -> int:
        """How often to note which records are done."""
        return parse_duration_ms(self.progress_every, "--progress-every")

    @property
    def source_tasks(self) -> int | None:
        """The most tasks that read each source; None means one for each partition, or that ``auto`` is not decided."""
        return self.tasks if isinstance(self.tasks, int) and self.realtime else None

    @property
    def stop_timeout_s(self) -> float:
        """How long a stop may take to save what was read."""
        return parse_duration_ms(self.stop_timeout, "--stop-timeout") / 1000

    @property
    def python_timeout_ms(self) -> int:
        """How long one call of a Python function may take."""
        return parse_duration_ms(self.python_timeout, "--python-timeout")

    @property
    def _shortest_ms(self) -> int:
        """The shortest time between two checkpoints in real time."""
        minimum = self.conf.get(_MINIMUM_KEY, str(REALTIME_MINIMUM_MS))
        # Spark reads a bare number as milliseconds.
        return parse_duration_ms(f"{minimum}ms" if minimum.isdigit() else minimum, _MINIMUM_KEY)


def takes_options(
    make: Callable[P, RunOptions],
) -> Callable[[Callable[[What, RunOptions], Result]], Callable[Concatenate[What, P], Result]]:
    """Let a function of a target and options take each option as an argument.

    Editors and type checkers see the arguments of :class:`RunOptions`; so does ``help()``.
    """

    def decorate(function: Callable[[What, RunOptions], Result]) -> Callable[Concatenate[What, P], Result]:
        @functools.wraps(function)
        def with_arguments(what: What, *args: P.args, **kwargs: P.kwargs) -> Result:
            return function(what, make(*args, **kwargs))

        signature = inspect.signature(function)
        what, *_ = signature.parameters.values()
        options = inspect.signature(make).parameters.values()
        with_arguments.__signature__ = signature.replace(parameters=[what, *options])  # type: ignore[attr-defined]
        with_arguments.__doc__ = (inspect.getdoc(function) or "").replace(_PLACEHOLDER, _documentation())
        return cast("Callable[Concatenate[What, P], Result]", with_arguments)

    return decorate


def option_fields() -> list[Field[Any]]:
    """Return the fields of :class:`RunOptions`, in their order; each has ``help`` and ``metavar`` in its metadata."""
    return [each for each in fields(RunOptions) if each.init]


def _documentation() -> str:
    lines = [
        textwrap.fill(f"{each.name}: {each.metadata['help']}", _DOC_WIDTH, subsequent_indent="    ")
        for each in option_fields()
    ]
    return textwrap.indent("\n".join(lines), "    ").lstrip()


def _task_count(tasks: object) -> object:
    """Return a number of tasks, which is text on a command line."""
    if isinstance(tasks, str) and tasks.isdecimal():
        tasks = int(tasks)
    if tasks in (None, "auto") or (isinstance(tasks, int) and not isinstance(tasks, bool) and tasks > 0):
        return tasks
    raise OptionRefused(f"invalid tasks={tasks!r}", fix="use a number from 1, or 'auto'")


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        allowed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise OptionRefused(f"invalid {name}={value!r}", fix=f"use {allowed}")
