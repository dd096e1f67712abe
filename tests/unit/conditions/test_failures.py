from pathlib import Path

import pytest

from tailrace.conditions.failures import translate_failure
from tailrace.errors import (
    AuthenticationFailed,
    CheckpointFormatOld,
    CheckpointUnwritable,
    DataLost,
    DeadLettersFailed,
    ExecutorLost,
    NotAuthorized,
    QueryFailed,
    QueryRefused,
    RecordMalformed,
    RecordTooLarge,
    SettingRefused,
    SlotsMissing,
    TailraceError,
    TlsFailed,
    TopicMissing,
    UserCodeFailed,
)
from tailrace.worker import failures

JAVA_FRAMES = """\
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:661)
\tat org.apache.spark.sql.execution.streaming.runtime.StreamExecution.runBatch(StreamExecution.scala:301)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
LIMITATION = "Streaming real-time mode has the following limitation:"


def python_failure(
    user_file: str = "/home/ann/jobs/fraud.py", error: str = "ZeroDivisionError: division by zero"
) -> str:
    """Return what Spark prints when a Python worker raised, with Java's own trace."""
    return f"""\
[STREAM_FAILED] Query [id = 0c5a, runId = 91be] terminated with exception: Job aborted due to stage failure: Task 0 in \
stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "{user_file}", line 9, in risk
    return amount / 0
           ~~~~~~~^~~
{error}

{JAVA_FRAMES}
Driver stacktrace: SQLSTATE: XXKST
org.apache.spark.SparkException: Job aborted due to stage failure
{JAVA_FRAMES}Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 2100, in main
    process()
  File "{user_file}", line 9, in risk
    return amount / 0
{error}

{JAVA_FRAMES}"""


def refusal(condition: str, sentence: str) -> str:
    line = f"[STREAMING_REAL_TIME_MODE.{condition}] {LIMITATION} {sentence} SQLSTATE: 0A000"
    return f"{line}\norg.apache.spark.sql.streaming.StreamingQueryException: {line}\n{JAVA_FRAMES}"


def not_allowed(operator: str) -> str:
    return refusal(
        "OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
        f"The operator(s): {operator} not in the operator allowlist for Real-Time Mode. To bypass this check, set "
        "spark.sql.streaming.realTimeMode.allowlistCheck to false. By changing this, you agree to run the query at "
        "your own risk.",
    )


