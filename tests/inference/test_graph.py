"""Recording and replaying the E-step for a GPU, tested on a CPU with a stand-in for the CUDA graph.

The stand-in behaves like a CUDA graph. The work runs once, on the input tensors of the recording. A replay
runs it on what these tensors hold by then, and writes the results into the output tensors of the recording.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from highways.inference import batched, graph
from highways.inference.estep import EStep
from networks import Problem, make_problem


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the CUDA graph by the stand-in; returns the number of replays of every recording."""
    replays: list[int] = []

    def record(work: graph.Work, inputs: graph.Tensors) -> tuple[tuple[torch.Tensor, ...], Callable[[], None]]:
        outputs, number = work(inputs), len(replays)
        replays.append(0)

        def replay() -> None:
            replays[number] += 1
            for output, result in zip(outputs, work(inputs), strict=True):
                output.copy_(result)

        return outputs, replay

    monkeypatch.setattr(graph, "record", record)
    monkeypatch.setattr(graph, "_recorded", {})
    return replays


def relaxed(problem: Problem, recorded: bool, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Initial states, z, mu and errors of the E-step by `batched`; `recorded`: on the path of a GPU."""
    with monkeypatch.context() as patch:
        if recorded:
            patch.setattr(torch.Tensor, "is_cuda", True)
        settings = (problem.architecture, problem.spec.inference, 0.1, problem.highways)
        initial, (z, mu, error) = batched.relax(EStep(problem.parameters, problem.x, problem.y, *settings))
    return [initial, z, mu, *error]


@pytest.mark.parametrize("optimizer", ["euler", "adam"])
@pytest.mark.parametrize("method", ["pc", "hep"])
def test_a_replay_sees_new_weights_images_and_targets(
    method: str, optimizer: str, recordings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"inference": {"optimizer": optimizer}, "conventions": {"bias": True}}
    first, second = make_problem(method, seed=0, **settings), make_problem(method, seed=1, **settings)
    second.x.neg_()
    second.y.copy_(second.y.roll(1, dims=1))
    for problem in (first, second, first):
        ours, expected = (relaxed(problem, recorded, monkeypatch) for recorded in (True, False))
        assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert recordings == [3]


def test_results_stay_when_the_recording_is_replayed(
    recordings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make_problem(seed=0), make_problem(seed=1)
    ours = relaxed(first, True, monkeypatch)
    kept = [tensor.clone() for tensor in ours]
    relaxed(second, True, monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(ours, kept, strict=True))
    assert recordings == [2]


def test_other_shapes_and_settings_are_other_recordings_and_old_ones_are_dropped(
    recordings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (3, 2, 3):
        relaxed(make_problem(batch=batch), True, monkeypatch)
    assert recordings == [2, 1]
    for steps in (5, 6, 7):
        relaxed(make_problem(batch=3, inference={"steps": steps}), True, monkeypatch)
    assert recordings == [2, 1, 1, 1, 1]
    assert len(graph._recorded) == graph.KEPT
    relaxed(make_problem(batch=3), True, monkeypatch)
    assert len(recordings) == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["pc", "hep"])
def test_a_gpu_agrees_with_the_cpu(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = relaxed(make_problem(method), False, monkeypatch)
    problem = make_problem(method)
    parameters, device = problem.parameters.to(torch.device("cuda")), "cuda"
    highways = problem.highways
    if highways is not None:
        highways = highways._replace(feedback=highways.feedback.to(device))
    settings = (problem.architecture, problem.spec.inference, 0.1, highways)
    step = EStep(parameters, problem.x.to(device), problem.y.to(device), *settings)
    for _ in range(2):
        initial, (z, mu, error) = batched.relax(step)
        for ours, theirs in zip((initial, z, mu, *error), expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-12)
