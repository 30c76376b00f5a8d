"""How the time of a run divides among the parts of an epoch, timed on real batches of the data."""

import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from highways.methods import pc, weight_step
from highways.specs.run import RunSpec
from highways.training.evaluation import evaluate
from highways.training.loop import Training
from highways.training.machine import Machine


def profile(spec: RunSpec, machine: Machine, batches: int = 10) -> dict[str, float]:
    """Seconds per epoch of each part, from the mean over `batches` batches after a first, uncounted one.

    Runs the parts of the training loop one by one, and updates the weights as the loop does.
    """
    with TemporaryDirectory() as folder:  # an empty folder, so that no checkpoint is resumed
        training = Training(spec, Path(folder) / "profile.json", machine.prepared(spec.dtype))
    rule, parameters = training.rule, training.parameters
    order = training.order(epoch=1)
    marks: list[list[float]] = []
    for number in range(batches + 1):
        times = [time.perf_counter()]
        x, _, y = training.batch_of(order[number % len(order)])
        times.append(time.perf_counter())
        if isinstance(rule, pc.Rule):
            rule.infer(parameters, x, y)
        times.append(time.perf_counter())
        lr = weight_step.learning_rate(spec.learning, number, spec.epochs * training.batches)
        applying = 0.0
        for gradient in rule.gradients(parameters, x, y, number):
            start = time.perf_counter()
            training.step(gradient, lr)
            applying += time.perf_counter() - start
        fetch, infer = (after - before for before, after in pairwise(times))
        marks.append([fetch, infer, time.perf_counter() - times[-1] - applying, applying])
    fetch, infer, learn, apply = (
        sum(column) / batches * training.batches for column in zip(*marks[1:], strict=True)
    )
    start = time.perf_counter()
    evaluate(parameters, training.validation, training.architecture)
    validation = time.perf_counter() - start
    return {
        "E-step": infer,
        "gradient of the weights": learn - infer,
        "AdamW": apply,
        "batches": fetch,
        "validation": validation,
    }
