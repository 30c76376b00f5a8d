"""The training loop: epochs, validation, the best checkpoint, resume, divergence.

Choices that the paper leaves open: the last partial batch of an epoch is trained on; the best epoch is the
earliest one with the highest validation accuracy; the test set is evaluated once, at the end, with the
weights of that epoch.
"""

import datetime
import math
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from highways import data, methods, provenance, record
from highways.files import read_json, short
from highways.methods import weight_step
from highways.methods.base import Gradient, Rule
from highways.model.network import Architecture, Parameters, initialise
from highways.model.randomness import generator
from highways.specs.run import RunSpec
from highways.training import checkpoint, resume
from highways.training.claim import checkpoint_path, only_one, tidy
from highways.training.diagnostics import per_layer
from highways.training.divergence import has_diverged
from highways.training.evaluation import correct_predictions, evaluate
from highways.training.interruption import Interrupted, Interruptible
from highways.training.machine import Machine
from highways.training.progress import Progress

CHECKPOINT_SECONDS = 300.0


def train(spec: RunSpec, out: Path, machine: Machine, renew: bool = False) -> dict[str, Any]:
    """Run a spec, resuming its checkpoint where there is one, and write its record to `out`.

    Where the record exists, nothing is run. With `renew` a record of another spec, other code or another
    kernel stays until the new one replaces it. Raises Interrupted after saving a checkpoint on SIGTERM or
    SIGINT, DataError for unusable data, RecordError where something else is at `out`, InUseError where
    another process trains it, and OSError where its folder cannot be written.
    """

    def there() -> bool:
        return record.refuse_to_replace(out, spec, renew, machine.kernel)

    with only_one(out):
        if there():
            tidy(out, ended=record.refuse_to_replace(out, spec, True, machine.kernel))  # else a renewal resumes
            return dict(read_json(out))
        tidy(out, ended=False)
        return complete(Training(spec, out, machine.prepared(spec.dtype)), there)


