"""The tools that Spark and Kafka need on this machine: Java, jars, PySpark and the engine."""

from tailrace.toolchain.class_archive import ArchiveNotWrittenError, ClassArchive
from tailrace.toolchain.directories import cache_dir, memory_dir, state_dir
from tailrace.toolchain.engine_jar import ensure_engine, package_engine
from tailrace.toolchain.jarlock import Jar, read_lock
from tailrace.toolchain.jars import JarState, ensure_jars, jar_paths, jar_status, repair_jars
from tailrace.toolchain.java import Java, ensure_java, find_java
from tailrace.toolchain.spark import check_pyspark, pyspark_jars_dir, pyspark_version, spark_home

__all__ = [
    "ArchiveNotWrittenError",
    "ClassArchive",
    "Jar",
    "JarState",
    "Java",
    "cache_dir",
    "check_pyspark",
    "ensure_engine",
    "ensure_jars",
    "ensure_java",
    "find_java",
    "jar_paths",
    "jar_status",
    "memory_dir",
    "package_engine",
    "pyspark_jars_dir",
    "pyspark_version",
    "read_lock",
    "repair_jars",
    "spark_home",
    "state_dir",
]
