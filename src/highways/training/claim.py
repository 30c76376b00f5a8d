"""The claim of one run on its record, and on the files that lie beside it until it ends. Imports no torch."""

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
    """Another process is at work on the record; the message is one line and says what to do."""


def checkpoint_path(record: Path) -> Path:
    return record.with_suffix(".checkpoint.pt")


def tidy(record: Path, ended: bool) -> None:
    """Delete what writers left that were killed, and, where the run has ended, all that it had beside its record.

    For who holds the claim.
    """
    beside = (checkpoint_path(record), heartbeat_path(record))
    for path in (record, *beside):
        remove_remains(path)
    if ended:
        for path in beside:
            path.unlink(missing_ok=True)


@contextmanager
def only_one(record: Path) -> Iterator[None]:
    """Hold the claim on a record, a lock on a file beside it; InUseError where another process does.

    The system lets go of it when its process ends, however that ends. A file system without locks (some NFS)
    grants it to all.
    """
    missing = [folder for folder in record.parents if not folder.exists()]
    path = record.with_name(f".{record.name}.lock")
    file = _held(path, record)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that nobody else's is deleted
        os.close(file)
        with suppress(OSError):  # a run that could not begin leaves no folders
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
            # Whoever held it before may have deleted it between our opening and our locking.
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
