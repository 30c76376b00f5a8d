"""Traces as files."""

from dataclasses import replace

import numpy as np
import pytest

from highways.analysis.data.propagation import traces
from highways.propagation import trace
from highways.propagation.relaxation import propagate
from highways.record import RecordError


@pytest.fixture
def made(small, image):
    return propagate(small("paper", "hep"), *image)


def test_a_trace_comes_back_to_seven_digits(tmp_path, made):
    path = tmp_path / "folder/one.npz"
    trace.write(path, made)
    found = trace.read(path, made.spec)
    assert found.spec == made.spec
    assert found.provenance == made.provenance
    assert found.provenance["code"]
    assert found.steps.tolist() == made.steps.tolist()
    for name in ("errors", "backprop", "steady"):
        np.testing.assert_allclose(getattr(found, name), getattr(made, name), rtol=1e-7)
        assert np.array_equal(getattr(found, name) == 0, getattr(made, name) == 0)


def test_the_same_relaxation_gives_the_same_bytes(tmp_path, made, image):
    trace.write(tmp_path / "one.npz", made)
    trace.write(tmp_path / "two.npz", propagate(made.spec, *image))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_trace_that_is_not_there_is_none(tmp_path, small):
    assert trace.read(tmp_path / "one.npz", small()) is None


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
def test_a_broken_file_says_what_to_do(tmp_path, small, content):
    (tmp_path / "one.npz").write_bytes(content)
    with pytest.raises(RecordError, match=r"one\.npz: not a trace .*delete it, and `snakemake propagation`"):
        trace.read(tmp_path / "one.npz", small())


def test_a_trace_of_other_settings_is_not_taken(tmp_path, made, capsys):
    trace.write(tmp_path / "one.npz", made)
    other = replace(made.spec, form="deviations")
    with pytest.raises(RecordError, match="made with other settings"):
        trace.read(tmp_path / "one.npz", other)
    trace.write(tmp_path / f"{other.path}.npz", made)
    trace.write(tmp_path / f"{made.spec.path}.npz", made)
    found = traces([other, made.spec, other], tmp_path)
    assert [one.spec for one in found] == [made.spec]
    assert capsys.readouterr().err.count("made with other settings") == 1
