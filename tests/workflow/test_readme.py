"""The commands of README and docs do what the pages say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from projects import package_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# What makes a command of minutes or hours one of seconds.
CUT = {
    "train": ["--set", "epochs=1", "--set", "dataset=fashion_mnist_excerpt"],
    "propagate": ["--steps", "20"],
}
# Commands that do not run here, by their beginning, and why.
NOT_RUN = {
    ". .venv/bin/activate": "the copy of the project has no environment of its own",
    "for pid in": "ends processes",
    "highways cost --calibrate": "measures the machine, alone on it",
    "highways collect results --into": "tests/test_results.py runs it on a reference of its own",
    "highways collect highways-bundle": "tests/test_bundle.py runs it",
    "python highways-bundle/run.py": "tests/test_bundle.py runs it",
    "pytest": "tests/test_guide.py runs it",
    "highways train --dataset mnist --depth 8 --method weighted_pc": "tests/test_guide.py runs it",
}
FULL_DATA = ("bundle", "propagate")

pytestmark = pytest.mark.dag


def commands(page: Path) -> list[list[str]]:
    """The commands of each block for a shell, in order, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [[line.partition(" #")[0].strip() for line in block.splitlines()] for block in blocks]
    return [[line for line in block if line] for block in lines]


BLOCKS = {f"{page.stem}-{number}": block for page in PAGES for number, block in enumerate(commands(page))}


def test_the_two_commands_come_first():
    assert commands(ROOT / "README.md")[0] == ["make smoke", "make test"]


@pytest.mark.parametrize("name", BLOCKS)
def test_the_commands_of_a_block_work(project, name):
    """Workflows are planned, not run; a run of hours is cut down to one epoch at the embedded data."""
    (project.folder / "results").mkdir()
    (project.folder / "results/reference").symlink_to(ROOT / "results/reference")
    environment = {**os.environ, **package_of(project.folder)}
    for command in BLOCKS[name]:
        words = shlex.split(command)
        needs_data = words[0] == "highways" and words[1] in FULL_DATA and not os.environ.get("HIGHWAYS_DATA")
        if needs_data or any(command.startswith(beginning) for beginning in NOT_RUN):
            continue
        done = subprocess.run(
            as_run_here(words, command),
            cwd=project.folder,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        fine = (0, 3) if words[1:2] == ["status"] else (0,)  # 3: something is not run
        assert done.returncode in fine, f"{command}\n{done.stdout}{done.stderr}"


def as_run_here(words: list[str], command: str) -> list[str]:
    if words[0] == "snakemake":
        plan = [] if "--unlock" in words else ["--dry-run"]
        return [sys.executable, "-m", "snakemake", *plan, *words[1:]]
    if words[0] == "highways":
        return [sys.executable, "-m", "highways", *words[1:], *CUT.get(words[1], [])]
    if words[0] == "make":
        return ["make", "--directory", str(ROOT), "--dry-run", *words[1:]]
    assert words[0] == "printf", f"{command}: neither run nor listed as not run"
    return ["bash", "-c", command]


def test_each_command_that_is_not_run_stands_on_a_page():
    every = [command for block in BLOCKS.values() for command in block]
    assert [b for b in NOT_RUN if not any(command.startswith(b) for command in every)] == []
