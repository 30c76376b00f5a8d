"""The fingerprint of the code changes with what determines a number, and with nothing else."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from highways import methods, provenance
from highways.specs import registry
from highways.specs.cost import no_more

PYTHON = '''"""Docstring."""

import os


def f(x):  # a comment
    """Docstring."""
    if x:
        return f"{x}: 'text'"
    return os.path.join("a", "b")
'''

# Listed by name, so that a method that is added later changes no test here.
METHODS = ("pc", "hep", "dfa", "backprop", "epc", "meta_pcn", "precision", "dkp", "dkp_pc", "lra", "mupc", "ipc")
EVERY = set(METHODS)
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
    """Tokens are the same under every version of Python; the form of a syntax tree is not."""
    path = tmp_path / "m.py"
    path.write_text(PYTHON, encoding="utf-8")
    expected = 'importos;deff(x):;{ifx:;{returnf"{x}:\'text\'";}returnos.path.join("a","b");}'
    assert provenance._meaning(path) == expected


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("model/energy.py", "\nfrom typing", "\n# a comment\n\nfrom typing"),
        ("model/energy.py", '"""The paper\'s', '"""Of the paper: the'),
        ("inference/estep.cpp", "namespace {", "// a comment\nnamespace {  // another"),
        ("inference/build.py", '"lock"', '"a-lock"'),
        ("analysis/figures/style.py", "import", "import os\nimport"),
    ],
)
def test_what_changes_no_number_changes_no_fingerprint(package, file, old, new):
    before = provenance.training_code("hep")
    path = package / file
    assert old in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert provenance.training_code("hep") == before


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def changed_by(package: Path, fingerprint: Callable[[str], str], file: str, old: str, new: str) -> set[str]:
    """The methods of this project whose fingerprint an edit changes."""
    before = {method: fingerprint(method) for method in METHODS}
    edit(package / file, old, new)
    return {method for method in METHODS if fingerprint(method) != before[method]}


@pytest.mark.parametrize(
    ("file", "old", "new", "methods"),
    [
        ("propagation/chain.py", "return", "return 2 *", EVERY),
        ("inference/optimizer.py", "BETA_1, BETA_2 = 0.9", "BETA_1, BETA_2 = 0.8", EVERY),
        ("specs/run.py", "(depth - i) % k == 0", "(depth - i) % k == 1", EVERY),
        ("inference/batched.py", "return", "return 2 *", RELAXING),
        ("inference/estep.cpp", "BETA_1 = 0.9", "BETA_1 = 0.8", RELAXING),
        ("methods/precision.py", "return", "return 2 *", {"precision"}),
        ("specs/options.py", "width * depth", "2 * width * depth", EVERY),  # traces include the network mupc
    ],
)
def test_what_changes_traces_changes_their_fingerprint(package, file, old, new, methods):
    assert changed_by(package, provenance.propagation_code, file, old, new) == methods


@pytest.mark.parametrize(
    ("file", "old", "new", "methods"),
    [
        ("model/energy.py", "0.5 *", "0.4 *", EVERY),
        ("inference/estep.cpp", "BETA_1 = 0.9", "BETA_1 = 0.8", RELAXING),
        ("inference/flags.py", '"-O3"', '"-O3", "-ffast-math"', RELAXING),
        ("inference/optimizer.py", "BETA_1, BETA_2 = 0.9", "BETA_1, BETA_2 = 0.8", RELAXING),
        ("training/machine.py", "flush_denormal(True)", "flush_denormal(False)", EVERY),
        ("specs/run.py", "(depth - i) % k == 0", "(depth - i) % k == 1", EVERY),
        ("methods/feedback.py", "(spec.highway.sigma_v *", "(2 * spec.highway.sigma_v *", {"hep", "dfa"}),
        ("methods/hep.py", "self.spec.highway.alpha *", "2 * self.spec.highway.alpha *", {"hep"}),
        ("methods/pc.py", "initial[-1]", "initial[0]", RELAXING),
        ("methods/ipc.py", "self.options.step_size * slope", "2 * self.options.step_size * slope", {"ipc"}),
        ("methods/dkp.py", "(2 / (width", "(3 / (width", {"dkp", "dkp_pc"}),
        ("methods/base.py", "div_(batch)", "div_(batch + 1)", EVERY),
        ("methods/sweeps.py", "u = g @ matrices[layer]", "u = 2 * g @ matrices[layer]", SWEEPING),
        # Records of all methods hold cosines to backprop.
        ("methods/backprop.py", "F.cross_entropy(logits, y)", "2 * F.cross_entropy(logits, y)", EVERY),
        ("specs/parametrisation.py", '"w_in": 1.0', '"w_in": 2.0', EVERY),
        ("specs/options.py", "width * depth", "2 * width * depth", {"mupc"}),
        ("specs/options.py", "depth + 3", "depth + 4", {"precision"}),
        ("specs/options.py", "2.0 * options.steps", "3.0 * options.steps", set()),  # only the cost
    ],
)
def test_what_changes_numbers_changes_the_fingerprints_of_its_methods(package, file, old, new, methods):
    assert changed_by(package, provenance.training_code, file, old, new) == methods


CHILD = """
from highways.methods import pc
from highways.inference.optimizer import state_optimizer


class Rule(pc.Rule):
    pass
"""
OWN_OPTIONS = """

@dataclass(frozen=True)
class Child:
    steps: int = integer(7, low=1, high=STEPS)
"""
HEAD = """
from dataclasses import dataclass

from highways.specs.fields import integer

STEPS = 9
"""


