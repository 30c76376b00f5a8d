"""Synthetic records, so that every number that the analysis shows is known beforehand."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from highways.experiments.configuration import all_runs, validate
from highways.experiments.runs import Run

_CONFIG: dict[str, Any] = {
    "records": "own",
    "data": [],
    "data_dir": None,
    "device": "cpu",
    "keep_weights": False,
    "network": {"width": 128, "phi": "relu", "initialisation": "gaussian"},
    "training": {
        "epochs": 12,
        "batch_size": 128,
        "dtype": "float32",
        "weight_decay": 1e-4,
        "weight_eps": 1e-8,
    },
    "state_eps": 1e-8,
    "highway": {"every": 1, "sigma_v": 1e-3},
    "conventions": {"activation": "pre"},
    "settings": [
        {"depth": 4, "alpha": 0.5, "steps": 20, "lr": 1e-3, "optimizer": "euler", "step_size": 0.5},
        {"depth": 8, "alpha": 1.8, "steps": 96, "lr": 8e-5, "optimizer": "adam", "step_size": 0.005},
    ],
    "experiments": [
        {
            "name": "depth",
            "title": "Accuracy against depth",
            "cells": {"dataset": "mnist", "depth": [4, 8], "seeds": [0, 1, 2]},
            "methods": ["pc", "hep", "backprop"],
            "select": {"methods": "backprop", "among": {"learning.lr": [1e-4, 1e-3]}, "seeds": [0]},
        },
        {
            "name": "strength",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]},
            "methods": "hep",
            "vary": {"highway.alpha": [0.1, 1.8]},
        },
        {
            "name": "density",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]},
            "methods": "hep",
            "vary": {"highway.every": [1, 2]},
        },
        {
            "name": "conventions",
            "cells": {"dataset": "mnist", "depth": 4, "seeds": 0},
            "methods": ["pc", "hep"],
            "rows": [
                {
                    "name": "first",
                    "set": {"epochs": 2},
                    "vary": {
                        "conventions.activation": ["post", "pre"],
                        "conventions.highway_layers": ["all", "without_first"],
                    },
                },
                {
                    "name": "last",
                    "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]},
                    "methods": ["pc", "hep", "backprop"],
                    "select": {"methods": "backprop", "among": {"learning.lr": [1e-4, 1e-3]}, "seeds": [0]},
                    "vary": {"conventions.activation": "pre", "conventions.highway_layers": "all"},
                },
                {
                    "name": "last",
                    "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]},
                    "methods": ["pc", "hep", "backprop"],
                    "select": {"methods": "backprop", "among": {"learning.lr": [1e-4, 1e-3]}, "seeds": [0]},
                    "vary": {
                        "conventions.activation": "post",
                        "conventions.highway_layers": "all",
                        "highway.sigma_v": 0.01,
                    },
                },
            ],
        },
        {
            "name": "readings",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]},
            "methods": ["pc", "hep"],
            "vary": {
                "conventions.activation": ["pre", "post"],
                "conventions.highway_layers": "all",
                "highway.sigma_v": [0.001, 0.01],
            },
        },
        {
            "name": "rates",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1]},
            "methods": ["pc", "hep"],
            "times": {"learning.lr": [1, 2]},
        },
        {
            "name": "kernels",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1]},
            "methods": ["pc", "hep"],
            "rows": [{"name": "float32"}, {"name": "mixed", "kernel": "mixed"}],
        },
        {
            "name": "ablations",
            "cells": {"dataset": "mnist", "depth": 8, "seeds": [0, 1]},
            "rows": [
                {"methods": "hep"},
                {
                    "name": "cut",
                    "title": "HEP without the chain",
                    "methods": "hep",
                    "set": {"highway.chain": False},
                },
                {"methods": "dfa"},
                {"title": "PC", "methods": "pc"},
                {
                    "name": "pc_rates",
                    "title": "PC swept",
                    "methods": "pc",
                    "select": {"among": {"learning.lr": [1e-4, 1e-3]}, "seeds": [0]},
                },
                {"name": "pc_4T", "title": "PC 4T", "methods": "pc", "times": {"inference.steps": 4}},
            ],
        },
        {
            "name": "baselines",
            "cells": {"dataset": "mnist", "depth": [4, 8], "seeds": [0, 1]},
            "select": {"among": {"learning.lr": [1e-4, 1e-3]}, "seeds": 3, "epochs": 2},
            "rows": [
                {"methods": "hep", "local": "yes", "select": None},
                {"methods": "dfa", "local": "yes"},
                {
                    "title": "LRA-E",
                    "methods": "lra",
                    "local": "yes",
                    "secondary": True,
                    "select": {"among": {"rule.beta": [0.1, 0.3]}},
                },
                {"title": "muPC", "methods": "mupc", "local": "yes"},
            ],
        },
    ],
    "propagation": {
        "dataset": "mnist",
        "depth": 8,
        "seeds": [0],
        "steps": 10,
        "step_size": 0.05,
        "adam_step_sizes": [0.05],
        "layers": [1, 7],
        "during_training": {"depth": 4, "methods": ["pc"], "epochs": [0], "seed": 0},
    },
}


@pytest.fixture
def config() -> dict[str, Any]:
    return validate(copy.deepcopy(_CONFIG))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


Record = Callable[..., Path]


@pytest.fixture
def record(folder: Path) -> Record:
    """Write the record of a run: record(run, test=0.9, validation=0.91, lr=..., diverged=epoch, change=...).

    `curve` lists the validation accuracy of each epoch; its last value is repeated to the end of the run.
    """

    def write(
        run: Run,
        test: float | None = 0.9,
        validation: float | None = 0.9,
        *,
        lr: float | None = None,
        diverged: int | None = None,
        curve: list[float | None] | None = None,
        change: Callable[[dict[str, Any]], None] | None = None,
        kernel: str = "reference",
    ) -> Path:
        spec = run.spec.to_dict()
        if lr is not None:
            spec["learning"]["lr"] = lr
        if change is not None:
            change(spec)
        document = _document(spec, test, diverged, [validation] if curve is None else curve)
        document["provenance"]["kernel"] = kernel
        path = folder / f"{run.path}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


def _document(
    spec: dict[str, Any],
    test: float | None,
    diverged: int | None,
    curve: list[float | None],
) -> dict[str, Any]:
    from highways.record import VERSION
    from highways.specs.run import RunSpec

    depth = spec["network"]["depth"]
    layers = {
        "rms_state": [1.0] * (depth - 1),
        "rms_error": [0.1] * depth,
        "weight_gradient_norm": [0.1] * depth,
        "backprop_cosine": [None] * depth,
    }
    epochs = spec["epochs"] if diverged is None else diverged
    curve = [*curve, *[curve[-1]] * (epochs - len(curve))]
    if diverged is not None:
        curve[diverged - 1] = None
    validation = max((value for value in curve if value is not None), default=None)
    return {
        "version": VERSION,
        "spec": spec,
        "spec_hash": RunSpec.from_dict(spec).hash,
        "status": "ok" if diverged is None else "diverged",
        "diverged_epoch": diverged,
        "images": {"train": 50000, "validation": 10000, "test": 10000},
        "epochs": [
            {
                "epoch": epoch,
                "train_loss": None if value is None else 0.5,
                "train_accuracy": None if value is None else 0.8,
                "validation_loss": None if value is None else 0.5,
                "validation_accuracy": value,
            }
            for epoch, value in enumerate(curve, 1)
        ],
        "best_epoch": None if validation is None else curve.index(validation) + 1,
        "validation_accuracy": validation,
        "test_accuracy": test,
        "diagnostics": [{"epoch": epoch, **layers} for epoch in range(len(curve) + 1)],
        "timing": {
            "wall_seconds": 1.5,
            "cpu_seconds": 1.4,
            "updates_per_second": 10.0,
            "inference_steps_per_second": None,
            "attempts": 1,
        },
        "provenance": {
            "version": "0.1.0",
            "commit": None,
            "dirty": None,
            "training_code": "0",
            "torch": "2.9",
            "python": "3.11",
            "device": "cpu",
            "threads": 1,
            "kernel": "reference",
            "finished": "2026-01-01T00:00:00Z",
        },
    }


Find = Callable[..., Run]


@pytest.fixture
def find(config: dict[str, Any]) -> Find:
    """A function: the one run whose path has all given parts, in the experiment that one names or `depth`."""

    def one(*parts: str) -> Run:
        names = tuple(f"{block['name']}/" for block in config["experiments"])
        root = next((part for part in parts if part.startswith(names)), "depth/")
        runs = {path: run for path, run in all_runs(config).items() if path.startswith(root)}
        (run,) = [run for path, run in runs.items() if all(part in f"{path}/" for part in parts)]
        return run

    return one
