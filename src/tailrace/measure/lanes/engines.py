"""The lanes of other engines: Apache Flink, Kafka Streams, Quix Streams and PyFlink, by default and tuned.

A default lane sets only what makes the engines comparable. A tuned lane also has what the engine's own documentation
advises for low latency.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.measure.lane import Announce, Cell, Command
from tailrace.measure.lanes.engine_python import ensure_venv, site_packages, venv_python
from tailrace.measure.lanes.engine_setup import (
    CHECKPOINT_INTERVAL,
    CONSUMER,
    EACH_PARTITION,
    HEAP,
    PRODUCER,
    Engine,
    arguments,
    below,
    ensure_engine_jars,
    jar_paths,
    jvm_command,
    milliseconds,
    prepare_jvm,
    resolved,
)
from tailrace.measure.works import Work

FLINK = Engine("flink", "2.2.1", "Apache Flink")
KAFKA_STREAMS = Engine("kafka-streams", "4.3.1", "Kafka Streams")
QUIX = Engine("quix", "3.28.1", "Quix Streams")
PYFLINK = Engine("pyflink", "2.2.1", "PyFlink")

_STATELESS_AND_AGGREGATE = frozenset({Work.STATELESS, Work.AGGREGATE})


@dataclass(frozen=True)
class _EngineLane:
    """What the lanes of other engines share."""

    name: str
    title: str
    tuning: Mapping[str, str] = field(default_factory=dict)
    """What is set beyond the settings that all lanes of the engine share."""
    works: frozenset[Work] = _STATELESS_AND_AGGREGATE
    merges: bool = False
    is_baseline: bool = False
    trigger: None = None


_JAVA_PACKAGES = (
    *("java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"),
)
_FLINK_OPENS = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _JAVA_PACKAGES)
"""What Flink's own start scripts pass to Java 17 and newer."""
_FLINK_SHARED: Mapping[str, str] = {
    "parallelism.default": EACH_PARTITION,
    # With checkpoints Flink restarts a job that fails for ever, and the lane would never report it.
    "restart-strategy.type": "none",
    # No other machine can reach a benchmark.
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
}
_FLINK_TUNING: Mapping[str, str] = {
    "execution.buffer-timeout.interval": "0 ms",
    "execution.checkpointing.interval": CHECKPOINT_INTERVAL,
    "pipeline.object-reuse": "true",
}
"""Flink's documentation on latency: send each record immediately, and do not copy it between operators."""
_FLINK_KAFKA = {"sink.delivery-guarantee": "at-least-once", "scan.startup.mode": "earliest-offset"}


def _flink_interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} ms"


@dataclass(frozen=True)
class FlinkLane(_EngineLane):
    """Flink's DataStream API: job manager, task manager and job in one JVM."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Flink's settings by its own keys; those of the Kafka clients below ``consumer.`` and ``producer.``."""
        kafka = {**below("consumer.", CONSUMER), **below("producer.", PRODUCER)}
        return {**_FLINK_SHARED, **self.tuning, **kafka, **_FLINK_KAFKA}

    def prepare(self, announce: Announce) -> None:
        """Fetch the jars and compile the program."""
        prepare_jvm(FLINK, announce)

    def versions(self) -> Mapping[str, str]:
        """Return Flink's version."""
        return {"flink": FLINK.version}

    def command(self, cell: Cell) -> Command:
        """Return the process of one run."""
        conf = {**resolved({**_FLINK_SHARED, **self.tuning}, cell, _flink_interval), "io.tmp.dirs": str(cell.folder)}
        if self.tuning:
            conf["execution.checkpointing.dir"] = (cell.folder / "checkpoints").as_uri()
        given = {
            "work": cell.work.value,
            "bootstrap_servers": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "group": f"flink-{cell.source}",
            **below("conf.", conf),
            **below("consumer.", CONSUMER),
            **below("producer.", PRODUCER),
        }
        return jvm_command(FLINK, "tailrace.measure.FlinkLane", _FLINK_OPENS, given)


