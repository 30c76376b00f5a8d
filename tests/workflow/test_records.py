"""The committed records are what this code makes, on the kind of machine that made them."""

import json
from pathlib import Path

import pytest
import torch

from highways import record, train
from highways.data import DataError
from highways.machine import Machine
from highways.spec import RunSpec

RUNS = Path(__file__).parents[2] / "results" / "runs"
QUIET = Machine(quiet=True)


@pytest.mark.dag
@pytest.mark.parametrize("method", ["pc", "hep", "backprop"])
def test_a_committed_record_is_made_again_to_the_last_digit(method, tmp_path):
    committed = record.read(sorted((RUNS / f"paper/mnist/L004/{method}").glob("*/seed0.json"))[0])
    spec = RunSpec.from_dict(committed["spec"])
    made_by = committed["provenance"]
    here = {
        "torch": torch.__version__,
        "device": QUIET.device_name(),
        "kernel": made_by["kernel"] and QUIET.prepared(spec.dtype).kernel,
    }
    different = [key for key, value in here.items() if made_by[key] != value]
    if different:
        pytest.skip(f"made with another {', '.join(different)}: {[made_by[key] for key in different]}")
    try:
        again = json.loads(json.dumps(train.train(spec, tmp_path / "again.json", QUIET)))
    except DataError as error:
        pytest.skip(f"no data: {error}")
    for part in ("epochs", "best_epoch", "test_accuracy", "diagnostics"):
        assert again[part] == committed[part]
