"""``tailrace broker``: a real Kafka broker for development."""

from dataclasses import asdict
from typing import Annotated

import typer

from tailrace.cli.output import BootstrapServers, Json, Verbose, console, print_json, say
from tailrace.errors import OptionRefused

app = typer.Typer(help="A real single-node Kafka for development, on loopback.", no_args_is_help=True)

Name = Annotated[str, typer.Option("--name", help="Several brokers run side by side under different names.")]


@app.command()
def start(
    *,
    name: Name = "default",
    port: Annotated[int, typer.Option(help="The port for clients; 0 takes a free one.", min=0, max=65535)] = 0,
    controller_port: Annotated[
        int, typer.Option(help="The port for Kafka's own controller; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away the data of earlier runs first.")] = False,
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
    discard: Annotated[bool, typer.Option("--discard", help="Throw away its data, too.")] = False,
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
        owner = "" if row["owner"] == "hand" else "  (ends with the program that started it)"
        say(f"{row['name']:<16} {row['bootstrap_servers']:<21} {len(row['topics'])} topics{owner}")
        for topic, partitions in row["topics"].items():
            say(f"  {topic:<32} {partitions} partition{'s' if partitions != 1 else ''}")


@app.command()
def topic(
    names: Annotated[list[str], typer.Argument(help="The topics to make.")],
    *,
    partitions: Annotated[int, typer.Option(help="How many partitions each has.", min=1)] = 2,
    bootstrap_servers: BootstrapServers = None,
    verbose: Verbose = False,
) -> None:
    """Make topics, where they do not exist yet."""
    from tailrace.kafka.bootstrap import resolve_bootstrap_servers
    from tailrace.kafka.client import client_config
    from tailrace.kafka.topics import create_topic

    config = client_config(resolve_bootstrap_servers(bootstrap_servers), {})
    if config is None:
        raise OptionRefused("this broker cannot be reached without further options")
    for each in names:
        made = create_topic(config, each, partitions)
        say(f"topic {each!r} " + (f"made with {partitions} partitions" if made else "is there already"))
