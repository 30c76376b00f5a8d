"""The table `kernels`: cells run by two kernels, which record counts for which, and the difference."""

import shutil

import pytest
from shown import notes

from highways import collection
from highways.analysis.claims.kernels import kernel_table
from highways.analysis.data.frame import load
from highways.experiments.configuration import all_runs, validate
from highways.experiments.plan import plan
from highways.experiments.results import Reference
from mappings import only


@pytest.fixture
def both(config):
    cells = {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]}
    rows = [{"name": "float32"}, {"name": "mixed", "kernel": "mixed"}]
    block = {"name": "kernels", "cells": cells, "methods": "hep", "rows": rows}
    return validate({**only(config), "propagation": None, "experiments": [block]})


def write(config, record, mixed):
    for variant in plan(config).variants:
        for run in variant.runs:
            accuracy = 0.90 + run.spec.seed / 100 + (mixed[run.spec.seed] if variant.kernel == "mixed" else 0)
            record(run, accuracy, kernel="mixed" if variant.kernel == "mixed" else "native")


def test_the_difference_is_paired_over_the_seeds(both, folder, record):
    """Mixed is 0.1, 0.2 and 0.3 points better: mean 0.2, std 0.1, and t(2) is 4.303 at 97.5 %."""
    write(both, record, [0.001, 0.002, 0.003])
    row = kernel_table(both, folder).frame.loc["MNIST L=8", "HEP"]
    half = 4.303 * 0.1 / 3**0.5
    assert row["mixed − float32"] == f"+0.2 [{0.2 - half:.1f}, {0.2 + half:.1f}] (n=3)"
    assert (row["float32"], row["mixed"]) == ("91.0 ± 1.0 (n=3)", "91.2 ± 1.1 (n=3)")


def test_what_was_not_run_by_both_has_no_difference(both, folder, record):
    assert kernel_table(both, folder).frame.loc["MNIST L=8", "HEP"]["mixed − float32"] == "—"


def test_a_record_in_float32_does_not_count_for_a_run_that_asks_for_mixed(both, folder, record):
    (run,) = [run for run in all_runs(both).values() if run.kernel == "mixed" and run.spec.seed == 0]
    record(run, 0.9, kernel="native")
    frame = load({run.path: run}, folder)
    assert (frame["status"][0], frame["problem"][0]) == ("invalid", "made with another setting: kernel")
    record(run, 0.9, kernel="mixed")
    assert load({run.path: run}, folder)["status"][0] == "ok"
    assert notes(kernel_table(both, folder), "By the kernel mixed")


def test_a_reference_finds_either_by_its_kernel(both, folder, record, tmp_path):
    write(both, record, [0.001] * 3)
    reference = tmp_path / "reference"
    collection.renew(folder, all_runs(both), {}, reference)
    assert len(Reference.read(reference).records) == 6
    shutil.move(reference / "runs/kernels/mixed", reference / "runs/elsewhere")
    collection.index(reference).write()
    found = Reference.read(reference).runs(all_runs(both))
    kernels = {path: "elsewhere" in str(file) for path, file in found.items()}
    assert kernels == {run.path: run.kernel == "mixed" for run in all_runs(both).values()}
