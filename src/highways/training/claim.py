"""A process's claim on a record, and on the files that lie beside it until the run ends. Imports no torch."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from highways.errors import UserError
from highways.files import remove_remains
from highways.training.progress import heartbeat_path


class InUseError(UserError):
    """Another process is training the run of this record; the one-line message says what to do."""


def checkpoint_path(record: Path) -> Path:
    return record.with_suffix(".checkpoint.pt")


def tidy(record: Path, ended: bool) -> None:
    """Delete the temporary files of killed writers and, if the run has ended, its checkpoint and heartbeat.

    The caller holds the claim.
    """
    beside = (checkpoint_path(record), heartbeat_path(record))
    for path in (record, *beside):
        remove_remains(path)
    if ended:
        for path in beside:
            path.unlink(missing_ok=True)


@contextmanager
def only_one(record: Path) -> Iterator[None]:
    """Hold the claim on a record, a lock on a file beside it; raises InUseError where another process does.

    The system releases the lock when the process ends, in whatever way. A file system without locks (some
    NFS) grants the claim to every process.
    """
    missing = [folder for folder in record.parents if not folder.exists()]
    path = record.with_name(f".{record.name}.lock")
    file = _held(path, record)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: later it might be another process's
        os.close(file)
        with suppress(OSError):  # a run that could not begin leaves no empty folders
            for folder in missing:
                folder.rmdir()


def _held(path: Path, record: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # a run that could not begin has just removed the folder
            continue
        try:
            _lock(file, record)
            # The previous holder may have deleted the file between our opening and our locking.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, record: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUseError(f"{record}: another process is training it; wait for it, or give another name") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
