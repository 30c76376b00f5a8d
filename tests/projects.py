"""A copy of the project in which the workflow can run without touching this checkout."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "config.yaml", "environment.yml", "profiles", "src", "workflow")


def copy_project(folder: Path) -> None:
    """Copy what the workflow needs, without results, into a new folder."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_symlink():
            (folder / part).symlink_to(source.readlink())
        elif source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, folder / part, symlinks=True, ignore=ignore)
        else:
            shutil.copy2(source, folder / part)