PYTHON_OPERATOR = not_allowed("org.apache.spark.sql.execution.python.BatchEvalPythonExec")
SORT = not_allowed("org.apache.spark.sql.execution.SortExec")
SLOTS = (
    "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] Cannot run the pipelined stage group: it needs 6 concurrent task slots "
    "to run all its stages together, but only 4 are currently free. The stages of a pipelined group must run "
    "concurrently, so the cluster must have enough free slots for all of them at once. SQLSTATE: 53000\n" + JAVA_FRAMES
)
DISK = (
    "[STREAM_FAILED] Query terminated with exception: java.io.IOException: No space left on device SQLSTATE: XXKST\n"
    f"org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n{JAVA_FRAMES}"
    f"Caused by: java.io.IOException: No space left on device\n{JAVA_FRAMES}"
)
OLD_FORMAT = refusal("CHECKPOINT_FORMAT_V1_NOT_SUPPORTED", "Real-time mode does not support state store format v1.")
SETTING = refusal(
    "SQL_CONFIGURATION_NOT_SUPPORTED",
    "The following session configuration(s) are incompatible with Real-Time Mode: spark.speculation.",
)
OUTPUT_MODE = refusal("OUTPUT_MODE_NOT_SUPPORTED", "The output mode Complete is not supported.")
SINK = refusal("SINK_NOT_SUPPORTED", "The FileSink sink is currently not supported.")
OPTION = "java.lang.IllegalArgumentException: maxOffsetsPerTrigger is not compatible with real time mode"
TOPIC = (
    f"[STREAM_FAILED] Query terminated with exception: oops\n{JAVA_FRAMES}Caused by: org.apache.kafka.common.errors."
    f"UnknownTopicOrPartitionException: This server does not host this topic-partition.\n{JAVA_FRAMES}"
)
DATA_LOSS = f"[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost.\n{JAVA_FRAMES}"
RECREATED = (
    f"{JAVA_FRAMES}Caused by: org.apache.spark.sql.kafka010.tailrace.RecordsLostException: "
    f"TAILRACE_RECORDS_LOST recreated in payments: 4000 in partition 0, 3980 in partition 1.\n{JAVA_FRAMES}"
)
DELETED = "RecordsLostException: TAILRACE_RECORDS_LOST deleted in pay.ments-0: 5 to 99."
DIVERGENT = f"RecordsLostException: TAILRACE_RECORDS_LOST divergent in payments-0: 4 to 8.\n{JAVA_FRAMES}"
REFUSED_OFFSET = f"RecordsLostException: TAILRACE_RECORDS_LOST refused in payments-0: 9.\n{JAVA_FRAMES}"
MISSING = (
    f"[STREAM_FAILED] oops\n{JAVA_FRAMES}Caused by: org.apache.spark.sql.kafka010.tailrace.TopicsMissingException: "
    f"TAILRACE_TOPICS_MISSING pay.ments, re-funds.\n{JAVA_FRAMES}Caused by: org.apache.kafka.common.errors."
    f"UnknownTopicOrPartitionException: This server does not host this topic-partition.\n{JAVA_FRAMES}"
)
OFFSET_GONE = (
    "java.lang.IllegalStateException: Cannot fetch records in [2, 41) (GroupId: a, TopicPartition: payments-0). \n"
    "Some data may have been lost because they are not available in Kafka any more"
)
UNKNOWN = (
    f"[STREAM_FAILED] Query [id = 0c5a] terminated with exception: outer words SQLSTATE: XXKST\n"
    f"org.apache.spark.SparkException: outer words\n{JAVA_FRAMES}"
    f"Caused by: java.lang.RuntimeException: middle words\n{JAVA_FRAMES}"
    "Caused by: org.apache.spark.SparkRuntimeException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n"
    f"{JAVA_FRAMES}"
)


def stage_failure(cause: str, trace: str = JAVA_FRAMES) -> str:
    """Return what Spark prints when a task failed: a sentence, then the chain of causes."""
    line = (
        "Job aborted due to stage failure: Task 0 in stage 17.0 failed 1 times, most recent failure: Lost task 0.0 in "
        f"stage 17.0 (TID 28) (localhost executor driver): {cause}\n{trace}"
    )
    return (
        f"{line}\nDriver stacktrace:\n=== Streaming Query ===\nIdentifier: fraud [id = b52e, runId = aad4]\n"
        f"Current Committed Offsets: {{}}\n\nLogical Plan:\nWriteToMicroBatchDataSource KafkaTable\n"
        "+- ~Project [value#908, static_invoke(LineageHeaders.of(null, __tailrace_topic#902)) AS headers#909]\n\n"
        f"org.apache.spark.sql.streaming.StreamingQueryException: {line}\nDriver stacktrace:\n{JAVA_FRAMES}"
        f"Caused by: org.apache.spark.SparkException: {line}\nDriver stacktrace:\n\t... 1 more\n"
        f"Caused by: {cause}\n{trace}"
    )


MALFORMED = stage_failure(
    "org.apache.spark.sql.tailrace.RecordMalformedException: record payments-0@19 is malformed: not_json: Unexpected "
    "character ('o' (code 111)): was expecting double-quote to start field name"
)
DEAD_LETTERS = stage_failure(
    "org.apache.spark.sql.tailrace.DeadLettersFailedException: dead letters could not be written to fraud.dead-letters",
    f"{JAVA_FRAMES}Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access "
    f"topics: [fraud.dead-letters]\n{JAVA_FRAMES}",
)
# When the broker refuses the last letters, a task's listeners report only a suppressed exception.
DEAD_LETTERS_AT_THE_END = stage_failure(
    "org.apache.spark.util.TaskCompletionListenerException: dead letters could not be written to fraud.dead-letters",
    f"{JAVA_FRAMES}\tSuppressed: org.apache.spark.sql.tailrace.DeadLettersFailedException: dead letters could not be "
    "written to fraud.dead-letters\n\t\tat org.apache.spark.sql.tailrace.DeadLetters.raiseIfFailed(DeadLetters.scala)\n"
    "\t\t... 12 more\n\tCaused by: org.apache.kafka.common.errors.RecordTooLargeException: The message is 2379 bytes "
    "when serialized which is larger than 600, which is the value of the max.request.size configuration.\n",
)
NULL_TOPIC = (
    "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a default "
    f"topic.\n=== Streaming Query ===\n{JAVA_FRAMES}"
    "Caused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: The Kafka message data sent to the producer "
    f"contains a null topic. Use the `topic` option for setting a default topic.\n{JAVA_FRAMES}"
)
TOPIC_UNKNOWN = stage_failure(
    "org.apache.kafka.common.errors.TimeoutException: Topic audit-eu not present in metadata after 60000 ms.",
    "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
    "topic-partition.\n",
)

