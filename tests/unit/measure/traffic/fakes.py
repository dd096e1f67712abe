"""What a worker is given, with nothing behind it."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.measure.traffic.worker import Orders


class FakeOrders(Orders):
    """An owner that says what a test tells it to say."""

    def __init__(self, settings: Mapping[str, Any], orders: list[dict[str, Any]] | None = None) -> None:
        self.settings = dict(settings)
        self.orders = list(orders or ())
        self.replies: list[dict[str, Any]] = []
        self.released = threading.Event()

    def take(self) -> Iterator[dict[str, Any]]:
        while self.orders:
            yield self.orders.pop(0)

    def reply(self, message: Mapping[str, Any]) -> None:  # type: ignore[override]
        self.replies.append(dict(message))
