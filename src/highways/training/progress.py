"""Progress of a run: a bar on a terminal, a line per epoch in a log, and a small file that `status` reads."""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from highways.files import write_text

HEARTBEAT_SECONDS = 10.0


def heartbeat_path(record: Path) -> Path:
    return record.with_suffix(".progress.json")


class Progress:
    """Reports the progress of a run of `epochs` epochs, each of `batches` batches."""

    def __init__(self, record: Path, epochs: int, batches: int, quiet: bool = False) -> None:
        self.path = heartbeat_path(record)
        self.epochs, self.batches = epochs, batches
        self.quiet = quiet
        self._beat = self._start = 0.0
        self._first = 0
        self._bar: Any = None

    def start(self, epoch: int, batch: int) -> None:
        """Begin after `batch` batches of `epoch`; raises OSError where the folder cannot be written."""
        self._start = time.monotonic()
        self._first = (epoch - 1) * self.batches + batch
        self._write(epoch, batch)
        if not self.quiet and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:  # training needs only torch and numpy
                return
            total = self.epochs * self.batches
            self._bar = tqdm(total=total, initial=self._first, unit="batch", desc=self.path.parent.name)

    def update(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        """`batch` batches of the epoch are done, with this mean loss and accuracy so far."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"epoch {epoch}, loss {loss:.4f}, accuracy {accuracy:.2%}", refresh=False)
            self._bar.update()
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS:
            self._write(epoch, batch)

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        if self.quiet:
            return
        done = row["epoch"] * self.batches
        seconds = time.monotonic() - self._start
        left = seconds / max(1, done - self._first) * (self.epochs * self.batches - done)
        line = (
            f"epoch {row['epoch']}/{self.epochs}: train loss {_shown(row['train_loss'])}, "
            f"validation accuracy {_shown(row['validation_accuracy'], '.2%')}, "
            f"{seconds:.0f} s, about {left:.0f} s left"
        )
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop reporting; the file stays, so that `status` still sees an interrupted run."""
        if self._bar is not None:
            self._bar.close()

    def _write(self, epoch: int, batch: int) -> None:
        self._beat = time.monotonic()
        state = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "epoch": epoch,
            "epochs": self.epochs,
            "batch": batch,
            "batches": self.batches,
            "updated": time.time(),
        }
        write_text(self.path, json.dumps(state) + "\n")


def _shown(value: float | None, form: str = ".4f") -> str:
    return "not finite" if value is None else format(value, form)
