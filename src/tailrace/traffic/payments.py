"""Card payments, made up: what the demo and the benchmark send."""

import random
from collections.abc import Callable

SEQUENCE_FIELD = "payment_id"
SENT_FIELD = "sent_ns"

_COUNTRIES = ("DE", "FR", "GB", "US", "BR", "IN", "JP", "NG")
_MERCHANTS = ("grocery", "fuel", "travel", "electronics", "gambling", "jewellery", "pharmacy", "streaming")
_TEMPLATES = 4096
"""Records are drawn from so many prepared ones, so that making one costs the load generator almost nothing."""


def payment_maker(seed: int = 7) -> Callable[[int, int], tuple[bytes, bytes]]:
    """A function from sequence number and intended send time to a record's key and value."""
    draw = random.Random(seed)  # noqa: S311 - data for a demonstration, not a secret
    templates: list[tuple[bytes, bytes]] = []
    for _ in range(_TEMPLATES):
        card = f"card-{draw.randrange(5000):04d}"
        home = draw.choice(_COUNTRIES)
        country = home if draw.random() < 0.9 else draw.choice(_COUNTRIES)
        amount = round(min(draw.lognormvariate(3.4, 1.1), 9999.0), 2)
        rest = (
            f'"card":"{card}","amount":{amount},"country":"{country}","home_country":"{home}",'
            f'"merchant":"{draw.choice(_MERCHANTS)}","minute_of_day":{draw.randrange(1440)}'
        )
        templates.append((card.encode(), rest.encode()))

    def make(sequence: int, sent_ns: int) -> tuple[bytes, bytes]:
        card, rest = templates[sequence % _TEMPLATES]
        return card, b'{"payment_id":%d,%b,"sent_ns":%d}' % (sequence, rest, sent_ns)

    return make
