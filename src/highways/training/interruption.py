"""SIGTERM and SIGINT as an exception that is never raised inside an update of the weights."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """The run was asked to stop; `exit_code` is what a shell expects for that signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """In this context the signals end the process at once, with one line and a shell's exit code for them.

    For imports and other preparations, which leave nothing to save. During these, the interpreter may swallow
    an exception that a signal handler raises, or print its traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {signum: signal.signal(signum, _end) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _end(signum: int, frame: FrameType | None) -> None:
    line = f"highways: stopped by {signal.Signals(signum).name} before there was anything to save\n"
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, line.encode())
    os._exit(128 + signum)


class Interruptible:
    """Within `with Interruptible() as guard`, the signals raise Interrupted, but inside
    `with guard.deferred()` only at its end."""

    def __init__(self) -> None:
        self._held = False
        self._pending: int | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruptible":
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = signum
        else:
            self._held = True  # one signal is enough: a second one must not interrupt the rescue
            raise Interrupted(signum)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        self._held = True
        yield
        self._held = False
        if self._pending is not None:
            self._held = True
            raise Interrupted(self._pending)
