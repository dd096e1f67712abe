"""The root of the command line: the only place that turns errors into messages and exit codes."""

import contextlib
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated

import typer

from tailrace import __version__
from tailrace.cli import bench, broker, chaos, check, cluster, demo, dlq, doctor, init, run
from tailrace.cli.output import console, is_verbose, print_error
from tailrace.errors import TailraceError

app = typer.Typer(
    name="tailrace",
    help="Real-time PySpark on Kafka: check a pipeline, and run it in real time or in micro-batches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("check")(check.check)
app.command("run")(run.run)
app.command("chaos")(chaos.chaos)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(broker.app, name="broker")
app.add_typer(cluster.app, name="cluster")
app.add_typer(dlq.app, name="dlq")


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=lambda value: _print_version() if value else None,
        ),
    ] = False,
) -> None:
    """Real-time PySpark on Kafka."""


def _print_version() -> None:
    typer.echo(__version__)
    raise typer.Exit


class _TerminatedError(BaseException):
    """SIGTERM. Not SystemExit, which the user's code may raise."""


def main() -> None:
    """Run the command line; the process ends with a documented exit code."""
    signal.signal(signal.SIGTERM, _on_terminate)
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:  # noqa: PLR0911 - a return for each way a command can end
    try:
        code = app(args=arguments, standalone_mode=False)
    except TailraceError as error:
        print_error(error)
        return error.exit_code
    except typer.Exit as ended:
        return ended.exit_code
    except _TerminatedError:
        return 128 + signal.SIGTERM
    except (typer.Abort, KeyboardInterrupt):
        console().print("interrupted")
        return 128 + signal.SIGINT
    except typer.TyperException as wrong:
        show = getattr(wrong, "show", None)  # usage errors also know the command's usage line
        show() if show is not None else typer.echo(wrong.format_message(), err=True)
        return wrong.exit_code
    except Exception as unforeseen:  # noqa: BLE001 - the last line of defence: a person gets a sentence, not a trace
        console().print(f"error: {type(unforeseen).__name__}: {unforeseen}".splitlines()[0], markup=False)
        console().print("  fix: this is a bug in Tailrace; run it again with --verbose and report the stack trace")
        if is_verbose():
            traceback.print_exc()
        return 1
    finally:
        # An error here must not hide how the command ended.
        with contextlib.suppress(Exception, KeyboardInterrupt):
            _end_spark()
    return code if isinstance(code, int) else 0


def _end_spark() -> None:
    """End the JVM; there is none if no command imported Spark."""
    if "tailrace.spark_session" in sys.modules:
        from tailrace.spark_session import end_session

        end_session()


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    """Let SIGTERM unwind like Ctrl-C, so that everything is stopped."""
    raise _TerminatedError