def complete(training: "Training", there: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Run a training to its end and write its record; raises Interrupted after saving a checkpoint.

    The caller holds the claim on the record. Some file systems grant it to several processes, so `there`
    tells at the end whether the record exists by now; an existing record is kept.
    """
    with Interruptible() as guard:
        try:
            training.run(guard)
        except Interrupted:
            training.save()
            training.progress.close()
            raise
        result = training.finish()
        if not there():
            record.write(training.out, result)
    training.progress.close()
    tidy(training.out, ended=True)
    return result


class Training:
    """The state of one run. A checkpoint holds all of it that cannot be computed again from the spec."""

    def __init__(self, spec: RunSpec, out: Path, machine: Machine) -> None:
        self.spec, self.out, self.machine = spec, out, machine
        self.device = torch.device(machine.device)
        self.data = data.load(spec.dataset, machine.data_dir, spec.data)
        dtype = getattr(torch, spec.dtype)
        self.train = _moved(self.data.train, self.device, dtype)
        self.validation = _moved(self.data.validation, self.device, dtype)
        self.architecture = Architecture.of(spec)
        self.parameters = initialise(spec, spec.images.inputs, spec.images.classes).to(self.device)
        self.rule: Rule = methods.rule(spec.method)(spec, self.parameters, machine.kernel)
        self.optimizer = weight_step.weight_optimizer(spec, self.parameters)
        self.batches = math.ceil(len(self.train.labels) / spec.batch_size)
        self.progress = Progress(out, spec.epochs, self.batches, machine.quiet)

        self.epoch, self.batch = 1, 0  # the next batch to train on
        self.last_epoch = spec.epochs
        self.loss_sum, self.correct = 0.0, 0
        self.epochs: list[dict[str, Any]] = []
        self.best_epoch: int | None = None
        self.best_accuracy = -1.0
        self.best = self.parameters.clone()
        self.diverged_epoch: int | None = None
        self.diagnostics: list[dict[str, Any]] = []  # before training, then after every epoch
        self.wall_seconds = self.cpu_seconds = 0.0
        self.attempts = 1
        self._restore()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._saved = time.monotonic()

    # The loop

    def run(self, guard: Interruptible) -> None:
        """Train to the last epoch, or to the one in which the run diverges.

        A run diverges where a loss or a gradient is not finite, or where a mean loss over an epoch exceeds
        the limit of divergence.py.
        """
        self.progress.start(self.epoch, self.batch)
        if not self.diagnostics:
            self._diagnose(0)
        updates = self.spec.epochs * self.batches
        while self.epoch <= self.last_epoch and self.diverged_epoch is None:
            for indices in self.order(self.epoch)[self.batch :]:
                x, labels, y = self.batch_of(indices)
                done = (self.epoch - 1) * self.batches + self.batch
                gradients = self.rule.gradients(self.parameters, x, y, done)
                gradient = next(gradients)
                loss = F.cross_entropy(gradient.logits, labels).item()
                lr = weight_step.learning_rate(self.spec.learning, done, updates)
                with guard.deferred():
                    if not (math.isfinite(loss) and self.steps(chain([gradient], gradients), lr)):
                        self.diverged_epoch = self.epoch
                        self._end_epoch()
                        self.save()
                        break
                    self.loss_sum += loss * len(labels)
                    self.correct += correct_predictions(gradient.logits, labels)
                    self.batch += 1
                seen = min(self.batch * self.spec.batch_size, len(self.train.labels))
                self.progress.update(self.epoch, self.batch, self.loss_sum / seen, self.correct / seen)
                if time.monotonic() - self._saved > CHECKPOINT_SECONDS:
                    with guard.deferred():
                        self.save()
            else:
                with guard.deferred():
                    self._end_epoch()
                    self.save()

    def steps(self, gradients: Iterable[Gradient], lr: float) -> bool:
        """Make the updates of a batch at the rate lr; False at the first gradient that is not finite."""
        for gradient in gradients:
            if not _all_finite(gradient.weights):
                return False
            self.step(gradient, lr)
        return True

    def step(self, gradient: Gradient, lr: float) -> None:
        """One update of the weights and of the rule's learned matrices, at the rate lr."""

        def descend() -> None:
            weight_step.apply(self.optimizer, self.parameters, gradient.weights, lr)

        self.rule.step(self.parameters, gradient, lr, descend)

    def order(self, epoch: int) -> tuple[Tensor, ...]:
        """The batches of an epoch as indices of training images, a pure function of (seed, epoch)."""
        stream = generator(self.spec.seed, f"batches/{epoch}")
        order = torch.randperm(len(self.train.labels), generator=stream)
        return torch.split(order.to(self.device), self.spec.batch_size)

    def batch_of(self, indices: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Training images (B, D), their labels (B,) and one-hot targets (B, C)."""
        x, labels = self.train.images[indices], self.train.labels[indices]
        return x, labels, F.one_hot(labels, self.spec.images.classes).to(x.dtype)

    def _end_epoch(self) -> None:
        images = min(self.batch * self.spec.batch_size, len(self.train.labels))
        validation_loss, validation_accuracy = evaluate(self.parameters, self.validation, self.architecture)
        good = self.diverged_epoch is None and not has_diverged(
            self.spec.images.classes, self.loss_sum / images, validation_loss
        )
        row = {
            "epoch": self.epoch,
            "train_loss": self.loss_sum / images if good else None,
            "train_accuracy": self.correct / images if good else None,
            "validation_loss": validation_loss if good else None,
            "validation_accuracy": validation_accuracy if good else None,
        }
        self.epochs.append(row)
        self.progress.epoch(row)
        self._diagnose(self.epoch)
        if not good:
            self.diverged_epoch = self.epoch
        elif validation_accuracy > self.best_accuracy:
            self.best_epoch, self.best_accuracy = self.epoch, validation_accuracy
            self.best = self.parameters.clone()
        self.epoch, self.batch = self.epoch + 1, 0
        self.loss_sum, self.correct = 0.0, 0

    # The record

    def finish(self) -> dict[str, Any]:
        """Evaluate the best weights on the test set and assemble the record."""
        test = _moved(self.data.test, self.device, self.parameters.w_in.dtype)
        test_accuracy = None
        if self.best_epoch is not None:
            test_accuracy = evaluate(self.best, test, self.architecture)[1]
        self._count_time()
        updates = len(self.epochs) * self.batches
        rate = updates / self.wall_seconds if self.wall_seconds > 0 else None
        steps = self.spec.inference.steps if self.spec.inference else None
        uses_kernel = provenance.relaxes_with_a_kernel(self.spec.method)
        return {
            "version": record.VERSION,
            "spec": self.spec.to_dict(),
            "spec_hash": self.spec.hash,
            "status": "ok" if self.diverged_epoch is None else "diverged",
            "diverged_epoch": self.diverged_epoch,
            "images": {
                "train": len(self.train.labels),
                "validation": len(self.validation.labels),
                "test": len(test.labels),
            },
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "validation_accuracy": self.best_accuracy if self.best_epoch is not None else None,
            "test_accuracy": test_accuracy,
            "diagnostics": self.diagnostics,
            "timing": {
                "wall_seconds": round(self.wall_seconds, 3),
                "cpu_seconds": round(self.cpu_seconds, 3),
                "updates_per_second": rate,
                "inference_steps_per_second": rate * steps if rate and steps else None,
                "attempts": self.attempts,
            },
            "provenance": {
                **provenance.describe(self.spec.method),
                "torch": torch.__version__,
                "device": self.machine.device_name(),
                "processor": self.machine.processor(),
                "threads": self.machine.threads,
                "kernel": self.machine.kernel if uses_kernel else None,
                "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            },
        }

    def _diagnose(self, epoch: int) -> None:
        """Per-layer diagnostics on one fixed batch: the first images of the training part."""
        x, _, y = self.batch_of(slice(self.spec.batch_size))
        layers = per_layer(self.spec, self.rule, self.parameters, x, y)
        rounded = {name: [_rounded(value) for value in values] for name, values in layers.items()}
        self.diagnostics.append({"epoch": epoch, **rounded})

    # The checkpoint

    def _key(self) -> str:
        """All that determines the numbers of a run; a checkpoint with another key does not belong to it."""
        code, machine = provenance.training_code(self.spec.method), self.machine
        how = f"{machine.kernel}/{machine.threads} threads/{self.device.type}/{machine.processor()}"
        return f"{self.spec.hash}/{code}/{how}/torch {torch.__version__}"

    def save(self) -> None:
        """Write a checkpoint from which `_restore` continues exactly."""
        self._count_time()
        self._saved = time.monotonic()
        checkpoint.save(checkpoint_path(self.out), self._key(), self._state())

    def _state(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN_STATE},
            "parameters": self.parameters.named(),
            "best": self.best.named(),
            "optimizer": self.optimizer.state_dict(),
            "learned": self.rule.learned.state() if self.rule.learned else None,
        }

    def _restore(self) -> None:
        path = checkpoint_path(self.out)
        state = checkpoint.load(path, self._key())
        if state is None:
            return
        problem = resume.unfit(state, self._state(), self.spec)
        if problem is not None:
            checkpoint.set_aside(path, f"does not fit its run ({short(problem)})")
            return
        for name in _PLAIN_STATE:
            setattr(self, name, state[name])
        for name, tensor in self.parameters.named().items():
            tensor.copy_(state["parameters"][name])
        for name, tensor in self.best.named().items():
            tensor.copy_(state["best"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.rule.learned:
            self.rule.learned.restore(state["learned"])
        self.attempts += 1

    def _count_time(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.wall_seconds += wall - self._wall
        self.cpu_seconds += cpu - self._cpu
        self._wall, self._cpu = wall, cpu


_PLAIN_STATE = (
    "epoch",
    "batch",
    "loss_sum",
    "correct",
    "epochs",
    "best_epoch",
    "best_accuracy",
    "diverged_epoch",
    "diagnostics",
    "wall_seconds",
    "cpu_seconds",
    "attempts",
)


def _rounded(value: float | None) -> float | None:
    """Five significant digits, to keep a record short: it has several numbers for every layer and epoch."""
    return None if value is None else float(f"{value:.5g}")


def _all_finite(weights: Parameters) -> bool:
    """Whether gradients and their squares, which AdamW averages, are finite."""
    return all(math.isfinite(tensor.square().sum().item()) for tensor in weights.named().values())


def _moved(part: data.Part, device: torch.device, dtype: torch.dtype) -> data.Part:
    return data.Part(part.images.to(device, dtype), part.labels.to(device))
