"""The process of a pipeline in a chaos run: the user's pipeline, run as ``tailrace run`` does, until SIGTERM.

If the file ``finish`` exists, the process also processes what is left, and then runs the pipeline once more over the
same records, undisturbed. The outputs of that run follow in the same topics; events have the offsets.
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import log_ends, partition_counts
from tailrace.pipeline import KafkaSource, Mode, Pipeline

if TYPE_CHECKING:
    from tailrace.prepare.options import DeliveryName, RunOptions

STOP_TIMEOUT_S = 60
_PRIVATE = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


@dataclass(frozen=True)
class Settings:
    """What the process runs.

    Attributes:
        spec: The pipeline: ``file.py``, ``file.py:name`` or ``module:name``.
        source: The topic that it reads.
        outputs: The topics that it writes.
        bootstrap_servers: The broker.
        folder: The folder of checkpoints and events.
        mode: The mode.
        master: The Spark master.
        checkpoint_every: The checkpoint interval in real time.
        progress_every: How often progress is noted in real time.
        delivery: What a start after a crash writes again; None for the pipeline's own default.
        conf: Spark settings.
    """

    spec: str
    source: str
    outputs: tuple[str, ...]
    bootstrap_servers: str
    folder: str
    mode: str
    master: str | None
    checkpoint_every: str
    progress_every: str
    delivery: "DeliveryName | None"
    conf: Mapping[str, str]

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the pipeline."""
        return Path(self.folder) / "checkpoint"

    @property
    def finish(self) -> Path:
        """Exists if the run is to be finished."""
        return Path(self.folder) / "finish"

    def command(self, events: Path) -> list[str]:
        """Return the command line of the process."""
        return [sys.executable, "-m", "tailrace.chaos.pipeline_process", str(events), json.dumps(asdict(self))]


def on_private_broker(pipeline: Pipeline, source: str) -> Pipeline:
    """Return the pipeline as it runs on the private broker: all records of one topic, no login and no encryption."""
    first: KafkaSource = pipeline.sources[0]
    return replace(
        pipeline,
        source=replace(first, topics=source, pattern=None, starting="earliest", options=_without_login(first.options)),
        sink=replace(pipeline.sink, options=_without_login(pipeline.sink.options)),
    )


def _without_login(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if not key.lower().startswith(_PRIVATE)}


class Events:
    """Lines of JSON for the owner."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, event: str, **more: Any) -> None:
        """Write an event."""
        with self._file.open("a") as file:
            file.write(json.dumps({"event": event, "at": time.time(), **more}) + "\n")


def main() -> None:
    """Run the pipeline that the arguments describe."""
    from tailrace.spark_session import end_session

    events, given = Events(Path(sys.argv[1])), json.loads(sys.argv[2])
    settings = Settings(**{**given, "outputs": tuple(given["outputs"])})
    # A signal that comes before the query runs must end the process in order, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        _run(settings, events)
    except TailraceError as failed:
        sys.exit(f"error: {failed}\n{failed.detail}")
    finally:
        end_session()


def _run(settings: Settings, events: Events) -> None:
    from tailrace.prepare.loader import load_pipeline
    from tailrace.prepare.options import RunOptions
    from tailrace.running.run import run_query
    from tailrace.spark_session import prelaunch_jvm

    conf = {"spark.ui.enabled": "false", **settings.conf}
    prelaunch_jvm(conf, settings.master)
    pipeline = on_private_broker(load_pipeline(settings.spec), settings.source)
    options = RunOptions(
        settings.mode,  # type: ignore[arg-type]
        bootstrap_servers=settings.bootstrap_servers,
        checkpoint=settings.checkpoint,
        checkpoint_every=settings.checkpoint_every,
        progress_every=settings.progress_every,
        delivery=settings.delivery,
        master=settings.master,
        conf=conf,
        stop_timeout=f"{STOP_TIMEOUT_S}s",
    )
    if not settings.finish.exists():
        run_query(pipeline, options, announce=_say, on_start=lambda _: _tell_started(events))
    if settings.finish.exists():
        _finish(settings, events, pipeline, options)


def _tell_started(events: Events) -> None:
    from tailrace.spark_session import session

    events.add("running", driver_port=session().sparkContext.getConf().get("spark.driver.port"))


def _finish(settings: Settings, events: Events, pipeline: Pipeline, options: "RunOptions") -> None:
    """Process what is left, then run the pipeline over all records again."""
    from tailrace.running.run import run_query

    rest = replace(options, once=True)
    _, done = run_query(pipeline, rest, announce=_say)
    if not done:
        return  # SIGTERM
    events.add("finished", ends=_ends(settings))
    # A new folder: after an interruption the comparison starts over.
    fresh = tempfile.mkdtemp(prefix="undisturbed-", dir=settings.folder)
    events.add("comparing", ends=_ends(settings))
    _, done = run_query(pipeline, replace(rest, mode=Mode.MICROBATCH, checkpoint=fresh), announce=_say)
    if done:
        events.add("compared", ends=_ends(settings))


def _ends(settings: Settings) -> dict[str, dict[int, int]]:
    client = plain_client(settings.bootstrap_servers)
    return log_ends(client, partition_counts(client, settings.outputs))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
