"""The fingerprint of a pipeline: a hash of what decides whether, how often and where it writes rows.

A start after a crash leaves out the outputs that exist only if its fingerprint is that of the run before. Otherwise the
same record may have other outputs, and one that was never written could be taken for one that was.
"""

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.pipeline import KafkaSource, Pipeline
from tailrace.plan.delivery import FunctionPlan, PickledFunction
from tailrace.prepare.code_text import Unstable, code_text

_FORMAT = 1
"""To be raised if a version of Tailrace reads, refuses or numbers records in another way."""
_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.caseSensitive", "spark.sql.legacy.timeParserPolicy")
"""The settings of Spark that decide whether a record can be read, and which are not part of a plan."""
_LARGEST_REQUEST = "kafka.max.request.size"


@dataclass(frozen=True)
class Fingerprint:
    """A pipeline's fingerprint.

    Attributes:
        value: The hash; None if it cannot be computed.
        why: What prevents it, in words; empty if there is one.
    """

    value: str | None
    why: str = ""


def fingerprint(pipeline: Pipeline, plan: FunctionPlan, spark: str, settings: Mapping[str, str]) -> Fingerprint:
    """Return the fingerprint of a pipeline.

    Args:
        pipeline: The pipeline.
        plan: The plan of its function.
        spark: The version of Spark.
        settings: The settings that :func:`fingerprint_settings` returns.
    """
    try:
        functions = _functions_text(plan)
    except Unstable as unstable:
        return Fingerprint(None, f"{unstable} cannot be compared with that of an earlier run")
    parts = {
        "format": _FORMAT,
        "python": [platform.python_implementation(), list(sys.version_info[:3])],
        "spark": [spark, dict(settings)],
        "sources": [_source(each) for each in pipeline.sources],
        "policies": [pipeline.malformed, pipeline.python_errors, pipeline.dead_letter_topic],
        "sink": _sink(pipeline),
        "plan": plan.text,
        "functions": functions,
    }
    return Fingerprint(sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest())


def fingerprint_settings(spark: SparkSession) -> dict[str, str]:
    """Return Spark's settings that are part of a fingerprint."""
    return {key: spark.conf.get(key) or "" for key in _SETTINGS}


def _functions_text(plan: FunctionPlan) -> list[str]:
    if plan.unstable:
        raise Unstable(plan.unstable)
    return [_function_text(each) for each in plan.functions]


def _function_text(function: PickledFunction) -> str:
    try:
        called, *_ = cloudpickle.loads(function.command)  # with what Spark needs to send it rows
        return code_text(called)
    except Unstable:
        raise
    except Exception as failed:
        # Spark sends a function with more than a megabyte of data apart, and the user's own classes may refuse.
        raise Unstable(f"the data of {function.name} ({type(failed).__name__})") from failed


def _source(source: KafkaSource) -> list[Any]:
    schema = source.schema.json() if isinstance(source.schema, StructType) else source.schema
    return [source.subscription, source.format, schema, dict(source.json_options)]


def _sink(pipeline: Pipeline) -> list[str | None]:
    sink = pipeline.sink
    largest = {key.lower(): value for key, value in sink.options.items()}.get(_LARGEST_REQUEST)
    return [sink.topic, sink.topic_column, sink.key, sink.value, largest]