@pytest.mark.parametrize("home", ["specs/options", "specs/own"])
def test_a_method_of_ones_own_is_fingerprinted_with_all_that_it_uses_and_moves_no_other(
    package, monkeypatch, home
):
    """Its options may stand in specs/options.py or in a file of their own."""
    before = {
        method: (provenance.training_code(method), provenance.propagation_code(method)) for method in METHODS
    }
    (package / "methods" / "child.py").write_text(CHILD, encoding="utf-8")
    path = package / f"{home}.py"
    text = path.read_text(encoding="utf-8") if path.exists() else HEAD
    path.write_text(text + OWN_OPTIONS, encoding="utf-8")
    entry = '    "child": Method("Child", inference=True, options=options.Child, cost=no_more),\n    "dfa":'
    edit(package / "specs" / "registry.py", '    "dfa":', entry)
    options = type("Child", (), {"__module__": f"highways.{home.replace('/', '.')}"})
    method = registry.Method("Child", inference=True, options=options, cost=no_more)
    monkeypatch.setitem(registry.METHODS, "child", method)
    after = {method: (provenance.training_code(method), provenance.propagation_code(method)) for method in METHODS}
    assert after == before
    assert provenance.relaxes_with_a_kernel("child")
    own = {provenance.training_code("child")}
    for file, old, new in (
        (f"{home}.py", "integer(7, low=1, high=STEPS)", "integer(8, low=1, high=STEPS)"),
        (f"{home}.py", "STEPS = ", "STEPS = 2 * "),
        ("inference/estep.cpp", "BETA_1 = 0.9", "BETA_1 = 0.8"),
        ("inference/optimizer.py", "BETA_1, BETA_2 = 0.9", "BETA_1, BETA_2 = 0.8"),
    ):
        edit(package / file, old, new)
        assert provenance.training_code("child") not in own, file
        own.add(provenance.training_code("child"))


def test_a_method_that_only_takes_the_optimizer_of_the_states_is_fingerprinted_with_it(package, monkeypatch):
    text = "from highways.inference.optimizer import state_optimizer\nfrom highways.methods import base\n"
    (package / "methods" / "own.py").write_text(text, encoding="utf-8")
    monkeypatch.setitem(registry.METHODS, "own", registry.Method("Own", cost=no_more))
    assert not provenance.relaxes_with_a_kernel("own")
    before = provenance.training_code("own")
    edit(package / "inference" / "batched.py", "return", "return 2 *")
    assert provenance.training_code("own") == before
    edit(package / "inference" / "optimizer.py", "BETA_1, BETA_2 = 0.9", "BETA_1, BETA_2 = 0.8")
    assert provenance.training_code("own") != before


def test_the_methods_that_relax_with_a_kernel_are_the_children_of_predictive_coding():
    pc = methods.rule("pc")
    assert {m for m in METHODS if issubclass(methods.rule(m), pc)} == RELAXING
    assert {m for m in METHODS if provenance.relaxes_with_a_kernel(m)} == RELAXING


# Prints which module of the package imports which when the interpreter runs them.
IMPORTS = """
import builtins, importlib, json, sys
found, original = [], builtins.__import__

def watched(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    module = original(name, globals, locals, fromlist, level)
    if importer.startswith("highways") and name.startswith("highways"):
        for part in fromlist or ():
            inner = f"{name}.{part}"
            found.append((importer, inner if inner in sys.modules else name))
    return module

builtins.__import__ = watched
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps([found, {n: m.__file__ for n, m in sys.modules.items() if n.startswith("highways")}]))
"""


@pytest.fixture(scope="module")
def imports() -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Pairs of importer and imported, and the place of every module in the package."""
    names = [dotted(entry) for entry in (*ENTRIES, *(f"methods/{method}" for method in METHODS))]
    output = subprocess.run(
        [sys.executable, "-c", IMPORTS, *names], capture_output=True, text=True, encoding="utf-8", check=True
    )
    edges, files = json.loads(output.stdout)
    places = {name: Path(file).relative_to(provenance.PACKAGE).with_suffix("") for name, file in files.items()}
    return edges, {name: place.as_posix() for name, place in places.items()}


def dotted(name: str) -> str:
    return f"highways.{name.replace('/', '.')}"


ENTRIES = (provenance.TRAINING, provenance.TRACING)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("method", METHODS)
def test_a_fingerprint_covers_what_the_interpreter_imports(imports, entry, method):
    """It equals the closure of the imports at run time, except for the modules listed as harmless."""
    edges, place = imports
    reached, todo = set(), [dotted(entry), dotted(f"methods/{method}")]
    while todo:
        name = todo.pop()
        if name in reached or place[name] in provenance.HARMLESS:
            continue
        reached.add(name)
        if place[name] not in provenance.NOT_FOLLOWED:
            todo += [imported for importer, imported in edges if importer == name]
    counted = provenance.modules([entry, f"methods/{method}"])
    assert counted == {place[name] for name in reached}
    assert len(counted) > 10


def test_what_is_called_harmless_exists():
    for name in (*provenance.HARMLESS, *provenance.NOT_FOLLOWED, *provenance.COMPILED, provenance.OPTIONS):
        assert (provenance.PACKAGE / f"{name}.py").exists(), name


def test_a_fingerprint_is_the_same_in_every_locale():
    code = "from highways import provenance as p; print(p.training_code('mupc'), p.propagation_code('mupc'))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", env=plain, check=True
    )
    assert said.stdout.split() == [provenance.training_code("mupc"), provenance.propagation_code("mupc")]


def test_fingerprints_of_all_methods_take_little_of_a_parse():
    """Every job parses the workflow, so all fingerprints together may take two processor seconds at most."""
    for cached in (provenance._imported, provenance._meaning_of_python, provenance._imported_options):
        cached.cache_clear()
    start = time.process_time()
    for method in METHODS:
        provenance.training_code(method)
        provenance.propagation_code(method)
    assert time.process_time() - start < 2.0
