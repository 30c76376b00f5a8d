"""Fixtures that all tests share: the checkout, the configuration and a tiny specification."""

import copy
import os
from pathlib import Path

# One thread per test process, before numpy or torch starts its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from highways.experiments import configuration
from highways.specs.run import Highway, Inference, Learning, Network, RunSpec

ROOT = Path(__file__).parents[1]
EXCERPT = "fashion_mnist_excerpt"


# The places of test files in a run, by how their paths begin; all others come third. What waits most of its time
# starts first, and the longest next. A machine has room for one SLURM cluster at a time, so the second comes last.
ORDER = {"slurm/test_slurm.py": 0, "workflow/": 1, "slurm/test_accounting.py": 3}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by ORDER, so that the workers, who share them out by files, end at about the same time."""

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(ROOT / "tests").as_posix()
        return next((place for beginning, place in ORDER.items() if path.startswith(beginning)), 2)

    items.sort(key=rank)


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def loaded() -> dict:
    return configuration.load(ROOT / "config.yaml")


@pytest.fixture
def paper(loaded) -> dict:
    """A copy of the configuration of the whole paper, which the test may change."""
    return copy.deepcopy(loaded)


@pytest.fixture
def tiny():
    """A function that makes a spec that trains in about a second; keywords replace its fields."""

    def make(method: str = "hep", **fields) -> RunSpec:
        sections = {
            "network": Network(4, width=16),
            "learning": Learning(2e-3),
            "inference": Inference("euler", 0.5, 8),
            "highway": Highway(0.5),
        }
        if method != "hep":
            sections["highway"] = None
        if method == "backprop":
            sections["inference"] = None
        return RunSpec(**{"dataset": EXCERPT, "method": method, "epochs": 2, **sections, **fields})

    return make
