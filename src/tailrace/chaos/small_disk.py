"""A file system that can be full on request, without special rights: a small one in memory, in a mount namespace.

A keeper process creates the namespace, as any user may on most Linux systems, and mounts the file system at a folder.
Only processes that enter the namespace see it. To fill it, the keeper shrinks it to what is in use. The namespace ends
with its last process, so nothing has to be unmounted, not even after ``kill -9``.

The keeper and the entering process run this file as a script in a bare interpreter, so it imports only the standard
library and Tailrace's errors on the owner's side.
"""

import ctypes
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import NoReturn, Self

SIZE = 4 * 2**30
"""Its size if it is not full; memory is used only for what is written."""
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
"""Flags of ``unshare`` and ``setns``."""
_PRIVATE, _REMOUNT = 0x4000 | 0x40000, 0x20
"""Flags of ``mount``: recursive and private; change an existing mount."""
_POLL_EVERY_S = 0.05
_TIMEOUT_S = 10.0


class SmallDisk:
    """The owner's side. It ends with the owner."""

    def __init__(self, folder: Path) -> None:
        """Mount it at a folder.

        Raises:
            OptionRefused: This system does not allow it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, "keep", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        answer = self._answer()
        if answer != "ready":
            self.close()
            raise _refused(answer)

    @property
    def enter(self) -> list[str]:
        """The beginning of a command line that runs a program on this disk."""
        return [sys.executable, "-I", "-S", __file__, "enter", str(self._keeper.pid)]

    def outside(self, path: Path) -> Path:
        """Return the path of a file on this disk for programs that have not entered it."""
        return Path(f"/proc/{self._keeper.pid}/root") / path.absolute().relative_to("/")

    def fill(self) -> None:
        """Let every write fail from now on, for lack of space."""
        self._tell("fill")

    def empty(self) -> None:
        """Let writes succeed again."""
        self._tell("empty")

    def close(self) -> None:
        """End the keeper; the files are gone when the last program on this disk ends."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        self._keeper.wait(_TIMEOUT_S)
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, order: str) -> None:
        if self._keeper.stdin is None:
            raise AssertionError("started with a pipe")
        self._keeper.stdin.write(f"{order}\n")
        self._keeper.stdin.flush()
        answer = self._answer()
        if answer != order:
            raise OSError(f"the keeper of the small disk answered {answer!r}")

    def _answer(self) -> str:
        if self._keeper.stdout is None:
            raise AssertionError("started with a pipe")
        return self._keeper.stdout.readline().strip()


def _refused(why: str) -> Exception:
    from tailrace.errors import OptionRefused

    return OptionRefused(
        "--fault disk-full does not work on this system",
        why=f"it needs a mount namespace, which this system does not allow: {why}",
        fix="allow user namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), "
        "run it as root, or use another fault",
    )


def _keep(folder: str) -> None:
    """Create the namespace and the file system, and obey the owner until it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _unshare(libc)
        _call(libc.mount, b"none", b"/", None, _PRIVATE, None)
        _call(libc.mount, b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode())
    except (OSError, AttributeError) as refused:
        print(getattr(refused, "strerror", None) or refused, flush=True)  # noqa: T201 - the answer to the owner
        return
    print("ready", flush=True)  # noqa: T201
    is_full = False
    while True:
        readable, _, _ = select.select([0], [], [], _POLL_EVERY_S if is_full else None)
        if readable:
            order = os.read(0, 64).decode().strip()
            if not order:
                return
            is_full = order == "fill"
            _resize(libc, folder, _used(folder) if is_full else SIZE)
            print(order, flush=True)  # noqa: T201
        elif is_full:
            # A file that was removed leaves room.
            _resize(libc, folder, _used(folder))


def _unshare(libc: ctypes.CDLL) -> None:
    """Enter a new mount namespace; without the right to do so, in a new user namespace."""
    try:
        _call(libc.unshare, _NEW_MOUNTS)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        _call(libc.unshare, _NEW_USER | _NEW_MOUNTS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _resize(libc: ctypes.CDLL, folder: str, size: int) -> None:
    for _ in range(100):
        try:
            # A size of 0 means no limit.
            return _call(libc.mount, b"tmpfs", os.fsencode(folder), b"tmpfs", _REMOUNT, f"size={max(size, 1)}".encode())
        except OSError:
            size = _used(folder)  # written to meanwhile
    return None


def _used(folder: str) -> int:
    usage = os.statvfs(folder)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def _enter(keeper: str, command: list[str]) -> NoReturn:
    """Run a program in the keeper's namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = [Path(f"/proc/{keeper}/ns/{name}") for name in ("user", "mnt")]
    here = Path("/proc/self/ns/user").readlink()
    opened = [os.open(space, os.O_RDONLY) for space in spaces if space.readlink() != here]
    folder = Path.cwd()
    for space in opened:
        _call(libc.setns, space, 0)
    os.chdir(folder)
    os.execv(command[0], command)  # noqa: S606 - the program that the owner names, without a shell


def _call(function: object, *arguments: object) -> None:
    if function(*arguments) != 0:  # type: ignore[operator]
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    _, action, target, *rest = sys.argv
    if action == "keep":
        _keep(target)
    else:
        _enter(target, rest)