FUNCTION = (
    "Job aborted due to stage failure: Task 1 in stage 1.0 failed 1 times, most recent failure: Lost task 1.0: "
    "org.apache.spark.sql.execution.python.tailrace.FunctionFailedException: Python function risk failed on record "
    "payments-1@17: ValueError: no (fraud.py line 9)\nTraceback (most recent call last):\n"
    '  File "/home/ann/jobs/fraud.py", line 9, in risk\n    raise ValueError("no")\nValueError: no\n\n'
    "\tat org.apache.spark.sql.execution.python.tailrace.FailedRecords.handle(FailedRecords.scala:47)\n"
)
HUNG = (
    "org.apache.spark.sql.execution.python.tailrace.FunctionFailedException: Python function risk, score failed: "
    "TimeoutError: it took longer than 2.0 s, and its worker was ended\n\n\tat org.apache.spark.X.y(Z.scala:1)\n"
)
WORKERS = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.python.worker.faulthandler.enabled'\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)\n"
)

CASES: list[tuple[str, type[TailraceError]]] = [
    (FUNCTION, UserCodeFailed),
    (HUNG, UserCodeFailed),
    (WORKERS, UserCodeFailed),
    (python_failure(), UserCodeFailed),
    (PYTHON_OPERATOR, QueryRefused),
    (SORT, QueryRefused),
    (SLOTS, SlotsMissing),
    (DISK, CheckpointUnwritable),
    (OLD_FORMAT, CheckpointFormatOld),
    (SETTING, SettingRefused),
    (OUTPUT_MODE, QueryRefused),
    (SINK, QueryRefused),
    (TOPIC, TopicMissing),
    (DATA_LOSS, DataLost),
    (RECREATED, DataLost),
    (DELETED, DataLost),
    (DIVERGENT, DataLost),
    (REFUSED_OFFSET, DataLost),
    (MISSING, TopicMissing),
    (OFFSET_GONE, DataLost),
    (UNKNOWN, QueryFailed),
    (MALFORMED, RecordMalformed),
    (DEAD_LETTERS, DeadLettersFailed),
    (DEAD_LETTERS_AT_THE_END, DeadLettersFailed),
    (NULL_TOPIC, QueryFailed),
    (TOPIC_UNKNOWN, TopicMissing),
    ("", QueryFailed),
]


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_each_failure_is_of_its_class_in_one_line_with_the_whole_text_kept(
    text: str, kind: type[TailraceError]
) -> None:
    error = translate_failure("fraud", text)
    assert type(error) is kind
    assert "'fraud'" in error.what
    assert error.fix
    assert error.detail == text
    for shown in (error.what, error.why, error.fix):
        assert len(shown.splitlines()) <= 1
        assert not any(
            trace in shown for trace in ("\tat ", "Traceback", "org.apache", "java.lang", "SQLSTATE", ".scala:")
        )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (SORT, "OPERATOR_REFUSED"),
        (PYTHON_OPERATOR, "PYTHON_FUNCTION"),
        (SINK, "SINK_REFUSED"),
        (OUTPUT_MODE, "OUTPUT_MODE_REFUSED"),
        (SLOTS, "SLOTS_MISSING"),
        (UNKNOWN, "QUERY_FAILED"),
    ],
)
def test_a_failure_has_the_code_that_a_check_would_report(text: str, code: str) -> None:
    error = translate_failure("fraud", text)
    assert error.code == code
    assert f"[{code}]" in str(error)


