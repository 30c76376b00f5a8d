"""The benchmark suite runs, and the rates that it reports follow from its timings."""

import json
import subprocess
import sys

import pytest


def test_the_suite_runs_and_adds_up(root, tmp_path):
    command = [sys.executable, str(root / "benchmarks/run.py"), "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    for row in results["kernels"]:
        seconds = sorted(row["seconds"]["native"])
        median = (seconds[0] + seconds[1]) / 2
        assert row["median_seconds"]["native"] == pytest.approx(median)
        operations = 4 * row["steps"] * (row["depth"] - 2) * 128**3
        assert row["gflops"]["native"] == pytest.approx(operations / median / 1e9)
        assert row["native_of_peak"] == pytest.approx(row["gflops"]["native"] / row["gflops"]["peak"])
        if "mixed" in row["seconds"]:
            a, b = (sum(row["seconds"][name]) / 2 for name in ("native", "mixed"))
            assert row["mixed_against_native"] == pytest.approx(a / b)
        else:
            assert "AVX512-BF16" in row["mixed_against_native"]
    assert {row["depth"] for row in results["beginnings"]} == {4, 8}
    assert results["denormals"]["smallest_rms"] > 0
    assert results["pcx"] is None
    assert results["fabricpc"] is None
