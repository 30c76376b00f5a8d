import json
from collections import Counter

import numpy as np
import pytest

from artefacts import FIGURES, TRACED
from highways.analysis import commands
from highways.analysis.figures import style
from highways.analysis.figures.architecture import draw
from highways.analysis.figures.drawing import NothingRun
from highways.experiments.configuration import all_runs
from highways.experiments.plan import plan
from highways.experiments.runs import cell_spec
from highways.methods import METHODS
from highways.specs.fields import SpecError
from mappings import experiment

OF_RUNS = [name for name in FIGURES if ("figure", name) not in TRACED]


def runs(config, name):
    return [run for variant in plan(config).of(name) for run in variant.runs]


def artist(figure, gid, panel=0):
    (line,) = [line for line in figure.axes[panel].lines if line.get_gid() == gid]
    return line


def points(line):
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def small_print(figure):
    return " ".join(" ".join(text.get_text() for text in figure.texts).split())


@pytest.fixture
def strengths(config, folder, record):
    values = {0.1: (0.11, 0.12, 0.13), 1.8: (0.90, 0.92, 0.97)}
    for run in runs(config, "strength"):
        record(run, values[run.spec.highway.alpha][run.spec.seed])


def test_strength_shows_every_seed_the_mean_and_the_papers_value(config, folder, strengths):
    figure = FIGURES["strength"](config, folder)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert points(artist(figure, "seeds:hep")) == pytest.approx(
        np.array([(0.1, 11), (0.1, 12), (0.1, 13), (1.8, 90), (1.8, 92), (1.8, 97)])
    )
    assert points(artist(figure, "mean:hep")) == pytest.approx(np.array([(0.1, 12), (1.8, 93)]))
    assert points(artist(figure, "paper:hep")) == [(1.8, 96.4)]
    assert set(artist(figure, "chance").get_ydata()) == {10}
    assert set(artist(figure, "chosen").get_xdata()) == {1.8}
    assert points(artist(figure, "diverged:hep")) == []
    assert "MNIST" in axes.get_title()
    assert "8" in axes.get_title()
    assert axes.get_xlabel()
    assert "%" in axes.get_ylabel()
    assert "ddof = 1), n = 3 seeds" in small_print(figure)


def test_a_sweep_of_fewer_epochs_says_so_and_reads_its_own_records(config, folder, record, strengths):
    config = experiment(config, "strength", cells__seeds=[0], set={"epochs": 1})
    for run in runs(config, "strength"):
        record(run, 0.5)
    figure = FIGURES["strength"](config, folder)
    assert points(artist(figure, "mean:hep")) == pytest.approx(np.array([(0.1, 50), (1.8, 50)]))
    assert "1 epoch only" in figure.axes[0].get_title()
    assert "n = 1 seeds" in small_print(figure)


def test_the_bars_are_the_sample_std(config, folder, strengths):
    figure = FIGURES["strength"](config, folder)
    bars = [c for c in figure.axes[0].collections if len(c.get_segments()) == 2]
    (low, high) = bars[0].get_segments()[1][:, 1]
    assert (high - low) / 2 == pytest.approx(13**0.5)
    assert (high + low) / 2 == pytest.approx(93)


def test_the_papers_value_stays_at_the_papers_strength(config, folder, strengths):
    config["settings"][1]["alpha"] = 5.4
    figure = FIGURES["strength"](config, folder)
    assert points(artist(figure, "paper:hep")) == [(1.8, 96.4)]
    assert set(artist(figure, "chosen").get_xdata()) == {5.4}


def test_what_another_kernel_made_is_told(config, folder, record, strengths):
    for run in runs(config, "strength"):
        if run.spec.seed == 2:
            record(run, 0.9, kernel="mixed")
    assert "By the kernel mixed, with bf16 products in the E-step" in small_print(
        FIGURES["strength"](config, folder)
    )


def test_diverged_runs_are_crosses_at_the_bottom(config, folder, record, strengths):
    for run in runs(config, "strength"):
        if run.spec.seed == 2:
            record(run, None, None, diverged=1)
    figure = FIGURES["strength"](config, folder)
    crosses = artist(figure, "diverged:hep")
    assert crosses.get_marker() == "x"
    assert [x for x, _ in points(crosses)] == [0.1, 1.8]
    assert crosses.get_transform() == figure.axes[0].get_xaxis_transform()
    assert max(y for _, y in points(crosses)) < 0.1
    assert len(points(artist(figure, "seeds:hep"))) == 4
    assert "diverged" in small_print(figure)