def test_the_code_of_one_error_leaves_its_class_as_it_is() -> None:
    translate_failure("fraud", SORT)
    assert QueryRefused.code == "QUERY_REFUSED"


def test_a_python_exception_is_reported_with_the_users_line() -> None:
    error = translate_failure("fraud", python_failure())
    assert error.what == (
        "a Python function of query 'fraud' raised an exception at /home/ann/jobs/fraud.py line 9 in risk: "
        "ZeroDivisionError: division by zero"
    )


def test_a_function_that_failed_on_a_record_names_both() -> None:
    assert translate_failure("fraud", FUNCTION).what == (
        "function risk of query 'fraud' failed on record payments-1@17 at /home/ann/jobs/fraud.py line 9 in risk: "
        "ValueError: no"
    )
    assert translate_failure("fraud", HUNG).what == (
        "function risk, score of query 'fraud' failed: "
        "TimeoutError: it took longer than 2.0 s, and its worker was ended"
    )


def test_the_users_own_exception_class_is_reported() -> None:
    error = translate_failure("fraud", python_failure(error="fraud.rules.TooRisky: 17 is too much"))
    assert error.what.endswith(": fraud.rules.TooRisky: 17 is too much")


def test_a_users_folder_may_be_called_after_pyspark() -> None:
    error = translate_failure("fraud", python_failure("/home/ann/pyspark-jobs/fraud.py"))
    assert "at /home/ann/pyspark-jobs/fraud.py line 9 in risk" in error.what


def test_a_message_of_several_lines_begins_with_its_exception() -> None:
    error = translate_failure("fraud", python_failure(error="ValueError: no rate\nhint: ask the bank"))
    assert "ValueError: no rate" in error.what


def test_a_python_function_in_real_time_is_refused_in_the_users_words() -> None:
    error = translate_failure("fraud", PYTHON_OPERATOR)
    assert error.what == "query 'fraud': a Python function cannot run in real time"
    assert "BatchEvalPython" not in str(error)


def test_microbatch_is_advised_only_for_a_query_that_runs_there() -> None:
    texts = [*(text for text, _ in CASES), OPTION]
    assert [text for text in texts if "microbatch" in translate_failure("fraud", text).fix] == []
    advised = [text for text in texts if "microbatch" in translate_failure("fraud", text, runs_in_microbatch=True).fix]
    assert advised == [PYTHON_OPERATOR, SORT, SLOTS, OLD_FORMAT, SETTING, OUTPUT_MODE, SINK, OPTION]


def test_an_operator_is_reported_as_the_users_operation_with_its_rewrite() -> None:
    error = translate_failure("fraud", SORT)
    assert error.what == "query 'fraud': a sort cannot run in real time"
    assert error.why == "Spark refuses its operator Sort in this mode"
    assert error.fix == "sort where the results are read"


def test_several_operators_of_one_operation_are_reported_once() -> None:
    package = "org.apache.spark.sql.execution"
    text = not_allowed(f"{package}.aggregate.HashAggregateExec, {package}.aggregate.MergingSessionsExec are")
    assert translate_failure("fraud", text).what == "query 'fraud': a session window cannot run in real time"


def test_an_unknown_operator_is_reported_by_its_own_name() -> None:
    error = translate_failure("fraud", not_allowed("org.apache.spark.sql.execution.NeverHeardOfExec"))
    assert error.what == "query 'fraud': the operation NeverHeardOf cannot run in real time"


