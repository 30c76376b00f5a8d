"""`python -m highways`: the same as the command `highways`."""

import sys

from highways.training.interruption import ended_by_signals


def main() -> int:
    """Run a command; returns the exit code."""
    with ended_by_signals():
        from highways.cli import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
