"""The configuration is the whole paper as data, and every cell is run once."""

import copy
from collections import Counter

import pytest
import yaml

from highways.experiments import configuration
from highways.experiments.plan import plan
from highways.experiments.runs import Run, cell_spec
from highways.specs.fields import SpecError
from mappings import changed, experiment, only, row


def runs_of(config: dict, name: str) -> list[Run]:
    return [run for variant in plan(config).of(name) for run in variant.runs]


def full_strength(paper: dict) -> dict:
    """The configuration whose experiment `strength` has the paper's three seeds and 12 epochs."""
    return experiment(paper, "strength", cells__seeds=[0, 1, 2], set={})


def test_the_paper_asks_for_each_of_its_cells_once(paper):
    asked = list(configuration.all_runs(only(full_strength(paper), "depth", "strength", "density")).values())
    trained = Counter(run.spec.method for run in asked)
    depths, datasets, seeds = 6, 2, 3
    table = depths * datasets * seeds
    assert trained["pc"] == table
    # 11 strengths at depth 64 and 6 spacings at depth 32 share one cell each with the table.
    assert trained["hep"] == table + 10 * seeds + 5 * seeds
    # 6 rates (3 at depth 128) on one seed, and the chosen rate on the other two.
    assert trained["backprop"] == datasets * ((depths - 1) * (6 + 2) + (3 + 2))
    assert len({run.path for run in asked}) == len(asked)
    fixed = [run.key for run in asked if run.selection is None]
    assert len(set(fixed)) == len(fixed)


def test_no_training_of_the_whole_configuration_is_asked_for_twice(paper):
    fixed = [run.key for run in configuration.all_runs(paper).values() if run.selection is None]
    assert len(set(fixed)) == len(fixed)


def test_the_settings_of_a_cell_are_those_of_its_depth(paper):
    spec = cell_spec(paper, "mnist", 64, "hep", 2)
    assert (spec.highway.alpha, spec.inference.steps, spec.learning.lr, spec.seed) == (0.1, 192, 6e-5, 2)
    assert (spec.inference.optimizer, spec.inference.step_size, spec.inference.eps) == ("adam", 0.005, 1e-8)
    shallow = cell_spec(paper, "fashion_mnist", 4, "pc", 0)
    assert (shallow.inference.optimizer, shallow.inference.step_size) == ("euler", 0.5)
    assert shallow.highway is None


def test_a_kernel_is_asked_for_by_depth_and_changes_no_spec(paper):
    assert "kernel" not in paper["settings"][0]
    before = cell_spec(paper, "mnist", 64, "hep", 2)
    rows = [{**row, "kernel": "mixed"} if row["depth"] == 64 else row for row in paper["settings"]]
    config = configuration.validate(changed(paper, settings=rows))
    assert cell_spec(config, "mnist", 64, "hep", 2) == before
    runs = configuration.all_runs(only(config, "depth", "density")).values()
    asked = {(run.spec.network.depth, run.kernel) for run in runs if run.spec.method != "backprop"}
    assert {kernel for depth, kernel in asked if depth == 64} == {"mixed"}  # backprop relaxes no states
    assert {kernel for depth, kernel in asked if depth < 64} == {"auto"}
    assert {kernel for depth, kernel in asked if depth == 128} == {"mixed"}  # as config.yaml has it
    rows = [{**row, "kernel": "fast"} for row in paper["settings"]]
    with pytest.raises(SpecError, match=r"settings.*fast"):
        configuration.validate(changed(paper, settings=rows))


def test_backprop_at_depth_128_has_its_own_initialisation_and_schedule(paper):
    spec = plan(paper).first("mnist", 128, "backprop").example
    assert (spec.network.initialisation, spec.learning.schedule) == ("orthogonal", "warmup_cosine")
    other = plan(paper).first("mnist", 64, "backprop").example
    assert (other.network.initialisation, other.learning.schedule) == ("gaussian", "constant")


