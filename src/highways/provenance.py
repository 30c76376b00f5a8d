"""Where a number comes from: the code, the libraries and the machine that made it. Imports no torch."""

import ast
import functools
import hashlib
import io
import platform
import re
import subprocess
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from highways import __version__
from highways.specs.registry import METHODS

PACKAGE = Path(__file__).parent
# Modules that cannot change a number of a run; a module that only these import does not count either. They
# store results, check the values of a spec, or give the title and the cost of a method.
HARMLESS = frozenset(
    {
        "__init__",
        "training/checkpoint",
        "training/claim",
        "errors",
        "specs/fields",
        "files",
        "inference/build",
        "training/interruption",
        "training/progress",
        "provenance",
        "record",
        "record_checks",
        "training/resume",
        "specs/cost",
        "specs/registry",
    }
)
# Modules that count, but whose imports do not: this one imports the kernels, which count only for a method
# that itself imports `inference`.
NOT_FOLLOWED = frozenset({"training/machine"})
# The module with the options of all methods, of which only the definitions that the method uses count.
OPTIONS = "specs/options"
# The sources of compiled code, which count with the module that calls it.
COMPILED = {"inference/native": ("*.cpp", "*.h", "*.hpp", "flags.py")}

TRAINING, TRACING = "training/loop", "propagation/relaxation"


def training_code(method: str) -> str:
    """A fingerprint of the code that determines the numbers of a method: 16 hexadecimal digits.

    It covers every module that the training or the method imports, directly or not, except `HARMLESS`.
    A package counts where something is imported from it by name, not where it only holds an imported module.
    Comments, docstrings and layout do not count.
    """
    return _fingerprint(TRAINING, method)


def propagation_code(method: str) -> str:
    """A fingerprint of the code that determines a trace of a method; see `training_code`."""
    return _fingerprint(TRACING, method)


def relaxes_with_a_kernel(method: str) -> bool:
    """Whether a method imports the E-step of `inference`."""
    return "inference/__init__" in modules([f"methods/{method}"])


def modules(entries: Iterable[str]) -> set[str]:
    """The entries and the modules that they import, directly or not, as `training_code` counts them."""
    found: set[str] = set()
    todo = list(entries)
    while todo:
        name = todo.pop()
        if name in found or name in HARMLESS:
            continue
        found.add(name)
        if name not in NOT_FOLLOWED:
            todo += _imported(PACKAGE, _text(name))
    return found


def _fingerprint(entry: str, method: str) -> str:
    own = [part for part in (METHODS[method].options, METHODS[method].network) if part is not None]
    homes = [_module(PACKAGE, part.__module__) for part in own]
    counted = modules([entry, f"methods/{method}", *(home for home in homes if home)])
    texts = {name: _text(name) for name in sorted(counted)}
    if OPTIONS in texts:
        used = {name for text in texts.values() for name in _imported_options(text)}
        texts[OPTIONS] = _definitions(texts[OPTIONS], {*used, *(part.__name__ for part in own)})
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(_meaning_of_python(text).encode())
        for pattern in COMPILED.get(name, ()):
            for path in sorted((PACKAGE / name).parent.glob(pattern)):
                digest.update(_meaning(path).encode())
    return digest.hexdigest()[:16]


def kernel_code() -> str:
    """A fingerprint of what the kernels in C++ are built from."""
    home = PACKAGE / "inference"
    modules = [path for pattern in COMPILED["inference/native"] for path in sorted(home.glob(pattern))]
    return hashlib.sha256("".join(_meaning(module) for module in modules).encode()).hexdigest()[:16]


def package_code() -> str:
    """A fingerprint of the whole package, comments included, for outputs that are remade in seconds."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".yaml", ".j2"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _text(name: str) -> str:
    return (PACKAGE / f"{name}.py").read_text(encoding="utf-8")


@functools.cache  # the methods share most of their modules
def _imported(package: Path, text: str) -> list[str]:
    """The modules of the package that a text imports, at any level of it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [_module(package, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [_module(package, part) or _module(package, node.module) for part in parts]
    return [name for name in found if name is not None]


def _module(package: Path, dotted: str) -> str | None:
    """The place of a module of the package, without its ending; None for any other name."""
    first, *rest = dotted.split(".")
    if first != package.name:
        return None
    names = ["/".join(rest), "/".join([*rest, "__init__"])]
    return next((name for name in names if (package / f"{name}.py").is_file()), None)


@functools.cache
def _imported_options(text: str) -> list[str]:
    """The names that a text imports from `specs.options`."""
    dotted = f"highways.{OPTIONS.replace('/', '.')}"
    nodes = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module == dotted
    ]
    return [alias.name for node in nodes for alias in node.names]


def _definitions(text: str, names: Iterable[str]) -> str:
    """The top-level statements of a text that define these names and the names that they use."""
    defined = {name: node for node in ast.parse(text).body for name in _names(node)}
    found: dict[str, ast.stmt] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in defined and name not in found:
            found[name] = defined[name]
            todo += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return "".join(f"{_source(text, node)}\n" for _, node in sorted(found.items()))


def _names(node: ast.stmt) -> list[str]:
    """The names that a top-level statement defines; none for an import, which `modules` follows."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _source(text: str, node: ast.stmt) -> str:
    """The lines of a statement, its decorators included."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _meaning(module: Path) -> str:
    """A source without comments, docstrings and layout; the same text under every version of Python."""
    text = module.read_text(encoding="utf-8")
    return "".join(re.sub(r"//.*", "", text).split()) if module.suffix != ".py" else _meaning_of_python(text)


@functools.cache  # the rules share most of their modules
def _meaning_of_python(text: str) -> str:
    layout = {tokenize.NEWLINE: ";", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in ignored]
    meaning: list[str] = []
    begins = True  # whether a statement begins here
    skipped = False
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        alone = begins and following is not None and following.type == tokenize.NEWLINE
        docstring = token.type == tokenize.STRING and alone
        if not (docstring or skipped):
            meaning.append(layout.get(token.type) or "".join(token.string.split()))
        skipped = docstring  # and so is the NEWLINE after it
        begins = token.type in layout
    return "".join(meaning)


def git_state() -> tuple[str | None, bool | None]:
    """The commit and whether tracked files other than results differ from it; (None, None) outside git."""
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return commit, bool(changes)


def _git(*arguments: str) -> str:
    root = PACKAGE.parents[1]
    run = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return run.stdout.strip()


def describe(method: str) -> dict[str, Any]:
    """The part of a record's provenance that does not need torch."""
    commit, dirty = git_state()
    return {
        "version": __version__,
        "commit": commit,
        "dirty": dirty,
        "training_code": training_code(method),
        "python": platform.python_version(),
    }
