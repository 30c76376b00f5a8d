"""When a run has diverged."""

import math

# Cross-entropy of guessing is ln C. No training that works comes near a thousand times that in the mean of an
# epoch: for ten classes it is the loss of a network that is sure, and wrong, by 2,300 units of its logits.
LARGEST = 1000.0


def has_diverged(classes: int, *mean_losses: float) -> bool:
    """Whether a mean loss over an epoch, in nats, is not finite or is beyond LARGEST times that of guessing."""
    return not all(loss <= LARGEST * math.log(classes) for loss in mean_losses)
