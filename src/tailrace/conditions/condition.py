"""An entry of the catalogue: how to recognise a report, and the error that it becomes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tailrace.errors import TailraceError


@dataclass(frozen=True)
class Message:
    """The sentences of an error or of a finding."""

    what: str
    why: str
    fix: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Condition:
    """Something that Spark, Java, Kafka or a Python worker reports, and the error that it becomes.

    ``what``, ``why`` and ``fix`` are templates for ``str.format``. A check fills them with what it knows of the query.
    After a start, the named groups of ``pattern`` and the values of :func:`tailrace.conditions.failures.values_of` fill
    them.

    Attributes:
        error: The class of the error.
        what: What happened. If it does not name the ``{query}``, an error begins with the query's name.
        fix: What to do, as an imperative.
        why: The reason.
        code: The code of the finding; the error class's own by default.
        spark: Spark's names for the condition.
        pattern: A regular expression that recognises the condition in Spark's text; by default, Spark's names do.
        only_realtime: Whether real time refuses the query and micro-batch may run it.
        defaults: Values for what a text may leave out.
        details: Returns more values, for what no template can say.
        operators: The plan nodes of the same operation, if Spark refuses both.
    """

    error: type[TailraceError]
    what: str
    fix: str
    why: str = ""
    code: str = ""
    spark: tuple[str, ...] = ()
    pattern: str = ""
    only_realtime: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)
    details: Callable[[re.Match[str]], Mapping[str, object]] | None = None
    operators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.code:
            object.__setattr__(self, "code", self.error.code)

    @property
    def names_query(self) -> bool:
        """Whether ``what`` names the query."""
        return "{query" in self.what

    def search(self, text: str) -> re.Match[str] | None:
        """Recognise the condition in what Spark printed."""
        return re.search(self.pattern or "|".join(map(re.escape, self.spark)), text)

    def matched_values(self, match: re.Match[str]) -> dict[str, object]:
        """Return what the text says, by the names that the templates use."""
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        return {**groups, **(self.details(match) if self.details is not None else {})}

    def message(self, **values: object) -> Message:
        """Fill the templates."""
        given = {**self.defaults, **values}
        return Message(self.what.format_map(given), self.why.format_map(given), self.fix.format_map(given))


def or_microbatch(fix: str) -> str:
    """Return a fix with micro-batch as the alternative."""
    return f"{fix}, or run with --mode microbatch"
