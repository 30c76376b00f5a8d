"""The code of docs/adding-a-method.md, put where the page says, passes the tests and trains."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/adding-a-method.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python\n# ((?:src|tests)/\S+.*?)\n(.*?)```", GUIDE, re.DOTALL))
MODULE, OPTIONS, REGISTRY, TESTS, STILL = BLOCKS
NAME = Path(MODULE).stem


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the project with the method of the guide."""
    folder = tmp_path_factory.mktemp("guide")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in ("config.yaml", "pyproject.toml"):
        shutil.copy2(ROOT / file, folder / file)
    (folder / MODULE).write_text(BLOCKS[MODULE], encoding="utf-8")
    (folder / TESTS).write_text(BLOCKS[TESTS], encoding="utf-8")
    edit(folder / OPTIONS, r"\Z", "\n\n" + BLOCKS[OPTIONS])
    edit(folder / REGISTRY, r"(?<=\n)}\n\Z", BLOCKS[REGISTRY] + "}\n")
    edit(folder / STILL.partition(",")[0], r"(?<=nearly_still = {\n)", BLOCKS[STILL])
    return folder


def edit(path: Path, where: str, what: str) -> None:
    text, count = re.subn(where, lambda _: what, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, path
    path.write_text(text, encoding="utf-8")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8")


def test_the_method_of_the_guide_passes_its_tests_and_those_of_every_method(copy):
    done = run(copy, "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", TESTS, STILL.partition(",")[0])
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20


@pytest.mark.parametrize("tool", [["ruff", "check"], ["ruff", "format", "--check"]])
def test_the_code_of_the_guide_has_the_style_of_the_project(copy, tool):
    files = [head.partition(",")[0] for head in BLOCKS]
    done = run(copy, *tool, *files)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_loop_of_ipc_in_the_guide_is_that_of_the_module():
    (loop,) = re.findall(r"  ```python\n(.*?)  ```", GUIDE, re.DOTALL)
    module = (ROOT / "src/highways/methods/ipc.py").read_text(encoding="utf-8")
    assert textwrap.indent(textwrap.dedent(loop), 8 * " ") in module


def test_the_method_of_the_guide_trains(copy):
    """The guide's command trains, here on the excerpt at depth 4 for two epochs."""
    (command,) = re.findall(rf"```bash\nhighways (train [^\n]*{NAME}[^\n]*)\n```", GUIDE)
    words = command.replace("--dataset mnist --depth 8", "--dataset fashion_mnist_excerpt --depth 4").split()
    shorter = ["--out", "record.json", "--set", "epochs=2", "--set", "learning.lr=2e-3"]
    done = run(copy, "highways", *words, *shorter)
    assert done.returncode == 0, done.stderr
    record = json.loads((copy / "record.json").read_text(encoding="utf-8"))
    assert record["test_accuracy"] > 0.5
    assert all(norm > 0 for norm in record["diagnostics"][-1]["weight_gradient_norm"])


def test_it_can_stand_in_the_table_of_baselines(copy):
    """The guide's row has five rates by three values of one setting at four places, and the seeds of each."""

    def runs() -> int:
        done = run(copy, "highways", "status", "--config", "config.yaml")
        assert done.returncode == 3, done.stderr  # something is not run
        return int(re.search(r"(\d[\d,]*) runs", done.stdout)[1].replace(",", ""))

    before = runs()
    (entry,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    edit(copy / "config.yaml", r"(?=\n# [^\n]*\n# [^\n]*\npropagation:\n)", entry)  # as the last row
    assert runs() == before + 4 * (5 * 3) + 3 + 3 + 1 + 1
