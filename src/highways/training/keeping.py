"""A training that keeps the weights of its best epoch, with which the record's test accuracy was measured.

A checkpoint has the best weights so far, so a resumed run ends with the same file as an unbroken one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from highways import record, weights
from highways.files import read_json, remove_remains
from highways.model import trained
from highways.specs.run import RunSpec
from highways.training.claim import checkpoint_path, only_one, tidy
from highways.training.loop import Training, complete
from highways.training.machine import Machine
from highways.weights import About

# The entries of a record's provenance that determine the last bits of a run's numbers.
_DECIDES = ("training_code", "torch", "processor", "device", "threads", "kernel")
_SAME = ("epochs", "best_epoch", "validation_accuracy", "test_accuracy")


def train(spec: RunSpec, out: Path, kept: Path, machine: Machine, renew: bool = False) -> dict[str, Any]:
    """As `loop.train`; also writes the weights of the best epoch to the file `kept`.

    Where the record exists without its weights, the run is trained again and the record stays as it is.
    Raises RecordError where that training ends with other numbers, as on another kind of processor, and
    WeightsError where something else is at `kept`.
    """

    def recorded() -> bool:
        return record.refuse_to_replace(out, spec, renew, machine.kernel)

    with only_one(out):
        found = weights.there(kept, spec, renew)
        if recorded() and found is not None and found.is_of(read_json(out)):
            tidy(out, ended=True)
            return dict(read_json(out))
        tidy(out, ended=False)
        remove_remains(kept)
        return complete(_Keeping(spec, out, machine.prepared(spec.dtype), kept, recorded), recorded)


class _Keeping(Training):
    """A training that writes its best weights before its record."""

    def __init__(
        self, spec: RunSpec, out: Path, machine: Machine, kept: Path, recorded: Callable[[], bool]
    ) -> None:
        super().__init__(spec, out, machine)
        self.kept, self.recorded = kept, recorded

    def finish(self) -> dict[str, Any]:
        result = super().finish()
        if self.recorded():
            self._compare(result, read_json(self.out))
        about = About(
            self.spec,
            self.best_epoch,
            self.data.mean,
            self.data.std,
            result["validation_accuracy"],
            result["test_accuracy"],
        )
        trained.save(self.kept, about, None if self.best_epoch is None else self.best)
        return result

    def _compare(self, result: dict[str, Any], recorded: dict[str, Any]) -> None:
        """Raise RecordError where the existing record has other numbers: these weights are not its own."""
        if any(result[key] != recorded[key] for key in _SAME):
            made, found = recorded["provenance"], result["provenance"]
            others = [key for key in _DECIDES if made.get(key) != found[key]]
            why = f" (another {', '.join(others)})" if others else ""
            raise record.RecordError(
                f"{self.out}: trained again for its weights, the run ends with other numbers{why}; delete the "
                f"record, and the same command writes both from {checkpoint_path(self.out).name} without training"
            )
