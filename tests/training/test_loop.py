"""What the training loop promises: the order of batches, the sums, the schedule, the selection, the checkpoint."""

import itertools
import math
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from highways import record
from highways.data import load
from highways.methods import rule, weight_step
from highways.model.network import Architecture, initialise
from highways.specs.options import Ipc
from highways.specs.run import Learning
from highways.training import evaluation
from highways.training import loop as training
from highways.training.diagnostics import per_layer
from highways.training.divergence import has_diverged
from highways.training.evaluation import evaluate
from highways.training.interruption import Interrupted
from highways.training.machine import Machine

QUIET = Machine(quiet=True)
BATCH, BATCHES, LAST = 128, 24, 56  # 3,000 images


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "seed0.json"


def begun(spec, out: Path) -> training.Training:
    return training.Training(spec, out, QUIET.prepared(spec.dtype))


@pytest.fixture
def seen(monkeypatch):
    """The images, labels, logits, number, rate and report of every update of a backprop run."""
    found = SimpleNamespace(images=[], labels=[], logits=[], updates=[], rates=[], reported=[])
    learner = rule("backprop")
    gradient, apply = learner.gradient, training.weight_step.apply
    update = training.Progress.update

    def spy(self, parameters, x, y, update=0):
        result = gradient(self, parameters, x, y, update)
        if not per_layer_now:
            found.images.append(x.clone())
            found.labels.append(y.argmax(-1))
            found.logits.append(result.logits.clone())
            found.updates.append(update)
        return result

    def spy_on_rate(optimizer, parameters, weights, lr):
        found.rates.append(lr)
        apply(optimizer, parameters, weights, lr)

    def spy_on_report(self, epoch, batch, loss, accuracy):
        found.reported.append((epoch, batch, loss, accuracy))
        update(self, epoch, batch, loss, accuracy)

    per_layer_now = []

    def quietly(*arguments):
        per_layer_now.append(1)
        try:
            return per_layer(*arguments)
        finally:
            per_layer_now.clear()

    monkeypatch.setattr(learner, "gradient", spy)
    monkeypatch.setattr(training, "per_layer", quietly)
    monkeypatch.setattr(training.weight_step, "apply", spy_on_rate)
    monkeypatch.setattr(training.Progress, "update", spy_on_report)
    return found


def numbers_of(batches: list[torch.Tensor]) -> list[int]:
    """The numbers of the training images in these batches; no two images of the excerpt are equal."""
    number = {image.numpy().tobytes(): i for i, image in enumerate(load("fashion_mnist_excerpt").train.images)}
    assert len(number) == 3000
    return [number[image.numpy().tobytes()] for batch in batches for image in batch]


# The order


def test_every_epoch_has_an_order_of_its_own(tiny, out, seen):
    training.train(tiny("backprop", epochs=3), out, QUIET)
    assert [len(batch) for batch in seen.images] == 3 * [*[BATCH] * (BATCHES - 1), LAST]
    orders = [numbers_of(seen.images[i * BATCHES : (i + 1) * BATCHES]) for i in range(3)]
    for order in orders:
        assert sorted(order) == list(range(3000))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        same_place = sum(a == b for a, b in zip(orders[one], orders[other], strict=True))
        assert same_place < 15  # two independent orders agree in one place on average


def test_the_order_depends_on_seed_and_epoch_alone(tiny, tmp_path):
    """Not on the method, the network, or what was drawn before: runs of one seed see the same batches."""
    one = begun(tiny("backprop", seed=3), tmp_path / "a.json")
    other = begun(tiny("hep", seed=3, epochs=7, learning=Learning(1e-4)), tmp_path / "b.json")
    torch.rand(1000)
    for epoch in (5, 1, 2):
        for a, b in zip(one.order(epoch), other.order(epoch), strict=True):
            assert torch.equal(a, b)
    again = begun(tiny("backprop", seed=4), tmp_path / "c.json")
    assert not torch.equal(again.order(1)[0], one.order(1)[0])


# The sums


