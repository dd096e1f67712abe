"""Errors met while a query is prepared: collected for a check, raised for a start."""

from collections.abc import Callable
from typing import TypeVar

from tailrace.errors import AuthenticationFailed, BrokerUnreachable, TailraceError, TlsFailed, ToolchainError
from tailrace.preflight.finding import Finding, error

T = TypeVar("T")
_NO_CONNECTION = {BrokerUnreachable.code, TlsFailed.code, AuthenticationFailed.code}


class Findings:
    """The errors of one preparation."""

    def __init__(self, *, collect: bool) -> None:
        self._collect = collect
        self.errors: list[Finding] = []

    def ask(self, question: Callable[[], T]) -> T | None:
        """Return the answer; on an error, collect it and return None, or raise it.

        Raises:
            TailraceError: Errors are not collected, or Spark itself cannot be used.
        """
        try:
            return question()
        except ToolchainError:
            raise
        except TailraceError as failed:
            self.refuse(failed)
            return None

    def refuse(self, failed: TailraceError) -> None:
        """Collect an error, or raise it."""
        if not self._collect:
            raise failed
        finding = as_finding(failed)
        if finding not in self.errors:
            self.errors.append(finding)

    def ask_broker(self, question: Callable[[], T]) -> T | None:
        """Ask, unless a broker was unreachable before: do not wait for it twice."""
        return None if self.unreachable else self.ask(question)

    @property
    def unreachable(self) -> bool:
        """Whether a broker did not respond, or refused the connection."""
        return any(finding.code in _NO_CONNECTION for finding in self.errors)


def as_finding(failed: TailraceError) -> Finding:
    """Return an error as a finding."""
    return error(failed.code, failed.what, why=failed.why, fix=failed.fix)
