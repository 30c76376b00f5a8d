"""Helpers: a configuration with given baselines, and synthetic records of their runs."""

from highways.experiments.plan import plan
from mappings import experiment


def baselines(config, *rows, cells=None):
    """The configuration whose experiment `baselines` has these rows and, if given, these cells."""
    return experiment(config, "baselines", rows=list(rows), **({} if cells is None else {"cells": cells}))


def asked_for(config):
    """The planned variants of the experiment `baselines`: one per row and place."""
    return plan(config).of("baselines")


def write_all(config, record, name, test):
    """Write a record per run of a baseline, chosen rate 0.001; `test`: accuracy, or a function of the run."""
    for variant in asked_for(config):
        for run in variant.runs if variant.name == name else ():
            value = test(run) if callable(test) else test
            record(run, value, 0.5 + run.spec.learning.lr, lr=1e-3 if run.selection else None)