def test_what_was_not_run_is_in_small_print(config, folder, record, strengths):
    for run in runs(config, "strength"):
        if run.spec.highway.alpha == 0.1 and run.spec.seed > 0:
            (folder / f"{run.path}.json").unlink()
    config = experiment(config, "strength", vary={"highway.alpha": [0.1, 1.8, 50.0]})
    text = small_print(FIGURES["strength"](config, folder))
    assert "not run: α = 50" in text
    assert "partly run: α = 0.1 (1 of 3 seeds)" in text
    assert "n = 1 to 3 seeds" in text


def test_depth_shows_ours_and_the_papers_at_its_depth(config, folder, record, find):
    for seed, value in enumerate([0.90, 0.92, 0.97]):
        record(find("L008/hep", f"/seed{seed}/"), value)
    figure = FIGURES["depth"](config, folder)
    assert [y for _, y in points(artist(figure, "seeds:hep"))] == pytest.approx([90, 92, 97])
    ((x, mean),) = points(artist(figure, "mean:hep"))
    assert mean == pytest.approx(93)
    assert x == pytest.approx(8)  # the method in the middle is not shifted
    assert [y for _, y in points(artist(figure, "paper:pc"))] == [97.8, 92.1, 35.5, 13.4, 12.5, 12.8]
    assert artist(figure, "paper:pc").get_markerfacecolor() == "none"
    assert points(artist(figure, "mean:pc")) == []
    assert "not run: MNIST L=4, MNIST L=8 Vanilla PC, MNIST L=8 BP" in small_print(figure)


def test_density_shows_the_papers_row(config, folder, record, find):
    config["settings"].append({**config["settings"][1], "depth": 32})
    config = experiment(config, "density", cells__depth=32, vary={"highway.every": [1, 10]})
    record(plan(config).runs["density/mnist/L032/hep/every10/seed0"], 0.75)
    figure = FIGURES["density"](config, folder)
    assert points(artist(figure, "mean:hep")) == [(10, 75)]
    assert points(artist(figure, "paper:hep")) == [
        (1, 95.6),
        (2, 94.9),
        (4, 93.1),
        (5, 93.9),
        (8, 90.3),
        (10, 84.0),
    ]


def test_training_curves_are_those_of_the_records_and_of_the_chosen_rate(config, folder, record, find):
    record(find("L004/pc", "seed0"), curve=[0.2, 0.4, 0.6])
    record(find("L004/pc", "seed1"), curve=[0.4, 0.6, None], diverged=3)
    record(find("L004/backprop/lr0.0001"), 0.99, 0.5, curve=[0.5])
    record(find("L004/backprop/lr0.001"), 0.10, 0.9, curve=[0.9])
    record(find("L008/hep", "seed2"), curve=[0.7])
    figure = FIGURES["training"](config, folder)
    assert points(artist(figure, "seed:pc:0")) == pytest.approx(
        np.array([(1, 20), (2, 40), *((epoch, 60) for epoch in range(3, 13))])
    )
    assert points(artist(figure, "mean:pc")) == pytest.approx(np.array([(1, 30), (2, 50)]))
    assert points(artist(figure, "seed:backprop:0")) == [(epoch, 90) for epoch in range(1, 13)]
    assert points(artist(figure, "seed:hep:2", panel=1)) == [(epoch, 70) for epoch in range(1, 13)]
    assert "MNIST\nL = 8" in figure.axes[1].get_title()


