"""The verdict on our predictions for the baselines, on records of known values."""

import re

import pytest
from benchmarked import asked_for, baselines, write_all
from shown import datum, notes

from artefacts import TABLES
from highways.analysis.claims import predictions, verdict
from highways.analysis.claims.criteria import CELL_RULES
from highways.analysis.claims.parts import CAVEAT, FAILS, HOLDS, NOT_RUN
from mappings import experiment

AT_8 = {"dataset": "mnist", "depth": 8, "seeds": [0, 1, 2]}


def precise(config):
    """The configuration with precision-guided PC, with and without its forward update, at one rate."""
    entry = {"title": "with", "methods": "precision", "select": {"among": {"learning.lr": [1e-3]}}}
    without = {**entry, "name": "precision_states", "title": "without", "secondary": True}
    return baselines(config, entry, {**without, "set": {"rule.forward_update": False}}, cells=AT_8)


@pytest.mark.parametrize(("gap", "wanted"), [(30, HOLDS), (1, FAILS), (None, NOT_RUN)])
def test_a_prediction_is_judged_on_the_rules_that_it_names(config, folder, record, gap, wanted):
    config = precise(config)
    write_all(config, record, "precision", lambda run: 0.95 + run.spec.seed / 1000)
    if gap is not None:
        write_all(config, record, "precision_states", lambda run: 0.95 - gap / 100 + run.spec.seed / 1000)
    found = {one.id: one for one in predictions.judge(config, folder)}
    assert found["forward_update"].verdict == wanted
    assert {one.verdict for name, one in found.items() if name != "forward_update"} == {NOT_RUN}
    table = TABLES["predictions"](config, folder)
    (own,) = [claim for claim in predictions.claims() if claim["id"] == "forward_update"]
    shown = table.frame.loc[own["claim"]]
    assert (shown["Why"], shown["Verdict"]) == (own["why"], wanted)
    if gap is not None:
        assert re.search(rf"MNIST L=8: with 95\.1 ± 0\.1 \(n=3\), without† .*: \+{gap}\.0 \[", shown["Evidence"])
        assert datum(table, claim="forward_update")["part_verdict"] == wanted
    assert notes(table, "Written on 2026-11-28")
    assert notes(table, "†")


@pytest.mark.parametrize(("rates", "wanted"), [(([1e-3], [1e-3]), HOLDS), (([1e-3], [3e-3]), CAVEAT)])
def test_what_is_predicted_for_one_rate_says_where_the_rates_differ(config, folder, record, rates, wanted):
    dkp, dfa = (
        {"title": name, "methods": name, "local": "yes", "select": {"among": {"learning.lr": own}}}
        for name, own in zip(("dkp", "dfa"), rates, strict=True)
    )
    dfa["set"] = {"highway.alpha": 1.0, "highway.sigma_v": 0.3}
    config = baselines(config, dkp, dfa, cells=AT_8)
    for variant in asked_for(config):
        own = variant.runs[0].spec.learning.lr
        for run in variant.runs:
            record(run, 0.9 + run.spec.seed / 1000, 0.9, lr=own if run.selection else None)
    (found,) = [one for one in predictions.judge(config, folder) if one.id == "dkp_no_gain"]
    assert found.parts[0].verdict == wanted
    assert ("to the rates 0.001, 0.003" in found.caveats) == (wanted == CAVEAT)


@pytest.mark.parametrize(("start", "wanted"), [("gaussian", HOLDS), ("orthogonal", CAVEAT)])
@pytest.mark.parametrize("gap", [0, 30])
def test_rules_that_do_not_start_alike_are_compared_with_a_word_on_it(config, folder, record, start, wanted, gap):
    precision, bp = (
        {"title": title, "methods": name, "select": {"among": {"learning.lr": [1e-3]}}}
        for name, title in (("precision", "Precision"), ("backprop", "BP"))
    )
    config = baselines(config, precision, {**bp, "set": {"network.initialisation": start}}, cells=AT_8)
    write_all(config, record, "backprop", lambda run: 0.95 + run.spec.seed / 1000)
    write_all(config, record, "precision", lambda run: 0.95 - gap / 100 + run.spec.seed / 1000)
    (found,) = [one for one in predictions.judge(config, folder) if one.id == "precision_is_bp"]
    assert found.parts[0].verdict == (FAILS if gap else wanted)
    words = "not alike: Precision has gaussian start, constant rate, BP has orthogonal start, constant rate"
    assert found.parts[0].caveat == (words if start == "orthogonal" else "")
    assert bool(notes(TABLES["baselines"](config, folder), "At MNIST L=8 BP alone: orthogonal")) == (
        start == "orthogonal"
    )


def test_a_prediction_is_only_judged_on_its_own_data_set(config, folder, record):
    config = precise(config)
    config = experiment(config, "baselines", cells__dataset="fashion_mnist")
    write_all(config, record, "precision", 0.95)
    write_all(config, record, "precision_states", 0.5)
    assert {one.verdict for one in predictions.judge(config, folder)} == {NOT_RUN}


def test_every_prediction_can_be_judged_on_the_configuration(paper):
    places = {(variant.name, variant.place) for variant in asked_for(paper)}
    known = set()
    for claim in predictions.claims():
        assert claim["rule"] in CELL_RULES
        assert claim["claim"]
        assert claim["why"]
        assert claim["id"] not in known
        known.add(claim["id"])
        for key in ("method", "with", "than", "better"):
            if key in claim:
                assert all((claim[key], ("mnist", depth)) in places for depth in claim["depths"])


def test_the_verdict_as_data_has_the_predictions_beside_the_claims(config, folder):
    judged = verdict.judge(config, folder, folder)
    document = verdict.document(config, judged, predictions.judge(config, folder))
    assert [one["id"] for one in document["predictions"]] == [claim["id"] for claim in predictions.claims()]
    assert set(document["predictions"][0]) == set(document["claims"][0])
    assert sum(document["counts"].values()) == len(judged)  # predictions are not counted as claims
