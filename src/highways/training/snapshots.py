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
    """Where weights wait for the end of the training: Snakemake deletes the outputs of a failed job."""
    return folder / f"training.epoch{epoch:02d}.npz"


def keep(spec: RunSpec, folder: Path, epochs: Collection[int], machine: Machine) -> None:
    """Train to the last of `epochs` and keep the weights after each (0: before training); resumes.

    The learning rates are those of the spec, however many epochs are trained; beyond the spec's last epoch
    the rate keeps its final value. The folder gets training.json, the record of this training. The weights
    appear together, at the end.

    Raises Interrupted after saving a checkpoint on SIGTERM or SIGINT, and RecordError where the training
    diverges or a checkpoint is past one of `epochs` whose weights were not kept.
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
    """A training that writes its weights after chosen epochs."""

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
        """Write the weights if `epoch` is to be kept and training stands exactly at its end."""
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
    """The weights of a run after an epoch; WeightsError where the file is missing or of another run."""
    path = snapshot_path(folder, epoch)
    found = trained.load(path)
    if found.about.spec != spec:
        raise WeightsError(f"{path}: holds the weights of another run; make them with `highways snapshots`")
    return found.parameters
