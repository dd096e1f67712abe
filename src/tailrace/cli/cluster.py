"""``tailrace cluster``: Spark's own master and workers for development."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.cli.output import Json, Verbose, console, owner_note, print_json, say

if TYPE_CHECKING:
    from tailrace.cluster.cluster import ClusterRecord

app = typer.Typer(
    help="Spark's own standalone cluster for development: a master and workers, on loopback.", no_args_is_help=True
)

Name = Annotated[str, typer.Option("--name", help="Several clusters run side by side under different names.")]


@app.command()
def start(
    *,
    name: Name = "default",
    workers: Annotated[int, typer.Option(help="How many workers it has.", min=1)] = 2,
    cores: Annotated[
        int, typer.Option(help="The task slots of each worker; may exceed the machine's cores.", min=1)
    ] = 4,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What each worker has for executors: 2g, 2048m.")] = "2g",
    port: Annotated[int, typer.Option(help="The master's port; 0 takes a free one.", min=0, max=65535)] = 0,
    ui_port: Annotated[
        int, typer.Option(help="The port of the master's web page; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start a cluster that stays until it is stopped."""
    from tailrace.cluster.cluster import ClusterSize, in_words, start_cluster

    size = ClusterSize(workers, cores, memory)
    with console().status("Starting Spark's master and workers ...") as shown:
        record = start_cluster(say, size, name=name, port=port, ui_port=ui_port, progress=shown.update)
    if json:
        print_json(_as_json(record))
        return
    say(f"cluster {record.name!r} is running at {record.master_url}: {in_words(record.size)}")
    say(f"run a pipeline on it: tailrace run FILE --master {record.master_url}")
    say(f"its web page: {record.ui_url}")


@app.command()
def stop(*, name: Name = "default", verbose: Verbose = False) -> None:
    """Stop a cluster, with what runs on it, and remove its files."""
    from tailrace.cluster.cluster import stop_cluster

    with console().status("Stopping the cluster ..."):
        record = stop_cluster(name, say)
    say(f"cluster {record.name!r} is stopped")


@app.command()
def status(*, json: Json = False, verbose: Verbose = False) -> None:
    """List the running clusters, their workers and what runs on them."""
    from tailrace.cluster.cluster import in_words, running_clusters

    records = running_clusters()
    rows = [_as_json(record) for record in records]
    if json:
        print_json({"clusters": rows})
        return
    if not rows:
        say("no cluster is running; start one: tailrace cluster start")
    for record, row in zip(records, rows, strict=True):
        say(f"{record.name:<16} {record.master_url:<24} {in_words(record.size)}{owner_note(record.owner)}")
        for daemon in row["daemons"]:
            say(f"  {daemon['role']:<14} " + (f"process {daemon['pid']}" if daemon["pid"] else "does not run"))
        for application in row["applications"]:
            say(f"  {application['name']:<14} uses {application['cores']} of {record.workers * record.cores} cores")


def _as_json(record: "ClusterRecord") -> dict[str, Any]:
    """Return the description of a cluster and what runs on it now."""
    state = record.state() or {}
    return asdict(record) | {
        "master": record.master_url,
        "ui": record.ui_url,
        "workers_alive": state.get("aliveworkers", 0),
        "daemons": [{"role": each.role, "pid": each.pid()} for each in record.daemons()],
        "applications": [{"name": each["name"], "cores": each["cores"]} for each in state.get("activeapps", [])],
    }
