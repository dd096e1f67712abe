"""Every error that Tailrace raises.

An error says what happened, why, and how to fix it. Its class is the contract: catch it, test for it. Its ``code`` is
stable for log searches. Its wording may change at any time.

* TailraceError
  x ToolchainError          the machine lacks something
    + JavaMissing           + JavaUnusable
    + JarMissing            + JarCorrupt          + JarLockInvalid
    + VersionUnsupported    + EngineMissing       + EngineBuildFailed
    + EngineMismatch
  x KafkaError              the broker or its topics
    + BrokerUnreachable     + BrokerStartFailed   + BrokerNotRunning
    + BrokerAlreadyRunning  + BrokerUnnamed       + PortTaken
    + TopicMissing          + TopicExists         + TlsFailed
    + AuthenticationFailed  + NotAuthorized
  x ClusterError            the Spark cluster
    + ClusterStartFailed    + ClusterNotRunning   + ClusterAlreadyRunning
    + ClusterUnreachable
  x DefinitionError         the pipeline as written
    + PipelineNotFound      + SchemaInvalid       + SchemaMismatch
    + ColumnMissing         + OptionRefused       + DurationInvalid
    + UserCodeFailed
  x SettingRefused          a Spark setting that cannot work
  x DeliveryRefused         results that may be repeated
  x SlotsMissing            more tasks at once than task slots
  x CheckpointError         the checkpoint folder
    + CheckpointUnwritable  + CheckpointInUse     + CheckpointForeign
    + CheckpointFormatOld   + CheckpointOutgrown  + CheckpointTimeout
  x QueryRefused            Spark will not run this query in this mode
  x QueryFailed             the query ended with an error
    + RecordMalformed       + RecordTooLarge      + DeadLettersFailed
    + PartitionsStarved     + DataLost            + ExecutorLost
    + RecoveryFailed
  x MeasurementFailed       a load or a probe could not do its work
    + LaneUnavailable
"""

from typing import ClassVar


class TailraceError(Exception):
    """The root of all errors: what happened, why, and how to fix it.

    ``detail`` contains what only ``--verbose`` shows, such as a stack trace.
    """

    code: str = "TAILRACE_ERROR"
    """The code of the class; if a check refuses a query, the code of its finding."""
    exit_code: ClassVar[int] = 1
    """1: the pipeline was refused or failed. 2: the command is invalid, or what it needs is missing or refused."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", detail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.detail = detail

    def __str__(self) -> str:
        lines = [f"{self.what} [{self.code}]"]
        if self.why:
            lines.append(f"why: {self.why}")
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return "\n".join(lines)


REINSTALL = "reinstall Tailrace: pip install --force-reinstall --no-deps tailrace"
"""The fix if the installation is incomplete."""


NAME_FIX = "use letters, digits, dots, dashes and underscores"
"""The fix if a name has other characters."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class ToolchainError(TailraceError):
    """Something this machine needs to run Spark or Kafka is missing or broken."""

    code = "TOOLCHAIN_ERROR"
    exit_code = 2


class JavaMissing(ToolchainError):
    """This machine has no usable Java, and the download failed."""

    code = "JAVA_MISSING"


class JavaUnusable(ToolchainError):
    """The configured Java does not run, or Spark does not support its version."""

    code = "JAVA_UNUSABLE"


class JarMissing(ToolchainError):
    """A jar is not in the cache, and its download failed."""

    code = "JAR_MISSING"


class JarCorrupt(ToolchainError):
    """A jar's checksum differs from the lock file."""

    code = "JAR_CORRUPT"


class JarLockInvalid(ToolchainError):
    """The jar lock file is unreadable or invalid."""

    code = "JAR_LOCK_INVALID"


class VersionUnsupported(ToolchainError):
    """Tailrace does not support the installed PySpark version."""

    code = "VERSION_UNSUPPORTED"


class EngineMissing(ToolchainError):
    """The engine's jar is not in the package, or the running Spark was started without it."""

    code = "ENGINE_MISSING"


class EngineBuildFailed(ToolchainError):
    """The engine's sources could not be compiled."""

    code = "ENGINE_BUILD_FAILED"


class EngineMismatch(ToolchainError):
    """The running Spark has the engine of another version of Tailrace."""

    code = "ENGINE_MISMATCH"


class KafkaError(TailraceError):
    """The broker or its topics are not as the pipeline needs them."""

    code = "KAFKA_ERROR"
    exit_code = 2


class BrokerUnreachable(KafkaError):
    """No Kafka broker responded at the given address."""

    code = "BROKER_UNREACHABLE"


class TlsFailed(KafkaError):
    """Client and broker could not agree on a TLS connection."""

    code = "TLS_FAILED"


class AuthenticationFailed(KafkaError):
    """The broker refused the login of the pipeline's source or sink."""

    code = "AUTHENTICATION_FAILED"


class NotAuthorized(KafkaError):
    """The pipeline's Kafka user lacks a permission (ACL) that the pipeline needs."""

    code = "NOT_AUTHORIZED"


class BrokerStartFailed(KafkaError):
    """The development broker ended during its start, or was not ready in time."""

    code = "BROKER_START_FAILED"


class BrokerNotRunning(KafkaError):
    """No development broker with this name is running."""

    code = "BROKER_NOT_RUNNING"


class BrokerAlreadyRunning(KafkaError):
    """A development broker with this name is running with other settings."""

    code = "BROKER_ALREADY_RUNNING"


class BrokerUnnamed(KafkaError):
    """No broker address was given and none could be inferred."""

    code = "BROKER_UNNAMED"


