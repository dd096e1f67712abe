"""One run of a lane: the broker, fresh topics, the measurement, the audit and the verdict."""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tailrace.errors import KafkaError, TailraceError
from tailrace.kafka.broker import STARTING_TEMPORARY, temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic, delete_topics, list_topics
from tailrace.measure.audit import Audit, audit, boundaries, read_progress, read_stamps
from tailrace.measure.lane import Announce, Cell, Lane
from tailrace.measure.latency import growth_ms_per_s, hdr_histogram, lane_result, percentile_curve, timeline
from tailrace.measure.measurement import Measurement, Moment, NoEngine, Plan, Show, measure
from tailrace.measure.process import KilledOnce, LaneProcess
from tailrace.measure.traffic.probe import Arrivals, ByLineage
from tailrace.measure.verdict import Checks, fell_behind, problems
from tailrace.measure.works import Work
from tailrace.report.result import Delay, Kill, LaneResult, Reason, Run
from tailrace.toolchain import memory_dir

LATER_WARMUP_S = 5.0
TOPIC_SETTINGS = {"message.timestamp.type": "LogAppendTime"}
"""The broker's clock stamps both topics, so that the spans before and after the engine are known."""


@dataclass(frozen=True)
class Bench:
    """The broker and the folder of a benchmark.

    Attributes:
        bootstrap_servers: The broker.
        client: The settings of its clients.
        partitions: The number of partitions of every topic.
        scratch: A folder for temporary files, removed with the benchmark.
        broker_pid: The broker's process, if the benchmark started it.
        broker_log: Where the broker keeps its log, if the benchmark started it: ``in memory`` or ``on disk``.
    """

    bootstrap_servers: str
    client: ClientConfig
    partitions: int
    scratch: Path
    broker_pid: int | None = None
    broker_log: str | None = None

    def topic(self, name: str) -> str:
        """Create a topic with a unique name."""
        unique = f"bench-{name}-{secrets.token_hex(4)}"
        create_topic(self.client, unique, self.partitions, TOPIC_SETTINGS)
        return unique

    def discard(self, topics: Iterable[str]) -> None:
        """Delete topics. A broker that does not respond is reported elsewhere."""
        with suppress(KafkaError):
            delete_topics(self.client, topics)

    def folder(self, name: str) -> Path:
        """Create a folder with a unique name."""
        folder = self.scratch / f"{name}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        return folder


@contextmanager
def open_bench(bootstrap_servers: str | None, partitions: int, announce: Announce) -> Iterator[Bench]:
    """Start a broker and stop it afterwards, or use the one that the user names.

    The log of its own broker is in memory if there is room: the broker has one thread for all requests, so each of them
    waits when one waits for the disk.

    Raises:
        BrokerUnreachable: The named broker does not respond.
    """
    if bootstrap_servers is None:
        announce(STARTING_TEMPORARY)
        with memory_dir() as memory, temporary_broker(announce, memory=memory) as broker:
            client = plain_client(broker.bootstrap_servers)
            log = "on disk" if memory is None else "in memory"
            yield Bench(broker.bootstrap_servers, client, partitions, broker.scratch, broker.pid, log)
        return
    client = plain_client(bootstrap_servers)
    list_topics(client)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        yield Bench(bootstrap_servers, client, partitions, Path(folder))


@dataclass(frozen=True)
class CellPlan:
    """One cell of a study: a lane, its work and its load."""

    lane: Lane
    work: Work
    plan: Plan
    checkpoint_every_s: float
    trigger_every_ms: int
    key: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    needs_boundaries: int = 0
    kill_after_s: float | None = None
    """Seconds from the first result until the engine is killed and started again."""

    @property
    def merges(self) -> bool:
        """Whether one result may stand for several records."""
        return self.work.merges and self.lane.merges


