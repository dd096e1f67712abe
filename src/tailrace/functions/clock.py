"""How long a user's function works, and may work."""

import os
import sys
import threading
import time


class Clock:
    """How long the user's function worked; the time in which it waits for rows is not its own."""

    def __init__(self, limit_s: float = 0) -> None:
        self._spent = 0
        self._since = 0
        self._limit_ns = int(limit_s * 1e9)
        self._ended = threading.Event()
        if limit_s > 0:
            threading.Thread(target=self._watch, args=(min(limit_s / 4, 1.0),), daemon=True).start()

    def start(self) -> None:
        """The function works from now on."""
        if self._since == 0:
            self._since = time.perf_counter_ns()

    def stop(self) -> None:
        """The function has given something, or waits for more."""
        if self._since != 0:
            self._spent += time.perf_counter_ns() - self._since
            self._since = 0

    def read(self) -> int:
        """The time since it was read last."""
        spent, self._spent = self._spent, 0
        return spent

    def end(self) -> None:
        """Watch no more: the worker goes on to other work."""
        self._ended.set()

    def _watch(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            since = self._since
            if since != 0 and time.perf_counter_ns() - since > self._limit_ns:
                # Not an exception: nothing can be raised inside a function that hangs.
                sys.stderr.write(f"a Python function took longer than {self._limit_ns / 1e9:g} s; its worker ends\n")
                os._exit(1)