class PortTaken(KafkaError):
    """Another process listens on the port that the broker should use."""

    code = "PORT_TAKEN"


class TopicMissing(KafkaError):
    """A topic that the pipeline reads or writes does not exist."""

    code = "TOPIC_MISSING"


class TopicExists(KafkaError):
    """The topic to create exists with another number of partitions."""

    code = "TOPIC_EXISTS"


class ClusterError(TailraceError):
    """The Spark cluster cannot be started, stopped or used."""

    code = "CLUSTER_ERROR"
    exit_code = 2


class ClusterStartFailed(ClusterError):
    """The development cluster could not be started, or was not ready in time."""

    code = "CLUSTER_START_FAILED"


class ClusterNotRunning(ClusterError):
    """No development cluster with this name is running."""

    code = "CLUSTER_NOT_RUNNING"


class ClusterAlreadyRunning(ClusterError):
    """A development cluster with this name is running with other settings."""

    code = "CLUSTER_ALREADY_RUNNING"


class ClusterUnreachable(ClusterError):
    """No Spark master responded at the given address."""

    code = "CLUSTER_UNREACHABLE"


class DefinitionError(TailraceError):
    """The pipeline, as written, cannot be run."""

    code = "DEFINITION_ERROR"


class PipelineNotFound(DefinitionError):
    """The given file or module has no such pipeline."""

    code = "PIPELINE_NOT_FOUND"
    exit_code = 2


class SchemaInvalid(DefinitionError):
    """The schema of a source is invalid."""

    code = "SCHEMA_INVALID"


class SchemaMismatch(DefinitionError):
    """The records in a topic have nothing in common with the schema of the source."""

    code = "SCHEMA_MISMATCH"


class ColumnMissing(DefinitionError):
    """A column that the sink needs is not in the result of the user's function."""

    code = "COLUMN_MISSING"


class OptionRefused(DefinitionError):
    """An option is invalid, or cannot be combined with the others."""

    code = "OPTION_REFUSED"
    exit_code = 2


class DurationInvalid(DefinitionError):
    """A duration is invalid, or outside the range that Spark accepts."""

    code = "DURATION_INVALID"
    exit_code = 2


class UserCodeFailed(DefinitionError):
    """The user's own Python code raised an exception."""

    code = "USER_CODE_FAILED"


class SettingRefused(TailraceError):
    """A Spark setting cannot work with this query, or differs from the running Spark's."""

    code = "SETTING_REFUSED"
    exit_code = 2


class DeliveryRefused(TailraceError):
    """Results of this query may be repeated, and it was started with ``delivery="effectively-once"``."""

    code = "DELIVERY_REFUSED"
    exit_code = 2


class SlotsMissing(TailraceError):
    """The query needs more tasks at the same time than Spark has task slots."""

    code = "SLOTS_MISSING"


class CheckpointError(TailraceError):
    """The checkpoint folder cannot be used."""

    code = "CHECKPOINT_ERROR"


class CheckpointUnwritable(CheckpointError):
    """The checkpoint folder cannot be created or written."""

    code = "CHECKPOINT_UNWRITABLE"


class CheckpointInUse(CheckpointError):
    """Another process uses this checkpoint."""

    code = "CHECKPOINT_IN_USE"


class CheckpointForeign(CheckpointError):
    """The checkpoint belongs to another query."""

    code = "CHECKPOINT_FOREIGN"


class CheckpointFormatOld(CheckpointError):
    """The checkpoint was written in a format that real time cannot continue."""

    code = "CHECKPOINT_FORMAT_OLD"


class CheckpointOutgrown(CheckpointError):
    """The query has changed too much to continue from its checkpoint."""

    code = "CHECKPOINT_OUTGROWN"


class CheckpointTimeout(CheckpointError):
    """A checkpoint on request was not written in time."""

    code = "CHECKPOINT_TIMEOUT"


class QueryRefused(TailraceError):
    """Spark will not run this query in this mode."""

    code = "QUERY_REFUSED"


class QueryFailed(TailraceError):
    """The query ended with an error while it ran."""

    code = "QUERY_FAILED"


class RecordMalformed(QueryFailed):
    """A record could not be read, and the pipeline has ``malformed='fail'``."""

    code = "RECORD_MALFORMED"


class RecordTooLarge(QueryFailed):
    """A result is larger than the producer or the sink topic accepts."""

    code = "RECORD_TOO_LARGE"


class DeadLettersFailed(QueryFailed):
    """Dead letters could not be written, so the query ended rather than lose them."""

    code = "DEAD_LETTERS_FAILED"


class PartitionsStarved(QueryFailed):
    """A running real-time query leaves partitions unread."""

    code = "PARTITIONS_STARVED"


class DataLost(QueryFailed):
    """Records that the query has not read are gone: their topic was deleted and created again, or it deleted them."""

    code = "DATA_LOST"


class ExecutorLost(QueryFailed):
    """An executor of the cluster ended, and Spark did not run its tasks again."""

    code = "EXECUTOR_LOST"


class RecoveryFailed(QueryFailed):
    """A pipeline in a chaos run did not start, or wrote nothing new after a fault."""

    code = "RECOVERY_FAILED"


class MeasurementFailed(TailraceError):
    """A load generator or a latency probe failed, so there is no valid measurement."""

    code = "MEASUREMENT_FAILED"


class LaneUnavailable(MeasurementFailed):
    """An engine that a benchmark lane needs could not be set up on this machine."""

    code = "LANE_UNAVAILABLE"
