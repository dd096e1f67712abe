import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tailrace
from tailrace.errors import DurationInvalid, OptionRefused
from tailrace.pipeline import Mode
from tailrace.prepare.options import RunOptions, option_fields, takes_options
from tailrace.tuning import SHUFFLE_PARTITIONS

MINIMUM = "spark.sql.streaming.realTimeMode.minBatchDuration"


@pytest.mark.parametrize(
    ("given", "planned", "auto"),
    [
        ("realtime", Mode.REALTIME, False),
        (Mode.REALTIME, Mode.REALTIME, False),
        ("microbatch", Mode.MICROBATCH, False),
        (Mode.MICROBATCH, Mode.MICROBATCH, False),
        ("auto", Mode.REALTIME, True),
    ],
)
def test_a_mode_is_a_name_or_a_member(given: Any, planned: Mode, auto: bool) -> None:
    options = RunOptions(given)
    assert (options.planned_mode, options.auto) == (planned, auto)
    assert options.realtime == (planned is Mode.REALTIME)
    assert not options.in_microbatch().realtime
    assert not options.in_microbatch().auto


@pytest.mark.parametrize("given", ["", "real-time", "REALTIME", "batch"])
def test_an_unknown_mode_is_refused_with_the_known_ones(given: Any) -> None:
    with pytest.raises(OptionRefused) as refused:
        RunOptions(given)
    assert refused.value.fix == "use 'realtime', 'microbatch' or 'auto'"


def test_an_unknown_action_for_starved_partitions_is_refused() -> None:
    unknown: Any = "ignore"
    with pytest.raises(OptionRefused, match="invalid starved='ignore'") as refused:
        RunOptions(starved=unknown)
    assert refused.value.fix == "use 'stop' or 'warn'"


def test_functions_take_every_option_as_a_documented_argument() -> None:
    @takes_options(RunOptions)
    def describe(what: str, options: RunOptions) -> tuple[str, RunOptions]:
        """Describe.

        Args:
            what: A thing.
            options: The options of the run.
        """
        return what, options

    assert describe("it", "microbatch", once=True) == ("it", RunOptions("microbatch", once=True))
    names = [each.name for each in option_fields()]
    assert list(inspect.signature(describe).parameters) == ["what", *names]
    documentation = inspect.getdoc(describe) or ""
    assert [name for name in names if f"    {name}: " not in documentation] == []
    with pytest.raises(TypeError, match="speed"):
        describe("it", speed=11)  # type: ignore[call-arg]


@pytest.mark.parametrize("function", [tailrace.start, tailrace.run, tailrace.check])
def test_start_run_and_check_share_the_options(function: Callable[..., object]) -> None:
    assert list(inspect.signature(function).parameters)[1:] == [each.name for each in option_fields()]


def test_shuffle_partitions_become_a_setting() -> None:
    options = RunOptions(shuffle_partitions=3, conf={MINIMUM: "5s"})
    assert options.conf == {SHUFFLE_PARTITIONS: "3", MINIMUM: "5s"}
    assert options.in_microbatch().conf == options.conf
    assert RunOptions(shuffle_partitions=3, conf={SHUFFLE_PARTITIONS: "3"}).conf == {SHUFFLE_PARTITIONS: "3"}
    assert RunOptions().conf == {}


def test_shuffle_partitions_below_one_or_against_a_setting_are_refused() -> None:
    with pytest.raises(OptionRefused, match="invalid shuffle_partitions=0"):
        RunOptions(shuffle_partitions=0)
    with pytest.raises(OptionRefused, match=r"shuffle_partitions=3 contradicts .*=4"):
        RunOptions(shuffle_partitions=3, conf={SHUFFLE_PARTITIONS: "4"})


def test_each_mode_has_an_interval_of_its_own() -> None:
    both: dict[str, Any] = {"checkpoint_every": "10s", "trigger_every": "250ms"}
    assert RunOptions(Mode.REALTIME, **both).interval_ms == 10_000
    assert RunOptions(Mode.MICROBATCH, **both).interval_ms == 250


def test_the_defaults() -> None:
    assert RunOptions(Mode.REALTIME).interval_ms == 300_000
    assert RunOptions(Mode.MICROBATCH).interval_ms == 0


@pytest.mark.parametrize("interval", ["4999ms", "0s", "soon"])
def test_an_interval_that_spark_would_refuse_is_refused_before_anything_starts(interval: str) -> None:
    with pytest.raises(DurationInvalid):
        RunOptions(Mode.REALTIME, checkpoint_every=interval)


def test_a_lower_bound_of_the_users_own_holds() -> None:
    assert RunOptions(Mode.REALTIME, checkpoint_every="1s", conf={MINIMUM: "1000ms"}).interval_ms == 1_000
    with pytest.raises(DurationInvalid, match="10s"):
        RunOptions(Mode.REALTIME, checkpoint_every="10s", conf={MINIMUM: "20s"})


def test_a_lower_bound_may_be_written_as_spark_writes_it() -> None:
    assert RunOptions(Mode.REALTIME, checkpoint_every="1s", conf={MINIMUM: "1000"}).interval_ms == 1_000


def test_a_trigger_that_is_no_duration_is_refused_before_anything_starts() -> None:
    with pytest.raises(DurationInvalid):
        RunOptions(Mode.MICROBATCH, trigger_every="soon")


