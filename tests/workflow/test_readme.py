"""The commands of the README do what it says, and its numbers are those of the records."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from highways import config as configuration
from highways.analysis import report
from projects import package_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]

# What makes a command of minutes or hours one of seconds.
CUT = {
    "train": ["--set", "epochs=1", "--set", "dataset=fashion_mnist_excerpt"],
    "propagate": ["--steps", "20"],
}

pytestmark = pytest.mark.dag


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **package_of(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")


def test_the_two_commands_come_first():
    assert COMMANDS[:2] == ["make smoke", "make test"]
    for command in COMMANDS[:2]:
        assert run([*command.split(), "--dry-run"], ROOT).returncode == 0


@pytest.mark.parametrize("command", COMMANDS[2:])
def test_a_command_of_the_readme_works(project, command):
    """Workflows are planned, not run; a run of hours is cut down to one epoch at the embedded data."""
    words = shlex.split(command)
    (project.folder / "results").mkdir()
    (project.folder / "results/reference").symlink_to(ROOT / "results/reference")
    (project.folder / "part.yaml").write_text("depths: [4]\npathvars: {results: mine}\n", encoding="utf-8")
    if words[0] == "snakemake":
        result = run([sys.executable, "-m", "snakemake", "--dry-run", *words[1:]], project.folder)
    elif words[0] == "highways":
        cut = CUT.get(words[1], [])
        if words[1] in ("bundle", "propagate") and not os.environ.get("HIGHWAYS_DATA"):
            pytest.skip("needs the full data")
        result = run([sys.executable, "-m", "highways", *words[1:], *cut], project.folder)
    else:
        assert words[0] in (".", "printf")
        return
    assert result.returncode in ((0, 3) if words[1:2] == ["status"] else (0,)), result.stdout + result.stderr


def test_the_rule_of_ten_lines_trains(project):
    """As the README says: one file, one line in the registry."""
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (rule,) = [block for block in blocks if block.startswith("# src/")]
    (line,) = [block for block in blocks if "Method(" in block]
    name = rule.splitlines()[0].removeprefix("# ")
    (project.folder / name).write_text(rule, encoding="utf-8")
    registry = project.folder / "src/highways/specs/registry.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace("] = {\n", "] = {\n" + line), encoding="utf-8")
    words = ["train", "--dataset", "fashion_mnist_excerpt", "--depth", "4", "--method", Path(name).stem]
    command = [sys.executable, "-m", "highways", *words, "--out", "one.json", "--set", "epochs=2"]
    environment = {**os.environ, "PYTHONPATH": str(project.folder / "src")}
    result = subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, env=environment, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    document = json.loads((project.folder / "one.json").read_text(encoding="utf-8"))
    assert document["test_accuracy"] > 0.2
    assert document["diagnostics"][-1]["weight_gradient_norm"][:3] == [0.0, 0.0, 0.0]
    assert document["diagnostics"][-1]["backprop_cosine"] == [None, None, None, pytest.approx(1.0)]


def test_the_files_that_the_readme_names_exist():
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_results_of_the_readme_are_those_of_the_records():
    """They stand between markers; `make report` renews them."""
    block = report.readme_block(configuration.load(ROOT / "config.yaml"), ROOT / "results/reference/runs")
    assert "MNIST, L = 4, ours" in block
    assert f"<!-- results: start -->\n{block}\n<!-- results: end -->" in TEXT, "stale: make report"


def test_the_speed_in_the_readme_is_that_of_the_benchmark():
    results = json.loads((ROOT / "benchmarks/results.json").read_text(encoding="utf-8"))
    (deep,) = [row for row in results["kernels"] if row["depth"] == 32]
    (pcx,) = [row for row in results["pcx"] if row["depth"] == 32]
    assert f"PCX 0.6.3 ({pcx['ratio']:.1f}×)" in TEXT
    assert f"over autograd ({deep['native_against_reference']:.1f}×)" in TEXT
    assert f"{100 * deep['native_of_hot']:.0f} % of what the matrix products alone" in TEXT
