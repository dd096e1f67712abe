"""The border between Tailrace's code and the user's: errors there are about the user's line, not ours."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from tailrace.conditions.rewrites import PIVOT_INSTEAD
from tailrace.errors import TailraceError, UserCodeFailed
from tailrace.worker.failures import is_library_file

_OURS = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into one sentence with their file and line.

    Args:
        what: What was being done, such as ``the function of pipeline 'fraud'``.
    """
    try:
        yield
    except TailraceError:
        raise
    except SystemExit as ended:
        raise UserCodeFailed(
            f"{what} called sys.exit({ended.code!r}){_place(ended)}",
            fix="let it return; keep what should run only as a script below: if __name__ == '__main__'",
        ) from ended
    except Exception as raised:
        raise UserCodeFailed(
            f"{what} raised {type(raised).__name__}{_place(raised)}: {_first_line(raised)}",
            fix=_fix(raised),
            detail="".join(traceback.format_exception(raised)),
        ) from raised


def _place(raised: BaseException) -> str:
    """The innermost line of the user's own: not Tailrace's, not a library's."""
    if isinstance(raised, SyntaxError) and raised.filename:
        return f" at {raised.filename} line {raised.lineno}"
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if is_users(frame.filename)]
    if not frames:
        return ""
    return f" at {frames[-1].filename} line {frames[-1].lineno} in {frames[-1].name}"


def is_users(filename: str) -> bool:
    """Whether a file is the user's own: not a library's, not part of this package, and a file at all."""
    return not (is_library_file(filename) or filename.startswith("<") or Path(filename).is_relative_to(_OURS))


def _fix(raised: BaseException) -> str:
    # Spark refuses a pivot without a list of values while the query is written, long before the checks.
    if str(raised).startswith("pivot is not supported on a streaming"):
        return PIVOT_INSTEAD
    return "fix that line; --verbose shows the whole stack trace"


def _first_line(raised: BaseException) -> str:
    """What the exception says, in one line."""
    text = raised.msg if isinstance(raised, SyntaxError) and raised.msg else str(raised)
    return (text.strip() or repr(raised)).splitlines()[0][:500]
