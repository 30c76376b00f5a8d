"""The weights of a run at chosen epochs, for diagnostics that look inside a training."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from highways import record
from highways.files import write_atomically
from highways.model.network import Parameters
from highways.record import RecordError
from highways.specs.run import RunSpec
from highways.training.claim import checkpoint_path, only_one, tidy
from highways.training.interruption import Interruptible
from highways.training.loop import Training, complete
from highways.training.machine import Machine

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
            arrays: dict[str, Any] = {
                name: tensor.cpu().numpy() for name, tensor in self.parameters.named().items()
            }

            def save(temporary: Path) -> None:
                with temporary.open("wb") as file:
                    np.savez(file, **arrays)

            write_atomically(_pending(self.folder, epoch), save)

    def run(self, guard: Interruptible) -> None:
        self.keep(self.epoch - 1)
        super().run(guard)

    def _end_epoch(self) -> None:
        done = self.epoch
        super()._end_epoch()
        self.keep(done)


def read_of(spec: RunSpec, folder: Path, epoch: int) -> Parameters:
    """The weights of that run after an epoch; RecordError where there are none, or those of another run."""
    found = RunSpec.from_dict(record.read(folder / _RECORD, whole=False)["spec"])
    if found != spec:
        raise RecordError(f"{folder}: holds the weights of another run; make them with `highways snapshots`")
    return read(folder, epoch)


def read(folder: Path, epoch: int) -> Parameters:
    """The weights after an epoch; RecordError where they are not there."""
    path = snapshot_path(folder, epoch)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return Parameters(**{name: torch.from_numpy(file[name]) for name in file.files})
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: no weights ({error}); make them with `highways snapshots`") from None
