"""A user's method in a copy of the package: its records, its traces, and the cost that it must have."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from highways import provenance

MODULE = '''"""Predictive coding under another name."""

from highways.methods import pc


class Rule(pc.Rule):
    """Vanilla predictive coding."""
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A folder with a copy of the package, which has one method more in the middle of the registry."""
    folder = tmp_path_factory.mktemp("own")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(provenance.PACKAGE, folder / "highways", ignore=ignored)
    (folder / "highways" / "methods" / "child.py").write_text(MODULE, encoding="utf-8")
    register(folder, '    "child": Method("Child", inference=True, cost=no_more),\n')
    return folder


def register(folder: Path, entry: str) -> None:
    registry = folder / "highways" / "specs" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    assert text.count('    "dfa":') == 1
    registry.write_text(text.replace('    "dfa":', entry + '    "dfa":'), encoding="utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
    )


def test_the_record_of_a_child_of_predictive_coding_names_the_kernel(copy, tiny):
    spec = json.dumps({**tiny("pc", epochs=1).to_dict(), "method": "child"})
    out = copy / "record.json"
    trained = run(
        copy, "-m", "highways", "train", "--spec", spec, "--out", str(out), "--kernel", "batched", "--quiet"
    )
    assert trained.returncode == 0, trained.stderr
    assert json.loads(out.read_text(encoding="utf-8"))["provenance"]["kernel"] == "batched"


def test_its_relaxation_is_not_traced_under_another_name(copy, root):
    words = ["--method", "child", "--config", str(root / "config.yaml"), "--depth", "8", "--steps", "3"]
    said = run(copy, "-m", "highways", "propagate", *words, "--out", str(copy / "trace.npz"))
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert "how 'child' relaxes is not known here; it takes pc, hep" in line
    assert not (copy / "trace.npz").exists()


def test_a_method_without_a_cost_is_refused_when_the_configuration_is_read(copy, root, tmp_path):
    folder = tmp_path / "free"
    shutil.copytree(copy, folder)
    register(folder, '    "free": Method("Free", inference=True),\n')
    text = (root / "config.yaml").read_text(encoding="utf-8")
    config = folder / "config.yaml"
    config.write_text(text.replace("methods: [pc, hep]", "methods: [free, pc, hep]", 1), encoding="utf-8")
    said = run(folder, "-m", "highways", "status", "--config", str(config))
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert "methods: 'free' has no cost" in line