@pytest.mark.parametrize("name", [name for name in OF_RUNS if name != "architecture"])
def test_a_figure_with_nothing_run_names_its_target(config, folder, name, tmp_path, find):
    (folder / "depth").mkdir(parents=True)
    broken = folder / f"{find('L004/pc', 'seed0').path}.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(NothingRun, match=f"run the target figure_{name}"):
        commands.figure(name, config, commands.Sources(folder, folder), tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("name", OF_RUNS)
def test_files_are_the_same_every_time(config, folder, record, name, tmp_path):
    for run in all_runs(config).values():
        record(run, 0.5 + run.spec.seed / 10, curve=[0.4, 0.5])
    for place in ("a", "b"):
        commands.figure(name, config, commands.Sources(folder, folder), tmp_path / place)
    with style.journal():
        figure = FIGURES[name](config, folder)
    style.write(figure, tmp_path / "c", name)
    style.write(figure, tmp_path / "c", name)
    assert b"CreationDate" not in (tmp_path / "a" / f"{name}.pdf").read_bytes()
    for ending in ("png", "pdf"):
        first = (tmp_path / "a" / f"{name}.{ending}").read_bytes()
        assert len(first) > 5000
        assert first == (tmp_path / "b" / f"{name}.{ending}").read_bytes()
        assert first == (tmp_path / "c" / f"{name}.{ending}").read_bytes()


@pytest.mark.parametrize(("every", "first"), [(1, "all"), (1, "without_first"), (3, "all")])
def test_the_architecture_is_that_of_its_spec(config, every, first):
    config["highway"]["every"], config["conventions"]["highway_layers"] = every, first
    spec = cell_spec(config, "mnist", 8, "hep", 0)
    figure = draw(spec)
    drawn = Counter(patch.get_gid() for patch in figure.axes[0].patches)
    assert {name for name in drawn if name.startswith("highway:")} == {f"highway:{i}" for i in spec.endpoints}
    assert {name for name in drawn if name.startswith("layer:")} == {f"layer:{i}" for i in range(9)}
    assert drawn["prediction"] == 8
    assert drawn["error"] == 7  # no error moves the clamped input
    assert str(spec.endpoints[0]) in small_print(figure)


def test_a_deep_architecture_leaves_out_its_middle(paper):
    figure = draw(cell_spec(paper, "mnist", 128, "hep", 0))
    layers = {patch.get_gid() for patch in figure.axes[0].patches if "layer:" in (patch.get_gid() or "")}
    assert layers == {f"layer:{i}" for i in (0, 1, 2, 3, 125, 126, 127, 128)}


def test_methods_differ_in_colour_and_marker(paper):
    together = {one.method for name in ("depth", "ablations") for one in plan(paper).of(name)}
    assert len({style.colour(method) for method in together}) == len(together)
    assert len({style.marker(method) for method in together}) == len(together)
    assert len({style.of_method(method) for method in METHODS}) == len(METHODS)


def test_a_method_entered_anywhere_changes_no_colour(monkeypatch):
    before = {method: style.of_method(method) for method in METHODS}
    names = [*METHODS]
    monkeypatch.setattr(style, "METHODS", dict.fromkeys([names[0], "another", *names[1:]]))
    assert {method: style.of_method(method) for method in before} == before
    assert style.of_method("another") not in before.values()


def test_a_figure_that_does_not_exist_is_refused_with_the_names(config, folder, tmp_path):
    with pytest.raises(SpecError, match="propagation, architecture, depth, strength"):
        commands.figure("nope", config, commands.Sources(folder, folder), tmp_path)


def test_gradients_are_drawn_before_and_after_training_per_matrix(config, folder, record, find):
    for seed, value in enumerate([0.2, 0.4]):
        path = record(find("L008/hep", f"/seed{seed}/"), curve=[0.9, 0.9])
        document = json.loads(path.read_text(encoding="utf-8"))
        for moment in document["diagnostics"]:
            moment["backprop_cosine"] = [value + 0.05 * moment["epoch"], *[None] * 7]
        path.write_text(json.dumps(document), encoding="utf-8")
    figure = FIGURES["gradients"](config, folder)
    assert points(artist(figure, "mean:hep"))[0] == pytest.approx((0, 0.3))
    assert points(artist(figure, "mean:hep", panel=1))[0] == pytest.approx((0, 0.9))
    assert points(artist(figure, "seed:hep:1", panel=1))[0] == pytest.approx((0, 1.0))
    assert not [line for line in figure.axes[0].lines if str(line.get_gid()).endswith(":pc")]
    assert "before training" in figure.axes[0].get_title()


def test_gradients_of_a_swept_method_are_those_of_its_cell(config, folder, record):
    select = {"among": {"learning.lr": [1e-4, 1e-3]}, "seeds": [0]}
    rows = [{"methods": "hep"}, {"methods": "backprop", "select": select}]
    config = experiment(config, "ablations", rows=rows)
    for run in runs(config, "ablations"):
        if run.spec.method == "backprop":
            record(
                run, lr=1e-3 if run.selection else None, validation=0.9 if run.spec.learning.lr == 1e-3 else 0.8
            )
    figure = FIGURES["gradients"](config, folder)
    assert {str(line.get_gid()) for line in figure.axes[0].lines} >= {f"seed:backprop:{seed}" for seed in (0, 1)}


def test_scales_are_drawn_per_reading_and_layer_over_the_epochs(config, folder, record, find):
    path = record(find("conventions/last", "/hep/post-all-sigma_v0.01/", "/seed0/"), 0.93, curve=[0.8, 0.9])
    document = json.loads(path.read_text(encoding="utf-8"))
    for moment in document["diagnostics"]:
        moment["rms_state"] = [1.0, 0.5 / (1 + moment["epoch"]), *[1.0] * 5]
    path.write_text(json.dumps(document), encoding="utf-8")
    figure = FIGURES["scales"](config, folder)
    default, other = figure.axes[:2]
    assert not default.lines
    assert points(artist(figure, "layer:2", panel=1)) == pytest.approx(
        np.array([(epoch, 0.5 / (1 + epoch)) for epoch in range(13)])
    )
    assert other.get_title() == "post\nS all, σ_v 0.01\nL = 8: 93.0 %"
    assert other.get_yscale() == "log"