def test_one_strength_changes_exactly_its_seeds(paper):
    before = configuration.all_runs(paper)
    rows = copy.deepcopy(paper["settings"])
    next(row for row in rows if row["depth"] == 8)["alpha"] = 1.7
    after = configuration.all_runs(changed(paper, settings=rows))
    gone = {path for path in before if path not in after or after[path].spec != before[path].spec}
    gone = {path for path in gone if path.startswith("depth/")}
    assert gone == {f"depth/{data}/L008/hep/seed{s}" for data in ("mnist", "fashion_mnist") for s in range(3)}


def test_two_runs_never_share_a_record(paper):
    """Only the depth in the path separates backprop's row for depths 4 to 64 from its row for depth 128."""
    overlapping = row(paper, "depth", 2, cells__depth=[4, 128])
    with pytest.raises(SpecError, match=r"two different runs would share the record depth/mnist/L004/backprop/lr"):
        configuration.validate(overlapping)


def test_a_sweep_of_another_length_shares_no_record_with_the_table(paper):
    table, sweep = runs_of(paper, "depth"), runs_of(paper, "strength")
    paths = {run.path for run in table}
    assert {run.spec.epochs for run in sweep} == {1}
    assert {run.spec.seed for run in sweep} == {0}
    assert not paths & {run.path for run in sweep}
    assert len(paths & {run.path for run in runs_of(full_strength(paper), "strength")}) == 3


def test_strengths_that_differ_in_the_ninth_digit_have_different_records(paper):
    close = experiment(paper, "strength", vary={"highway.alpha": [0.1, 0.100000001]})
    before, after = set(configuration.all_runs(paper)), set(configuration.all_runs(close))
    assert len(after - before) == 1
    assert len(before - after) == 10


def test_a_selection_is_decided_by_the_sweep_of_its_cell_alone(paper):
    waiting = configuration.all_runs(paper)["depth/mnist/L004/backprop/selected/seed1"]
    assert waiting.selection == "depth/mnist/L004/backprop"
    rates = paper["experiments"][0]["rows"][1]["select"]["among"]["learning.lr"]
    assert [run.spec.learning.lr for run in waiting.sweep] == rates
    asked_for = {(run.spec.dataset, run.spec.network.depth, run.spec.seed) for run in waiting.sweep}
    assert asked_for == {("mnist", 4, 0)}


SETTINGS_1 = {"depth": 1, "alpha": 0.1, "steps": 1, "lr": 0.1, "optimizer": "adam", "step_size": 0.1}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("colour", 1, "colour"),
        ("training__epoch", 3, "epoch"),
        ("conventions__activaton", "pre", "activaton"),
        ("training__weight_decay", "1e-4", "write 1.0e-4"),
        ("data_dir", 3, "data_dir"),
        ("conventions__activation", "middle", "conventions.activation: 'middle'"),
        ("training__dtype", "float8", "dtype: 'float8'"),
        ("settings", [{"depth": 4}], "settings"),
        ("settings", [SETTINGS_1], "no row for depth 4"),
        ("experiments", [], "experiments"),
        ("propagation__during_training__methods", ["pc", "backprop"], "the settings of 'backprop' are chosen"),
        ("propagation__during_training__methods", ["backprp"], "method 'backprp' does not exist"),
    ],
)
def test_a_bad_key_is_named_in_one_line(paper, key, value, says):
    with pytest.raises(SpecError) as error:
        configuration.validate(changed(paper, **{key: value}))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("colour", 1, "colour"),
        ("cells__colour", 1, "colour"),
        ("cells__depth", [4, 4], "unique"),
        ("cells__depth", [1], "no row for depth 1"),
        ("cells__depth", ["4"], "'4'"),
        ("cells__seeds", [], "cells"),
        ("cells__dataset", ["cifar10"], "'cifar10'"),
        ("methods", ["hep", "magic"], "'magic'"),
        ("name", "../elsewhere", "name"),
        ("title", "two\nlines", "title"),
        ("vary", {"highway.every": [64]}, "highway.every: 64"),
        ("vary", {"highway.alpha": [-0.1]}, "highway.alpha: -0.1"),
        ("vary", {"highway.alpha": [0.1, 0.1]}, "unique"),
        ("vary", {"highway.alpha": []}, "vary"),
        (
            "vary",
            {"highway.alfa": [0.1]},
            "highway.alfa is no key of a specification; did you mean highway.alpha",
        ),
        ("times", {"learning.lr": [0]}, "times"),
        (
            "select",
            {"among": {"learning.lr": [0.1]}, "seeds": [0], "methods": "backprp"},
            "methods: 'backprp' does not exist",
        ),
        ("kernel", "fast", "kernel"),
        ("rows", [], "rows"),
    ],
)
def test_a_bad_key_of_an_experiment_is_named_in_one_line(paper, key, value, says):
    with pytest.raises(SpecError) as error:
        configuration.validate(experiment(paper, "density", **{key: value}))
    message = str(error.value)
    assert message.startswith("experiments")
    assert says in message
    assert "\n" not in message