def run_cells(bench: Bench, cells: Sequence[CellPlan], show: Show) -> list[Run]:
    """Run cells that differ only in their load, one after another, in one engine process.

    Returns:
        One run per cell, without its number.
    """
    cell = cells[0]
    source = bench.topic(f"{cell.lane.name}-in")
    folder = bench.folder(cell.lane.name)
    given = Cell(
        cell.work,
        bench.bootstrap_servers,
        source,
        source,
        bench.partitions,
        folder,
        cell.checkpoint_every_s,
        cell.trigger_every_ms,
    )
    broker_pid = bench.broker_pid
    processes: dict[str, Callable[[], int]] = {"broker": lambda: broker_pid} if broker_pid is not None else {}
    plans = [cell.plan, *(_in_a_warm_engine(later.plan) for later in cells[1:])]
    try:
        if cell.lane.command(given) is None:
            windows = measure(plans, bench.client, (source, source), NoEngine(), show, processes=processes)
            return _runs(bench, cells, given, windows)
        given = replace(given, sink=bench.topic(f"{cell.lane.name}-out"))
        moment = KillMoment(cell.kill_after_s, show)
        with _engine(cell, given, moment) as engine:
            processes = {"engine": lambda: engine.pid, **processes}
            topics = (source, given.sink)
            windows = measure(plans, bench.client, topics, engine, moment.show, processes=processes, merges=cell.merges)
            killed_ns = engine.killed_ns if isinstance(engine, KilledOnce) else None
        return _runs(bench, cells, given, windows, killed_ns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        bench.discard({given.source, given.sink})


def _in_a_warm_engine(plan: Plan) -> Plan:
    """Return the plan with a short warm-up, since the engine already runs at a lower rate."""
    return replace(plan, warmup_s=min(plan.warmup_s, LATER_WARMUP_S), flow=replace(plan.flow, burst=0))


class KillMoment:
    """The time to kill an engine: a delay after its first result, when the warm-up begins."""

    def __init__(self, after_s: float | None, show: Show) -> None:
        self._after_s = after_s
        self._show = show
        self._at = float("inf")

    def show(self, moment: Moment) -> None:
        """Forward the progress, and set the time of the kill at the first result."""
        if moment.phase != "start" and self._at == float("inf") and self._after_s is not None:
            self._at = time.monotonic() + self._after_s
        self._show(moment)

    def __call__(self) -> float:
        """Return the moment on the monotonic clock."""
        return self._at


def _engine(cell: CellPlan, given: Cell, moment: KillMoment) -> LaneProcess | KilledOnce:
    command = cell.lane.command(given)
    if command is None:
        raise AssertionError("a lane without an engine starts no process")

    def start(attempt: int) -> LaneProcess:
        return LaneProcess(cell.lane.name, command, given.folder / f"lane-{attempt}.log")

    return start(1) if cell.kill_after_s is None else KilledOnce(start, moment)


def _runs(
    bench: Bench, cells: Sequence[CellPlan], given: Cell, windows: Sequence[Measurement], killed_ns: int | None = None
) -> list[Run]:
    if isinstance(cells[0].plan.known_by, ByLineage):
        stamps = read_stamps(bench.client, given.source)
        windows = [replace(window, arrivals=by_stamps(window.arrivals, stamps)) for window in windows]
        audits = [Audit(0, 0, 0, None)] * len(windows)
    else:
        audits = audit(cells[0].work, bench.client, given.source, given.sink, windows)
    return [
        _run(cell, given, window, audited, killed_ns)
        for cell, window, audited in zip(cells, windows, audits, strict=True)
    ]


def _run(cell: CellPlan, given: Cell, window: Measurement, audited: Audit, killed_ns: int | None) -> Run:
    # With lineage alone it is not known which records have a result.
    partial = cell.merges or isinstance(cell.plan.known_by, ByLineage)
    measured = window.arrivals.within(window.first, window.end)
    firsts = measured.firsts()
    result = _result(window, measured, firsts, partial=partial)
    growth = growth_ms_per_s(firsts.sent_ns, firsts.latency_ns)
    pauses = boundaries(read_progress(given.events), window.arrivals.received_ns, window.first_ns, window.end_ns)
    checks = Checks(partial, cell.needs_boundaries, killed_ns is not None, cell.plan.held_s)
    reported = problems(window, result, audited, growth, len(pauses), checks)
    return replace(
        figures(window, firsts, growth),
        key=cell.key,
        lane=cell.lane.name,
        work=str(cell.work),
        rate_per_s=cell.plan.flow.rate_per_s,
        result=result,
        merged=window.end - window.first - len(firsts) if partial else 0,
        spans_ms=audited.spans_ms,
        boundaries=tuple(pauses),
        kill=None if killed_ns is None else _recovery(window, killed_ns),
        output_checked=audited.checked,
        output_wrong=audited.wrong,
        fell_behind=fell_behind(window, result, growth, checks),
        valid=not reported,
        problems=tuple(problem.text for problem in reported),
        reasons=tuple(problem.reason for problem in reported),
    )


def failed_run(cell: CellPlan, failed: TailraceError) -> Run:
    """Return a run without figures."""
    return Run(
        key=cell.key,
        lane=cell.lane.name,
        work=str(cell.work),
        rate_per_s=cell.plan.flow.rate_per_s,
        valid=False,
        problems=(f"{failed.what}: {failed.why}" if failed.why else failed.what,),
        reasons=(Reason.FAILED,),
        detail=failed.detail,
    )


def _recovery(window: Measurement, killed_ns: int) -> Kill:
    """Return for how long nothing came out after a kill, and how many records came out a second time."""
    ordered = np.sort(window.arrivals.received_ns)
    after = ordered[ordered > killed_ns]
    return Kill(
        at_s=round((killed_ns - window.first_ns) / 1e9, 2),
        silent_s=round(float(after[0] - killed_ns) / 1e9, 2) if len(after) else None,
        replayed=len(window.arrivals) - len(window.arrivals.firsts()),
    )


def by_stamps(arrivals: Arrivals, stamps: Mapping[int, tuple[int, int]]) -> Arrivals:
    """Replace the place of each source record by the number that the load wrote into its headers."""
    known = np.array([int(place) in stamps for place in arrivals.numbers], dtype=bool)
    kept = arrivals.where(known)
    pairs = [stamps[int(place)] for place in kept.numbers]
    numbers = np.array([number for number, _ in pairs], dtype=np.int64)
    sent_ns = np.array([sent for _, sent in pairs], dtype=np.int64)
    return Arrivals(numbers, sent_ns, kept.received_ns, arrivals.ready_ns)


def figures(window: Measurement, firsts: Arrivals, growth: float) -> Run:
    """Return the figures of a run besides its percentiles."""
    latency_ns = firsts.latency_ns
    seconds = (window.end_ns - window.first_ns) / 1e9
    load = window.load
    return Run(
        mean_ms=round(float(latency_ns.mean()) / 1e6, 3) if len(latency_ns) else None,
        publish_delay_ms=Delay(round(load.late_ms_p50, 3), round(load.late_ms_p99, 3), round(load.late_ms_max, 3)),
        achieved_rate_per_s=round(load.measured / max(load.took_s, seconds), 1),
        percentiles=tuple(percentile_curve(latency_ns)),
        timeline=timeline(firsts.sent_ns, latency_ns, window.first_ns, seconds),
        resources=dict(window.resources),
        first_output_s=window.first_output_s,
        lag_per_s=growth,
        histogram=hdr_histogram(latency_ns),
    )


def _result(window: Measurement, measured: Arrivals, firsts: Arrivals, *, partial: bool) -> LaneResult:
    """Return the percentiles. If not every record has its own result, none counts as lost."""
    expected = len(firsts) if partial else window.end - window.first
    duplicated = 0 if partial else len(measured) - len(firsts)
    return lane_result(firsts.latency_ns, expected=expected, duplicated=duplicated)
