"""The configuration is the whole paper as data, and every cell is run once."""

import copy
from collections import Counter

import pytest
import yaml

from highways.experiments import configuration, runs
from highways.experiments.runs import cell_spec, kernel, sweep_runs
from highways.specs.fields import SpecError
from mappings import changed


def test_the_paper_asks_for_each_of_its_cells_once(paper):
    paper = changed(paper, strength_sweep__seeds=None, strength_sweep__epochs=None)
    asked = [run for run in configuration.all_runs(paper).values() if run.path.startswith("paper/")]
    trained = Counter(run.spec.method for run in asked)
    depths, datasets, seeds = 6, 2, 3
    table = depths * datasets * seeds
    assert trained["pc"] == table
    # 11 strengths at depth 64 and 6 spacings at depth 32 share one cell each with the table.
    assert trained["hep"] == table + 10 * seeds + 5 * seeds
    # 6 rates on one seed, and the chosen rate on the two others; at depth 128 only the control, on MNIST.
    assert trained["backprop"] == ((depths - 1) * datasets + 1) * (6 + 2)
    assert len({run.path for run in asked}) == len(asked)
    fixed = [run.spec.hash for run in asked if run.selection is None]
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
    assert [kernel(config, cell_spec(config, "mnist", depth, "hep", 0)) for depth in (32, 64)] == ["auto", "mixed"]
    rows = [{**row, "kernel": "fast"} for row in paper["settings"]]
    with pytest.raises(SpecError, match=r"settings.*fast"):
        configuration.validate(changed(paper, settings=rows))


def test_backprop_at_depth_128_has_its_own_initialisation_and_schedule(paper):
    spec = cell_spec(paper, "mnist", 128, "backprop", 0)
    assert (spec.network.initialisation, spec.learning.schedule) == ("orthogonal", "warmup_cosine")
    other = cell_spec(paper, "mnist", 64, "backprop", 0)
    assert (other.network.initialisation, other.learning.schedule) == ("gaussian", "constant")


def test_one_strength_changes_exactly_its_seeds(paper):
    before = configuration.all_runs(paper)
    rows = copy.deepcopy(paper["settings"])
    next(row for row in rows if row["depth"] == 8)["alpha"] = 1.7
    after = configuration.all_runs(changed(paper, settings=rows))
    gone = {path for path in before if path not in after or after[path].spec != before[path].spec}
    gone = {path for path in gone if path.startswith("paper/")}
    assert gone == {f"paper/{data}/L008/hep/alpha1.8_k1/seed{s}" for data in paper["datasets"] for s in range(3)}


def test_two_runs_never_share_a_record(paper):
    sweep = {**paper["learning_rate_sweep"], "methods": ["backprop", "hep"]}
    with pytest.raises(
        SpecError, match=r"two different runs would share the record paper/mnist/L004/hep/alpha0.5_k1"
    ):
        configuration.validate(
            changed(paper, learning_rate_sweep=sweep, propagation__during_training__methods=["pc"])
        )


def test_a_sweep_of_another_length_shares_no_record_with_the_table(paper):
    table, sweep = set(runs.table_runs(paper)), list(runs.strength_runs(paper))
    paths = {run.path for run in table}
    assert {run.spec.epochs for run in sweep} == {1}
    assert {run.spec.seed for run in sweep} == {0}
    assert not paths & {run.path for run in sweep}
    full = changed(paper, strength_sweep__seeds=None, strength_sweep__epochs=None)
    assert len(paths & {run.path for run in runs.strength_runs(full)}) == 3


def test_strengths_that_differ_in_the_ninth_digit_have_different_records(paper):
    close = changed(paper, strength_sweep__alphas=[0.1, 0.100000001])
    before, after = set(configuration.all_runs(paper)), set(configuration.all_runs(close))
    assert len(after - before) == 1
    assert len(before - after) == 10


