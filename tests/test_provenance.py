"""A fingerprint of the code that changes with what determines a number, and with nothing else."""

import shutil

import pytest

from highways import provenance

PYTHON = '''"""Docstring."""

import os


def f(x):  # a comment
    """Docstring."""
    if x:
        return f"{x}: 'text'"
    return os.path.join("a", "b")
'''

SWEEPING = {"epc", "meta_pcn", "lra"}
RELAXING = {"pc", "hep", "precision", "mupc"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package that a test may edit."""
    copy = tmp_path / "highways"
    shutil.copytree(provenance.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "PACKAGE", copy)
    return copy


def test_the_meaning_of_a_module_is_its_tokens(tmp_path):
    """The same under every version of Python: no syntax tree, whose form changes."""
    path = tmp_path / "m.py"
    path.write_text(PYTHON, encoding="utf-8")
    expected = 'importos;deff(x):;{ifx:;{returnf"{x}:\'text\'";}returnos.path.join("a","b");}'
    assert provenance._meaning(path) == expected


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("energy.py", "\nfrom typing", "\n# a comment\n\nfrom typing"),
        ("energy.py", '"""The paper\'s', '"""Of the paper: the'),
        ("inference/estep.cpp", "namespace {", "// a comment\nnamespace {  // another"),
        ("inference/build.py", '"lock"', '"a-lock"'),
        ("analysis/style.py", "import", "import os\nimport"),
    ],
)
def test_what_changes_no_number_changes_no_fingerprint(package, file, old, new):
    before = provenance.training_code("hep")
    path = package / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert provenance.training_code("hep") == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("propagation/chain.py", "return", "return 2 *"),
        ("inference/batched.py", "return", "return 2 *"),
        ("inference/estep.cpp", "BETA_1 = 0.9", "BETA_1 = 0.8"),
        ("methods/precision.py", "return", "return 2 *"),
    ],
)
def test_what_changes_traces_changes_their_fingerprint(package, file, old, new):
    before = provenance.propagation_code()
    path = package / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert provenance.propagation_code() != before


@pytest.mark.parametrize(
    ("file", "old", "new", "methods"),
    [
        ("energy.py", "0.5 *", "0.4 *", set(provenance.METHODS)),
        ("inference/estep.cpp", "BETA_1 = 0.9", "BETA_1 = 0.8", RELAXING),
        ("inference/flags.py", '"-O3"', '"-O3", "-ffast-math"', RELAXING),
        ("arithmetic.py", "flush_denormal(True)", "flush_denormal(False)", set(provenance.METHODS)),
        ("methods/feedback.py", "(spec.highway.sigma_v *", "(2 * spec.highway.sigma_v *", {"hep", "dfa"}),
        ("methods/hep.py", "self.spec.highway.alpha *", "2 * self.spec.highway.alpha *", {"hep"}),
        ("methods/pc.py", "x.shape[0]", "x.shape[1]", RELAXING),
        ("methods/dkp.py", "(2 / (width", "(3 / (width", {"dkp", "dkp_pc"}),
        ("methods/base.py", "div_(batch)", "div_(batch + 1)", set(provenance.METHODS)),
        ("methods/sweeps.py", "mu + errors[layer]", "mu - errors[layer]", SWEEPING),
        ("methods/backprop.py", "F.cross_entropy(logits, y)", "2 * F.cross_entropy(logits, y)", None),
    ],
)
def test_what_changes_numbers_changes_the_fingerprints_of_its_methods(package, file, old, new, methods):
    before = {method: provenance.training_code(method) for method in provenance.METHODS}
    path = package / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    changed = {method for method in provenance.METHODS if provenance.training_code(method) != before[method]}
    assert changed >= {"backprop"} if methods is None else changed == methods
