"""The default table and figure of a user's own experiment."""

import json

import pytest
from shown import datum, notes

from highways.analysis import commands, report
from highways.analysis.figures.experiment import abscissa, experiment_figure
from highways.analysis.sections import OWN, items, sections
from highways.analysis.tables.experiment import experiment_table
from highways.cli import main
from highways.experiments.configuration import TAKEN, validate
from highways.experiments.plan import plan
from highways.experiments.results import Sources
from highways.specs.fields import SpecError
from mappings import only

AT_8 = {"dataset": "mnist", "depth": 8, "seeds": [0, 1]}


def own(config, **block):
    """The configuration with `mine` as its only experiment: PC and HEP at depth 8, changed by `block`."""
    found = {**only(config), "propagation": None}
    found["experiments"] = [{"name": "mine", "cells": AT_8, "methods": ["pc", "hep"], **block}]
    return validate(found)


def write(config, record, test):
    for variant in plan(config).of("mine"):
        for run in variant.runs:
            record(run, test(variant, run), lr=None)


@pytest.fixture
def strengths(config, record):
    """Test accuracies in %: PC 50 + seed; HEP 80 at alpha 0.1 and 90 at alpha 1.8."""
    config = own(config, vary={"highway.alpha": [0.1, 1.8]})
    write(
        config,
        record,
        lambda v, run: (
            0.5 + run.spec.seed / 100 if v.method == "pc" else {0.1: 0.8, 1.8: 0.9}[v.given["highway.alpha"]]
        ),
    )
    return config


def test_a_row_per_method_and_setting_where_the_method_has_the_setting(strengths, folder):
    table = experiment_table("mine", strengths, folder)
    assert dict(table.frame["MNIST L=8"]) == {
        "Vanilla PC": "50.5 ± 0.7 (n=2)",
        "HEP, alpha 0.1": "80.0 ± 0.0 (n=2)",
        "HEP, alpha 1.8": "90.0 ± 0.0 (n=2)",
    }
    assert datum(table, method="hep", **{"highway.alpha": 1.8})["values"] == "90;90"


def test_a_named_row_of_two_methods_is_two_rows_of_the_table(config, folder):
    config = own(config, rows=[{"name": "narrow", "set": {"network.width": 64}}])
    assert list(experiment_table("mine", config, folder).frame.index) == ["narrow: Vanilla PC", "narrow: HEP"]


@pytest.mark.parametrize(
    "block",
    [
        {"cells": [{**AT_8, "seeds": 0}, {**AT_8, "seeds": 1}]},
        {"rows": [{"methods": "pc"}, {"methods": "pc", "select": {"among": {"learning.lr": [1.0]}, "seeds": 3}}]},
        {"rows": [{"name": "a", "title": "one"}, {"name": "b", "title": "one", "set": {"epochs": 1}}]},
    ],
)
def test_what_a_table_could_not_tell_apart_is_refused(config, block):
    with pytest.raises(SpecError, match=r"experiments: mine: .*: it stands twice at mnist, depth 8"):
        own(config, **block)


def test_what_differs_from_the_paper_stands_under_the_table(config, folder):
    fixed = {"network.width": 64, "network.phi": "tanh", "learning.lr": 2e-3}
    table = experiment_table("mine", own(config, set=fixed), folder)
    (note,) = notes(table, "Set here")
    for words in ("network.width 64 (128)", "network.phi tanh (relu)", "learning.lr 0.002 (8e-05)"):
        assert words in note
    assert not notes(experiment_table("mine", own(config), folder), "Set here")


def test_settings_of_a_depth_that_has_none_stand_under_the_table_too(config, folder):
    e_step = {"inference.optimizer": "euler", "inference.step_size": 0.5, "inference.steps": 7}
    cells = {**AT_8, "depth": 6}
    config = own(config, cells=cells, methods="pc", set={**e_step, "learning.lr": 1e-3})
    (note,) = notes(experiment_table("mine", config, folder), "Set here")
    assert "inference.steps 7" in note
    chosen = own(
        config, cells=cells, methods="pc", set=e_step, select={"among": {"learning.lr": [1e-3]}, "seeds": 3}
    )
    assert experiment_table("mine", chosen, folder).frame.loc["Vanilla PC", "MNIST L=6"] == "not run"


