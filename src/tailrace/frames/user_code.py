"""Call the user's code: an exception there becomes an error about the user's line."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from tailrace.conditions.analysis import PIVOT
from tailrace.conditions.python import FUNCTION_RAISED
from tailrace.errors import TailraceError, UserCodeFailed
from tailrace.worker.failures import is_library_file

_OURS = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into an error with its file and line.

    Args:
        what: The code that runs, such as ``the function of pipeline 'fraud'``.
    """
    try:
        yield
    except TailraceError:
        raise
    except SystemExit as ended:
        raise UserCodeFailed(
            f"{what} called sys.exit({ended.code!r}){_place(ended)}",
            fix="return instead; put code that should run only as a script below: if __name__ == '__main__'",
        ) from ended
    except Exception as raised:
        raise UserCodeFailed(
            f"{what} raised {type(raised).__name__}{_place(raised)}: {_first_line(raised)}",
            fix=_fix(raised),
            detail="".join(traceback.format_exception(raised)),
        ) from raised


def _place(raised: BaseException) -> str:
    """Return the innermost line that is neither Tailrace's nor a library's."""
    if isinstance(raised, SyntaxError) and raised.filename:
        return f" at {raised.filename} line {raised.lineno}"
    frames = [frame for frame in traceback.extract_tb(raised.__traceback__) if is_users(frame.filename)]
    if not frames:
        return ""
    return f" at {frames[-1].filename} line {frames[-1].lineno} in {frames[-1].name}"


def is_users(filename: str) -> bool:
    """Return whether a file belongs to the user: it exists and is neither a library's nor Tailrace's."""
    return not (is_library_file(filename) or filename.startswith("<") or Path(filename).is_relative_to(_OURS))


def _fix(raised: BaseException) -> str:
    # Spark refuses a pivot without a list of values while the function runs, before the checks.
    if PIVOT.search(str(raised)):
        return PIVOT.fix
    return FUNCTION_RAISED.fix


def _first_line(raised: BaseException) -> str:
    """Return the exception's message in one line."""
    text = raised.msg if isinstance(raised, SyntaxError) and raised.msg else str(raised)
    return (text.strip() or repr(raised)).splitlines()[0][:500]
