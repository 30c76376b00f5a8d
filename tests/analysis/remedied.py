"""Rules in a configuration of their own, and records of their runs."""

from highways.experiments.baselines import remedies
from mappings import changed


def rules(config, *entries, cells=None):
    """The configuration with these rules instead."""
    block = {**config["remedies"], "rules": list(entries)}
    return changed(config, remedies={**block, "cells": cells or block["cells"]})


def write_all(config, record, name, test):
    """Records of all runs of a rule; `test` is a number or a function of the run. The rate 0.001 is chosen."""
    for remedy in remedies(config):
        for run in remedy.runs() if remedy.name == name else ():
            value = test(run) if callable(test) else test
            record(run, value, 0.5 + run.spec.learning.lr, lr=1e-3 if run.selection else None)
