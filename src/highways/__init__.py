"""Error Highways: predictive coding in very deep networks, reproduced and benchmarked.

Importing this imports neither torch nor pandas; its functions do.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highways.model.trained import Trained

__all__ = ["load"]
__version__ = "0.1.0"


def load(path: str | Path) -> "Trained":
    """The network that `highways train --weights` has kept in a file; its `predict` takes images of uint8.

    UserError, in one line, where the file holds none.
    """
    from highways.model import trained

    return trained.load(path)
