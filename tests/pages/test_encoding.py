"""Text is UTF-8 wherever it is read or written, whatever the locale of the user says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = ("src", "tests", "benchmarks", "scripts")
STARTS = ("run", "Popen", "call", "check_call", "check_output")


def left_to_the_locale(text: str) -> Iterator[int]:
    """The lines of the calls that read or write text in the encoding of the locale."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        method = isinstance(node.func, ast.Attribute)
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        options = {option.arg: option.value for option in node.keywords}
        if name == "open" and not (method and getattr(node.func.value, "id", None) in ("tarfile", "os")):
            place = 0 if method and getattr(node.func.value, "id", None) not in ("gzip", "io") else 1
            mode = options.get("mode", node.args[place] if len(node.args) > place else None)
            textual = not (isinstance(mode, ast.Constant) and "b" in str(mode.value))
        elif name == "read_text":
            textual = not node.args
        elif name == "write_text":
            textual = method and len(node.args) == 1  # our own function writes UTF-8
        elif name in STARTS:
            textual = bool(options.keys() & {"text", "universal_newlines"})
        else:
            continue
        if textual and "encoding" not in options:
            yield node.lineno


@pytest.mark.parametrize(
    "call",
    [
        "path.read_text()",
        "path.write_text(text)",
        "open(path)",
        "open(path, 'w')",
        "path.open()",
        "path.open('a')",
        "gzip.open(path, 'rt')",
        "subprocess.run(command, text=True)",
        "Popen(command, universal_newlines=True)",
    ],
)
def test_a_call_without_an_encoding_is_found(call):
    assert list(left_to_the_locale(call)) == [1]
    assert (
        list(left_to_the_locale(call[:-1] + ", encoding='utf-8')" if "()" not in call else "f(encoding=1)")) == []
    )


@pytest.mark.parametrize(
    "call",
    ["path.open('rb')", "open(path, 'wb')", "tarfile.open(path, 'w:gz')", "run(command)", "write_text(a, b)"],
)
def test_bytes_need_none(call):
    assert list(left_to_the_locale(call)) == []


def test_all_text_is_read_and_written_as_utf_8(root: Path):
    found = [
        f"{path.relative_to(root)}:{line}"
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        for line in left_to_the_locale(path.read_text(encoding="utf-8"))
    ]
    assert found == []