@pytest.mark.parametrize(
    ("text", "sink"),
    [
        (SINK, "FileSink"),
        (not_allowed("").replace("The operator(s): ", "The sink(s): org.apache.spark.sql.MemorySink is"), "MemorySink"),
    ],
)
def test_a_sink_is_named_without_its_package(text: str, sink: str) -> None:
    assert translate_failure("fraud", text).what == f"query 'fraud': the sink '{sink}' cannot be written in real time"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (OUTPUT_MODE, "the output mode Complete cannot run in real time"),
        (SETTING, "spark.speculation cannot work in real time"),
        (
            refusal(
                "INPUT_STREAM_NOT_SUPPORTED", "The input stream a.b.RateStream is not supported in Real-time Mode."
            ),
            "the source RateStream cannot be read in real time",
        ),
        (
            refusal("IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED", "Real-time mode does not support union on them."),
            "a union of a source with itself cannot run in real time",
        ),
        (
            "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query.",
            "the checkpoint has 1 source and the query has 2 sources",
        ),
        (
            "Sorting is not supported on streaming DataFrames/Datasets, unless it is in Complete output mode;\nSort",
            "a sort cannot run on a stream",
        ),
        (
            "[NEW_RULE] Zipping is not supported on streaming DataFrames. SQLSTATE: 0A000",
            "refused by Spark: Zipping is not supported on streaming DataFrames",
        ),
    ],
)
def test_a_failure_has_the_sentence_of_the_check(text: str, what: str) -> None:
    assert translate_failure("fraud", f"{text}\n{JAVA_FRAMES}").what == f"query 'fraud': {what}"


def test_no_refusal_offers_to_switch_the_check_off() -> None:
    for text in (PYTHON_OPERATOR, SORT):
        assert "allowlistCheck" not in translate_failure("fraud", text).fix


def test_missing_slots_are_counted() -> None:
    assert translate_failure("fraud", SLOTS).what == "query 'fraud': real time needs 6 task slots and Spark has 4 free"


def test_missing_slots_without_numbers_are_reported_too() -> None:
    error = translate_failure("fraud", "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] changed words")
    assert error.what == "query 'fraud': real time needs more task slots than Spark has free"


def test_an_unknown_failure_gives_the_innermost_reason_without_class_names() -> None:
    assert translate_failure("fraud", UNKNOWN).why == "Division by zero."


def test_an_unknown_failure_without_causes_gives_its_first_line() -> None:
    error = translate_failure("fraud", "\n  java.lang.IllegalStateException: it is broken\n" + JAVA_FRAMES)
    assert error.why == "it is broken"


def test_a_failure_without_text_has_a_reason() -> None:
    assert translate_failure("fraud", "").why == "Spark gave no reason"


def test_an_option_that_real_time_refuses_is_named() -> None:
    text = (
        "java.lang.IllegalArgumentException: maxOffsetsPerTrigger is not compatible with real time mode\n" + JAVA_FRAMES
    )
    error = translate_failure("fraud", text)
    assert type(error) is QueryRefused
    assert "maxOffsetsPerTrigger" in error.what
    assert "maxOffsetsPerTrigger" in error.fix


def test_a_malformed_record_is_reported_with_its_offset_and_problem() -> None:
    error = translate_failure("fraud", MALFORMED)
    assert error.what == "query 'fraud' ended: record payments-0@19 is malformed"
    assert error.why == (
        "not_json: Unexpected character ('o' (code 111)): was expecting double-quote to start field name"
    )
    assert "malformed='dead-letter'" in error.fix


def test_dead_letters_that_could_not_be_written_are_reported_with_topic_and_reason() -> None:
    error = translate_failure("fraud", DEAD_LETTERS)
    assert error.what == "query 'fraud' ended because its dead letters could not be written to fraud.dead-letters"
    assert error.why == "Not authorized to access topics: [fraud.dead-letters]"
    assert "no record is lost" in error.fix


def test_dead_letters_refused_at_the_end_of_a_task_are_reported_with_the_reason_too() -> None:
    error = translate_failure("fraud", DEAD_LETTERS_AT_THE_END)
    assert error.what.endswith("could not be written to fraud.dead-letters")
    assert error.why.startswith("The message is 2379 bytes when serialized which is larger than 600")


def test_dead_letters_whose_topic_is_gone_are_still_about_dead_letters() -> None:
    gone = "Topic fraud.dead-letters not present in metadata after 60000 ms."
    text = stage_failure(
        "org.apache.spark.sql.tailrace.DeadLettersFailedException: dead letters could not be written to "
        "fraud.dead-letters",
        f"{JAVA_FRAMES}Caused by: org.apache.kafka.common.errors.TimeoutException: {gone}\n",
    )
    error = translate_failure("fraud", text)
    assert type(error) is DeadLettersFailed
    assert error.why == gone


