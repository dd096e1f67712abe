"""Typed calls into Spark's JVM: plans, queries, records, sessions, topics and writers.

Only this package, ``spark_jvm.py`` and ``spark_session.py`` call the JVM. They return plain Python data or PySpark
objects, never py4j objects.
"""

from tailrace.engine.deliveries import Delivery, Resumed, resume
from tailrace.engine.function_plans import function_plan
from tailrace.engine.functions import (
    DeadLetterTopic,
    FunctionCost,
    FunctionCosts,
    install_python,
)
from tailrace.engine.gateway import has_jvm_ended
from tailrace.engine.plans import (
    examine,
    recorded_lines,
    stream_reads,
)
from tailrace.engine.queries import (
    BatchTimes,
    ReaderPosition,
    RunControl,
    StageTasks,
    TaskTimes,
    allow_operators,
    control_sources,
    failure_text,
    has_running_tasks,
    has_tasks_at_work,
    running_stages,
    runs_in_real_time,
    uncontrolled,
    unread_partitions,
    with_data_loss,
)
from tailrace.engine.records import (
    RECORD,
    RecordCheck,
    RecordCounts,
    SizeLimits,
    carry_lineage,
    malformed_in_all,
    read_records,
    require_sizes,
    separate_reads,
    with_lineage_headers,
)
from tailrace.engine.sessions import (
    capacity,
    clone_session,
    explicit_settings,
    has_kafka_connector,
)
from tailrace.engine.sinks import RealTimeSink, refused_counts, supports_own_sink
from tailrace.engine.topics import (
    OutputTopics,
    SparkBrokerPing,
    create_kafka_topic,
    kafka_group_rights,
    kafka_partitions,
    kafka_topic_rights,
    lost_records,
)
from tailrace.engine.writers import (
    frame_on,
    save,
    with_trigger,
    writer_frame,
    writer_of,
    writer_settings,
)

__all__ = [
    "RECORD",
    "BatchTimes",
    "DeadLetterTopic",
    "Delivery",
    "FunctionCost",
    "FunctionCosts",
    "OutputTopics",
    "ReaderPosition",
    "RealTimeSink",
    "RecordCheck",
    "RecordCounts",
    "Resumed",
    "RunControl",
    "SizeLimits",
    "SparkBrokerPing",
    "StageTasks",
    "TaskTimes",
    "allow_operators",
    "capacity",
    "carry_lineage",
    "clone_session",
    "control_sources",
    "create_kafka_topic",
    "examine",
    "explicit_settings",
    "failure_text",
    "frame_on",
    "function_plan",
    "has_jvm_ended",
    "has_kafka_connector",
    "has_running_tasks",
    "has_tasks_at_work",
    "install_python",
    "kafka_group_rights",
    "kafka_partitions",
    "kafka_topic_rights",
    "lost_records",
    "malformed_in_all",
    "read_records",
    "recorded_lines",
    "refused_counts",
    "require_sizes",
    "resume",
    "running_stages",
    "runs_in_real_time",
    "save",
    "separate_reads",
    "stream_reads",
    "supports_own_sink",
    "uncontrolled",
    "unread_partitions",
    "with_data_loss",
    "with_lineage_headers",
    "with_trigger",
    "writer_frame",
    "writer_of",
    "writer_settings",
]
