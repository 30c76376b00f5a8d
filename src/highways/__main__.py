"""`python -m highways`: the same as the command `highways`."""

import atexit
import gc
import sys

from highways.training.interruption import ended_by_signals


def main() -> int:
    """Run a command; returns the exit code."""
    _spare_collections()
    with ended_by_signals():
        from highways.cli import main as command
    return command()


def _spare_collections() -> None:
    """Collect garbage less often, and not at the exit: a third of the start of a command that imports torch.

    The objects of imported modules live until the end, so a search among them finds nothing.
    """
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)


if __name__ == "__main__":
    sys.exit(main())