def test_a_row_without_a_topic_is_reported_with_both_fixes() -> None:
    error = translate_failure("fraud", NULL_TOPIC)
    assert error.what == "a row of query 'fraud' has no topic: its topic column is null"
    assert "topic_column=" in error.fix


def test_a_row_without_a_topic_is_recognised_in_the_text_of_older_connectors_too() -> None:
    text = "null topic present in the data. Use the topic option for setting a default topic.\n" + JAVA_FRAMES
    assert translate_failure("fraud", text).what == translate_failure("fraud", NULL_TOPIC).what


def test_a_missing_topic_of_a_row_is_reported_by_its_name() -> None:
    error = translate_failure("fraud", TOPIC_UNKNOWN)
    assert error.what == "query 'fraud' has a row for topic 'audit-eu', which does not exist"
    assert "tailrace broker topic audit-eu" in error.fix
    assert "topic column" in error.fix


def test_the_users_own_exception_comes_before_what_it_says() -> None:
    error = translate_failure("fraud", python_failure(error="ValueError: record a-0@1 is malformed: by my own rules"))
    assert type(error) is UserCodeFailed


@pytest.mark.parametrize(
    ("exception", "kind", "why"),
    [
        ("SaslAuthenticationException: Authentication failed: bad", AuthenticationFailed, "Authentication failed: bad"),
        ("SslAuthenticationException: SSL handshake failed", TlsFailed, "SSL handshake failed"),
        ("TopicAuthorizationException: Not authorized to access topics: [pay]", NotAuthorized, "topics: [pay]"),
        ("GroupAuthorizationException: Not authorized to access group: g", NotAuthorized, "group: g"),
        ("ClusterAuthorizationException: Cluster authorization failed.", NotAuthorized, "Cluster authorization failed"),
    ],
)
def test_what_the_broker_refuses_during_a_run_has_its_own_class(
    exception: str, kind: type[TailraceError], why: str
) -> None:
    cause = f"Caused by: org.apache.kafka.common.errors.{exception}\n"
    text = stage_failure("java.util.concurrent.ExecutionException: it failed", f"{JAVA_FRAMES}{cause}")
    error = translate_failure("fraud", text)
    assert type(error) is kind
    assert "'fraud'" in error.what
    assert why in error.why
    assert "Exception" not in error.why
    assert error.detail == text


def test_a_line_of_tailrace_is_never_blamed() -> None:
    own = Path(failures.__file__)
    text = f"""\
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 2100, in main
    process()
  File "{own.with_name("columns.py")}", line 133, in _failed
    raise FunctionFailed.by(each.name, each.function, raised) from None
tailrace.worker.failures.FunctionFailed: pyspark.errors.PySparkRuntimeError: [RESULT_ROWS_MISMATCH] wrong
{JAVA_FRAMES}"""
    what = translate_failure("fraud", text).what
    assert what == (
        "a Python function of query 'fraud' raised an exception: "
        "pyspark.errors.PySparkRuntimeError: [RESULT_ROWS_MISMATCH] wrong"
    )


def too_large(cause: str) -> str:
    return f"org.apache.spark.SparkException: Job aborted\nCaused by: {cause}\n\tat somewhere\n"


MEASURED = too_large(
    "org.apache.spark.sql.tailrace.ResultTooLargeException: the result of record payments-0@17 for topic decisions has "
    "2000123 bytes, more than max.request.size=1048576"
)


def test_a_result_that_is_too_large_is_reported_with_record_size_and_setting() -> None:
    error = translate_failure("fraud", MEASURED)
    assert isinstance(error, RecordTooLarge)
    assert error.what == "query 'fraud': the result of record payments-0@17 is too large for topic 'decisions'"
    assert error.why == "it has 2,000,123 bytes, and the producer's max.request.size is 1,048,576"
    assert "'kafka.max.request.size': '2000123'" in error.fix
    assert "--entity-name decisions --add-config max.message.bytes=2000123" in error.fix