def test_two_rows_for_one_depth_are_refused(paper):
    with pytest.raises(SpecError, match="settings: two entries have the depth 4"):
        configuration.validate(changed(paper, settings=[*paper["settings"], paper["settings"][0]]))


def test_two_experiments_of_one_name_are_refused(paper):
    with pytest.raises(SpecError, match="experiments: two entries have the name 'density'"):
        configuration.validate(changed(paper, experiments=[*paper["experiments"], paper["experiments"][2]]))


def test_depth_1_is_refused(paper):
    config = experiment(paper, "density", cells__depth=1, vary={"highway.every": [1]})
    with pytest.raises(SpecError, match=r"density: .*depth 1, hep, seed 0: network.depth: 1 is out of range"):
        configuration.validate({**config, "settings": [*paper["settings"], SETTINGS_1]})


def test_yaml_without_a_dot_is_text_and_says_how_to_write_it(paper, tmp_path):
    text = yaml.safe_dump(paper).replace("weight_decay: 0.0001", "weight_decay: 1e-4")
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"config.yaml: training.weight_decay: '1e-4' .*write 1.0e-4"):
        configuration.load(path)


@pytest.mark.parametrize("content", ["a: [", "", "- 1", "\x00"])
def test_a_file_that_is_no_configuration_is_one_line(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=r"config\.yaml") as error:
        configuration.load(path)
    assert "\n" not in str(error.value)
    with pytest.raises(SpecError, match=r"absent.yaml"):
        configuration.load(tmp_path / "absent.yaml")


def test_the_images_of_a_data_set_are_counted_as_the_loader_splits_them():
    from highways.data import SOURCES
    from highways.specs.run import DATASETS

    assert DATASETS.keys() == SOURCES.keys()
    assert {name: images.validation for name, images in DATASETS.items()} == {
        name: source.validation for name, source in SOURCES.items()
    }


def test_a_convention_that_does_not_concern_a_method_does_not_change_its_runs(paper):
    other = changed(paper, conventions__highway_layers="all", conventions__state_gradient="sum")
    for method, same in (("hep", False), ("pc", False), ("backprop", True)):
        assert (cell_spec(paper, "mnist", 8, method, 0) == cell_spec(other, "mnist", 8, method, 0)) is same
    other = changed(paper, conventions__highway_layers="all")
    assert cell_spec(paper, "mnist", 8, "pc", 0) == cell_spec(other, "mnist", 8, "pc", 0)
    assert cell_spec(paper, "mnist", 8, "hep", 0) != cell_spec(other, "mnist", 8, "hep", 0)


def write(folder, text: str):
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


ROW_6 = "{depth: 6, alpha: 0.5, steps: 20, lr: 1.0e-3, optimizer: euler, step_size: 0.5}"


SHALLOW = "experiments:\n  - {name: depth, methods: pc, cells: {dataset: mnist, depth: 6, seeds: [0, 1, 2]}}\n"


