"""Check what Tailrace needs on this machine: what is present, what is missing, how to get it."""

import contextlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import REINSTALL, TailraceError, counted
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.kafka.broker import broker_archive, write_broker_archive
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import list_topics
from tailrace.toolchain import (
    ArchiveNotWrittenError,
    ClassArchive,
    JarState,
    cache_dir,
    check_pyspark,
    ensure_engine,
    ensure_java,
    find_java,
    jar_paths,
    jar_status,
    package_engine,
    pyspark_version,
    repair_jars,
)
from tailrace.toolchain.ivy import Progress
from tailrace.version import VERSION

TESTED_PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest Python that the tests run on."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    needed: bool
    """Whether Tailrace cannot run without it."""
    detail: str
    fix: str = ""

    def as_json(self) -> dict[str, str | bool]:
        """Return the finding for ``--json``."""
        return {"name": self.name, "ok": self.ok, "needed": self.needed, "found": self.detail, "fix": self.fix}


def examine(bootstrap_servers: str | None) -> list[Finding]:
    """Run all checks; change nothing."""
    return [_python(), _pyspark(), _java(), *_jars(), _engine(), *_archives(), _cores(), _broker(bootstrap_servers)]


def repair(announce: Callable[[str], None], progress: Progress) -> None:
    """Provide what is missing: Java, missing and corrupt jars, the engine, the class archives."""
    from tailrace.spark_session import write_spark_archive

    java = ensure_java(announce)
    repair_jars(java, announce, progress)
    ensure_engine(java, jar_paths("connector"), announce)
    for write in (write_broker_archive, write_spark_archive):
        # Without an archive starts are only slower, and a later check reports why it is missing.
        with contextlib.suppress(ArchiveNotWrittenError):
            write(announce)


def _python() -> Finding:
    oldest, newest = TESTED_PYTHONS
    running = sys.version_info[:2]
    detail = f"{platform.python_version()}, {sys.executable}"
    if oldest <= running <= newest:
        return Finding("Python", ok=True, needed=True, detail=detail)
    tested = f"Tailrace is tested with Python {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    return Finding("Python", ok=running > newest, needed=True, detail=detail, fix=f"{tested}, not with this version")


def _pyspark() -> Finding:
    try:
        check_pyspark()
    except TailraceError as wrong:
        return Finding("PySpark", ok=False, needed=True, detail=wrong.what, fix=wrong.fix)
    home = os.environ.get("SPARK_HOME")
    if home:
        return Finding(
            "PySpark",
            ok=True,
            needed=True,
            detail=f"{pyspark_version()}, run from SPARK_HOME={home}",
            fix="unset SPARK_HOME to run the Spark inside the PySpark package",
        )
    return Finding("PySpark", ok=True, needed=True, detail=pyspark_version())


def _java() -> Finding:
    try:
        java = find_java()
    except TailraceError as wrong:
        return Finding("Java", ok=False, needed=True, detail=wrong.what, fix=wrong.fix)
    if java is None:
        return Finding(
            "Java",
            ok=False,
            needed=True,
            detail="no Java 17, 21 or 25",
            fix="download one, without root: tailrace doctor --fix",
        )
    return Finding("Java", ok=True, needed=True, detail=f"{java.version}, {java.home} ({java.origin})")


def _jars() -> list[Finding]:
    try:
        states = jar_status()
    except TailraceError as wrong:
        return [Finding("Jars", ok=False, needed=True, detail=wrong.what, fix=wrong.fix)]
    return [
        _jar_set("Connector", "connector", "spark-sql-kafka-0-10_2.13", states),
        _jar_set("Broker jars", "broker", "kafka_2.13", states),
    ]


def _jar_set(title: str, set_name: str, main_artifact: str, states: list[JarState]) -> Finding:
    jars = [state for state in states if state.jar.set_name == set_name]
    bad = [state for state in jars if state.state != "present"]
    main = next(state.jar for state in jars if state.jar.artifact == main_artifact)
    if bad:
        first = f"{bad[0].jar.coordinate} is {bad[0].state}"
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        return Finding(title, ok=False, needed=True, detail=first + more, fix="tailrace doctor --fix")
    return Finding(
        title,
        ok=True,
        needed=True,
        detail=f"{len(jars)} jars in {cache_dir() / 'jars'}: {main.artifact} {main.version}",
    )


def _engine() -> Finding:
    engine = package_engine()
    if engine.needs_building():
        return Finding(
            "Engine",
            ok=False,
            needed=True,
            detail=f"not built from the sources in {engine.sources}",
            fix="build it: tailrace doctor --fix; the next run also builds it",
        )
    if not engine.jar.is_file():
        return Finding(
            "Engine",
            ok=False,
            needed=True,
            detail=f"{engine.jar} is missing",
            fix=REINSTALL,
        )
    return Finding("Engine", ok=True, needed=True, detail=f"{VERSION}, {engine.jar}")


def _archives() -> list[Finding]:
    from tailrace.spark_jvm import spark_archive
    from tailrace.spark_session import uses_archive

    try:
        java = find_java()
        if java is None:
            return []
        spark = _archive("Spark classes", spark_archive(java, jar_paths("connector")))
        if spark.ok and not uses_archive():
            why = "archived but not used, so starts are slower: a setting such as spark.jars changes the class path"
            spark = Finding(spark.name, ok=False, needed=False, detail=why)
        return [spark, _archive("Kafka classes", broker_archive(java))]
    except TailraceError:
        return []  # the check of the jars reports it


def _archive(title: str, archive: ClassArchive) -> Finding:
    if archive.refusal:
        return Finding(title, ok=False, needed=False, detail=f"not archived, so starts are slower: {archive.refusal}")
    if archive.is_written:
        return Finding(title, ok=True, needed=False, detail=f"archived for fast starts, {archive.path}")
    return Finding(
        title,
        ok=False,
        needed=False,
        detail="not archived yet, so starts are slower",
        fix="archive them: tailrace doctor --fix; the next run also archives them",
    )


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    return Finding(
        "Cores",
        ok=cores >= 2,
        needed=False,
        detail=str(cores),
        fix="" if cores >= 2 else "real time also runs on one core, but with higher tail latency",
    )


def _broker(bootstrap_servers: str | None) -> Finding:
    try:
        servers = resolve_bootstrap_servers(bootstrap_servers)
        config = client_config(servers, {})
        topics = list_topics(config) if config is not None else {}
    except TailraceError as wrong:
        return Finding("Kafka", ok=False, needed=bootstrap_servers is not None, detail=wrong.what, fix=wrong.fix)
    return Finding("Kafka", ok=True, needed=False, detail=f"{servers}, {counted(len(topics), 'topic')}")
