"""One training run: its loop, evaluation, diagnostics, checkpoints, interruption and resumption."""
