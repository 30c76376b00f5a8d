"""Accuracy against the learning rate: runs, table and figure."""

import pytest

from highways.analysis.figures import rates as shown
from highways.experiments.plan import plan
from mappings import experiment


def runs(config, name):
    return {run.path: run for variant in plan(config).of(name) for run in variant.runs}


@pytest.fixture
def measured(config, record):
    """PC loses 10 points per seed and 20 at twice the rate; HEP is at 95 %, and its validation falls once."""
    for rate in plan(config).of("rates"):
        for run in rate.runs:
            if rate.method == "pc":
                record(run, 0.9 - 0.1 * run.spec.seed - 0.2 * (rate.factors["learning.lr"] - 1))
            else:
                record(run, 0.95, 0.97, curve=[0.97, 0.90 - 0.1 * run.spec.seed, 0.96])


def test_the_printed_rate_is_the_table_s_own_run_and_others_multiply_it(config):
    table, found = runs(config, "depth"), runs(config, "rates")
    assert {path for path in found if path in table} == {
        f"depth/mnist/L008/{method}/seed{seed}" for method in ("pc", "hep") for seed in (0, 1)
    }
    twice = found["rates/mnist/L008/hep/lr_x2/seed1"].spec
    assert twice == table["depth/mnist/L008/hep/seed1"].spec.changed({"learning.lr": 1.6e-4})


def test_a_multiple_has_no_binary_tail(config):
    config = experiment(config, "rates", times={"learning.lr": [3]})
    assert 3 * 8e-5 != 2.4e-4  # the plain product has a binary tail
    assert {run.spec.learning.lr for run in runs(config, "rates").values()} == {2.4e-4}


def test_the_table_has_every_multiple_the_paper_and_the_largest_drop(config, folder, measured):
    table = shown.rate_table(config, folder)
    pc, hep = table.frame.loc[("MNIST L=8", "Vanilla PC")], table.frame.loc[("MNIST L=8", "HEP")]
    assert (pc["1 ×"], pc["2 ×"]) == ("85.0 ± 7.1 (n=2)", "65.0 ± 7.1 (n=2)")
    assert (pc["Paper"], hep["Paper"]) == ("92.1 ± 1.0", "96.4 ± 0.7")
    assert (pc["Drop, 1 ×"], hep["Drop, 1 ×"]) == ("0.0", "17.0")  # 97 to 80 with seed 1
    row = table.data[(table.data["method"] == "hep") & (table.data["factor"] == 2)].iloc[0]
    assert (row["lr"], row["mean"], row["largest_drop"]) == (1.6e-4, 95.0, pytest.approx(17.0))


def test_without_a_record_there_is_no_drop(config, folder):
    assert set(shown.rate_table(config, folder).frame["Drop, 2 ×"]) == {"—"}


def test_the_figure_has_a_line_per_method_and_the_paper_as_a_band(config, folder, measured):
    axes = shown.rate_figure(config, folder).axes[0]
    lines = {line.get_gid(): line for line in axes.lines}
    assert lines["mean:pc"].get_xdata().tolist() == [1, 2]
    assert lines["mean:pc"].get_ydata() == pytest.approx([85, 65])
    assert lines["mean:hep"].get_ydata() == pytest.approx([95, 95])
    bands = {patch.get_gid(): patch.get_extents().transformed(axes.transData.inverted()) for patch in axes.patches}
    assert (bands["paper:hep"].y0, bands["paper:hep"].y1) == pytest.approx((95.7, 97.1))
