"""An engine of a few lines for tests of the benchmark: it does the stateless work, and harm where it is told to.

``python passing_engine.py SERVERS SOURCE SINK HARM``, with HARM one of none, drop, repeat, wrong.
"""

import json
import signal
import sys

from confluent_kafka import Consumer, Producer

NTH = 1000


def main(servers: str, source: str, sink: str, harm: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": sink, "auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    consumer.subscribe([source])
    while True:
        message = consumer.poll(0.1)
        producer.poll(0)
        if message is None or message.error() is not None:
            continue
        event = json.loads(message.value())
        harmed = event["id"] >= 0 and event["id"] % NTH == 7
        factor = 3 if harmed and harm == "wrong" else 2
        result = {name: event[name] for name in ("id", "sent_ns", "key")} | {"doubled": event["amount"] * factor}
        copies = {"drop": 0, "repeat": 2}.get(harm, 1) if harmed else 1
        for _ in range(copies):
            producer.produce(sink, json.dumps(result), message.key())


if __name__ == "__main__":
    main(*sys.argv[1:])
