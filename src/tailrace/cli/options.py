"""The options of ``run`` and ``check``, taken from :class:`RunOptions`, which the functions share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import Any, get_args, get_type_hints

import typer

from tailrace.errors import OptionRefused
from tailrace.prepare.options import ModeName, RunOptions, option_fields


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command with an argument ``options`` take each field of :class:`RunOptions` as an option."""
    parameters = dict(inspect.signature(command).parameters)
    parameters.pop("options")
    names = [each.name for each in option_fields()]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        settings = settings_of(given.pop("conf") or [])
        chosen = {name: given.pop(name) for name in names if name != "conf"}
        command(**given, options=RunOptions(**chosen, conf=settings))

    file, *flags = parameters.values()
    signature = inspect.Signature([file, *map(_parameter, option_fields()), *flags])
    with_options.__signature__ = signature  # type: ignore[attr-defined]
    with_options.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return with_options


def shared_option(name: str) -> Any:
    """Return an option of :class:`RunOptions` for another command, with the same flag, help and metavar."""
    field = next(each for each in option_fields() if each.name == name)
    return typer.Option(_flag(name), help=field.metadata["help"], metavar=field.metadata["metavar"])


def settings_of(pairs: list[str]) -> dict[str, str]:
    """Return the Spark settings that ``--conf`` names."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionRefused(f"--conf {pair!r} is not a setting", fix="write it as --conf spark.some.key=value")
        settings[key] = value
    return settings


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return an option of a command for a field."""
    default = None if field.default is MISSING else field.default
    option = typer.Option(
        default,
        _flag(field.name),
        help=field.metadata["help"],
        metavar=field.metadata["metavar"],
        show_default=default not in (None, False),
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, kind, default=option, annotation=_command_type(field.name))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _command_type(name: str) -> Any:
    """Return the type that a command line has for a field."""
    if name == "mode":
        return ModeName
    if name == "conf":
        return list[str] | None
    if name == "tasks":
        return str | None
    hint = get_type_hints(RunOptions)[name]
    if type(None) not in get_args(hint) or int in get_args(hint):
        return hint
    return str | None  # a path is text on a command line
