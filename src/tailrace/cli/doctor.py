"""``tailrace doctor``: check what Tailrace needs on this machine."""

from typing import Annotated

import typer

from tailrace.cli.arguments import BootstrapServers
from tailrace.cli.output import Json, Verbose, console, jar_progress, print_json, say


def doctor(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Download or build what is missing or broken.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only problems.")] = False,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check Python, PySpark, Java, jars, cores and the broker; exit 1 if something required is missing."""
    from tailrace.doctor import examine, repair

    if fix:
        repair(say, jar_progress(console()))
    findings = examine(bootstrap_servers)
    ok = all(finding.ok for finding in findings if finding.needed)
    if json:
        print_json({"ok": ok, "checks": [finding.as_json() for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            if quiet and (finding.ok or not finding.needed):
                continue
            mark = "ok" if finding.ok else "MISSING" if finding.needed else "-"
            say(f"{finding.name:<{width}} {mark:<8} {finding.detail}")
            if finding.fix:
                say(f"{'':<{width}} {'':<8} {finding.fix}")
    if not ok:
        raise typer.Exit(1)
