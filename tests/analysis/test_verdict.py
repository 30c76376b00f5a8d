"""The rules that judge a claim, on accuracies and traces whose verdict is known beforehand."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from highways import config as configuration
from highways import paper as published
from highways.analysis import evidence, rules, trace_rules, verdict
from highways.analysis.cells import Cell
from highways.analysis.evidence import Ours, Published, Sample, difference
from highways.analysis.rules import CAVEAT, FAILS, HOLDS, NOT_RUN, UNDECIDED, Part, either, overall
from highways.cli import main
from highways.propagation import plan, trace
from highways.propagation.trace import Trace
from highways.record import RecordError
from highways.runs import density_runs, strength_runs, table_runs
from mappings import changed


def sample(*values: float) -> Sample:
    return Sample(float(np.mean(values)), float(np.std(values, ddof=1)), len(values), dict(enumerate(values)))


class Made:
    """Accuracies by cell."""

    def __init__(self, cells=None, alphas=None, spacings=None):
        self.cells, self.alphas, self.spacings = cells or {}, alphas or {}, spacings or {}

    def accuracy(self, dataset, depth, method):
        return self.cells.get((dataset, depth, method))

    def title(self, method):
        return method.upper()

    def strength(self):
        return self.alphas

    def density(self, every):
        return self.spacings.get(every)


# The statistics


def test_the_interval_of_a_mean_is_students():
    values = (95.0, 96.0, 95.7)
    low, high = sample(*values).interval
    wanted = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (low, high) == pytest.approx(wanted)


def test_a_single_seed_takes_the_papers_spread():
    low, high = Sample(95.0, 0.7, 1).interval
    assert (high - low) / 2 == pytest.approx(1.959964 * 0.7, rel=1e-6)


def test_methods_with_the_same_seeds_are_paired():
    a, b = (95.0, 96.0, 97.0), (94.0, 95.1, 95.9)
    gap, low, high = difference(sample(*a), sample(*b))
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (gap, low, high) == pytest.approx((1.0, wanted.low, wanted.high))


def test_samples_without_seeds_are_compared_by_welch():
    a, b = sample(95.0, 96.0, 97.5), sample(94.0, 95.1, 95.2)
    wanted = stats.ttest_ind(list(a.seeds.values()), list(b.seeds.values()), equal_var=False).confidence_interval(
        0.95
    )
    _, low, high = difference(replace(a, seeds={}), replace(b, seeds={}))
    assert (low, high) == pytest.approx((wanted.low, wanted.high))
    # Other seeds are another sample, not pairs.
    _, low, high = difference(a, replace(b, seeds={5: 94.0, 6: 95.1, 7: 95.2}))
    assert (low, high) == pytest.approx((wanted.low, wanted.high))


def test_two_samples_without_spread_differ_for_certain():
    assert difference(Sample(97.7, 0.0, 3), Sample(95.0, 0.0, 3))[1:] == pytest.approx((2.7, 2.7))


# The rules on accuracies

THREE = sample(94.9, 95.0, 95.1)
CASES = [
    ("below", {"limit": 20.0}, {"pc": sample(10, 11, 12)}, HOLDS),
    ("below", {"limit": 20.0}, {"pc": sample(30, 31, 32)}, FAILS),
    ("below", {"limit": 20.0}, {"pc": sample(10, 19, 28)}, UNDECIDED),
    ("below", {"limit": 20.0}, {"pc": Sample(11.0, 2.0, 1)}, CAVEAT),
    ("below", {"limit": 20.0}, {}, NOT_RUN),
    ("above", {"limit": 20.0}, {"pc": sample(30, 31, 32)}, HOLDS),
    ("above", {"limit": 20.0}, {"pc": sample(10, 11, 12)}, FAILS),
    ("above", {"limit": 20.0}, {"pc": sample(12, 21, 30)}, UNDECIDED),
    ("above", {"limit": 20.0}, {}, NOT_RUN),
    ("within", {"low": 94.0, "high": 96.0}, {"pc": THREE}, HOLDS),
    ("within", {"low": 95.04, "high": 96.0}, {"pc": THREE}, HOLDS),  # it is printed to one digit
    ("within", {"low": 95.2, "high": 96.0}, {"pc": THREE}, UNDECIDED),
    ("within", {"low": 97.0, "high": 98.0}, {"pc": THREE}, FAILS),
    ("better", {"than": "hep", "by": 10.0}, {"pc": THREE, "hep": sample(70, 71, 72)}, HOLDS),
    ("better", {"than": "hep", "by": 30.0}, {"pc": THREE, "hep": sample(70, 71, 72)}, FAILS),
    ("better", {"than": "hep", "by": 24.0}, {"pc": THREE, "hep": sample(70, 71, 72)}, UNDECIDED),
    ("better", {"than": "hep", "by": 10.0}, {"pc": THREE}, NOT_RUN),
    ("not_worse", {"than": "hep", "margin": 2.0}, {"pc": THREE, "hep": sample(95.9, 96, 96.1)}, HOLDS),
    ("not_worse", {"than": "hep", "margin": 2.0}, {"pc": THREE, "hep": sample(98.9, 99, 99.1)}, FAILS),
    ("not_worse", {"than": "hep", "margin": 2.0}, {"pc": THREE, "hep": sample(70, 71, 72)}, HOLDS),
    ("comparable", {"with": "hep", "margin": 2.0}, {"pc": THREE, "hep": sample(95.9, 96, 96.1)}, HOLDS),
    ("comparable", {"with": "hep", "margin": 2.0}, {"pc": THREE, "hep": sample(70, 71, 72)}, FAILS),
    ("no_advantage", {"better": "pc", "than": "hep"}, {"pc": THREE, "hep": sample(96, 96.1, 96.2)}, HOLDS),
    ("no_advantage", {"better": "pc", "than": "hep"}, {"pc": THREE, "hep": sample(93, 93.1, 93.2)}, FAILS),
]


@pytest.mark.parametrize(("rule", "arguments", "cells", "wanted"), CASES)
def test_a_rule_on_one_cell(rule, arguments, cells, wanted):
    claim = {"method": "pc", "datasets": ["mnist"], "depths": [8], **arguments}
    made = Made({("mnist", 8, method): value for method, value in cells.items()})
    (part,) = rules.ACCURACY_RULES[rule](claim, made)
    assert part.verdict == wanted
    assert (wanted == CAVEAT) == (part.caveat == "1 of 3 seeds")


def test_a_finding_has_the_titles_and_the_numbers_of_both():
    claim = {"method": "pc", "with": "hep", "margin": 2.0, "datasets": ["mnist"], "depths": [8]}
    made = Made({("mnist", 8, "pc"): THREE, ("mnist", 8, "hep"): Sample(93.0, 1.0, 1)})
    (part,) = rules.comparable(claim, made)
    assert part.finding.startswith("PC 95.0 ± 0.1 (n=3), HEP 93.0 (n=1): +2.0 [")


@pytest.mark.parametrize(
    ("deep", "wanted"),
    [(sample(70, 71, 72), HOLDS), (sample(94, 94.1, 94.2), FAILS), (sample(80, 90, 91), UNDECIDED)],
)
def test_a_fall_is_one_beyond_its_points(deep, wanted):
    claim = {"method": "pc", "datasets": ["mnist"], "shallow": 8, "deep": 16, "by": 5.0}
    made = Made({("mnist", 8, "pc"): THREE, ("mnist", 16, "pc"): deep})
    (part,) = rules.falls(claim, made)
    assert part.verdict == wanted


STRENGTH = {"chance": 20.0, "plateau": 5.0, "values": 3}


def sweep(*means: float) -> Made:
    return Made(alphas={10.0**i: sample(mean - 0.1, mean, mean + 0.1) for i, mean in enumerate(means)})


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (sweep(11, 94, 95, 94, 10), HOLDS),
        (sweep(80, 94, 95, 94, 10), FAILS),  # it trains without highways
        (sweep(11, 94, 95, 94, 90), FAILS),  # it never collapses
        (sweep(11, 50, 95, 50, 10), FAILS),  # a peak, no plateau
        (sweep(10, 11, 12, 11, 10), FAILS),  # it never trains
        (Made(alphas={0.1: THREE, 1.0: None}), NOT_RUN),
    ],
)
def test_a_transition_has_chance_plateau_and_collapse(made, wanted):
    assert overall(rules.transition(STRENGTH, made)) == wanted


@pytest.mark.parametrize(
    ("made", "epochs", "wanted"),
    [
        ([HOLDS, HOLDS], 1, [HOLDS, HOLDS, CAVEAT]),
        ([HOLDS, FAILS], 1, [UNDECIDED] * 3),
        ([HOLDS, FAILS], 12, [HOLDS, FAILS]),
        ([UNDECIDED, NOT_RUN], 1, [UNDECIDED, NOT_RUN]),
        ([NOT_RUN], 1, [NOT_RUN]),
    ],
)
def test_runs_of_fewer_epochs_bear_out_and_do_not_refute(made, epochs, wanted):
    parts = rules.shorter([Part("", "", one) for one in made], epochs, 12)
    assert [part.verdict for part in parts] == wanted


@pytest.mark.parametrize(("beside", "wanted"), [(0.95, CAVEAT), (0.5, UNDECIDED)])
def test_a_short_strength_sweep_is_not_the_paper_s(config, folder, record, tmp_path, beside, wanted):
    place = {"dataset": "mnist", "depth": 64, "seeds": [0, 1, 2], "epochs": 1}
    config["settings"].append({**config["settings"][-1], "depth": 64})
    config["strength_sweep"] = {**place, "alphas": [1e-4, 0.1, 0.2, 0.3, 100.0]}
    accuracies = {1e-4: 0.1, 0.1: beside, 0.2: 0.95, 0.3: beside, 100.0: 0.1}
    for run in strength_runs(config):
        record(run, accuracies[run.spec.highway.alpha])
    judged = {one.id: one for one in verdict.judge(config, folder, tmp_path)}
    found = next(judged[claim["id"]] for claim in published.claims() if claim["rule"] == "transition")
    assert found.verdict == wanted
    assert found.parts[-1].finding == "1 of 12 epochs"


def test_a_short_table_and_a_short_density_sweep_refute_nothing(config, folder, record, tmp_path):
    place = {"dataset": "mnist", "depth": 32}
    config["settings"].append({**config["settings"][-1], "depth": 32})
    config |= {"depths": [4, 32], "training": {**config["training"], "epochs": 2}}
    config["density_sweep"] = {**place, "every": [1, 2, 10], "seeds": [0, 1, 2], "epochs": 1}
    for run in (*table_runs(config), *density_runs(config)):
        if run.spec.method != "backprop":
            record(run, 0.3 + 0.05 * (run.spec.highway is None or run.spec.highway.every != 1))
    verdicts = {one.verdict for one in verdict.judge(config, folder, tmp_path) if "table_d" in one.command}
    assert UNDECIDED in verdicts
    assert FAILS not in verdicts


def test_thinning_is_cheap_or_destabilises():
    made = Made(spacings={1: THREE, 2: sample(94, 94.1, 94.2), 10: sample(60, 84, 88)})
    assert [p.verdict for p in rules.thinning({"every": 2, "margin": 2.0}, made)] == [HOLDS]
    assert [p.verdict for p in rules.thinning({"every": 2, "margin": 0.5}, made)] == [FAILS]
    assert [p.verdict for p in rules.unstable({"every": 10, "margin": 5.0}, made)] == [UNDECIDED, HOLDS]
    assert [p.verdict for p in rules.unstable({"every": 2, "margin": 5.0}, made)] == [FAILS, FAILS]
    assert [p.verdict for p in rules.thinning({"every": 5, "margin": 2.0}, made)] == [NOT_RUN]


def cell(*accuracies: float | None) -> Cell:
    """One run per seed; None is one that diverged before it had an accuracy."""
    rows = [
        {"seed": seed, "status": "diverged" if value is None else "ok", "test_accuracy": value}
        for seed, value in enumerate(accuracies)
    ]
    return Cell(tuple(range(len(rows))), pd.DataFrame(rows).astype({"test_accuracy": float}))


def test_a_seed_that_diverged_counts_at_chance():
    found = evidence.sample(cell(0.9, None, 0.8), None)
    assert found.mean == pytest.approx((90 + 10 + 80) / 3)
    assert found.std == pytest.approx(np.std([90, 10, 80], ddof=1))
    assert found.text.endswith("(n=3, 1 diverged)")
    assert evidence.sample(cell(None, None, None), None).interval == (10, 10)
    swept = cell(None, None).runs
    nothing_survived = Cell((0, 1), swept.iloc[:0], swept)
    assert nothing_survived.status == "diverged"
    assert evidence.sample(nothing_survived, None).mean == 10


def test_a_strength_at_which_all_seeds_diverge_is_a_collapse():
    accuracies = {1e-4: 0.11, 0.1: 0.94, 0.2: 0.95, 0.3: 0.94, 100.0: None}
    made = Made(alphas={alpha: evidence.sample(cell(*([value] * 3)), None) for alpha, value in accuracies.items()})
    assert overall(rules.transition(STRENGTH, made)) == HOLDS


# The rules on traces


def traced(spec, **arrays) -> Trace:
    """At rest from the first step on, every error 0.1, unless told otherwise."""
    depth = spec.run.network.depth
    steps = np.arange(spec.run.inference.steps + 1)
    flat = np.full((len(steps), depth), 0.1)
    return replace(Trace(spec, steps, flat, flat[0], flat[0], {}), **arrays)


@pytest.fixture
def small(paper) -> dict:
    block = {"depth": 16, "steps": 40, "layers": [1, 8, 15]}
    small = changed(paper, propagation={**paper["propagation"], **block})
    return configuration.validate(changed(small, propagation__during_training__depth=8))


@pytest.fixture
def judged_on(small, tmp_path):
    """A function: the parts of a rule where every wanted trace has these arrays."""

    def judge(rule: str, claim: dict, **arrays):
        for spec in configuration.all_propagations(small).values():
            if spec.run.inference is not None:
                trace.write(tmp_path / f"{spec.path}.npz", traced(spec, **arrays))
        return list(trace_rules.TRACE_RULES[rule](claim, Ours(small, tmp_path, tmp_path)))

    return judge


def climbing(depth: int = 16, steps: int = 40, still: int = 1) -> np.ndarray:
    """Errors that double over the second half of the steps in all layers but the last ones."""
    errors = np.linspace(0, 1, steps + 1)[:, None] * np.ones(depth)
    errors[:, -still:] = 1
    return errors


LAYERS = 10.0 ** -np.arange(16.0)[::-1]
RULES = [
    ("settles", {"optimizer": "gd", "share": 0.9}, {}, HOLDS),
    ("settles", {"optimizer": "gd", "share": 0.9}, {"errors": climbing()}, FAILS),
    ("climbs", {"optimizer": "gd"}, {"errors": climbing()}, HOLDS),
    ("climbs", {"optimizer": "gd"}, {"errors": climbing(still=8)}, HOLDS),  # those next to the output may settle
    ("climbs", {"optimizer": "gd"}, {"errors": climbing(still=8)[:, ::-1]}, FAILS),
    ("climbs", {"optimizer": "gd"}, {}, FAILS),
    ("floor", {"optimizer": "gd", "layer": 8, "floor": 1e-16}, {}, FAILS),
    ("floor", {"optimizer": "gd", "layer": 8, "floor": 1e-16}, {"errors": np.zeros((41, 16))}, HOLDS),
    ("flat", {"optimizer": "gd", "factor": 5.0, "expected": True}, {}, HOLDS),
    ("flat", {"optimizer": "gd", "factor": 5.0, "expected": True}, {"errors": np.tile(LAYERS, (41, 1))}, FAILS),
    ("flat", {"optimizer": "gd", "factor": 5.0, "expected": False}, {"errors": np.tile(LAYERS, (41, 1))}, HOLDS),
    ("from_the_first_step", {}, {}, HOLDS),
    ("from_the_first_step", {}, {"errors": np.zeros((41, 16))}, FAILS),
    ("reaches", {"steps": 10, "share": 0.1}, {}, FAILS),
    ("reaches", {"steps": 10, "share": 0.6}, {"errors": climbing() * 0.1}, HOLDS),
    ("reaches", {"steps": 10, "share": 0.6}, {"errors": climbing() * 0.01}, UNDECIDED),
    ("equilibrium", {"factor": 2.0}, {}, HOLDS),
    ("equilibrium", {"factor": 2.0}, {"steady": np.full(16, 0.13)}, CAVEAT),
    ("equilibrium", {"factor": 2.0}, {"steady": np.full(16, 0.5)}, FAILS),
    ("equilibrium", {"factor": 2.0}, {"errors": climbing()}, UNDECIDED),
    ("equilibrium", {"factor": 2.0}, {"errors": climbing(still=9), "steady": np.ones(16)}, CAVEAT),
    ("arrival", {}, {}, FAILS),
]


@pytest.mark.parametrize(("rule", "claim", "arrays", "wanted"), RULES)
def test_a_rule_on_traces(judged_on, rule, claim, arrays, wanted):
    verdicts = {part.verdict for part in judged_on(rule, claim, **arrays)}
    assert verdicts == {wanted}


def test_the_law_holds_where_arrivals_follow_it(judged_on):
    errors = np.zeros((41, 16))
    for layer in range(1, 17):
        errors[16 - layer :, layer - 1] = 0.1 * 0.05 ** (16 - layer)
    assert {part.verdict for part in judged_on("arrival", {}, errors=errors)} == {HOLDS}


def test_a_first_layer_without_highway_is_a_caveat(judged_on):
    errors = np.full((41, 16), 0.1)
    errors[1, 0] = 0
    parts = judged_on("from_the_first_step", {}, errors=errors)
    assert {part.verdict for part in parts} == {CAVEAT}
    assert "no highway in this reading" in parts[0].caveat


def test_a_column_of_the_paper_is_held_to_its_factor(paper, tmp_path):
    errors = np.full((2, 64), 1e-20)
    for layer in published.error_layers():
        errors[:, layer] = published.layer_error(layer, "gd").value
    claim = {"optimizer": "gd", "factor": 3.0}

    def parts(errors):
        for spec in plan.panels(paper, "gd")["plain", "pc"]:
            one = Trace(spec, np.array([0, 1]), errors, errors[0], errors[0], {})
            trace.write(tmp_path / f"{spec.path}.npz", one)
        (part,) = trace_rules.layer_errors(claim, Ours(paper, tmp_path, tmp_path))
        return part

    assert parts(errors).verdict == CAVEAT  # it is not the network that is trained
    low = errors.copy()
    low[:, 1] = 1e-30  # below an upper bound is right
    assert parts(low).verdict == CAVEAT
    wrong = errors.copy()
    wrong[:, 60] *= 4
    assert parts(wrong).verdict == FAILS
    assert "layer 60, 4 times" in parts(wrong).finding


# Claims


def test_a_claim_that_holds_in_one_network_names_the_other():
    parts = (Part("one", "", HOLDS), Part("other", "", FAILS))
    assert verdict.Judged("", "", "", CAVEAT, parts, "").caveats == "other: does not hold"
    assert verdict.Judged("", "", "", FAILS, parts, "").caveats == ""


def test_a_claim_is_as_good_as_its_parts():
    def parts(*verdicts):
        return [Part("", "", one) for one in verdicts]

    assert overall(parts(HOLDS, HOLDS)) == HOLDS
    assert overall(parts(HOLDS, NOT_RUN)) == CAVEAT
    assert overall(parts(HOLDS, UNDECIDED)) == CAVEAT
    assert overall(parts(HOLDS, FAILS)) == FAILS
    assert overall(parts(NOT_RUN, NOT_RUN)) == NOT_RUN
    assert overall(parts(UNDECIDED, NOT_RUN)) == UNDECIDED
    assert either(parts(HOLDS, FAILS)) == CAVEAT
    assert either(parts(FAILS, FAILS)) == FAILS
    assert either(parts(FAILS, NOT_RUN)) == UNDECIDED
    assert either(parts(FAILS, UNDECIDED)) == UNDECIDED
    assert either(parts(NOT_RUN, NOT_RUN)) == NOT_RUN


def test_every_claim_has_a_rule_and_names_claims_before_it():
    seen = set()
    for claim in published.claims():
        assert claim["id"] not in seen
        assert claim["claim"]
        assert claim["place"]
        if claim["rule"] == "all_of":
            assert set(claim["claims"]) <= seen
        else:
            assert (claim["rule"] in rules.ACCURACY_RULES) != (claim["rule"] in trace_rules.TRACE_RULES)
        seen.add(claim["id"])


def test_the_papers_own_numbers_bear_out_most_of_its_claims():
    """And not that HEP is comparable to BP on Fashion-MNIST: 82.1 against 85.6 at depth 128."""
    found = {
        claim["id"]: overall(rules.ACCURACY_RULES[claim["rule"]](claim, Published()))
        for claim in published.claims()
        if claim["rule"] in rules.ACCURACY_RULES
    }
    assert found["hep_mnist"] == HOLDS
    assert found["hep_fashion"] == HOLDS
    assert found["strength"] == NOT_RUN  # the figure prints no numbers
    assert [name for name, one in found.items() if one == FAILS] == ["hep_as_bp"]


def test_nothing_run_is_no_verdict(paper, tmp_path):
    judged = verdict.judge(paper, tmp_path, tmp_path)
    assert {one.verdict for one in judged} == {NOT_RUN}
    assert verdict.document(paper, judged)["counts"][NOT_RUN] == len(judged)


def test_another_experiment_is_no_evidence(small, config, folder, record, tmp_path):
    """The smoke configuration has sweeps and relaxations too, of other networks."""
    for spec in configuration.all_propagations(small).values():
        if spec.run.inference is not None:
            trace.write(tmp_path / f"{spec.path}.npz", traced(spec))
    found = {one.id: one.verdict for one in verdict.judge(small, tmp_path, tmp_path)}
    assert set(found.values()) == {NOT_RUN}
    for run in [*strength_runs(config), *density_runs(config)]:
        record(run, 0.9)
    ours = Ours(config, folder, tmp_path)
    assert ours.strength() == {}
    assert ours.density(1) is None


def test_strict_finds_what_no_longer_holds(paper, tmp_path, capsys, root, monkeypatch):
    monkeypatch.chdir(root)
    before = tmp_path / "before.json"
    judged = verdict.judge(paper, tmp_path, tmp_path)
    held = replace(judged[0], verdict=HOLDS)
    before.write_text(json.dumps(verdict.document(paper, [held, *judged[1:]])), encoding="utf-8")
    assert verdict.lost(judged, before) == [held.id]
    nothing = ["verdict", "--runs", str(tmp_path), "--traces", str(tmp_path)]
    assert main([*nothing, "--strict", str(before)]) == 4
    said = capsys.readouterr()
    assert f"{held.id} held in {before} and no longer does" in said.err
    assert main([*nothing, "--out", str(before)]) == 0
    assert main([*nothing, "--strict", str(before)]) == 0
    assert main([*nothing, "--claim", "nonsense"]) == 1
    before.write_text("[]", encoding="utf-8")
    with pytest.raises(RecordError, match="not a verdict"):
        verdict.lost(judged, before)


def test_the_table_has_every_claim_and_every_part(paper, tmp_path):
    judged = verdict.judge(paper, tmp_path, tmp_path)
    table = verdict.table(paper, judged)
    assert list(table.frame.index) == [one.claim for one in judged]
    assert len(table.data) == sum(len(one.parts) for one in judged)
    assert math.isclose(sum(verdict.document(paper, judged)["counts"].values()), len(judged))