_STREAMS_SHARED: Mapping[str, str] = {
    "num.stream.threads": EACH_PARTITION,
    "processing.guarantee": "at_least_once",
    **below("consumer.", {**CONSUMER, "auto.offset.reset": "earliest"}),
    **below("producer.", PRODUCER),
}
_STREAMS_TUNING: Mapping[str, str] = {
    "statestore.cache.max.bytes": "0",
    "commit.interval.ms": CHECKPOINT_INTERVAL,
}
"""By default the updates of a key wait in a cache of 10 MB until the next commit, half a minute at most, and only the
last one is sent. Kafka Streams' documentation advises a cache of zero to send every update at once."""


@dataclass(frozen=True)
class StreamsLane(_EngineLane):
    """The DSL of Kafka Streams: a library in one JVM."""

    repartition: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings by Kafka Streams' own keys."""
        return {**_STREAMS_SHARED, **self.tuning}

    def prepare(self, announce: Announce) -> None:
        """Fetch the jars and compile the program."""
        prepare_jvm(KAFKA_STREAMS, announce)

    def versions(self) -> Mapping[str, str]:
        """Return the version of Kafka Streams."""
        return {"kafka-streams": KAFKA_STREAMS.version}

    def command(self, cell: Cell) -> Command:
        """Return the process of one run."""
        conf = {
            **resolved(self.settings, cell, milliseconds),
            "application.id": f"streams-{cell.source}",
            "state.dir": str(cell.folder / "state"),
        }
        given = {
            "work": cell.work.value,
            "bootstrap_servers": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "repartition": str(self.repartition).lower(),
            **below("conf.", conf),
        }
        return jvm_command(KAFKA_STREAMS, "tailrace.measure.StreamsLane", (), given)


# librdkafka has another name for one of the settings.
_QUIX_CONSUMER = {"fetch.wait.max.ms" if key == "fetch.max.wait.ms" else key: value for key, value in CONSUMER.items()}
_QUIX_SHARED: Mapping[str, str] = {
    "auto_offset_reset": "earliest",
    "processing_guarantee": "at-least-once",
    **below("consumer_extra_config.", _QUIX_CONSUMER),
    **below("producer_extra_config.", PRODUCER),
    "processes": "1",
}
_QUIX_TUNING: Mapping[str, str] = {"processes": EACH_PARTITION, "commit_interval": CHECKPOINT_INTERVAL}
"""One process handles one record at a time. Quix Streams scales, as a Kafka consumer does, by more processes in the
group. At each commit it flushes the producer, writes the state and commits the offsets while records wait."""


@dataclass(frozen=True)
class QuixLane(_EngineLane):
    """The StreamingDataFrame of Quix Streams: a library in plain Python."""

    works: frozenset[Work] = frozenset({Work.STATELESS, Work.AGGREGATE, Work.PYTHON})

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings by the names of the application's parameters, and the number of ``processes``."""
        return {**_QUIX_SHARED, **self.tuning}

    def prepare(self, announce: Announce) -> None:
        """Create its Python environment."""
        with QUIX.set_up(announce):
            ensure_venv(QUIX, None, announce)

    def versions(self) -> Mapping[str, str]:
        """Return the version of Quix Streams."""
        return {"quixstreams": QUIX.version}

    def command(self, cell: Cell) -> Command:
        """Return the process of one run."""
        given = {
            "work": cell.work.value,
            "broker_address": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "consumer_group": f"quix-{cell.source}",
            "state_dir": str(cell.folder / "state"),
            **resolved(self.settings, cell, str),
        }
        # Isolated: it takes no modules from the user's PYTHONPATH or the current folder.
        program = (str(venv_python(QUIX)), "-I", str(QUIX.programs / "quix_lane.py"))
        return Command((*program, *arguments(given)))


_PYFLINK_NEWEST_PYTHON = (3, 12)
"""PyFlink, and the packages that it pins, are published up to this version."""


