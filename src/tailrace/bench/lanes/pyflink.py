"""PyFlink, its Table API with a Python function: Flink's local cluster in a JVM that a Python program starts."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.bench.engines.engine import Engine
from tailrace.bench.engines.jars import ensure_jars, jar_paths
from tailrace.bench.engines.jvm import HEAP
from tailrace.bench.engines.settings import CONSUMER, PRODUCER, arguments, below, resolved
from tailrace.bench.engines.venv import ensure_venv, site_packages, venv_python
from tailrace.bench.lane import Announce, Cell, Command
from tailrace.bench.lanes.flink import OPENED, SHARED, TUNED, flink_interval
from tailrace.bench.work import Work

ENGINE = Engine("pyflink", "2.2.1", "PyFlink")

_NEWEST_PYTHON = (3, 12)
"""PyFlink's packages, and those that it pins, are published up to here."""


@dataclass(frozen=True)
class PyFlinkLane:
    """A PyFlink of its own for each run."""

    name: str
    title: str
    tuned: Mapping[str, str]
    """What is set beyond what all lanes share."""
    works: frozenset[Work] = frozenset({Work.PYTHON})
    merges: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Flink's by its own keys; those of the Kafka clients as the table connector has them."""
        return {
            **SHARED,
            # Where Flink runs in the same Python program, PyFlink would run the functions in that program, too. On a
            # cluster, and here, they have processes of their own.
            "_python_worker_execution_mode": "process",
            **self.tuned,
            **below("source.properties.", CONSUMER),
            **below("sink.properties.", PRODUCER),
            "sink.delivery-guarantee": "at-least-once",
            "scan.startup.mode": "earliest-offset",
        }

    def prepare(self, announce: Announce) -> None:
        """Java, its Python environment and the jars that this lacks."""
        java = ENGINE.java(announce)
        with ENGINE.set_up(announce):
            ensure_jars(ENGINE, java, announce)
            ensure_venv(ENGINE, _NEWEST_PYTHON, announce)

    def versions(self) -> Mapping[str, str]:
        """PyFlink's."""
        return {"pyflink": ENGINE.version}

    def command(self, cell: Cell) -> Command:
        """The process of one run."""
        python = str(venv_python(ENGINE))
        conf = {
            **resolved({**SHARED, **self.tuned}, cell, flink_interval),
            "io.tmp.dirs": str(cell.folder),
            "pipeline.jars": ";".join(path.as_uri() for path in jar_paths(ENGINE)),
            "python.executable": python,
            "python.client.executable": python,
        }
        if self.tuned:
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
            "JAVA_HOME": str(ENGINE.java_again().home),
            # A Flink of the user's own is not to lend it jars or settings.
            "FLINK_HOME": str(site_packages(ENGINE) / "pyflink"),
            "FLINK_CONF_DIR": str(site_packages(ENGINE) / "pyflink" / "conf"),
            "JVM_ARGS": "",
            "FLINK_ENV_JAVA_OPTS": " ".join((HEAP, *OPENED)),
            "FLINK_LOG_DIR": str(cell.folder),
            "_python_worker_execution_mode": "process",
            # In thread mode there is a Python inside the JVM, which finds its packages in no other way.
            "PYTHONPATH": str(site_packages(ENGINE)),
        }
        return Command((python, str(ENGINE.programs / "pyflink_lane.py"), *arguments(given)), env)


LANES = (
    PyFlinkLane("pyflink", "PyFlink, its defaults (process mode)", tuned={}),
    PyFlinkLane(
        "pyflink-tuned",
        "PyFlink, process mode, bundles of 1 ms",
        tuned={**TUNED, "python.fn-execution.bundle.time": "1", "python.fn-execution.bundle.size": "100"},
    ),
    PyFlinkLane("pyflink-thread", "PyFlink, thread mode", tuned={**TUNED, "python.execution-mode": "thread"}),
)