def test_a_strength_can_be_chosen_without_a_rate(config, folder, record):
    select = {"among": {"highway.alpha": [0.1, 1.8]}, "seeds": 3}
    config = own(config, methods="hep", select=select)
    (variant,) = plan(config).of("mine")
    for run in variant.runs:
        alpha = run.spec.highway.alpha
        change = (lambda spec: spec["highway"].update(alpha=1.8)) if run.selection else None
        record(run, 0.9, 0.5 + alpha / 10, change=change)
    table = experiment_table("mine", config, folder)
    assert table.frame.loc["HEP", "MNIST L=8"] == "90.0 ± 0.0 (n=2)"
    assert notes(table, "Settings chosen on validation accuracy: HEP, MNIST L=8 alpha 1.8")
    assert datum(table, method="hep")["learning_rate"] is None


def test_a_varied_number_is_the_axis_and_a_method_without_it_a_level(strengths, folder):
    axes = experiment_figure("mine", strengths, folder).axes[0]
    lines = {line.get_gid(): line for line in axes.lines}
    assert lines["mean:1"].get_xdata().tolist() == [0.1, 1.8]
    assert lines["mean:1"].get_ydata() == pytest.approx([80, 90])
    assert list(lines["level:0"].get_ydata()) == pytest.approx([50.5, 50.5])
    assert (axes.get_xlabel(), axes.get_title()) == ("alpha", "MNIST L=8")


def test_else_the_depth_is_the_axis_and_without_one_there_is_a_row_per_cell(config, folder, record):
    deep = own(config, cells={**AT_8, "depth": [4, 8]})
    assert abscissa(plan(deep).of("mine")) == "network.depth"
    write(deep, record, lambda variant, run: 0.9 if variant.depth == 4 else 0.7)
    lines = {line.get_gid(): line for line in experiment_figure("mine", deep, folder).axes[0].lines}
    assert lines["mean:0"].get_ydata() == pytest.approx([90, 70])
    figure = experiment_figure("mine", own(config), folder)
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["Vanilla PC, MNIST L=8", "HEP, MNIST L=8"]
    figure.canvas.draw()
    assert all(label.get_window_extent().x0 >= 0 for label in labels)  # nothing is cut off


def test_an_own_experiment_has_its_page_without_the_verdict(strengths, folder, tmp_path):
    assert list(sections(strengths)) == [OWN]
    assert set(items(strengths)) == {("table", "mine"), ("figure", "mine")}
    assert report.write(strengths, Sources(folder, tmp_path), tmp_path / "out") == []
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert 'id="table-mine"' in page
    assert 'id="verdict"' not in page


def test_the_names_of_other_tables_and_figures_are_taken(paper, config):
    experiments = {block["name"] for block in paper["experiments"]}
    assert set(TAKEN) == {name for _, name in items(paper)} - experiments | {"verdict"}
    with pytest.raises(SpecError, match="experiments: verdict is the name of another table or figure"):
        own(config, name="verdict")


def test_commands_find_the_results_of_the_configuration(paper, folder, record, tmp_path):
    config = own(paper, methods="hep")
    write(config, record, lambda variant, run: 0.9)
    text = json.dumps({**config, "pathvars": {"results": str(folder.parent)}})
    assert main(["table", "mine", "--config", text]) == 0
    assert "90.0 ± 0.0 (n=2)" in (folder.parent / "tables/mine.md").read_text(encoding="utf-8")
    assert (
        main(
            [
                "table",
                "mine",
                "--config",
                text,
                "--runs",
                str(tmp_path / "no"),
                "--reference",
                "none",
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    assert "not run" in (tmp_path / "mine.md").read_text(encoding="utf-8")


def test_files_are_the_same_every_time(strengths, folder, tmp_path):
    for place in ("a", "b"):
        commands.figure("mine", strengths, Sources(folder, folder), tmp_path / place)
    for ending in ("png", "pdf"):
        assert (tmp_path / f"a/mine.{ending}").read_bytes() == (tmp_path / f"b/mine.{ending}").read_bytes()
