"""Dry runs of the workflow with a user's file as `--configfile`."""

import subprocess
import sys
from pathlib import Path

from projects import ROOT


def plan(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    file, results = tmp_path / "part.yaml", tmp_path / "mine"
    file.write_text(f"{text}\npathvars: {{results: {results}}}\n", encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules", "--configfile", str(file)]
    return subprocess.run(
        [*command, "--", f"{results}/tables/depth.md"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


def test_a_row_for_a_new_depth_stands_beside_those_of_the_reference(tmp_path):
    row = "{depth: 6, alpha: 0.5, steps: 20, lr: 1.0e-3, optimizer: euler, step_size: 0.5}"
    cells = "{dataset: mnist, depth: 6, seeds: [0, 1, 2]}"
    block = f"{{name: depth, methods: [pc, hep], cells: {cells}}}"
    run = plan(tmp_path, f"experiments: [{block}]\nsettings: [{row}]")
    assert run.returncode == 0, run.stdout
    assert {tuple(line.split()) for line in run.stdout.splitlines() if line.startswith("train")} == {
        ("train", "6")
    }


def test_a_key_that_stands_there_twice_is_refused(tmp_path):
    run = plan(tmp_path, "device: cpu\ndevice: cuda")
    assert run.returncode == 1
    assert "part.yaml: line 2: the key 'device' stands there twice" in run.stdout
