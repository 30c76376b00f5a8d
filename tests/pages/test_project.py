"""environment.yml, requirements.lock and pyproject.toml agree on packages and versions."""

import re
import tomllib

import yaml

NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib", "snakemake-minimal": "snakemake"}


def locked(root) -> dict[str, str]:
    lines = (root / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))


def declared(root, *extras: str) -> set[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for name in extras for line in project["optional-dependencies"][name]),
    ]
    return {re.split(r"[<>=\[]", line)[0].lower() for line in lines} - {"highways"}


def test_the_conda_environment_agrees_with_the_lock_and_the_package(root):
    environment = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    pins = dict(line.split("=") for line in environment["dependencies"])
    python = pins.pop("python")
    assert python == "3.11"
    versions = {NAMES.get(name, name): version for name, version in pins.items()}
    assert versions.keys() == declared(root, "data", "workflow")
    lock = locked(root)
    assert versions == {name: lock[name] for name in versions}


def test_the_lock_pins_everything_that_the_package_asks_for(root):
    assert declared(root, "data", "workflow", "dev") <= locked(root).keys()
    assert "highways" not in locked(root)


def test_the_supported_range_of_torch_is_stated(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "torch>=2.9,<2.15" in project["dependencies"]
