"""A kernel is built once and loaded only from a safe cache; where it cannot be built, `batched` serves."""

import os
import subprocess
import sys

import pytest
import torch
from problems import EULER, problem

from highways.cli import main
from highways.inference import build, choose_kernel, native


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a stand-in for the compiler that copies the library already built."""
    built = build.library()
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{built}" "$last"\n', encoding="utf-8")
    compiler.chmod(0o755)
    folder = tmp_path / "cache"
    monkeypatch.setenv("HIGHWAYS_CACHE", str(folder))
    monkeypatch.setenv("CXX", str(compiler))
    native.load.cache_clear()
    yield folder
    native.load.cache_clear()


def chosen(capsys) -> tuple[str, str]:
    """The kernel that `auto` chooses when none is loaded yet, and what it prints to stderr."""
    native.load.cache_clear()
    capsys.readouterr()
    return choose_kernel("auto", torch.device("cpu"), torch.float32), capsys.readouterr().err


def without_compiler(tmp_path) -> dict[str, str]:
    return {**os.environ, "CXX": "no-such-compiler", "HIGHWAYS_CACHE": str(tmp_path / "cache")}


def highways(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "highways", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, encoding="utf-8")


def test_without_a_compiler_batched_serves_and_says_so(tiny, tmp_path):
    out = tmp_path / "r.json"
    spec = tiny("pc", epochs=1).to_json()
    run = highways("train", "--spec", spec, "--out", str(out), environment=without_compiler(tmp_path))
    assert run.returncode == 0
    notices = [line for line in run.stderr.splitlines() if "native" in line]
    assert notices == [
        "highways: the native kernel cannot be built: no C++ compiler (no-such-compiler not found); using batched"
    ]
    assert '"kernel": "batched"' in out.read_text(encoding="utf-8")


def test_native_asked_for_by_name_does_not_fall_back(tiny, tmp_path):
    spec = tiny("pc", epochs=1).to_json()
    arguments = ("train", "--spec", spec, "--kernel", "native", "--out", str(tmp_path / "r.json"))
    run = highways(*arguments, environment=without_compiler(tmp_path))
    assert run.returncode == 1
    assert run.stderr.startswith("highways: error: kernel: native cannot be built: no C++ compiler")


def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    monkeypatch.setenv("HIGHWAYS_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "SOURCE", tmp_path / "broken.cpp")
    (tmp_path / "broken.cpp").write_text("int main( {", encoding="utf-8")
    with pytest.raises(build.BuildError, match=r"failed: .*error"):
        build.library()
    assert list(tmp_path.rglob("*.so")) == []


def test_many_jobs_that_start_at_once_build_once(tmp_path):
    """The compiler counts its calls and skips optimisation, to save time; every job gets the same library."""
    counter, compiler = tmp_path / "calls", tmp_path / "compiler"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) ;; *) echo x >> "{counter}" ;; esac\nexec c++ "$@" -O0\n',
        encoding="utf-8",
    )
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler), "HIGHWAYS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "highways", "build"]
    jobs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8")
        for _ in range(4)
    ]
    paths = {job.communicate()[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0] * 4
    assert len(paths) == 1
    assert counter.read_text(encoding="utf-8") == "x\n"


def test_a_machine_without_a_compiler_takes_the_library_that_another_has_built(cache, monkeypatch, capsys):
    first = build.library()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.library() == first
    assert chosen(capsys) == ("native", "")
    case = problem()
    assert case.relax(EULER)[0].isfinite().all()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("SOURCE", "// edited"),
        ("FLAGS", {"native": (*build.FLAGS["native"], "-O2")}),
        ("_processor", lambda: "another processor"),
    ],
)
def test_the_name_of_a_library_depends_on_source_flags_and_processor(monkeypatch, tmp_path, name, other):
    before = build._key("native")
    assert build._key("mixed") != before
    if name == "SOURCE":
        edited = tmp_path / "estep.cpp"
        edited.write_text(build.SOURCE.read_text(encoding="utf-8") + other, encoding="utf-8")
        other = edited
    monkeypatch.setattr(build, name, other)
    assert build._key("native") != before
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "another-compiler")
    assert build._key("native") == before


def damage(cache, how: str) -> bytes:
    """Spoil the library in the cache under its right name; returns the intact contents."""
    library = build.library()
    text = library.read_bytes()
    spoilt = {
        "truncated": text[:5000],
        "one bit": text[:9000] + bytes([text[9000] ^ 1]) + text[9001:],
        "empty": b"",
    }
    library.unlink()  # this process may have loaded it
    library.write_bytes(spoilt[how])
    return text


@pytest.mark.parametrize("how", ["truncated", "one bit", "empty"])
def test_a_damaged_library_is_built_again_and_never_loaded(cache, monkeypatch, capsys, how):
    intact = damage(cache, how)
    kernel, said = chosen(capsys)
    assert kernel == "native"
    assert len(said.splitlines()) == 1
    assert "native-" in said
    assert "is damaged (its checksum differs); building it again" in said
    assert build.library().read_bytes() == intact
    damage(cache, how)
    monkeypatch.setenv("CXX", "no-such-compiler")
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert "is damaged (its checksum differs), and there is no C++ compiler" in said


def test_a_library_without_its_checksum_is_built_again(cache):
    library = build.library()
    library.with_name(library.name + ".sha256").unlink()
    library.write_bytes(b"half")
    assert len(build.library().read_bytes()) > 1000


@pytest.mark.parametrize("contents", [b"", b"no library", None])
def test_what_is_no_kernel_is_named_and_batched_serves(cache, monkeypatch, tmp_path, capsys, contents):
    """Even where the checksum matches; None stands for a valid library without the kernel."""
    (tmp_path / "other.c").write_text("int other(void) { return 1; }", encoding="utf-8")
    foreign = tmp_path / "foreign.so"
    if contents is None:
        subprocess.run(["c++", "-shared", "-fPIC", str(tmp_path / "other.c"), "-o", str(foreign)], check=True)
    else:
        foreign.write_bytes(contents)
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{foreign}" "$last"\n', encoding="utf-8")
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert "cannot be loaded" in said
    assert "delete it; using batched" in said


UNSAFE = [
    ("can be written by others", lambda folder: folder.chmod(0o777)),
    ("can be written by others", lambda folder: folder.chmod(0o1777)),
    ("can be written by others", lambda folder: folder.chmod(0o770)),
    ("can be written by others", lambda folder: build.library().chmod(0o757)),
    ("can be written by others", lambda folder: next(folder.glob("*.sha256")).chmod(0o666)),
    ("can be written by others", lambda folder: folder.parent.chmod(0o777)),
    ("neither a folder nor a plain file", lambda folder: replace_by_a_link(build.library())),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(folder, 12345, -1)),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(build.library(), 12345, -1)),
    ("belongs to another user (uid 12345)", lambda folder: os.chown(next(folder.glob("*.sha256")), 12345, -1)),
]


def replace_by_a_link(path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


@pytest.mark.parametrize(("message", "expose"), UNSAFE)
def test_what_another_user_could_have_written_is_not_loaded(cache, capsys, monkeypatch, message, expose):
    build.library()
    if "uid" in message and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    expose(cache)
    loaded: list[str] = []
    monkeypatch.setattr(native.ctypes, "CDLL", loaded.append)
    kernel, said = chosen(capsys)
    assert (kernel, loaded) == ("batched", [])
    assert len(said.splitlines()) == 1
    assert message in said
    assert "set HIGHWAYS_CACHE to a folder of your own" in said


def test_nothing_is_built_into_a_folder_that_others_can_write(cache):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(build.BuildError, match="can be written by others"):
        build.library()
    assert list(cache.iterdir()) == []


def test_what_is_built_under_a_lax_umask_is_safe(cache):
    before = os.umask(0)
    try:
        build.library()
        native.load.cache_clear()
        assert native.load()
    finally:
        os.umask(before)


def test_the_lock_follows_no_link_and_empties_nothing(cache, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept", encoding="utf-8")
    cache.mkdir(mode=0o700)
    (cache / "lock").symlink_to(precious)
    with pytest.raises(build.BuildError, match="lock: Too many levels of symbolic links"):
        build.library()
    (cache / "lock").unlink()
    (cache / "lock").hardlink_to(precious)
    build.library()
    assert precious.read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_a_compiler_that_cannot_be_executed_falls_back(cache, monkeypatch, tmp_path, capsys, mode):
    compiler = tmp_path / "not-a-program"
    compiler.write_bytes(b"\x00\x01\x02")
    compiler.chmod(mode)
    monkeypatch.setenv("CXX", str(compiler))
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert ("cannot be executed" if mode == 0o755 else "not found") in said


def test_a_compiler_that_writes_nothing_falls_back(cache, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "true")
    kernel, said = chosen(capsys)
    assert (kernel, len(said.splitlines())) == ("batched", 1)
    assert "true wrote no library" in said


@pytest.mark.parametrize("environment", [{"CXX": '"c++'}, {"CXX": ""}, {"HIGHWAYS_CACHE": "/dev/null/x"}])
def test_an_environment_that_cannot_be_used_falls_back_too(cache, monkeypatch, capsys, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kernel, said = chosen(capsys)
    assert kernel == "batched"
    assert len(said.splitlines()) == 1
    assert "using batched" in said


def test_the_build_command_needs_a_compiler(cache, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["build"]) == 1
    assert "`batched` is used" in capsys.readouterr().err
