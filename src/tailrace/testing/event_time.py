"""Timestamps for tests."""

from datetime import UTC, date, datetime, time

DAY = date(2026, 1, 1)


def at(moment: str) -> datetime:
    """Return a time on a fixed day, in UTC: ``at("12:00:30")``, ``at("12:00:30.250")``.

    In a row it becomes text that Spark reads as a timestamp; in ``Record(timestamp=...)`` it is Kafka's own.
    """
    parsed = time.fromisoformat(moment)
    if parsed.tzinfo is not None:
        raise ValueError(f"{moment!r} names a time zone; moments of a test are in UTC")
    return datetime.combine(DAY, parsed, UTC)
