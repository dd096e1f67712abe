"""One process of a development cluster: Spark's standalone master, or one of its workers.

Each daemon has its own folder with its record, its lock, its log, its configuration and a worker's files. A worker's
executors are children of the worker and inherit its environment.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tailrace.kafka.ports import LOOPBACK
from tailrace.toolchain import Java, spark_home
from tailrace.toolchain.process_folder import ProcessFolder

MASTER = "master"
_CLASSES = "org.apache.spark.deploy"
_HEAP = "384m"
"""Enough for a master or worker: queries run in the executors, which have their own memory."""
_DEFAULTS = """\
# Otherwise any program on this machine could submit jobs through a port of its own.
spark.master.rest.enabled false
# Spark would take the next port and report nothing.
spark.port.maxRetries 0
"""
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Daemon:
    """A master or a worker, which may not run."""

    role: str
    """``master``, ``worker-1``, ``worker-2``, ..."""
    path: Path

    @property
    def folder(self) -> ProcessFolder:
        """Its record, and whether it runs."""
        return ProcessFolder(self.path)

    @property
    def output(self) -> Path:
        """Its output since its start."""
        return self.path / f"{self.role}.log"

    def pid(self) -> int | None:
        """Return the id of the running process, or the root of its process tree; None if it does not run."""
        if not self.folder.is_running():
            return None
        pid = (self.folder.read_record() or {}).get("pid")
        return pid if isinstance(pid, int) else None

    def write_files(self) -> None:
        """Write its configuration. The user's own is for drivers, and could open further ports."""
        conf = self.path / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "spark-defaults.conf").write_text(_DEFAULTS)
        (conf / "log4j2.properties").write_text(_LOGGING)

    def environment(self, java: Java) -> dict[str, str]:
        """Return its variables; Spark's own variables of this program do not reach it."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return mine | {
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self.path / "conf"),
            # The web pages have no setting of their own for this.
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.path / "local"),
            "SPARK_DAEMON_MEMORY": _HEAP,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def worker_command(self, cores: int, memory: str, master_url: str) -> list[str]:
        """Return the command line of a worker."""
        sizes = ["--cores", str(cores), "--memory", memory]
        place = ["--webui-port", "0", "--work-dir", str(self.path / "work")]
        return [*_spark_class("worker.Worker"), *sizes, *place, master_url]


def master_command(port: int, ui_port: int) -> list[str]:
    """Return the command line of a master."""
    return [*_spark_class("master.Master"), "--port", str(port), "--webui-port", str(ui_port)]


def _spark_class(name: str) -> list[str]:
    return [str(spark_home() / "bin" / "spark-class"), f"{_CLASSES}.{name}", "--host", LOOPBACK]