def test_a_selection_is_decided_by_the_sweep_of_its_cell_alone(paper):
    sweep = sweep_runs(configuration.all_runs(paper).values(), "paper/mnist/L004/backprop")
    assert [run.spec.learning.lr for run in sweep] == paper["learning_rate_sweep"]["learning_rates"]
    assert {(run.spec.dataset, run.spec.network.depth, run.spec.seed) for run in sweep} == {("mnist", 4, 0)}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("colour", 1, "colour"),
        ("training__epoch", 3, "epoch"),
        ("conventions__activaton", "pre", "activaton"),
        ("training__weight_decay", "1e-4", "write 1.0e-4"),
        ("depths", [4, 4], "unique"),
        ("depths", [1], "no row for depth 1"),
        ("depths", ["4"], "'4'"),
        ("seeds", [], "seeds"),
        ("datasets", ["cifar10"], "'cifar10'"),
        ("methods", ["pc", "magic"], "'magic'"),
        ("experiment", "../elsewhere", "experiment"),
        ("data_dir", 3, "data_dir"),
        ("density_sweep__every", [64], "highway.every: 64"),
        ("strength_sweep__alphas", [-0.1], "highway.alpha: -0.1"),
        ("conventions__activation", "middle", "conventions.activation: 'middle'"),
        ("training__dtype", "float8", "dtype: 'float8'"),
        ("settings", [{"depth": 4}], "settings"),
        ("learning_rate_sweep__methods", ["backprp"], "method 'backprp' does not exist"),
        ("exceptions", [{"method": "backprp", "depth": 128}], "method 'backprp' does not exist"),
        ("propagation__during_training__methods", ["pc", "backprop"], "'backprop' has a learning-rate sweep"),
        (
            "settings",
            [{"depth": 1, "alpha": 0.1, "steps": 1, "lr": 0.1, "optimizer": "adam", "step_size": 0.1}],
            "no row for depth 4",
        ),
    ],
)
def test_a_bad_key_is_named_in_one_line(paper, key, value, says):
    with pytest.raises(SpecError) as error:
        configuration.validate(changed(paper, **{key: value}))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_two_rows_for_one_depth_are_refused(paper):
    with pytest.raises(SpecError, match="settings: two rows for depth 4"):
        configuration.validate(changed(paper, settings=[*paper["settings"], paper["settings"][0]]))


def test_depth_1_is_refused(paper):
    row = {"depth": 1, "alpha": 0.1, "steps": 1, "lr": 0.1, "optimizer": "adam", "step_size": 0.1}
    with pytest.raises(SpecError, match=r"depth 1, pc, seed 0: network.depth: 1 is out of range"):
        configuration.validate(changed(paper, depths=[1], settings=[*paper["settings"], row]))


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


def test_a_part_of_a_configuration_is_laid_over_the_reference(paper, tmp_path, root, monkeypatch):
    path = write(tmp_path, f"depths: [6]\nmethods: [pc]\nsettings:\n  - {ROW_6}\ntraining: {{epochs: 2}}\n")
    for folder in (root, tmp_path):  # the reference is that of the folder, else of the checkout
        monkeypatch.chdir(folder)
        found = configuration.load(path)
        assert (found["depths"], found["methods"], found["seeds"]) == ([6], ["pc"], paper["seeds"])
        assert found["training"] == {**paper["training"], "epochs": 2}
        assert {row["depth"]: row["steps"] for row in found["settings"]} == {
            6: 20,
            **{row["depth"]: row["steps"] for row in paper["settings"]},
        }
        assert {run.spec.network.depth for run in runs.table_runs(found)} == {6}


def test_a_row_of_a_part_replaces_that_of_its_depth(paper, tmp_path):
    path = write(tmp_path, "settings:\n  - " + ROW_6.replace("6,", "8,", 1))
    rows = {row["depth"]: row for row in configuration.load(path)["settings"]}
    assert rows[8]["steps"] == 20
    assert sorted(rows) == paper["depths"]