def test_the_loss_of_an_epoch_is_the_mean_over_its_images(tiny, out, seen):
    """Every image counts once, with its loss before the update of its batch; the last batch has 56 images."""
    result = training.train(tiny("backprop", epochs=2), out, QUIET)
    for epoch, row in enumerate(result["epochs"]):
        of_epoch = slice(epoch * BATCHES, (epoch + 1) * BATCHES)
        logits, labels = torch.cat(seen.logits[of_epoch]).double(), torch.cat(seen.labels[of_epoch])
        mean = F.cross_entropy(logits, labels).item()
        by_batch = [
            F.cross_entropy(a.double(), b).item()
            for a, b in zip(seen.logits[of_epoch], seen.labels[of_epoch], strict=True)
        ]
        assert row["train_loss"] == pytest.approx(mean, rel=1e-6)
        assert abs(sum(by_batch) / BATCHES - mean) > 1e-5 * mean  # a mean over batches would differ
        assert row["train_accuracy"] == (logits.argmax(1) == labels).sum().item() / 3000
        assert seen.reported[(epoch + 1) * BATCHES - 1] == (
            epoch + 1,
            BATCHES,
            row["train_loss"],
            row["train_accuracy"],
        )
    first, labels = torch.cat(seen.logits[:5]).double(), torch.cat(seen.labels[:5])
    assert seen.reported[4][2] == pytest.approx(F.cross_entropy(first, labels).item(), rel=1e-6)


def test_an_evaluation_is_the_mean_over_all_images(tiny, monkeypatch):
    """1,000 images in chunks of 300: the last one, of 100, counts for 100."""
    spec = tiny("backprop")
    part, parameters = load(spec.dataset).test, initialise(spec, 784, 10)
    whole = evaluate(parameters, part, Architecture.of(spec))
    monkeypatch.setattr(evaluation, "CHUNK", 300)
    assert evaluate(parameters, part, Architecture.of(spec)) == pytest.approx(whole, rel=1e-6)


# The schedule


def test_the_schedule_runs_over_all_updates_of_the_run(tiny, out, seen):
    """48 updates, of which a quarter warms up: the closed form, counted through both epochs."""
    learning = Learning(0.004, schedule="warmup_cosine", warmup_fraction=0.25)
    training.train(tiny("backprop", epochs=2, learning=learning), out, QUIET)
    rising = [0.004 * n / 12 for n in range(1, 13)]
    falling = [0.002 * (1 + math.cos(math.pi * n / 36)) for n in range(36)]
    assert seen.rates == pytest.approx(rising + falling, rel=1e-12)
    assert seen.updates == list(range(48))


# Several steps on the weights per batch


@pytest.fixture
def interleaved(tiny):
    """A function that makes a spec whose batches have three steps on the weights; keywords replace its fields."""
    return lambda **fields: tiny("ipc", inference=None, rule=Ipc(steps=3), **{"epochs": 1, **fields})


@pytest.fixture
def stepped(monkeypatch):
    """A list of hooks, called before every step on the weights with its number (from 1), weights and rate."""
    hooks, apply, count = [], training.weight_step.apply, itertools.count(1)

    def spy(optimizer, parameters, weights, lr):
        number = next(count)
        for hook in hooks:
            hook(number, weights, lr)
        apply(optimizer, parameters, weights, lr)

    monkeypatch.setattr(training.weight_step, "apply", spy)
    return hooks


def test_all_steps_of_a_batch_are_at_the_rate_of_the_batch(interleaved, out, stepped):
    rates = []
    stepped.append(lambda number, weights, lr: rates.append(lr))
    learning = Learning(0.004, schedule="warmup_cosine", warmup_fraction=0.25)
    result = training.train(interleaved(learning=learning), out, QUIET)
    per_batch = [weight_step.learning_rate(learning, done, BATCHES) for done in range(BATCHES)]
    assert rates == [rate for rate in per_batch for _ in range(3)]
    assert result["diagnostics"][0].keys() == {
        "epoch",
        "rms_state",
        "rms_error",
        "weight_gradient_norm",
        "backprop_cosine",
    }
    assert result["epochs"][0]["train_accuracy"] > 0.15