def test_a_part_of_a_configuration_is_laid_over_the_reference(paper, tmp_path, root, monkeypatch):
    path = write(tmp_path, f"{SHALLOW}settings:\n  - {ROW_6}\ntraining: {{epochs: 2}}\n")
    for folder in (root, tmp_path):  # over config.yaml of the folder, else of the checkout
        monkeypatch.chdir(folder)
        found = configuration.load(path)
        assert [block["name"] for block in found["experiments"]] == ["depth"]
        assert found["conventions"] == paper["conventions"]
        assert found["training"] == {**paper["training"], "epochs": 2}
        assert {row["depth"]: row["steps"] for row in found["settings"]} == {
            6: 20,
            **{row["depth"]: row["steps"] for row in paper["settings"]},
        }
        assert {run.spec.network.depth for run in runs_of(found, "depth")} == {6}


def test_a_row_of_a_part_replaces_that_of_its_depth(paper, tmp_path):
    path = write(tmp_path, "settings:\n  - " + ROW_6.replace("6,", "8,", 1))
    rows = {row["depth"]: row for row in configuration.load(path)["settings"]}
    assert rows[8]["steps"] == 20
    assert sorted(rows) == [row["depth"] for row in paper["settings"]]


def test_the_reference_of_the_folder_counts(paper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = yaml.safe_dump({**paper, "device": "cuda:7"})
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    assert configuration.load(write(tmp_path, "records: own"))["device"] == "cuda:7"
    assert configuration.load("config.yaml")["device"] == "cuda:7"


def test_a_whole_configuration_stays_as_it_is(paper):
    from highways.experiments.config_files import completed

    assert completed(paper) == paper


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("device: cpu\nrecords: own\ndevice: cuda\n", "line 3: the key 'device' stands there twice"),
        ("training: {epochs: 2, epochs: 3}", "the key 'epochs' stands there twice"),
        ("settings: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("settings: " + "[" * 60 + "]" * 60, "nested more than 50 levels"),
        (BOMB, "more than 100,000 values"),
        ("settings: &a [*a]", "nested more than 50 levels"),
        ("propagation: {seeds: [" + "9" * 5000 + "]}", "cannot be read as YAML"),
        ("propagation: {seeds: [0x" + "f" * 5000 + "]}", "a whole number of 20000 bits"),
        ("device: 2001-13-45", "cannot be read as YAML"),
        ("experiments: [{name: " + "a" * 5000 + "}]", "experiments[0].name: "),
        ('experiments: [{name: "paper\\n"}]', "experiments[0].name: "),
        ('device: "cpu\\n"', "device: "),
        ("? " + "k" * 1_000_000 + "\n: 1", "unknown key; allowed here: "),
        ("setings: 1", "setings: unknown key; did you mean settings?"),
        (f"device: {'k' * 1_000_000}", "device: "),
        ("propagation: {seeds: [" + "1, " * 50_000 + "1]}", "seeds: "),
        ("propagation: {layers: [15.0, 1.0]}", ".0 is not of type 'integer'"),
        (
            "settings: [{depth: 4.0, alpha: 1.0, steps: 1, lr: 0.1, optimizer: adam, step_size: 0.1}]",
            "4.0 is not of type 'integer'",
        ),
        ("state_eps: 1.0e-39", "out of range of float32"),
        ("conventions: {rms_eps: 1.0e+300}", "out of range of float32"),
        (SHALLOW, "experiments: depth: Vanilla PC: settings: no row for depth 6"),
        ("propagation: {depth: 70}", "propagation: settings: no row for depth 70"),
        ('data_dir: "/data\\n"', "data_dir: "),
        ('data_dir: "/data\\0"', "data_dir: "),
        ("null", "empty"),
        ("- 1", "no configuration"),
    ],
)
def test_what_a_file_cannot_say_is_one_short_line(tmp_path, content, says):
    with pytest.raises(SpecError) as error:
        configuration.load(write(tmp_path, content))
    message = str(error.value)
    assert says in message
    assert "mine.yaml" in message
    assert message.isprintable()
    assert len(message) < 1000
