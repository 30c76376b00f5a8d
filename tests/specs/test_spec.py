"""Specifications: their values and error messages, their hashes, their endpoints and their paths."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from highways.experiments import status
from highways.experiments.runs import Run
from highways.specs.fields import SpecError
from highways.specs.run import Conventions, Highway, Learning, Network, RunSpec
from mappings import changed
from networks import make_spec

ROOT = Path(__file__).parents[2]


def test_a_spec_survives_json(tiny):
    spec = tiny(conventions=Conventions(activation="post", bias=True), learning=Learning(3.3e-7, horizon=9))
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(json.dumps(json.loads(spec.to_json()))).hash == spec.hash


def test_a_whole_number_given_for_a_real_one_is_the_same_spec(tiny):
    assert tiny(highway=Highway(1)).hash == tiny(highway=Highway(1.0)).hash


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("network__depth", 1, "a whole number from 2"),
        ("network__depth", "8", "a whole number"),
        ("network__width", 12.0, "a whole number"),
        ("network__phi", "gelu", "relu, tanh"),
        ("learning__lr", "1e-4", "write 1.0e-4"),
        ("learning__lr", 0, "above 0"),
        ("learning__lr", float("nan"), "above 0"),
        ("learning__lr", float("inf"), "above 0"),
        ("highway__alpha", -1, "at least 0"),
        ("highway__every", 4, "from 1 to 3"),
        ("highway__every", True, "a whole number"),
        ("dataset", "cifar10", "mnist, fashion_mnist"),
        ("method", "dfa2", "pc, hep, dfa, backprop"),
        ("conventions__bias", 1, "true or false"),
        ("conventions__activation", "middle", "post, pre, both, pre_norm"),
        ("inference__optimizer", "sgd", "adam, euler"),
        ("epochs", 0, "from 1"),
        ("seed", -1, "from 0"),
        ("dtype", "float16", "float32, float64"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(tiny, key, value, says):
    with pytest.raises(SpecError) as error:
        RunSpec.from_dict(changed(tiny().to_dict(), **{key: value}))
    message = str(error.value)
    assert message.startswith(key.replace("__", "."))
    assert str(value) in message
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("key", ["colour", "network__colour", "conventions__colour"])
def test_an_unknown_key_is_named_with_the_known_ones(tiny, key):
    with pytest.raises(SpecError, match=r"colour: unknown key; allowed here: .*(depth|dataset|activation)"):
        RunSpec.from_dict(changed(tiny().to_dict(), **{key: 1}))


@pytest.mark.parametrize("key", ["dataset", "network__depth", "learning__lr"])
def test_a_missing_key_is_named(tiny, key):
    plain = tiny().to_dict()
    *sections, name = key.split("__")
    target = plain
    for section in sections:
        target = target[section]
    del target[name]
    with pytest.raises(SpecError, match=f"{key.replace('__', '.')}: missing"):
        RunSpec.from_dict(plain)


def test_a_section_that_a_method_does_not_use_is_refused(tiny):
    with pytest.raises(SpecError, match="highway: method 'pc' does not use this section"):
        RunSpec.from_dict(changed(tiny().to_dict(), method="pc"))
    with pytest.raises(SpecError, match="inference: method 'hep' needs this section"):
        RunSpec.from_dict(changed(tiny().to_dict(), inference=None))
    with pytest.raises(SpecError, match="rule: method 'hep' does not use this section"):
        RunSpec.from_dict(changed(tiny().to_dict(), rule={}))


@pytest.mark.parametrize("ablation", [{"chain": False}, {"redraw": True}])
def test_the_ablations_of_hep_are_not_taken_for_those_of_dfa(tiny, ablation):
    dfa = tiny("dfa", inference=None, highway=Highway(1.0)).to_dict()
    with pytest.raises(SpecError, match="ablations of HEP"):
        RunSpec.from_dict(changed(dfa, highway={**dfa["highway"], **ablation}))


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_text_that_is_no_spec_is_one_line(text):
    with pytest.raises(SpecError) as error:
        RunSpec.from_json(text)
    assert "\n" not in str(error.value)


def test_a_key_that_came_later_changes_no_hash_at_its_default(tiny):
    """Older records lack the key, so a specification with its default must keep its hash."""
    spec = tiny()
    assert "normalisation" not in spec.to_dict()["conventions"]
    assert RunSpec.from_dict(changed(spec.to_dict(), conventions__normalisation="rms")).hash == spec.hash
    without = spec.changed({"conventions.normalisation": "none"})
    assert without.to_dict()["conventions"]["normalisation"] == "none"
    assert RunSpec.from_json(without.to_json()) == without
    with pytest.raises(SpecError, match=r"normalise_output_input: true needs conventions.normalisation: rms"):
        without.changed({"conventions.normalise_output_input": True})


def test_a_record_with_another_value_of_a_later_key_is_not_that_of_the_run(tiny):
    spec = tiny()
    without = spec.changed({"conventions.normalisation": "none"})
    assert status.differences({"spec": without.to_dict()}, Run("", spec)) == ["conventions.normalisation"]
    assert status.differences({"spec": spec.to_dict()}, Run("", without)) == ["conventions.normalisation"]
    assert status.differences({"spec": spec.to_dict()}, Run("", spec)) == []


def test_every_field_changes_the_hash(tiny):
    spec = tiny()
    changes = {
        "network__depth": 5,
        "network__width": 17,
        "network__phi": "tanh",
        "network__initialisation": "orthogonal",
        "learning__lr": 1e-3,
        "learning__weight_decay": 0.0,
        "learning__eps": 1e-12,
        "learning__schedule": "warmup_cosine",
        "learning__warmup_fraction": 0.1,
        "learning__horizon": 10,
        "inference__optimizer": "adam",
        "inference__step_size": 0.4,
        "inference__steps": 9,
        "inference__eps": 1e-2,
        "highway__alpha": 0.6,
        "highway__every": 2,
        "highway__sigma_v": 1e-2,
        "highway__chain": False,
        "highway__redraw": True,
        "conventions__activation": "post",
        "conventions__normalise_output_input": True,
        "conventions__state_gradient": "sum",
        "conventions__bias": True,
        "conventions__highway_layers": "without_first",
        "conventions__initial_state": "rounded",
        "conventions__normalisation": "none",
        "conventions__weight_decay_on_gain": True,
        "conventions__rms_eps": 1e-5,
        "dataset": "mnist",
        "epochs": 3,
        "batch_size": 64,
        "seed": 1,
        "dtype": "float64",
    }
    hashes = {RunSpec.from_dict(changed(spec.to_dict(), **{key: value})).hash for key, value in changes.items()}
    assert len(hashes | {spec.hash}) == len(changes) + 1
    assert {key.replace("__", ".") for key in changes} | {"method"} == set(leaves(spec.complete()))


def leaves(mapping: dict, where: str = "") -> list[str]:
    found: list[str] = []
    for key, value in mapping.items():
        found += leaves(value, f"{where}{key}.") if isinstance(value, dict) else [where + key]
    return found


@pytest.mark.parametrize(
    ("depth", "every", "layers", "endpoints"),
    [
        (4, 1, "all", (1, 2, 3)),
        (4, 1, "without_first", (2, 3)),
        (8, 2, "all", (2, 4, 6)),
        (32, 5, "all", (2, 7, 12, 17, 22, 27)),
        (32, 10, "all", (2, 12, 22)),
        (32, 8, "all", (8, 16, 24)),
        (8, 7, "all", (1,)),
    ],
)
def test_endpoints_are_counted_from_the_output(tiny, depth, every, layers, endpoints):
    spec = tiny(
        network=Network(depth), highway=Highway(0.1, every), conventions=Conventions(highway_layers=layers)
    )
    assert spec.endpoints == endpoints


def test_without_the_first_layer_no_endpoint_may_be_left(tiny):
    with pytest.raises(SpecError, match=r"highway\.every: 3 leaves no hidden layer .* from 1 to 2"):
        tiny(highway=Highway(0.1, every=3), conventions=Conventions(highway_layers="without_first"))


def test_the_smallest_network_without_its_first_layer_has_no_endpoint(tiny):
    with pytest.raises(SpecError, match="there is none to be had"):
        tiny(network=Network(2, width=16), conventions=Conventions(highway_layers="without_first"))


def test_paths_are_readable(tiny):
    assert tiny().path == "fashion_mnist_excerpt/L004/hep/alpha0.5_k1/seed0"
    assert tiny("backprop", learning=Learning(3e-5)).path == "fashion_mnist_excerpt/L004/backprop/lr3e-05/seed0"


def test_planning_imports_no_torch():
    """Every cluster job parses the workflow, so the plan must not pay for torch."""
    code = (
        "import sys; from highways import provenance, workflow; import highways.cli;"
        "from highways.experiments import configuration, cost, status;"
        "runs = configuration.all_runs(configuration.load('config.yaml')); provenance.training_code('hep');"
        "sys.exit(any(name.split('.')[0] in ('torch', 'pandas', 'matplotlib') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_mupc_takes_no_other_initialisation() -> None:
    with pytest.raises(SpecError, match=r"network.initialisation: mupc .* it takes gaussian"):
        make_spec("mupc", initialisation="orthogonal")
