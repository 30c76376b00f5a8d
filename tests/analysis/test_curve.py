"""The specification curve: gaps, verdicts and marks of every reading."""

import pytest

from highways.analysis.claims import curve as shown
from highways.experiments.plan import plan
from highways.experiments.readings import CURVE, SEARCH, readings


def runs(config, name):
    return [run for variant in plan(config).of(name) for run in variant.runs]


HEP = {("pre", 0.001): 0.5, ("pre", 0.01): 0.9, ("post", 0.001): 0.7, ("post", 0.01): 0.62}


@pytest.fixture
def measured(config, record):
    """PC at 40 % and HEP as `HEP` says, each plus a point per seed: gaps of 10, 50, 30 and 22 points."""
    for run in runs(config, CURVE):
        conventions, highway = run.spec.conventions, run.spec.highway
        base = 0.4 if highway is None else HEP[conventions.activation, highway.sigma_v]
        record(run, base + 0.01 * run.spec.seed)


def test_readings_share_the_runs_of_the_last_stage_and_of_the_table(config):
    paths = {run.path for run in runs(config, CURVE)}
    assert len(readings(config, CURVE)) == 4
    assert paths & {run.path for run in runs(config, SEARCH)} >= {
        f"conventions/last/mnist/L008/hep/post-all-sigma_v0.01/seed{seed}" for seed in range(3)
    }
    assert {f"depth/mnist/L008/hep/seed{seed}" for seed in range(3)} <= paths  # the default
    assert len([path for path in paths if "/pc/" in path]) == 6  # PC knows no sigma_v


def test_readings_are_sorted_by_the_gap_and_judged_by_the_claim(config, folder, measured):
    found = shown.judged(config, folder)
    place = ("mnist", 8)
    assert [one.gap(place) for one in found] == pytest.approx([10, 22, 30, 50])
    assert found[0].gaps(place) == pytest.approx({0: 10, 1: 10, 2: 10})
    assert [one.verdicts[place] for one in found] == ["does not hold", "holds", "holds", "holds"]
    assert [one.default for one in found] == [True, False, False, False]
    (sentence,) = shown.counts(config, found)
    assert "does not hold in 1" in sentence
    assert "holds in 3" in sentence
    assert "4 readings" in sentence


def test_a_reading_that_was_not_run_has_no_gap_and_comes_last(config, folder, measured):
    for path in (folder / "readings/mnist/L008/hep/post-all-sigma_v0.001").rglob("*.json"):
        path.unlink()
    last = shown.judged(config, folder)[-1]
    assert last.gap(("mnist", 8)) is None
    assert last.verdicts["mnist", 8] == "not run"
    assert "not run in 1" in shown.counts(config, shown.judged(config, folder))[0]


def test_the_table_has_a_row_per_reading(config, folder, measured):
    table = shown.curve_table(config, folder)
    assert table.frame["MNIST L=8 gap"].tolist() == ["+10.0", "+22.0", "+30.0", "+50.0"]
    assert table.frame["Default"].tolist() == ["default", "", "", ""]
    assert table.frame["MNIST L=8 Vanilla PC"].tolist() == ["41.0 ± 1.0 (n=3)"] * 4


def test_the_figure_has_every_seed_the_paper_s_band_and_the_options(config, folder, measured):
    figure = shown.curve_figure(config, folder)
    gaps, options = figure.axes
    lines = {line.get_gid(): line for line in gaps.lines}
    assert lines["seeds:1"].get_ydata() == pytest.approx([22, 22, 22])
    assert list(lines["gap:3"].get_ydata()) == pytest.approx([50, 50])
    assert set(lines["claim"].get_ydata()) == {20}
    (band,) = [patch for patch in gaps.patches if patch.get_gid() == "paper"]
    extent = band.get_extents().transformed(gaps.transData.inverted())
    half = (0.7**2 + 1.0**2) ** 0.5  # the paper has 96.4 ± 0.7 and 92.1 ± 1.0
    assert (extent.y0, extent.y1) == pytest.approx((4.3 - half, 4.3 + half))
    marks = {line.get_gid(): line.get_xdata().tolist() for line in options.lines}
    assert marks["option:sigma_v:0.01"] == [1, 3]
    assert marks["option:activation:pre"] == [0, 3]
