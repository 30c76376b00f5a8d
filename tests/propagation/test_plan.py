"""The relaxations that a configuration asks for; every table and figure reads exactly its own traces."""

import copy
import json

import numpy as np
import pytest

from artefacts import FIGURES, TABLES, TRACED
from highways import paper as published
from highways.analysis.data import propagation
from highways.analysis.figures.drawing import NothingRun
from highways.experiments import configuration
from highways.experiments import relaxations as plan
from highways.propagation import trace
from highways.propagation.spec import Propagation
from highways.propagation.trace import Trace
from highways.specs.cost import no_more
from highways.specs.fields import SpecError
from highways.specs.registry import METHODS, Method
from mappings import changed


def made_up(spec: Propagation) -> Trace:
    """A trace whose every number is known: after any step layer l, 1 to L, has the error l 10^-seed."""
    depth = spec.run.network.depth
    steps = np.array([0, 1]) if spec.run.inference is None else np.arange(depth + 3)
    errors = np.tile(np.arange(1.0, depth + 1) * 10.0**-spec.run.seed, (len(steps), 1))
    errors[0, :-1] = 0
    return Trace(spec, steps, errors, errors[-1], errors[-1], {"code": "none"})


@pytest.fixture
def experiment(paper) -> dict:
    shallow = changed(paper, propagation__depth=16, propagation__layers=[1, 8, 15])
    return changed(shallow, propagation__during_training__depth=8)


@pytest.fixture
def folder(tmp_path, experiment):
    for path, spec in configuration.all_propagations(experiment).items():
        trace.write(tmp_path / f"{path}.npz", made_up(spec))
    return tmp_path


def names(kind: str) -> list[str]:
    return [name for its, name in TRACED if its == kind]


@pytest.mark.parametrize(("kind", "name"), TRACED)
def test_an_artefact_reads_the_traces_that_the_plan_names(experiment, folder, monkeypatch, kind, name):
    asked = set()
    read = trace.read
    monkeypatch.setattr(propagation, "read", lambda path, spec: asked.add(spec.path) or read(path, spec))
    item = TRACED[kind, name]
    made = item.function(experiment, folder)
    assert asked == {one.path for one in item.traces(experiment)}
    if kind == "figure":
        assert all(axes.has_data() or axes.get_label() == "<colorbar>" for axes in made.axes)
        assert "not run" not in " ".join(text.get_text() for axes in made.axes for text in axes.texts)
    else:
        assert "not run" not in made.frame.to_string()


@pytest.mark.parametrize("name", names("figure"))
def test_a_figure_of_nothing_names_its_target(experiment, tmp_path, name):
    with pytest.raises(NothingRun, match=f"target figure_{name}$"):
        FIGURES[name](experiment, tmp_path)


@pytest.mark.parametrize("name", names("table"))
def test_a_table_of_nothing_says_not_run(experiment, tmp_path, name):
    frame = TABLES[name](experiment, tmp_path).frame
    assert (frame == "not run").all().all()


def test_the_table_has_the_papers_layers_values_and_ours(paper, tmp_path):
    for spec in TRACED["table", "optimizer"].traces(paper):
        trace.write(tmp_path / f"{spec.path}.npz", made_up(spec))
    frame = TABLES["optimizer"](paper, tmp_path).frame
    assert list(frame.index) == [str(layer) for layer in published.error_layers()]
    assert frame.loc["60", "gradient descent (paper)"] == "4.0e-03"
    assert frame.loc["10", "gradient descent (paper)"] == "<1.0e-17"
    # Layer 60 is the 61st of the trace, and the seeds differ by powers of ten.
    assert frame.loc["60", "gradient descent, plain net"] == "6.1e+00 (6.1e-01 to 6.1e+01)"