def test_a_result_of_an_unknown_record_that_is_too_large_for_its_topic() -> None:
    text = MEASURED.replace("the result of record payments-0@17", "a result").replace("request.size", "message.bytes")
    error = translate_failure("fraud", text)
    assert error.what == "query 'fraud': a result is too large for topic 'decisions'"
    assert "the topic's max.message.bytes is 1,048,576" in error.why
    assert "kafka.max.request.size" not in error.fix


REFUSED = "org.apache.kafka.common.errors.RecordTooLargeException: "


def test_a_result_that_the_producer_refused_is_reported_with_its_size() -> None:
    text = too_large(
        REFUSED
        + "The message is 2000000 bytes when serialized which is larger than 1048576, which is the value of the "
        "max.request.size configuration."
    )
    error = translate_failure("fraud", text, "decisions")
    assert isinstance(error, RecordTooLarge)
    assert error.what == "query 'fraud': a result is too large for topic 'decisions'"
    assert error.why == "it has 2,000,000 bytes, and the producer's max.request.size is 1,048,576"
    assert "set the sink's option kafka.max.request.size to 2000000 " in error.fix, (
        "also right for the user's own writer"
    )
    assert "--entity-name decisions --add-config max.message.bytes=2000000" in error.fix


def test_a_result_that_is_larger_than_the_producers_buffer_is_reported_with_its_size() -> None:
    text = too_large(
        REFUSED + "The message is 40000000 bytes when serialized which is larger than the total memory buffer you have "
        "configured with the buffer.memory configuration."
    )
    error = translate_failure("fraud", text, "decisions")
    assert isinstance(error, RecordTooLarge)
    assert error.why == "it has 40,000,000 bytes, more than the producer's buffer.memory"
    assert "kafka.buffer.memory" in error.fix


@pytest.mark.parametrize(("topic", "named"), [("decisions", "topic 'decisions'"), ("", "its topic")])
def test_a_result_that_the_broker_refused_is_reported_with_the_topic_and_its_setting(topic: str, named: str) -> None:
    text = too_large(
        REFUSED + "The request included a message larger than the max message size the server will accept."
    )
    error = translate_failure("fraud", text, topic)
    assert isinstance(error, RecordTooLarge)
    assert error.what == f"query 'fraud': a result is too large for {named}"
    assert "max.message.bytes" in error.why
    assert "max.message.bytes" in error.fix


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        (
            RECREATED,
            "query 'fraud': topic 'payments' was deleted and created again",
            "4000 in partition 0, 3980 in partition 1",
        ),
        (DELETED, "query 'fraud': pay.ments-0 has deleted records that the query had not read", "5 to 99"),
        (OFFSET_GONE, "payments-0 no longer has records that query 'fraud' has not read", "retention"),
    ],
)
def test_records_that_are_gone_are_reported_with_their_topic(text: str, what: str, why: str) -> None:
    error = translate_failure("fraud", text)
    assert error.what == what
    assert why in error.why
    assert error.fix.endswith("start it with --on-data-loss warn (on_data_loss='warn')")


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (DIVERGENT, "query 'fraud': payments-0 has other records now than those that the query has read", "without"),
        (REFUSED_OFFSET, "query 'fraud': payments-0 cannot be read at the query's position", "replicas"),
        (MISSING, "query 'fraud' reads a topic that no longer exists: pay.ments, re-funds", "--on-data-loss warn"),
    ],
)
def test_what_brokers_lost_is_reported_with_what_to_do(text: str, what: str, fix: str) -> None:
    error = translate_failure("fraud", text)
    assert error.what == what
    assert fix in error.fix


def test_a_lost_executor_is_named_with_its_exit_code() -> None:
    error = translate_failure(
        "fraud",
        "[STREAM_FAILED] Query [id = 0c5a, runId = 91be] terminated with exception: Job aborted due to stage failure: "
        "Task 0 in stage 25.0 failed 1 times, most recent failure: Lost task 0.0 in stage 25.0 (TID 52) (127.0.0.1 "
        "executor 0): ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command "
        "exited with code 137\n"
        f"Driver stacktrace:\n{JAVA_FRAMES}",
    )
    assert isinstance(error, ExecutorLost)
    assert error.what == "query 'fraud' lost an executor of its cluster"
    assert error.why == "executor 0 ended: Command exited with code 137"
    assert "start the query again" in error.fix
