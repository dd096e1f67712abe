"""One thing that a check has to say about a query."""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """The query would not run, or not process everything."""
    WARNING = "warning"
    """It runs, and costs latency, memory or trust."""
    ADVICE = "advice"
    """It runs well; something is worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What, why and the way out, in the words of whoever wrote the query.

    Attributes:
        code: The check's own word; what a search finds.
        severity: How bad it is.
        title: What, in one sentence.
        why: Why it is so.
        fix: The way out: a flag, a line of code, a setting.
        where: The user's file and line with the call, where that is known.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    where: str = ""

    def as_json(self) -> dict[str, str]:
        """Plain data."""
        return {key: str(value) for key, value in asdict(self).items()}


def error(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """The query would not run, or not process everything."""
    return Finding(code, Severity.ERROR, title, why, fix, where)


def warning(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """It runs, and costs latency, memory or trust."""
    return Finding(code, Severity.WARNING, title, why, fix, where)


def advice(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """It runs well; something is worth knowing."""
    return Finding(code, Severity.ADVICE, title, why, fix, where)
