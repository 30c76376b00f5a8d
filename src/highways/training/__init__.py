"""One training: the loop, the weight step, evaluation, diagnostics, checkpoints, and what stops and resumes it."""
