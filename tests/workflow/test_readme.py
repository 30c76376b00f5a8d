"""The commands of README and docs do what the pages say, and so do all examples of docs/your-own.md."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from projects import package_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/your-own.md"
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {EXAMPLES})]

# Options that cut a command of minutes or hours down to seconds.
CUT = {
    "train": ["--set", "epochs=1", "--set", "dataset=fashion_mnist_excerpt"],
    "propagate": ["--steps", "20"],
}
CUT_ON_OWN_DATA = ["--set", "epochs=1"]
# The beginnings of commands that do not run here, and why.
NOT_RUN = {
    ". .venv/bin/activate": "the copy of the project has no environment of its own",
    "for pid in": "ends processes",
    "highways cost --calibrate": "measures the machine, alone on it",
    "highways collect results --into": "tests/experiments/test_results.py runs it on a reference of its own",
    "highways collect highways-bundle": "tests/experiments/test_bundle.py runs it",
    "python highways-bundle/run.py": "tests/experiments/test_bundle.py runs it",
    "pytest": "tests/methods/test_guide.py runs it",
    "highways train --dataset mnist --depth 8 --method weighted_pc": "tests/methods/test_guide.py runs it",
}
FULL_DATA = ("bundle", "propagate")
# Workflows that are run, on the embedded data and one seed; all others are planned.
RUN = {"mine.yaml", "chosen.yaml"}

pytestmark = pytest.mark.dag


def commands(text: str) -> list[list[str]]:
    """The commands of each bash block, in order, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [[line.partition(" #")[0].strip() for line in block.splitlines()] for block in blocks]
    return [[line for line in block if line] for block in lines]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


BLOCKS = {f"{page.stem}-{number}": block for page in PAGES for number, block in enumerate(commands(read(page)))}
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", read(EXAMPLES), re.DOTALL | re.MULTILINE))


@pytest.fixture
def folder(project) -> Path:
    """A copy of the project with the results that come with it."""
    (project.folder / "results").mkdir()
    (project.folder / "results/reference").symlink_to(ROOT / "results/reference")
    return project.folder


def test_the_two_commands_come_first():
    assert commands(read(ROOT / "README.md"))[0] == ["make smoke", "make test"]


@pytest.mark.parametrize("name", BLOCKS)
def test_the_commands_of_a_block_work(folder, name):
    """Workflows are only planned; a training is cut down to one epoch on the embedded data."""
    for command in BLOCKS[name]:
        execute(folder, command)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_examples_of_a_section_work_in_order(folder, heading):
    """A block that begins with a file's name is written to that file; other Python and bash blocks run."""
    for language, block in re.findall(r"```(\w+)\n(.*?)```", SECTIONS[heading], re.DOTALL):
        named = re.match(r"# ([\w./-]+\.\w+)\n", block)
        if named:
            (folder / named[1]).parent.mkdir(parents=True, exist_ok=True)
            text = block[named.end() :]
            if named[1] in RUN:
                text = text.replace("seeds: [0, 1, 2]", "seeds: [0]")
            (folder / named[1]).write_text(text, encoding="utf-8")
        elif language == "bash":
            for command in commands(f"```bash\n{block}```")[0]:
                execute(folder, command)
        elif language == "python":
            succeed(folder, [sys.executable, "-c", block])
        else:
            assert language == "text", f"a block of {language} names no file"


def execute(folder: Path, command: str) -> None:
    """Run a command of a page, as far as it runs here."""
    words = shlex.split(command)
    needs_data = words[0] == "highways" and words[1] in FULL_DATA and not os.environ.get("HIGHWAYS_DATA")
    if needs_data or any(command.startswith(beginning) for beginning in NOT_RUN):
        return
    if ">" in words:  # into a file
        words = words[: words.index(">")]
    unfinished = words[1:2] == ["status"]  # exit code 3: something is not run
    succeed(folder, as_run_here(words, command), codes=(0, 3) if unfinished else (0,))


def succeed(folder: Path, words: list[str], codes: tuple[int, ...] = (0,)) -> None:
    environment = {**os.environ, **package_of(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode in codes, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


def as_run_here(words: list[str], command: str) -> list[str]:
    if words[0] == "snakemake":
        plan = [] if "--unlock" in words or RUN & {*words} else ["--dry-run"]
        return [sys.executable, "-m", "snakemake", *plan, *words[1:]]
    if words[0] == "highways":
        own = words[1] == "train" and "--config" in words
        cut = CUT_ON_OWN_DATA if own else CUT.get(words[1], [])
        return [sys.executable, "-m", "highways", *words[1:], *cut]
    if words[0] == "make":
        return ["make", "--directory", str(ROOT), "--dry-run", *words[1:]]
    assert words[0] == "printf", f"{command}: neither run nor listed as not run"
    return ["bash", "-c", command]


def test_each_command_that_is_not_run_stands_on_a_page():
    every = [command for page in [*PAGES, EXAMPLES] for block in commands(read(page)) for command in block]
    assert [b for b in NOT_RUN if not any(command.startswith(b) for command in every)] == []
