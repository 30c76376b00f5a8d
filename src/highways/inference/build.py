"""Builds the kernels in C++, `native` and `mixed`, with the machine's compiler, once, and keeps them in a cache.

It is a plain shared library behind a C interface: no header of torch goes into it, so it takes seconds to build
and does not depend on torch's version. The cache is $HIGHWAYS_CACHE, or highways in $XDG_CACHE_HOME or ~/.cache;
an entry is named by the source, the flags and the processor, since it is built for that processor alone. So a
machine without a compiler finds what another one of its kind has built.

Code from the cache runs as the user. It is taken only from files that belong to the user or root, in a folder
that no other can write, and only where it has the checksum that was written beside it.
"""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from highways.files import cache_folder, write_atomically
from highways.inference.flags import FLAGS

SOURCE = Path(__file__).with_name("estep.cpp")


class BuildError(RuntimeError):
    """The kernel cannot be had here; one line says why, and what to do."""


def library(kernel: str = "native") -> Path:
    """The built library of a kernel, from the cache or built now; BuildError where neither can be.

    Of many jobs that start at the same time one builds and the others wait for it.
    """
    try:
        folder = cache_folder()
    except (OSError, RuntimeError, ValueError) as error:
        raise BuildError(str(error)) from None
    try:
        target = folder / f"{kernel}-{_key(kernel)}.so"
        if _intact(target):
            return target
        damaged = f"{target} is damaged (its checksum differs)" if target.exists() else None
        compiler = _compiler(damaged)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_trusted(folder)
        with _locked(folder / "lock"):
            if not _intact(target):
                if damaged:
                    print(f"highways: {damaged}; building it again", file=sys.stderr)
                _build([*compiler, *FLAGS[kernel]], target)
    except OSError as error:
        raise BuildError(f"{error.filename or folder}: {error.strerror or error}") from None
    return target


def _checksum_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _intact(target: Path) -> bool:
    """Whether the library is there as it was built; BuildError where another could have written it."""
    try:
        _check_trusted(target.parent)
        _check_trusted(target)
        _check_trusted(_checksum_file(target))
        expected = _checksum_file(target).read_text(encoding="ascii", errors="replace").strip()
        return _checksum(target) == expected
    except FileNotFoundError:
        return False


def _check_trusted(path: Path) -> None:
    """BuildError unless the folder or plain file is the user's or root's, and no other can write it."""
    status = path.lstat()
    remedy = "set HIGHWAYS_CACHE to a folder of your own"
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        raise BuildError(f"{path} is neither a folder nor a plain file; delete it or {remedy}")
    if status.st_uid not in (0, os.geteuid()):
        raise BuildError(f"{path} belongs to another user (uid {status.st_uid}); {remedy}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(f"{path} can be written by others; {remedy}, or chmod go-w it")
    for folder in path.parents:
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise BuildError(f"{folder} can be written by others, who could replace {path.name}; {remedy}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock; a link in its place is refused, and what is there keeps its contents."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _compiler(damaged: str | None) -> list[str]:
    """The command; BuildError where it cannot be found."""
    try:
        compiler = shlex.split(os.environ.get("CXX", "c++"))
    except ValueError as error:
        raise BuildError(f"CXX: {error}") from None
    if not compiler or shutil.which(compiler[0]) is None:
        missing = f"no C++ compiler ({compiler[0] if compiler else 'CXX is empty'} not found)"
        raise BuildError(f"{damaged}, and there is {missing}" if damaged else missing)
    return compiler


def _build(command: list[str], target: Path) -> None:
    """The library and its checksum, each whole or not at all; killed between the two, it is built again."""
    _checksum_file(target).unlink(missing_ok=True)
    write_atomically(target, partial(_compile, command))
    write_atomically(_checksum_file(target), partial(_write_checksum, _checksum(target)))


def _compile(command: list[str], built: Path) -> None:
    compiler = command[0]
    try:
        run = subprocess.run(
            [*command, str(SOURCE), "-o", str(built)],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildError(f"{compiler} cannot be executed: {error.strerror}") from None
    if run.returncode != 0:
        reason = next((line for line in run.stderr.splitlines() if "error" in line), f"exit {run.returncode}")
        raise BuildError(f"{compiler} failed: {reason}")
    if not built.exists():
        raise BuildError(f"{compiler} wrote no library")
    built.chmod(0o755)


def _write_checksum(checksum: str, path: Path) -> None:
    path.write_text(checksum + "\n", encoding="ascii")
    path.chmod(0o644)


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _key(kernel: str) -> str:
    sources = [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]
    texts = [source.read_text(encoding="utf-8") for source in sources]
    parts = (*texts, *FLAGS[kernel], platform.machine(), _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """The model and the instruction sets of the processor, as Linux tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in wanted)
