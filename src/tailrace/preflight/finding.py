"""What a check reports about a query."""

from dataclasses import asdict, dataclass
from enum import StrEnum

from tailrace.conditions.condition import Condition
from tailrace.preflight.query import Query


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """The query would not run, or not process everything."""
    WARNING = "warning"
    """The query runs, and costs latency, memory or trust."""
    ADVICE = "advice"
    """The query runs well; something is worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What is wrong, why, and how to fix it.

    Attributes:
        code: The check's code, for a search.
        severity: How bad it is.
        title: What is wrong, in one sentence.
        why: The reason.
        fix: What to do: a flag, a line of code, a setting.
        where: The user's file, line and call, if they are known.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    where: str = ""

    def as_json(self) -> dict[str, str]:
        """Return plain data."""
        return {key: str(value) for key, value in asdict(self).items()}


def error(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """Report that the query would not run, or not process everything."""
    return Finding(code, Severity.ERROR, title, why, fix, where)


def warning(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """Report that the query runs, and costs latency, memory or trust."""
    return Finding(code, Severity.WARNING, title, why, fix, where)


def advice(code: str, title: str, *, why: str, fix: str, where: str = "") -> Finding:
    """Report something worth knowing about a query that runs well."""
    return Finding(code, Severity.ADVICE, title, why, fix, where)


def refused(query: Query, condition: Condition, *, where: str = "", **values: object) -> Finding:
    """Report a condition that ends the query.

    Args:
        query: The query.
        condition: The condition.
        where: The user's file, line and call.
        values: What fills the condition's templates.
    """
    message = condition.message(**values)
    fix = query.or_microbatch(message.fix) if condition.only_realtime else message.fix
    return error(condition.code, message.what, why=message.why, fix=fix, where=where)
