"""The named studies: each is a question and the arguments of ``tailrace bench`` that answer it."""

from dataclasses import dataclass

from tailrace.errors import OptionRefused


@dataclass(frozen=True)
class NamedStudy:
    """A study that everybody runs with the same parameters.

    Attributes:
        name: The word after ``tailrace bench study``.
        question: What it answers.
        minutes: How long it takes, about.
        arguments: The arguments of ``tailrace bench``.
    """

    name: str
    question: str
    minutes: int
    arguments: tuple[str, ...]


def _study(name: str, question: str, minutes: int, arguments: str) -> NamedStudy:
    return NamedStudy(name, question, minutes, tuple(arguments.split()))


_KINDS = (
    "realtime-builtin,realtime-udf,realtime-udf-arrow,realtime-pandas,realtime-pandas-iter,realtime-arrow,"
    "realtime-map-pandas,realtime-map-arrow"
)
_SLOW = "engines --works python --rates 10 --warmup 30 --seconds 300 --runs 1"

STUDIES = {
    study.name: study
    for study in (
        _study("article", "Kafka alone, micro-batch and real time: the README's figures", 5, "--profile article"),
        _study(
            "full",
            "the same by all rules of the method: long warm-up, batch boundaries, five runs",
            45,
            "--profile full",
        ),
        _study("sweep", "latency against the trigger interval of micro-batch", 10, "sweep"),
        _study("rates", "the highest rate with p99 below a bound", 10, "rates"),
        _study("gap", "what a checkpoint costs in real time, and what a crash replays", 20, "gap"),
        _study("engines", "other engines at the same work, by default and tuned", 120, "engines"),
        _study(
            "engines-warm",
            "the keyed aggregate at 2,000 events/s when every engine is warm",
            30,
            "engines --works aggregate --rates 2000 --burst 60000 --warmup 40 --seconds 15 "
            "--lanes realtime,realtime-timer,quix,flink-tuned,kafka-streams-tuned,quix-tuned",
        ),
        _study(
            "aggregate",
            "the keyed aggregate in real time: Spark's defaults against Tailrace's",
            10,
            "--work aggregate --lanes realtime-stock,realtime --rate 500 --runs 3",
        ),
        _study(
            "python",
            "every kind of Python function against a built-in expression, two runs",
            35,
            f"engines --works python --rates 2000 --burst 20000 --warmup 70 --seconds 15 --runs 2 --lanes {_KINDS}",
        ),
        _study(
            "python-slow",
            "functions on rows at 10 events/s; start python-slow-batches at the same time",
            30,
            f"{_SLOW} --lanes realtime-builtin,realtime-udf,realtime-udf-arrow,realtime-pandas,realtime-pandas-iter",
        ),
        _study(
            "python-slow-batches",
            "functions on batches at 10 events/s; start python-slow at the same time",
            30,
            f"{_SLOW} --lanes realtime-builtin,realtime-arrow,realtime-map-pandas,realtime-map-arrow",
        ),
        _study(
            "python-rates",
            "a plain and a vectorised function at rising rates, with stock settings and other engines",
            30,
            "engines --works python --rates 2000,4000,6000,8000,9000,12000,18000,24000 --burst 20000 --warmup 60 "
            "--seconds 15 --runs 1 "
            "--lanes realtime-builtin,realtime-udf,realtime-pandas,python-five,quix,pyflink-thread",
        ),
        _study(
            "python-limit",
            "the highest rates of a plain and a vectorised function, with stock settings",
            17,
            "engines --works python --rates 6000,9000,12000,18000,24000,27000,30000,36000 --burst 20000 --warmup 60 "
            "--seconds 15 --runs 1 --lanes realtime-udf,realtime-pandas,python-five",
        ),
        _study("lineage", "what lineage costs: the demo's pipeline with and without it", 6, "lineage"),
        _study("static-table", "what a static table in a broadcast join costs at each checkpoint", 4, "static-table"),
    )
}
"""By name, in the order of ``tailrace bench study --list``."""


def study_named(name: str) -> NamedStudy:
    """Return the study of this name.

    Raises:
        OptionRefused: There is no such study.
    """
    if name not in STUDIES:
        raise OptionRefused(f"there is no study {name!r}", fix=f"use one of: {', '.join(STUDIES)}")
    return STUDIES[name]