def test_a_run_stopped_between_the_steps_of_a_batch_ends_as_an_unbroken_one(interleaved, out, stepped):
    """SIGTERM arrives in the second step of the fourth batch: the other steps of the batch follow first."""
    spec, other = interleaved(), out.with_name("unbroken.json")
    unbroken = training.train(spec, other, QUIET)
    stops = {3 * BATCHES + 3 * 3 + 2}
    stepped.append(lambda number, weights, lr: number in stops and signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        training.train(spec, out, QUIET)
    assert begun(spec, out).batch == 4
    resumed = training.train(spec, out, QUIET)
    assert resumed["timing"]["attempts"] == 2
    assert record.comparable(resumed) == record.comparable(unbroken)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_later_step_of_a_batch_that_is_not_finite_is_divergence(interleaved, out, monkeypatch, stopped):
    """The step is not taken, and a signal in the same moment loses neither the epoch nor the status."""
    learner, spec = rule("ipc"), interleaved(epochs=2)
    gradients, steps = learner.gradients, []

    def explode(self, parameters, x, y, update=0):
        for number, found in enumerate(gradients(self, parameters, x, y, update)):
            if (update, number) == (5, 1):
                found.weights.w_out[0, 0] = math.inf
                if stopped:
                    signal.raise_signal(signal.SIGTERM)
            yield found

    apply = training.weight_step.apply
    monkeypatch.setattr(learner, "gradients", explode)
    monkeypatch.setattr(training.weight_step, "apply", lambda *a: (steps.append(1), apply(*a)))
    if stopped:
        with pytest.raises(Interrupted):
            training.train(spec, out, QUIET)
    result = training.train(spec, out, QUIET)
    assert len(steps) == 5 * 3 + 1
    assert (result["status"], result["diverged_epoch"], len(result["epochs"])) == ("diverged", 1, 1)
    assert result["timing"]["attempts"] == 1 + stopped


# The selection


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [((0.5, 0.7, 0.7, 0.6), 2), ((0.7, 0.7, 0.7, 0.7), 1), ((0.1, 0.2, 0.3, 0.4), 4), ((0.0, 0.0, 0.0, 0.0), 1)],
)
def test_of_equally_good_epochs_the_earliest_is_tested(tiny, out, monkeypatch, accuracies, best):
    weights, tested = [], []

    def scripted(parameters, part, architecture):
        if len(weights) == len(accuracies):
            tested.append(parameters.clone())
            return 1.0, 0.25
        weights.append(parameters.clone())
        return 1.0, accuracies[len(weights) - 1]

    monkeypatch.setattr(training, "evaluate", scripted)
    result = training.train(tiny("backprop", epochs=4), out, QUIET)
    assert (result["best_epoch"], result["validation_accuracy"]) == (best, max(accuracies))
    assert len(tested) == 1
    assert torch.equal(tested[0].w_in, weights[best - 1].w_in)
    assert not torch.equal(weights[0].w_in, weights[1].w_in)
    assert record.read(out)["best_epoch"] == best


# Diagnostics


def test_diagnostics_are_of_the_first_images_before_training_and_after_every_epoch(tiny, out, monkeypatch):
    spec, given = tiny("backprop", epochs=2), []
    monkeypatch.setattr(
        training, "per_layer", lambda *arguments: (given.append((arguments[3], arguments[2].clone())), {})[1]
    )
    training.train(spec, out, QUIET)
    images = load(spec.dataset).train.images[:BATCH]
    assert all(torch.equal(x, images) for x, _ in given)
    assert torch.equal(given[0][1].w_in, initialise(spec, 784, 10).w_in)
    assert len({parameters.w_in.numpy().tobytes() for _, parameters in given}) == 3


# Divergence


def test_a_mean_loss_beyond_all_reason_is_divergence():
    """The limit is 1000 times ln C, the loss of guessing: 2302.585 for ten classes, 693.147 for two."""
    for classes, largest in ((10, 2302.585), (2, 693.147)):
        assert not has_diverged(classes, largest - 0.001, 0.1)
        for loss in (largest + 0.001, 1.5e8, math.inf, math.nan):
            assert has_diverged(classes, loss, 0.1)
            assert has_diverged(classes, 0.1, loss)


def test_a_run_at_chance_with_an_absurd_loss_has_diverged(tiny, out):
    result = training.train(tiny("backprop", learning=Learning(1e5), epochs=3), out, QUIET)
    assert (result["status"], result["diverged_epoch"], result["test_accuracy"]) == ("diverged", 1, None)
    assert record.read(out)["epochs"] == [
        {
            "epoch": 1,
            "train_loss": None,
            "train_accuracy": None,
            "validation_loss": None,
            "validation_accuracy": None,
        }
    ]