def test_a_run_once_has_the_same_interval_as_any_other() -> None:
    assert RunOptions(Mode.REALTIME, once=True).interval_ms == 300_000
    assert RunOptions(Mode.REALTIME, once=True, checkpoint_every="30s").interval_ms == 30_000
    assert RunOptions(Mode.REALTIME, once=True, conf={MINIMUM: "1000"}).interval_ms == 300_000


@pytest.mark.parametrize(("given", "seconds"), [("10s", 10.0), ("0s", 0.0), ("500ms", 0.5), ("2 minutes", 120.0)])
def test_a_stop_timeout_is_a_duration(given: str, seconds: float) -> None:
    assert RunOptions(stop_timeout=given).stop_timeout_s == seconds


def test_a_stop_has_ten_seconds_by_default() -> None:
    assert RunOptions().stop_timeout_s == 10


@pytest.mark.parametrize("given", ["soon", "-1s", ""])
def test_a_stop_timeout_that_is_no_duration_is_refused_before_anything_starts(given: str) -> None:
    with pytest.raises(DurationInvalid, match="--stop-timeout"):
        RunOptions(stop_timeout=given)


def test_a_run_once_takes_no_interval_below_the_bound_either() -> None:
    with pytest.raises(DurationInvalid):
        RunOptions(Mode.REALTIME, once=True, checkpoint_every="4s")
    with pytest.raises(DurationInvalid):
        RunOptions(Mode.REALTIME, once=True, checkpoint_every="10s", conf={MINIMUM: "20s"})


def test_a_bound_above_the_default_interval_asks_for_a_longer_one() -> None:
    with pytest.raises(DurationInvalid, match="5m"):
        RunOptions(Mode.REALTIME, conf={MINIMUM: "10m"})
    assert RunOptions(Mode.REALTIME, checkpoint_every="10m", conf={MINIMUM: "10m"}).interval_ms == 600_000


def test_micro_batches_ask_for_no_checkpoint_interval() -> None:
    assert RunOptions(Mode.MICROBATCH, once=True).interval_ms == 0
    assert RunOptions(Mode.MICROBATCH, checkpoint_every="1s", trigger_every="2s").interval_ms == 2_000


@pytest.mark.parametrize("mode", list(Mode))
def test_an_interval_that_is_no_duration_is_refused_in_every_mode(mode: Mode) -> None:
    for once in (False, True):
        with pytest.raises(DurationInvalid, match="--checkpoint-every"):
            RunOptions(mode, checkpoint_every="", once=once)


@pytest.mark.parametrize("minimum", ["soon", "-1", ""])
def test_a_lower_bound_that_is_no_duration_is_refused_by_its_name(minimum: str) -> None:
    with pytest.raises(DurationInvalid, match=MINIMUM):
        RunOptions(Mode.REALTIME, once=True, conf={MINIMUM: minimum})


@pytest.mark.parametrize(
    ("given", "tasks", "source_tasks"),
    [(None, None, None), (4, 4, 4), ("4", 4, 4), (1, 1, 1), ("auto", "auto", None)],
)
def test_tasks_are_a_number_or_auto(given: Any, tasks: object, source_tasks: int | None) -> None:
    options = RunOptions(tasks=given)
    assert (options.tasks, options.source_tasks) == (tasks, source_tasks)


@pytest.mark.parametrize("given", [0, -1, "0", "-1", "x", "", "4.0", "\u00b2", 4.0, True])
def test_tasks_that_are_neither_are_refused(given: Any) -> None:
    with pytest.raises(OptionRefused, match="invalid tasks=") as refused:
        RunOptions(tasks=given)
    assert refused.value.fix == "use a number from 1, or 'auto'"


def test_micro_batches_read_every_partition_with_a_task_of_its_own() -> None:
    assert RunOptions(Mode.MICROBATCH, tasks=4).source_tasks is None
    assert RunOptions(tasks=4).in_microbatch().source_tasks is None


def test_progress_is_noted_every_second_by_default() -> None:
    assert RunOptions().progress_every_ms == 1_000
    assert RunOptions(progress_every="100ms").progress_every_ms == 100


@pytest.mark.parametrize("given", ["99ms", "0s"])
def test_progress_that_would_be_noted_too_often_is_refused(given: str) -> None:
    with pytest.raises(DurationInvalid, match="too often") as refused:
        RunOptions(progress_every=given)
    assert refused.value.fix == "--progress-every 100ms or longer; 1s is the default"


@pytest.mark.parametrize("mode", list(Mode))
def test_a_progress_interval_that_is_no_duration_is_refused_in_every_mode(mode: Mode) -> None:
    with pytest.raises(DurationInvalid, match="--progress-every"):
        RunOptions(mode, progress_every="soon")


def test_delivery_is_one_of_two_or_the_default() -> None:
    assert RunOptions().delivery is None
    assert RunOptions(delivery="effectively-once").in_microbatch().delivery == "effectively-once"
    unknown: Any = "exactly-once"
    with pytest.raises(OptionRefused, match="invalid delivery='exactly-once'") as refused:
        RunOptions(delivery=unknown)
    assert refused.value.fix == "use 'effectively-once' or 'at-least-once'"
