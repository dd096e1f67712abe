"""Real time ignores an option of the Kafka source.

Problem:
    ``kafkaConsumer.pollTimeoutMs`` has no effect in real time. With versions of Spark and its Kafka connector that
    Tailrace does not know, ``failOnDataLoss=false`` has none either.

Do this instead:
    Unset them. If Kafka deletes records before such a query reads them, the query ends; make the topic keep them long
    enough.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SOURCE_OPTION_IGNORED"
_WHOLE_PARTITIONS = "a real-time task reads whole partitions"
IGNORED = {
    "kafkaconsumer.polltimeoutms": "a real-time task waits for records until its batch ends",
    "maxpartitions": _WHOLE_PARTITIONS,
    "maxrecordsperpartition": _WHOLE_PARTITIONS,
}


def check(query: Query) -> Iterator[Finding]:
    """Look at the options of each source."""
    for read in query.reads if query.realtime else ():
        for name, why in IGNORED.items():
            option = next((key for key in read.options if key.lower() == name), None)
            if option is not None:
                yield warning(
                    CODE, f"the source option {option} has no effect in real time", why=why, fix=f"unset {option}"
                )
        loss = {key.lower(): value for key, value in read.options.items()}.get("failondataloss", "true")
        if loss.lower() == "false" and query.uncontrolled:
            yield warning(
                CODE,
                "failOnDataLoss=false has no effect in real time",
                why=f"{query.uncontrolled}: Spark's own source fails if Kafka has deleted the next record",
                fix="unset failOnDataLoss, and make the topic keep its records longer than an outage lasts",
            )
