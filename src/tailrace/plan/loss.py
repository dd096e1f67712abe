"""Records of a source that the query has not read and that are gone."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """Records that are gone.

    Attributes:
        kind: ``recreated``: the topic was deleted and created again. ``deleted``: the topic has deleted old records.
            ``shorter``: the partition ends before the query's position.
        topic: The topic, or the partition, like ``topic-0``.
        offsets: For ``recreated`` the query's position in each partition, for ``deleted`` the first and the last
            offset, for ``shorter`` the query's position and the end of the partition.
        accepted: Whether the query may continue without them.
    """

    kind: str
    topic: str
    offsets: str
    accepted: bool
