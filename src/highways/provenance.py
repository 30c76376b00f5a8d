"""Where a number comes from: the code, the libraries and the machine that made it. Imports no torch."""

import ast
import functools
import hashlib
import io
import platform
import re
import subprocess
import tokenize
from pathlib import Path
from typing import Any

from highways import __version__
from highways.methods import METHODS

PACKAGE = Path(__file__).parent
# The modules that determine a number, besides the learning rule itself.
MODULES = (
    "arithmetic",
    "data",
    "diagnostics",
    "energy",
    "evaluation",
    "network",
    "optimisation",
    "randomness",
    "train",
)
INFERENCE = (
    "__init__.py",
    "batched.py",
    "estep.cpp",
    "flags.py",
    "graph.py",
    "native.py",
    "optimizer.py",
    "reference.py",
)


def propagation_code() -> str:
    """A fingerprint of the code that determines a trace; see `training_code`."""
    modules = [*(PACKAGE / f"{name}.py" for name in MODULES), *sorted((PACKAGE / "propagation").glob("*.py"))]
    modules += [PACKAGE / "inference" / name for name in INFERENCE] + sorted((PACKAGE / "methods").glob("*.py"))
    return hashlib.sha256("".join(_meaning(module) for module in modules).encode()).hexdigest()[:16]


def training_code(method: str) -> str:
    """A fingerprint of the code that determines the numbers of a method: 16 hexadecimal digits.

    Comments, docstrings and layout do not count.
    """
    modules = {PACKAGE / f"{name}.py" for name in MODULES}
    if METHODS[method].kernel:
        modules |= {PACKAGE / "inference" / name for name in INFERENCE}
    todo = [method, "base"]
    while todo:
        module = PACKAGE / "methods" / f"{todo.pop()}.py"
        if module not in modules:
            modules.add(module)
            todo += _sibling_rules(module)
    digest = hashlib.sha256()
    for module in sorted(modules):
        digest.update(_meaning(module).encode())
    return digest.hexdigest()[:16]


def _sibling_rules(module: Path) -> list[str]:
    """Other rules that a rule is built on: `from highways.methods import pc`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "highways.methods":
            names += [alias.name for alias in node.names if alias.name != "options"]  # a spec holds all values
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("highways.methods."):
            names.append(str(node.module).rpartition(".")[2])
    return names


def _meaning(module: Path) -> str:
    """The text without comments, docstrings and layout; the same under every version of Python."""
    text = module.read_text(encoding="utf-8")
    return "".join(re.sub(r"//.*", "", text).split()) if module.suffix == ".cpp" else _meaning_of_python(text)


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
        skipped = docstring  # with the end of its line
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