def test_the_map_has_the_mean_of_the_seeds_where_the_paper_has_it(experiment, folder):
    figure = FIGURES["propagation"](experiment, folder)
    (mesh,) = (part for part in figure.axes[0].collections if part.get_gid() == "map")
    values = mesh.get_array()
    assert values.shape[0] == 16
    assert values[3, 0] == pytest.approx(4 * (1 + 0.1 + 0.01) / 3, rel=1e-6)
    corners = mesh.get_coordinates()
    assert corners[0, 0].tolist() == [1, -0.5]
    assert corners[-1, -1].tolist() == [10_001, 15.5]
    assert "3 seeds" in " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_the_arrival_of_a_layer_is_read_at_its_step(experiment):
    spec = plan.arrivals(experiment)["paper"][0]
    one = made_up(spec)
    one.errors[:] = np.arange(len(one.steps))[:, None]
    assert propagation.arrival(one).tolist() == [16 - layer for layer in range(1, 17)]


def test_the_map_of_every_method_says_how_it_comes_to_its_errors(experiment, folder):
    figure = FIGURES["propagation_methods"](experiment, folder)
    titles = [axes.get_title() for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert {"Vanilla PC", "HEP", "DFA\n(one sweep)", "BP\n(one sweep)"} <= set(titles)
    own = {title.split("\n")[0] for title in titles if title.endswith("(after its own inference)")}
    assert own >= {"ePC", "Meta-PCN", "Precision-guided PC", "DKP-PC"}
    assert not any("μPC" in title for title in titles)  # it has another network
    assert len(titles) == len(METHODS) - len(plan.left_out())
    assert "μPC (a network of its own)" in " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_a_method_whose_relaxation_is_not_known_is_not_drawn_as_predictive_coding(paper, monkeypatch):
    monkeypatch.setitem(METHODS, "ipc", Method("iPC", inference=True, cost=no_more))
    assert plan.left_out()["ipc"] == "its relaxation is not implemented here"
    assert "ipc" not in plan.by_method(paper)
    assert {"pc", "hep", "dfa"} <= set(plan.by_method(paper))


def test_a_run_is_in_the_specification_as_it_is_in_a_record(paper):
    """A method without settings has no key `rule`, so traces from before that key remain valid."""
    drawn = plan.by_method(paper)
    assert "rule" not in json.loads(drawn["pc"][0].to_json())["run"]
    assert json.loads(drawn["epc"][0].to_json())["run"]["rule"] == {"step_size": 1e-3, "steps": 5}
    for (one,) in plan.training_moments(paper).values():
        assert json.loads(one.to_json())["trained"] == one.trained.to_dict()


def test_every_relaxation_has_a_place_of_its_own(paper):
    specs = [one for item in TRACED.values() for one in item.traces(paper)]
    assert len({spec.path for spec in specs}) == len({spec.to_json() for spec in specs})
    assert all(Propagation.from_dict(json.loads(spec.to_json())) == spec for spec in specs)


def test_the_trained_weights_are_those_of_the_tables_run(paper):
    runs = {run.path: run for run in configuration.all_runs(paper).values()}
    for run in plan.trained_runs(paper):
        assert runs[run.path].spec == run.spec
    for (method, epoch), (one,) in plan.training_moments(paper).items():
        assert (one.trained.method, one.epoch) == (method, epoch)
        assert one.run.seed == one.trained.seed


def test_what_the_configuration_cannot_ask_for(paper):
    wrong = copy.deepcopy(paper)
    wrong["propagation"]["steps"] = 0
    with pytest.raises(SpecError, match="steps: 0 is out of range"):
        configuration.validate(wrong)
    wrong = changed(paper, propagation__layers=[64])
    with pytest.raises(SpecError, match=r"propagation: layers: 64 is out of range; it takes 0 to 63"):
        configuration.validate(wrong)
    wrong = changed(paper, propagation__during_training__epochs=[-1])
    with pytest.raises(SpecError, match=r"propagation: during_training\.epochs: -1 is out of range"):
        configuration.validate(wrong)
    configuration.validate(changed(paper, training__epochs=2))  # fewer epochs of training are allowed