@pytest.mark.parametrize(("loss", "status"), [(2302.0, "ok"), (2303.0, "diverged")])
def test_a_finite_loss_on_validation_ends_a_run_where_it_is_beyond_all_reason(
    tiny, out, monkeypatch, loss, status
):
    monkeypatch.setattr(training, "evaluate", lambda *arguments: (loss, 0.1))
    assert training.train(tiny("backprop", epochs=1), out, QUIET)["status"] == status


def test_a_gradient_that_is_not_finite_is_not_applied(tiny, out, monkeypatch):
    learner = rule("backprop")
    gradient, updates = learner.gradient, []
    apply = training.weight_step.apply

    def explode(self, parameters, x, y, update=0):
        result = gradient(self, parameters, x, y, update)
        if update == 5:
            result.weights.w_out[0, 0] = math.inf
        return result

    monkeypatch.setattr(learner, "gradient", explode)
    monkeypatch.setattr(training.weight_step, "apply", lambda *a: (updates.append(1), apply(*a)))
    assert training.train(tiny("backprop"), out, QUIET)["diverged_epoch"] == 1
    assert len(updates) == 5


# The checkpoint


@pytest.mark.parametrize("method", ["backprop", "pc", "hep"])
def test_a_checkpoint_holds_everything_that_a_run_goes_on_with(tiny, tmp_path, monkeypatch, method):
    """Stopped in the fifth batch of the third epoch, with the weights of the first as the best so far."""
    spec = tiny(method, epochs=3)
    reads, updates, apply = [], [], training.weight_step.apply

    def first_is_best(parameters, part, architecture):
        reads.append(1)
        loss, accuracy = evaluate(parameters, part, architecture)
        return loss, accuracy if len(reads) > 1 else 0.999

    def stopped_update(*arguments):
        updates.append(1)
        if len(updates) == 2 * BATCHES + 5:
            signal.raise_signal(signal.SIGTERM)
        apply(*arguments)

    monkeypatch.setattr(training, "evaluate", first_is_best)
    monkeypatch.setattr(training.weight_step, "apply", stopped_update)
    broken = begun(spec, tmp_path / "broken.json")
    with pytest.raises(Interrupted):
        training.complete(broken)
    resumed = begun(spec, tmp_path / "broken.json")
    assert (resumed.epoch, resumed.batch, resumed.best_epoch, resumed.best_accuracy) == (3, 5, 1, 0.999)
    assert resumed.loss_sum > 0 < resumed.correct
    for name in ("epoch", "batch", "loss_sum", "correct", "epochs", "best_epoch", "best_accuracy"):
        assert getattr(resumed, name) == getattr(broken, name)
    for name in ("diverged_epoch", "diagnostics", "wall_seconds", "cpu_seconds"):
        assert getattr(resumed, name) == getattr(broken, name)
    assert resumed.attempts == 2
    for name in ("parameters", "best"):
        for ours, theirs in zip(
            getattr(resumed, name).named().values(), getattr(broken, name).named().values(), strict=True
        ):
            assert torch.equal(ours, theirs)
    assert not torch.equal(resumed.best.w_in, resumed.parameters.w_in)
    ours, theirs = resumed.optimizer.state_dict(), broken.optimizer.state_dict()
    assert ours["updates"] == 2 * BATCHES + 5
    for part in ("averages", "squares"):
        assert ours[part].keys() == theirs[part].keys()
        for name, tensor in theirs[part].items():
            assert torch.equal(ours[part][name], tensor)
    updates.clear()
    training.complete(resumed)
    assert len(updates) == BATCHES - 5


def test_a_checkpoint_comes_after_every_epoch_and_every_five_minutes(tiny, out, monkeypatch):
    saved = []
    monkeypatch.setattr(
        training.Training,
        "save",
        lambda self: (saved.append((self.epoch, self.batch)), setattr(self, "_saved", clock[0])),
    )
    clock = [0.0]
    monkeypatch.setattr(
        training,
        "time",
        SimpleNamespace(monotonic=lambda: clock[0], perf_counter=lambda: 0.0, process_time=lambda: 0.0),
    )
    apply = training.weight_step.apply

    def slow(*arguments):  # a batch takes 40 seconds: 320 seconds are over after eight
        clock[0] += 40.0
        apply(*arguments)

    monkeypatch.setattr(training.weight_step, "apply", slow)
    training.train(tiny("backprop", epochs=2), out, QUIET)
    assert saved == [(1, 8), (1, 16), (1, 24), (2, 0), (2, 8), (2, 16), (2, 24), (3, 0)]
