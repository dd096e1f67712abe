"""The output of a matrix command: one line per version, and an exit code."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .pytest_run import PytestRun

_SHOWN_LINES = 60


class NotAvailable(Exception):
    """The version is neither installed nor downloadable; the message says why."""


class SetupFailed(Exception):
    """The packages cannot be installed for this version; the message names the failed step."""


def arguments(what: str, versions: Sequence[str], description: str) -> argparse.ArgumentParser:
    """Return the options that both commands share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help=f"the versions of {what} to test (default: {' '.join(versions)})"
    )
    parser.add_argument(
        "--require", default="", metavar="VERSIONS", help=f"fail without these, such as {','.join(versions[:2])}"
    )
    parser.add_argument("--others", action="store_true", help=f"leave out the {what} that `make test` uses")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="test N versions at the same time (default: 1)"
    )
    return parser


def chosen(
    parser: argparse.ArgumentParser, options: argparse.Namespace, supported: Sequence[str], default: str
) -> tuple[list[str], list[str]]:
    """Return the versions to test and those of them that are required; end the program if one is not supported.

    Args:
        parser: The command's parser.
        options: What the user gave.
        supported: All versions.
        default: The version that `make test` uses; it counts as tested with ``--others``.
    """
    left_out = {default} if options.others else set()
    versions = _supported(parser, options.versions, supported) or list(supported)
    required = _supported(parser, [each for each in options.require.split(",") if each], supported)
    return [each for each in versions if each not in left_out], [each for each in required if each not in left_out]


def _supported(parser: argparse.ArgumentParser, versions: Sequence[str], supported: Sequence[str]) -> list[str]:
    if unknown := [version for version in versions if version not in supported]:
        parser.error(f"not a supported version: {', '.join(unknown)} (supported: {', '.join(supported)})")
    return list(versions)


def check_all(
    what: str,
    versions: Sequence[str],
    required: Collection[str],
    check: Callable[[str], tuple[str, PytestRun]],
    jobs: int = 1,
) -> int:
    """Test each version, print a line for it and return the exit code.

    Args:
        what: The word before a version, such as ``Python``.
        versions: The versions to test, in this order.
        required: The versions that must be available.
        check: Returns the exact version with its origin, and the result.
        jobs: How many versions to test at the same time.
    """
    failed = sorted(set(required) - set(versions))
    for version in failed:
        print(f"{what} {version}: FAILED: required, but not selected", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        results = [(version, pool.submit(check, version)) for version in versions]
        for version, result in results:
            line, ok = _line(version, result, is_required=version in required)
            print(f"{what} {line}", flush=True)
            failed += [] if ok else [version]
    return 1 if failed else 0


def _line(version: str, result: Future[tuple[str, PytestRun]], *, is_required: bool) -> tuple[str, bool]:
    """Return a version's line, and whether it passed or may be missing."""
    try:
        exact, run = result.result()
    except NotAvailable as error:
        return f"{version}: {'FAILED: ' if is_required else ''}not available here: {error}", not is_required
    except SetupFailed as error:
        return f"{version}: FAILED: {error}", False
    if run.ok:
        return f"{exact}: {run.summary}", True
    print("\n".join(run.output.splitlines()[-_SHOWN_LINES:]), file=sys.stderr, flush=True)
    return f"{exact}: FAILED: {run.summary}", False
