"""Builds the C++ of the `native` kernel with the machine's compiler, once, and keeps it in a cache.

It is a plain shared library behind a C interface: no header of torch goes into it, so it takes seconds to build
and does not depend on torch's version. The cache is $HIGHWAYS_CACHE, or highways in $XDG_CACHE_HOME or ~/.cache;
an entry is named by the source, the compiler and the processor, since it is built for that processor alone.
"""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path

from highways.files import write_atomically
from highways.inference.flags import FLAGS

SOURCE = Path(__file__).with_name("estep.cpp")


class BuildError(RuntimeError):
    """The kernel cannot be built here; one line says why."""


def library() -> Path:
    """The built library, from the cache or built now; BuildError where there is no compiler or it fails.

    Of many jobs that start at the same time one builds and the others wait for it.
    """
    try:
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        folder = cache_folder()
    except (ValueError, RuntimeError) as error:
        raise BuildError(str(error)) from None
    if not compiler or shutil.which(compiler[0]) is None:
        raise BuildError(f"no C++ compiler ({compiler[0] if compiler else 'CXX is empty'} not found)")
    target = folder / f"estep-{_key(tuple(compiler))}.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                # Whole or not at all: a library cut short would crash every later process.
                write_atomically(target, partial(_compile, compiler))
    except OSError as error:
        raise BuildError(f"{error.filename or folder}: {error.strerror}") from None
    return target


def cache_folder() -> Path:
    """Where built kernels are kept; RuntimeError where there is no home folder to fall back to."""
    if os.environ.get("HIGHWAYS_CACHE"):
        return Path(os.environ["HIGHWAYS_CACHE"]).resolve()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).resolve() / "highways"
    return Path.home() / ".cache" / "highways"


def _compile(compiler: list[str], built: Path) -> None:
    run = subprocess.run(
        [*compiler, *FLAGS, str(SOURCE), "-o", str(built)],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    if run.returncode != 0:
        reason = next((line for line in run.stderr.splitlines() if "error" in line), f"exit {run.returncode}")
        raise BuildError(f"{shlex.join(compiler)} failed: {reason}")


@cache
def _key(compiler: tuple[str, ...]) -> str:
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, check=False, encoding="utf-8"
    ).stdout
    parts = (SOURCE.read_text(encoding="utf-8"), *FLAGS, *compiler, version, platform.machine(), _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """The model and the instruction sets of the processor, as Linux tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in wanted)