@dataclass(frozen=True)
class PyFlinkLane(_EngineLane):
    """PyFlink's Table API with a Python function: a Python program starts Flink's local cluster in a JVM."""

    works: frozenset[Work] = frozenset({Work.PYTHON})

    @property
    def settings(self) -> Mapping[str, str]:
        """Flink's settings by its own keys; those of the Kafka clients as the table connector names them."""
        return {
            **_FLINK_SHARED,
            # If Flink runs in the same Python program, PyFlink would also run the functions in that program. On a
            # cluster, and here, they have their own processes.
            "_python_worker_execution_mode": "process",
            **self.tuning,
            **below("source.properties.", CONSUMER),
            **below("sink.properties.", PRODUCER),
            **_FLINK_KAFKA,
        }

    def prepare(self, announce: Announce) -> None:
        """Obtain Java, its Python environment and the jars that this lacks."""
        java = PYFLINK.java(announce)
        with PYFLINK.set_up(announce):
            ensure_engine_jars(PYFLINK, java, announce)
            ensure_venv(PYFLINK, _PYFLINK_NEWEST_PYTHON, announce)

    def versions(self) -> Mapping[str, str]:
        """Return PyFlink's version."""
        return {"pyflink": PYFLINK.version}

    def command(self, cell: Cell) -> Command:
        """Return the process of one run."""
        python = str(venv_python(PYFLINK))
        conf = {
            **resolved({**_FLINK_SHARED, **self.tuning}, cell, _flink_interval),
            "io.tmp.dirs": str(cell.folder),
            "pipeline.jars": ";".join(path.as_uri() for path in jar_paths(PYFLINK)),
            "python.executable": python,
            "python.client.executable": python,
        }
        if self.tuning:
            conf["execution.checkpointing.dir"] = (cell.folder / "checkpoints").as_uri()
        given = {
            "bootstrap_servers": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "group": f"pyflink-{cell.source}",
            **below("conf.", conf),
            **below("source.", CONSUMER),
            **below("sink.", PRODUCER),
        }
        env = {
            "JAVA_HOME": str(PYFLINK.java_again().home),
            # It takes no jars or settings from the user's own Flink.
            "FLINK_HOME": str(site_packages(PYFLINK) / "pyflink"),
            "FLINK_CONF_DIR": str(site_packages(PYFLINK) / "pyflink" / "conf"),
            "JVM_ARGS": "",
            "FLINK_ENV_JAVA_OPTS": " ".join((HEAP, *_FLINK_OPENS)),
            "FLINK_LOG_DIR": str(cell.folder),
            "_python_worker_execution_mode": "process",
            # In thread mode Python runs inside the JVM and finds its packages only by this path.
            "PYTHONPATH": str(site_packages(PYFLINK)),
        }
        return Command((python, str(PYFLINK.programs / "pyflink_lane.py"), *arguments(given)), env)


FLINK_LANES = (
    FlinkLane("flink", "Flink, its defaults"),
    FlinkLane("flink-tuned", "Flink, buffer timeout 0, with checkpoints", _FLINK_TUNING),
)
STREAMS_LANES = (
    StreamsLane("kafka-streams", "Kafka Streams, its defaults", merges=True),
    StreamsLane("kafka-streams-tuned", "Kafka Streams, no record cache", _STREAMS_TUNING),
    StreamsLane(
        "kafka-streams-repartition",
        "Kafka Streams, no record cache, through a repartition topic",
        _STREAMS_TUNING,
        works=frozenset({Work.AGGREGATE}),
        repartition=True,
    ),
)
QUIX_LANES = (
    QuixLane("quix", "Quix Streams, its defaults"),
    QuixLane("quix-tuned", "Quix Streams, a process per partition", _QUIX_TUNING),
)
PYFLINK_LANES = (
    PyFlinkLane("pyflink", "PyFlink, its defaults (process mode)"),
    PyFlinkLane(
        "pyflink-tuned",
        "PyFlink, process mode, bundles of 1 ms",
        {**_FLINK_TUNING, "python.fn-execution.bundle.time": "1", "python.fn-execution.bundle.size": "100"},
    ),
    PyFlinkLane("pyflink-thread", "PyFlink, thread mode", {**_FLINK_TUNING, "python.execution-mode": "thread"}),
)
ENGINE_LANES = (*FLINK_LANES, *STREAMS_LANES, *QUIX_LANES, *PYFLINK_LANES)
