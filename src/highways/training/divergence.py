"""When a run has diverged."""

import math

# Guessing has the cross-entropy ln C. No working training has an epoch mean near a thousand times that: for
# ten classes it is the loss of a network whose logit of a wrong class is 2,300 above that of the right one.
LARGEST = 1000.0


def has_diverged(classes: int, *mean_losses: float) -> bool:
    """Whether a mean loss over an epoch, in nats, is not finite or exceeds LARGEST times ln C."""
    return not all(loss <= LARGEST * math.log(classes) for loss in mean_losses)
