"""The weights of a run at chosen epochs, for diagnostics that look inside a training."""

from collections.abc import Collection
from pathlib import Path

from highways.model import trained
from highways.model.network import Parameters
from highways.record import RecordError
from highways.specs.run import RunSpec
from highways.training.claim import checkpoint_path, only_one, tidy
from highways.training.interruption import Interruptible
from highways.training.loop import Training, complete
from highways.training.machine import Machine
from highways.weights import About, WeightsError

_RECORD = "training.json"


def snapshot_path(folder: Path, epoch: int) -> Path:
    return folder / f"epoch{epoch:02d}.npz"


def _pending(folder: Path, epoch: int) -> Path:
    """Where weights wait for the end of the training: what a broken-off job is to make, its workflow deletes."""
    return folder / f"training.epoch{epoch:02d}.npz"


def keep(spec: RunSpec, folder: Path, epochs: Collection[int], machine: Machine) -> None:
    """Train to the last of these epochs and keep the weights after each (0: before training); resumes.

    The run keeps its specification, so its schedule, and only stops after the last of them. Beyond its own end the
    rate stays as it ended. The folder gets the record of what was trained, training.json. The weights appear
    together, at the end.
    Raises Interrupted after saving a checkpoint on SIGTERM or SIGINT, and RecordError where the training diverges
    or a checkpoint has passed one of these epochs without keeping it.
    """
    out = folder / _RECORD
    with only_one(out):
        tidy(out, ended=False)
        result = complete(_Kept(spec, out, machine.prepared(spec.dtype), folder, epochs))
    if result["status"] != "ok":
        raise RecordError(f"{out}: the training diverged in epoch {result['diverged_epoch']}; no weights kept")
    for epoch in epochs:
        _pending(folder, epoch).replace(snapshot_path(folder, epoch))


class _Kept(Training):
    """A training that writes its weights on the way."""

    def __init__(self, spec: RunSpec, out: Path, machine: Machine, folder: Path, epochs: Collection[int]) -> None:
        super().__init__(spec, out, machine)
        self.folder, self.kept = folder, epochs
        self.last_epoch = max(1, *epochs)
        passed = self.epoch if self.batch else self.epoch - 1
        lost = sorted(epoch for epoch in epochs if epoch < passed and not _pending(folder, epoch).exists())
        if lost:
            said = f"has passed epoch {', '.join(map(str, lost))} without keeping the weights"
            raise RecordError(f"{checkpoint_path(out)}: {said}; delete it to train again")

    def keep(self, epoch: int) -> None:
        """Write the weights where this is the moment: `epoch` epochs are done, and the next has not begun."""
        if epoch in self.kept and (self.epoch, self.batch) == (epoch + 1, 0):
            accuracy = self.epochs[-1]["validation_accuracy"] if self.epochs else None
            about = About(self.spec, epoch, self.data.mean, self.data.std, accuracy)
            trained.save(_pending(self.folder, epoch), about, self.parameters)

    def run(self, guard: Interruptible) -> None:
        self.keep(self.epoch - 1)
        super().run(guard)

    def _end_epoch(self) -> None:
        done = self.epoch
        super()._end_epoch()
        self.keep(done)


def read_of(spec: RunSpec, folder: Path, epoch: int) -> Parameters:
    """The weights of that run after an epoch; WeightsError where there are none, or those of another run."""
    path = snapshot_path(folder, epoch)
    found = trained.load(path)
    if found.about.spec != spec:
        raise WeightsError(f"{path}: holds the weights of another run; make them with `highways snapshots`")
    return found.parameters