def test_the_reference_of_the_folder_counts(paper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**paper, "seeds": [7]}), encoding="utf-8")
    assert configuration.load(write(tmp_path, "depths: [4]"))["seeds"] == [7]
    assert configuration.load("config.yaml")["seeds"] == [7]


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
        ("depths: [4]\nseeds: [0]\ndepths: [8]\n", "line 3: the key 'depths' stands there twice"),
        ("training: {epochs: 2, epochs: 3}", "the key 'epochs' stands there twice"),
        ("depths: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("depths: " + "[" * 60 + "]" * 60, "nested more than 50 levels"),
        (BOMB, "more than 100,000 values"),
        ("depths: &a [*a]", "nested more than 50 levels"),
        ("seeds: [" + "9" * 5000 + "]", "cannot be read as YAML"),
        ("seeds: [0x" + "f" * 5000 + "]", "a whole number of 20000 bits"),
        ("experiment: 2001-13-45", "cannot be read as YAML"),
        ("experiment: " + "a" * 5000, "experiment: "),
        ('experiment: "paper\\n"', "experiment: "),
        ('device: "cpu\\n"', "device: "),
        ("? " + "k" * 1_000_000 + "\n: 1", "unknown key; allowed here: "),
        ("depht: 1", "depht: unknown key; did you mean depths?"),
        (f"experiment: {'k' * 1_000_000}", "experiment: "),
        ("seeds: [" + "1, " * 50_000 + "1]", "seeds: "),
        ("propagation: {layers: [15.0, 1.0]}", ".0 is not of type 'integer'"),
        ("depths: [4.0]", "4.0 is not of type 'integer'"),
        ("state_eps: 1.0e-39", "out of range of float32"),
        ("conventions: {rms_eps: 1.0e+300}", "out of range of float32"),
        ("depths: [10]", "depths: settings: no row for depth 10"),
        ("strength_sweep: {depth: 10}", "strength_sweep: settings: no row for depth 10"),
        ("propagation: {depth: 70}", "propagation: settings: no row for depth 70"),
        (
            "controls: {cells: [{dataset: mnist, depth: 10, seeds: [0]}]}",
            "controls: settings: no row for depth 10",
        ),
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


def remedy(paper: dict, **entry) -> dict:
    rule = {"name": "mine", "title": "Mine", "method": "dkp", **entry}
    return changed(paper, remedies__rules=[rule])


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"set": {"seed": 5}}, "mine: set: seed is that of the cell"),
        ({"set": {"network.depth": 5}}, "set: network.depth is that of the cell"),
        ({"set": {"dataset": "mnist"}}, "set: dataset is that of the cell"),
        ({"set": {"learning.lr": 0.1}}, "set: learning.lr is chosen"),
        ({"set": {"learning.lrr": 0.1}}, "learning.lrr: no such key"),
        ({"method": "hep", "vary": {"highway.alpha": [0.1, 1.0]}}, "vary: highway.alpha cannot be chosen"),
        ({"vary": {"learning.lr": [0.1]}}, "vary: learning.lr cannot be chosen"),
        ({"set": {"learning.eps": 0.1}, "vary": {"learning.eps": [0.1]}}, "under set and under vary"),
        ({"tuned": False, "set": {"learning.eps": 0.1}}, "set not with tuned: false"),
        ({"tuned": False, "learning_rates": [0.1]}, "learning_rates not with tuned: false"),
        ({"method": "dfa", "set": {"highway.every": 2}}, "dfa needs feedback to every hidden layer"),
        ({"title": "two\nlines"}, "title: "),
        (
            {"set": {"conventions.state_gradient": "sum"}},
            "conventions.state_gradient changes nothing in a dkp run",
        ),
    ],
)
def test_a_remedy_says_nothing_in_vain(paper, entry, says):
    with pytest.raises(SpecError) as error:
        configuration.validate(remedy(paper, **entry))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        ({"method": "pc", "conventions": {"highway_layers": "all"}}, "conventions.highway_layers changes nothing"),
        ({"method": "pc", "highway": {"chain": False}}, "mine: highway changes nothing in a pc run"),
        ({"method": "dfa", "steps_factor": 2}, "mine: steps_factor changes nothing in a dfa run"),
        ({"method": "magic"}, "method 'magic' does not exist"),
    ],
)
def test_a_control_changes_something(paper, arm, says):
    with pytest.raises(SpecError, match=says):
        configuration.validate(changed(paper, controls__arms=[{"name": "mine", "title": "Mine", **arm}]))


def test_two_entries_of_one_name_are_refused(paper):
    twice = [paper["remedies"]["rules"][3]] * 2
    with pytest.raises(SpecError, match=r"remedies\.rules: two entries are called 'dfa'"):
        configuration.validate(changed(paper, remedies__rules=twice))
