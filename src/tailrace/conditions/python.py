"""Python functions that raise, and Python workers that end."""

import re
from collections.abc import Mapping

from tailrace.conditions.condition import Condition
from tailrace.errors import UserCodeFailed
from tailrace.worker.failures import is_library_file, is_user_file

_PLACE = re.compile(r" \([^()]+ line \d+\)$")
_WRAPPER = re.compile(r"^tailrace\.worker\.failures\.FunctionFailed: ")
_END = r"(?:\n\n|\n\tat |\Z)"


def _user_line(trace: str) -> str:
    """Return the last line of the user's code in a traceback, or nothing."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace)
    own = [frame for frame in frames if is_user_file(frame[0]) and not is_library_file(frame[0])]
    return f" at {own[-1][0]} line {own[-1][1]} in {own[-1][2]}" if own else ""


def _failed_call(match: re.Match[str]) -> Mapping[str, str]:
    record = match["record"]
    return {
        "on_record": f" on record {record}" if record else "",
        "place": _user_line(match["trace"]),
        "exception": _PLACE.sub("", match["exception"]),
    }


def _exception(match: re.Match[str]) -> Mapping[str, str]:
    after_last_frame = match["trace"].rpartition('  File "')[2].splitlines()
    message = next(
        (line for line in after_last_frame if line.strip() and not line.startswith(" ") and '", line ' not in line), ""
    )
    return {"place": _user_line(match["trace"]), "exception": _WRAPPER.sub("", message.strip())}


FUNCTION_FAILED = Condition(
    error=UserCodeFailed,
    pattern=(
        r"(?s)Python function (?P<function>.+?) failed(?: on record (?P<record>\S+))?: (?P<exception>[^\n]*)\n"
        r"(?P<trace>(?:Traceback .+?)?)" + _END
    ),
    what="function {function} of query {query!r} failed{on_record}{place}: {exception}",
    fix="fix that line, or set python_errors='dead-letter'",
    details=_failed_call,
)
FUNCTION_RAISED = Condition(
    error=UserCodeFailed,
    pattern=r"(?s)(?P<trace>Traceback \(most recent call last\):\n.+?)" + _END,
    what="a Python function of query {query!r} raised an exception{place}: {exception}",
    fix="fix that line; --verbose shows the whole stack trace",
    details=_exception,
)
WORKERS_ENDED = Condition(
    error=UserCodeFailed,
    pattern=r"Python worker exited unexpectedly",
    what="the Python workers of query {query!r} keep ending",
    why="the workers crash, are killed, or run out of memory; the engine has replaced them several times",
    fix="call the function in its own Python process, with the libraries that the workers have",
)
