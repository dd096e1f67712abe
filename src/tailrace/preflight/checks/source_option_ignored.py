"""A Kafka option that real time does not heed.

Anti-pattern:
    ``failOnDataLoss=false`` or ``kafkaConsumer.pollTimeoutMs`` in real time, in the belief that they do something.

Best practice:
    Leave them away. Records that Kafka has deleted before they were read end the query; keep them long enough.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SOURCE_OPTION_IGNORED"
IGNORED = {
    "kafkaconsumer.polltimeoutms": "a real-time task waits for records until its batch ends, whatever this says",
    "maxpartitions": "in real time each partition has one task",
    "maxrecordsperpartition": "in real time each partition has one task",
}


def check(query: Query) -> Iterator[Finding]:
    """Look at the options of each source."""
    for read in query.reads if query.realtime else ():
        for name, why in IGNORED.items():
            given = next((key for key in read.options if key.lower() == name), None)
            if given is not None:
                yield warning(
                    CODE, f"the source option {given} does nothing in real time", why=why, fix=f"unset {given}"
                )
        loss = {key.lower(): value for key, value in read.options.items()}.get("failondataloss", "true")
        if loss.lower() == "false":
            yield warning(
                CODE,
                "failOnDataLoss=false is not looked at where real time reads",
                why="a task asks for its next record and fails where Kafka has deleted it",
                fix="unset failOnDataLoss, and let the topic keep its records longer than an outage lasts",
            )
