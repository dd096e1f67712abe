"""The topic that all examples read."""

import tailrace as tr

PAYMENTS = tr.KafkaSource(
    "payments",
    schema="id long not null, card string, cents long, country string, tags array<string>, at timestamp",
    event_time="at",
)
