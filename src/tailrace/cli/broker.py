"""``tailrace broker``: a real Kafka broker for development."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tailrace.cli.arguments import BootstrapServers
from tailrace.cli.output import (
    Json,
    Verbose,
    console,
    on_one_line,
    owner_note,
    print_json,
    print_line,
    say,
    until_reader_ends,
)
from tailrace.errors import OptionRefused, counted

if TYPE_CHECKING:
    from tailrace.kafka.records import TopicRecord
    from tailrace.kafka.topics import ClientConfig

app = typer.Typer(help="A real single-node Kafka for development, on loopback.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="Several brokers run side by side under different names.")]


@app.command()
def start(
    *,
    name: Name = "default",
    port: Annotated[int, typer.Option(help="The port for clients; 0 picks a free port.", min=0, max=65535)] = 0,
    controller_port: Annotated[
        int, typer.Option(help="The port for Kafka's own controller; 0 picks a free port.", min=0, max=65535)
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the data of earlier runs first.")] = False,
    heap_mb: Annotated[int, typer.Option("--heap-mb", help="The broker's memory limit.", min=128)] = 384,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start a broker that stays until it is stopped; its data is kept."""
    from tailrace.kafka.broker import start_broker

    with console().status("Starting Kafka ..."):
        record = start_broker(say, name=name, port=port, controller_port=controller_port, fresh=fresh, heap_mb=heap_mb)
    if json:
        print_json(asdict(record) | {"bootstrap_servers": record.bootstrap_servers})
    else:
        say(f"broker {record.name!r} is running at {record.bootstrap_servers}")


@app.command()
def stop(
    *,
    name: Name = "default",
    discard: Annotated[bool, typer.Option("--discard", help="Also delete its data.")] = False,
    verbose: Verbose = False,
) -> None:
    """Stop a broker; its data is kept unless --discard."""
    from tailrace.kafka.broker import stop_broker

    record = stop_broker(name, discard=discard)
    say(f"broker {record.name!r} is stopped" + ("; its data is removed" if discard else ""))


@app.command()
def status(*, json: Json = False, verbose: Verbose = False) -> None:
    """List the running brokers and their topics."""
    from tailrace.errors import BrokerUnreachable
    from tailrace.kafka.broker import running_brokers
    from tailrace.kafka.client import client_config
    from tailrace.kafka.topics import list_topics

    rows = []
    for record in running_brokers():
        config = client_config(record.bootstrap_servers, {})
        try:
            topics = list_topics(config) if config is not None else {}
        except BrokerUnreachable:
            topics = {}
        rows.append(asdict(record) | {"bootstrap_servers": record.bootstrap_servers, "topics": topics})
    if json:
        print_json({"brokers": rows})
        return
    if not rows:
        say("no broker is running; start one: tailrace broker start")
    for row in rows:
        count = counted(len(row["topics"]), "topic")
        say(f"{row['name']:<16} {row['bootstrap_servers']:<21} {count}{owner_note(row['owner'])}")
        for topic, partitions in row["topics"].items():
            say(f"  {topic:<32} {partitions} partition{'s' if partitions != 1 else ''}")


@app.command()
def topic(
    names: Annotated[list[str], typer.Argument(help="The topics to create.")],
    *,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic.", min=1)] = 2,
    bootstrap_servers: BootstrapServers = None,
    verbose: Verbose = False,
) -> None:
    """Create topics that do not exist yet."""
    from tailrace.kafka.topics import create_topic

    config = _client(bootstrap_servers)
    for each in names:
        created = create_topic(config, each, partitions)
        outcome = f"created with {counted(partitions, 'partition')}" if created else "already exists"
        say(f"topic {each!r} {outcome}")


@app.command()
def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, which must exist.")],
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORD",
            help="The records; by default, each non-empty line of standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of all records; none by default.")] = None,
    bootstrap_servers: BootstrapServers = None,
    verbose: Verbose = False,
) -> None:
    """Send records to a topic."""
    from tailrace.kafka.records import send_records

    config = _client(bootstrap_servers)
    if not records and sys.stdin.isatty():
        say("One record per line; Ctrl-D ends.")
    # What the shell hands over need not be UTF-8: these are the bytes as they were typed.
    values = map(os.fsencode, records) if records else _lines()
    sent = send_records(config, topic, values, None if key is None else os.fsencode(key))
    say(f"{sent:,} record{'s' if sent != 1 else ''} sent to {topic}")


@app.command()
def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    *,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many records; wait for them if necessary.")
    ] = None,
    starting: Annotated[Literal["earliest", "latest"], typer.Option("--from", help="Where to begin.")] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until Ctrl-C.")] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print the headers, too, as name=value; a null value as the name alone.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    json: Annotated[bool, typer.Option("--json", help="Print each record as a JSON object on a line.")] = False,
    verbose: Verbose = False,
) -> None:
    """Print the records that are in a topic now: key and value, separated by a tab."""
    from tailrace.kafka.records import read_records

    if starting == "latest" and not follow and count is None:
        raise OptionRefused(
            "--from latest reads only new records, but the command does not wait for any",
            fix="add --follow or --count",
        )
    records = read_records(_client(bootstrap_servers), topic, starting=starting, count=count, follow=follow)
    if follow or starting == "latest":
        say(f"Reading {topic}; Ctrl-C stops it.")
    try:
        with closing(records), until_reader_ends():
            for record in records:
                print_json(_as_json(record)) if json else _print_line(record, headers=headers)
    except KeyboardInterrupt:
        if not follow or count is not None:
            raise  # before it was done


def _client(bootstrap_servers: str | None) -> "ClientConfig":
    from tailrace.kafka.bootstrap import resolve_bootstrap_servers
    from tailrace.kafka.client import client_config

    config = client_config(resolve_bootstrap_servers(bootstrap_servers), {})
    if config is None:
        raise OptionRefused("this broker cannot be reached without further options")
    return config


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input, each as soon as it arrives."""
    for line in sys.stdin.buffer:
        if record := line.rstrip(b"\r\n"):
            yield record


def _as_json(record: "TopicRecord") -> dict[str, Any]:
    from tailrace.kafka.records import as_text

    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": as_text(record.key),
        "value": as_text(record.value),
        # Pairs: a name may come more than once.
        "headers": [[name, as_text(value)] for name, value in record.headers],
    }


def _print_line(record: "TopicRecord", *, headers: bool) -> None:
    from tailrace.kafka.records import as_text

    fields = [as_text(record.key) or "", as_text(record.value) or ""]
    if headers:
        fields += [name if value is None else f"{name}={as_text(value)}" for name, value in record.headers]
    print_line("\t".join(map(on_one_line, fields)))
