"""The works of a benchmark on Quix Streams. Runs in its own environment, without Tailrace.

Arguments are ``key=value``, by the names of the application's parameters; see ``settings`` of the lane.
"""

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from quixstreams import Application, State  # type: ignore[import-not-found]

_PR_SET_PDEATHSIG = 1
"""Linux's prctl option that asks the kernel for a signal when the parent thread ends."""

Row = dict[str, Any]


def doubled(row: Row) -> Row:
    """Compute the stateless work."""
    return {"id": row["id"], "sent_ns": row["sent_ns"], "key": row["key"], "doubled": row["amount"] * 2}


def scored(row: Row) -> Row:
    """Compute the work ``python``."""
    score = min(1.0, math.log1p(row["amount"]) / 10)
    return {"id": row["id"], "sent_ns": row["sent_ns"], "key": row["key"], "score": score}


def added(row: Row, state: State) -> Row:
    """Compute the keyed aggregate."""
    count, total = state.get("totals", (0, 0.0))
    count, total = count + 1, total + row["amount"]
    state.set("totals", (count, total))
    return {"id": row["id"], "sent_ns": row["sent_ns"], "key": row["key"], "count": count, "total": total}


def below(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Return the arguments below a prefix, without the prefix."""
    return {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}


def run(given: dict[str, str], number: int) -> None:
    """Run the application of one process until SIGTERM."""
    optional = {"commit_interval": float(given["commit_interval"])} if "commit_interval" in given else {}
    application = Application(
        broker_address=given["broker_address"],
        consumer_group=given["consumer_group"],
        auto_offset_reset=given["auto_offset_reset"],
        processing_guarantee=given["processing_guarantee"],
        consumer_extra_config=below(given, "consumer_extra_config."),
        producer_extra_config=below(given, "producer_extra_config."),
        # A folder each: while partitions move from one process to another, both may have a partition's state open.
        state_dir=f"{given['state_dir']}-{number}",
        **optional,
    )
    source = application.topic(given["source"], value_deserializer="json", key_deserializer="str")
    sink = application.topic(given["sink"], value_serializer="json", key_serializer="str")
    frame = application.dataframe(source)
    if given["work"] == "aggregate":
        frame = frame.apply(added, stateful=True)
    else:
        frame = frame.filter(lambda row: row["amount"] >= 0)
        frame = frame.apply(doubled if given["work"] == "stateless" else scored)
    frame.to_topic(sink)
    application.run()


def watch(other: "subprocess.Popen[bytes]") -> None:
    """End this process when another one of the application ends: an incomplete application would look slow."""
    other.wait()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Run as many processes as asked; end all when one ends."""
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    number = int(given.get("number", "0"))
    if number:
        # If the first process does not end in time, it is killed; the others must end with it.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        run(given, number)
        return 0
    others = [
        subprocess.Popen([sys.executable, "-I", __file__, *sys.argv[1:], f"number={other}"])
        for other in range(1, int(given["processes"]))
    ]
    for other in others:
        threading.Thread(target=watch, args=(other,), daemon=True).start()
    try:
        run(given, 0)
    finally:
        failed = [other for other in others if other.poll() is not None]
        for other in others:
            other.terminate()
        for other in others:
            other.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    # Where SIGTERM comes before the application listens to it, it is to end the others, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
