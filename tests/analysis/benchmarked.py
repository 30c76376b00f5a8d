"""Baselines in a configuration of their own, and records of their runs."""

from highways.experiments.plan import plan
from mappings import experiment


def baselines(config, *rows, cells=None):
    """The configuration with these baselines instead."""
    return experiment(config, "baselines", rows=list(rows), **({} if cells is None else {"cells": cells}))


def asked_for(config):
    """The baselines at their places."""
    return plan(config).of("baselines")


def write_all(config, record, name, test):
    """Records of all runs of a baseline; `test` is a number or a function of the run. The rate 0.001 is chosen."""
    for variant in asked_for(config):
        for run in variant.runs if variant.name == name else ():
            value = test(run) if callable(test) else test
            record(run, value, 0.5 + run.spec.learning.lr, lr=1e-3 if run.selection else None)
