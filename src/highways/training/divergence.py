"""When a run has diverged."""

import math

CLASSES = 10
# Cross-entropy of guessing is ln C. No training that works comes near a thousand times that in the mean of an
# epoch: it is the loss of a network that is sure, and wrong, by 2,300 units of its logits.
LARGEST_LOSS = 1000.0 * math.log(CLASSES)


def has_diverged(*mean_losses: float) -> bool:
    """Whether a mean loss over an epoch, in nats, is not finite or is beyond LARGEST_LOSS."""
    return not all(loss <= LARGEST_LOSS for loss in mean_losses)
