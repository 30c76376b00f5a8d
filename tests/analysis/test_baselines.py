"""The baselines in tables and figures, on records of known values."""

import json
import re

import numpy as np
import pytest
from benchmarked import asked_for, baselines, write_all
from matplotlib.text import Text
from shown import datum, notes

from artefacts import FIGURES, TABLES
from highways.analysis.data import rendering
from highways.analysis.figures import baselines as panels
from highways.analysis.figures import style
from highways.analysis.tables import baselines as tables
from highways.experiments.configuration import all_runs, validate
from highways.experiments.cost import extra_parameters
from highways.experiments.runs import cell_spec
from mappings import experiment
from mappings import row as changed_row

LRA = ("baselines/", "L004/lra")


def settings(lr, beta):
    def change(spec):
        spec["learning"]["lr"], spec["rule"]["beta"] = lr, beta

    return change


def edit(path, **values):
    """Replace sections of a record; of a section given as a dict, only the given keys change."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for section, value in values.items():
        document[section] = {**document[section], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def tuned(config, record, find):
    """Records of LRA-E's tuning at depth 4: rate 0.001 with beta 0.3 validates best; test must not count."""
    for rate, beta, validation in [(1e-4, 0.1, 0.7), (1e-4, 0.3, 0.8), (1e-3, 0.1, 0.6), (1e-3, 0.3, 0.85)]:
        record(find(*LRA, f"/lr{rate:g}_beta{beta}/"), 0.99, validation)


def row(table, label):
    return table.frame.xs(label, level="Method").iloc[0]


def test_candidates_beyond_the_grid_are_run_and_change_no_choice(config):
    step = {"dataset": "mnist", "depth": 4, "learning.lr": 3e-3, "rule.beta": 0.3}
    before, after = all_runs(config), all_runs(changed_row(config, "baselines", 2, beyond=[step]))
    (path,) = set(after) - set(before)
    assert path == "baselines/mnist/L004/lra/beyond/lr0.003_beta0.3/seed3"
    inside = after["baselines/mnist/L004/lra/lr0.001_beta0.3/seed3"].spec
    assert after[path].spec == inside.changed({"learning.lr": 3e-3})
    selected = "baselines/mnist/L004/lra/selected/seed0"
    assert after[selected].sweep == before[selected].sweep


# The table


def test_a_tuned_cell_is_the_selected_runs_at_the_chosen_settings(config, folder, record, find, tuned):
    for seed, value in enumerate([0.90, 0.92]):
        record(find(*LRA, f"selected/seed{seed}/"), value, change=settings(1e-3, 0.3))
    table = TABLES["baselines"](config, folder)
    assert row(table, "LRA-E†")["MNIST L=4"] == "91.0 ± 1.4 (n=2) ‡"
    assert row(table, "LRA-E†")["MNIST L=8"] == "not run"
    found = datum(table, baseline="lra", depth=4)
    assert json.loads(found["settings"]) == {"learning.lr": 1e-3, "rule.beta": 0.3}
    assert (found["values"], found["status"], found["learning_rate"]) == ("90;92", "complete", 1e-3)
    assert any("LRA-E†, MNIST L=4 0.001, beta 0.3" in note for note in notes(table, "Learning rate chosen"))


@pytest.mark.parametrize(
    ("best", "wanted", "note"),
    [
        ((0.105, 0.11, 0.1), "§", "Tuned in name only"),
        ((0.5, 0.6, 0.7), "‡", "edge"),
        ((0.5, 0.7, 0.6), "", ""),
    ],
)
def test_a_choice_at_chance_or_at_the_edge_of_its_grid_is_marked(config, folder, record, best, wanted, note):
    rates = [1e-4, 1e-3, 1e-2]
    entry = {"methods": "dfa", "local": "yes", "select": {"among": {"learning.lr": rates}}}
    beyond = [{"dataset": "mnist", "depth": 8, "learning.lr": 0.1}]
    cells = {"dataset": "mnist", "depth": 8, "seeds": [0]}
    config = baselines(config, {**entry, "beyond": beyond}, cells=cells)
    (variant,) = asked_for(config)
    for run in variant.runs:
        rate = rates[int(np.argmax(best))] if run.selection else run.spec.learning.lr
        record(run, 0.9, best[rates.index(rate)], lr=rate)
    table = TABLES["baselines"](config, folder)
    assert row(table, "DFA")["MNIST L=8"] == f"90.0 (n=1) {wanted}".strip()
    assert bool(notes(table, wanted or "‡")) == bool(wanted)
    if wanted:
        assert note in notes(table, wanted)[0]
    (step,) = notes(table, "One step beyond")
    assert f"DFA, MNIST L=8 lr 0.1: not run ({100 * max(best):.1f})" in step
    record(variant.beyond[0], 0.0, 0.75)
    assert (
        f"lr 0.1: 75.0 ({100 * max(best):.1f})" in notes(TABLES["baselines"](config, folder), "One step beyond")[0]
    )


def test_a_selected_run_at_other_settings_is_not_used(config, folder, record, find, tuned):
    record(find(*LRA, "selected/seed0/"), 0.90, change=settings(1e-3, 0.3))
    record(find(*LRA, "selected/seed1/"), 0.99, change=settings(1e-3, 0.1))
    table = TABLES["baselines"](config, folder)
    assert row(table, "LRA-E†")["MNIST L=4"] == "90.0 (n=1) ‡"
    assert "rule.beta 0.1, but the sweep selects" in notes(table, "Record not used")[0]


def test_a_run_of_the_tuning_is_never_one_of_the_cell(config, folder, record, find):
    config = experiment(config, "baselines", select__seeds=[0])
    for beta, validation in ((0.1, 0.7), (0.3, 0.8)):
        for rate in (1e-4, 1e-3):
            record(
                all_runs(config)[f"baselines/mnist/L004/lra/lr{rate:g}_beta{beta}/seed0"], 0.99, validation + rate
            )
    assert row(TABLES["baselines"](config, folder), "LRA-E†")["MNIST L=4"] == "not run"
    record(find(*LRA, "selected/seed0/"), 0.90, change=settings(1e-3, 0.3))
    assert row(TABLES["baselines"](config, folder), "LRA-E†")["MNIST L=4"] == "90.0 (n=1) ‡"


def test_an_untuned_baseline_is_a_cell_of_the_papers_table(config, folder, record, find):
    for seed, value in enumerate([0.90, 0.94, 0.50]):  # `baselines` asks for two seeds, `depth` for three
        record(find("L008/hep", f"/seed{seed}/"), value)
    table = TABLES["baselines"](config, folder)
    assert row(table, "HEP")["MNIST L=8"] == "92.0 ± 2.8 (n=2)"
    (note,) = notes(table, "Not tuned here")
    assert note.startswith("Not tuned here: HEP have")
    assert "DFA" not in note


def test_the_notes_have_the_protocol_of_tuning(config, folder):
    table = TABLES["baselines"](config, folder)
    assert notes(table, "Tuned on seed 3 for 2 epochs")
    (candidates,) = notes(table, "Candidates")
    assert "LRA-E† lr 0.0001, 0.001 × beta 0.1, 0.3;" in candidates
    assert "HEP" not in candidates


def test_a_rule_with_forward_skips_stands_below_in_a_block_of_its_own(config, folder):
    rows = config["experiments"][-1]["rows"]
    rows.insert(0, rows.pop())
    table = TABLES["baselines"](config, folder)
    assert list(table.frame.index) == [
        (tables.PLAIN, "HEP"),
        (tables.PLAIN, "DFA"),
        (tables.PLAIN, "LRA-E†"),
        (tables.SKIPS, "muPC"),
    ]
    assert "muPC" in notes(table, "With forward skips")[0]
    rows[0]["set"] = {"rule.skips": False}
    table = TABLES["baselines"](config, folder)
    assert next(iter(table.frame.index)) == (tables.PLAIN, "muPC")
    assert not notes(table, "With forward skips")


def test_what_is_from_secondary_descriptions_is_marked_and_explained(config, folder):
    table = TABLES["baselines"](config, folder)
    assert [rule for _, rule in table.frame.index if "†" in rule] == ["LRA-E†"]
    assert notes(table, "†")[0].endswith("no code found: LRA-E†.")
    assert datum(table, baseline="lra", depth=4)["secondary"]
    assert not datum(table, baseline="dfa", depth=4)["secondary"]
    del config["experiments"][-1]["rows"][2]["secondary"]
    assert not notes(TABLES["baselines"](config, folder), "†")


def test_a_place_that_is_not_planned_is_not_one_that_was_not_run(config, folder):
    config = changed_row(config, "baselines", 1, cells={"dataset": "mnist", "depth": 8, "seeds": [0]})
    found = row(TABLES["baselines"](config, folder), "DFA")
    assert (found["MNIST L=4"], found["MNIST L=8"]) == ("—", "not run")
    assert found["Extra parameters, L=4"] == "—"


def test_core_seconds_are_those_of_the_record_over_its_epochs(config, folder, record, find):
    for seed, seconds in enumerate([16.8, 33.6]):  # for 12 epochs
        path = record(find("L008/hep", f"/seed{seed}/"))
        edit(path, timing={"cpu_seconds": seconds})
    table = TABLES["baselines"](config, folder)
    assert row(table, "HEP")["Core-s per epoch, L=8"] == "2.1"  # the mean of 1.4 and 2.8
    assert row(table, "HEP")["Core-s per epoch, L=4"] == "—"
    assert datum(table, baseline="hep", depth=8)["core_seconds_per_epoch"] == pytest.approx(2.1)


def test_the_time_of_a_record_that_is_not_used_does_not_count(config, folder, record, find, tuned):
    edit(record(find(*LRA, "selected/seed0/"), 0.90, change=settings(1e-3, 0.3)), timing={"cpu_seconds": 16.8})
    edit(record(find(*LRA, "selected/seed1/"), change=settings(1e-3, 0.1)), timing={"cpu_seconds": 900.0})
    assert row(TABLES["baselines"](config, folder), "LRA-E†")["Core-s per epoch, L=4"] == "1.4"


def test_extra_parameters_by_hand(config):
    def extra(method, depth=8, **settings):
        return extra_parameters(cell_spec(config, "mnist", depth, method, 0).changed(settings))

    assert extra("backprop") == extra("pc") == extra("epc") == extra("mupc") == (0, False)
    assert extra("dfa") == extra("hep") == (7 * 1280, False)  # 7 hidden layers of 128 by 10
    assert extra("hep", **{"highway.every": 2}) == (3 * 1280, False)  # layers 6, 4, 2
    assert extra("hep", **{"conventions.highway_layers": "without_first"}) == (6 * 1280, False)
    assert extra("dkp", depth=4) == extra("dkp_pc", depth=4) == (3 * 1280, True)
    assert extra("lra") == (1280 + 6 * 16384, True)
    fixed = {"rule.learned": False}
    assert extra("lra", **fixed, **{"rule.every": 1}) == (7 * 1280, False)
    assert extra("lra", **fixed, **{"rule.every": 2}) == (4 * 1280 + 3 * 16384, False)  # direct: 2, 4, 6, 7
    assert extra("lra", **fixed, **{"rule.every": 4}) == (2 * 1280 + 5 * 16384, False)  # direct: 4, 7


def test_extra_parameters_are_those_of_the_chosen_settings(config, folder, record):
    entry = {"name": "rec", "title": "rec-LRA", "methods": "lra", "set": {"rule.learned": False}}
    rates = {"learning.lr": [1e-3]}
    config = baselines(config, {**entry, "select": {"among": {**rates, "rule.every": [1, 2]}}})
    table = TABLES["baselines"](config, folder)
    assert row(table, "rec-LRA")["Extra parameters, L=8"] == "—"
    for run in next(one for one in asked_for(config) if one.depth == 8).runs:
        if run.selection is None:
            record(run, validation=0.5 + run.spec.rule.every / 10)
    found = row(TABLES["baselines"](config, folder), "rec-LRA")
    assert (found["Extra parameters, L=4"], found["Extra parameters, L=8"]) == ("—", "54,272 fixed")
    config = validate(baselines(config, {**entry, "select": {"among": rates}}))
    whole = row(TABLES["baselines"](config, folder), "rec-LRA")
    assert whole["Extra parameters, L=8"] == "99,584 fixed"


# The figures


def line(figure, gid, panel=0):
    (found,) = [one for one in figure.axes[panel].lines if one.get_gid() == gid]
    return found


def gids(figure, panel):
    return {str(one.get_gid()) for one in figure.axes[panel].lines}


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def test_accuracy_is_drawn_by_family_beside_bp_in_grey(config, folder, record):
    own, feedback = {"family": "Predictive coding"}, {"family": "Feedback matrices of their own"}
    bp = {"methods": "backprop", "select": {"epochs": None, "seeds": [0]}}
    hep, dfa, lra, mupc = config["experiments"][-1]["rows"]
    config = baselines(config, bp, {**hep, **own}, {**dfa, **feedback}, {**lra, **feedback}, mupc)
    write_all(config, record, "backprop", 0.97)
    write_all(config, record, "dfa", lambda run: 0.9 + 0.02 * run.spec.seed - run.spec.network.depth / 100)
    write_all(config, record, "mupc", 0.8)
    figure = FIGURES["baselines"](config, folder)
    assert titles(figure) == ["Predictive coding", "Feedback matrices of their own", panels.SKIPS]
    assert list(line(figure, "mean:dfa", 1).get_ydata()) == pytest.approx([87, 83])
    assert gids(figure, 1) >= {"mean:dfa", "mean:lra", "reference:backprop"}
    assert "mean:mupc" not in gids(figure, 0) | gids(figure, 1)
    assert list(line(figure, "mean:mupc", 2).get_ydata()) == pytest.approx([80, 80])
    for panel in range(3):
        assert list(line(figure, "reference:backprop", panel).get_ydata()) == pytest.approx([97, 97])
    legend = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert legend == ["DFA", "LRA-E†"]
    text = " ".join(" ".join(one.get_text() for one in figure.texts).split())
    assert "not run: HEP, LRA-E†" in text
    assert "n = 2 seeds" in text


AWKWARD = r"$\frac{$ | <b>x</b> *y* `z` [a](b) $&"


def test_a_title_is_drawn_and_written_as_it_stands(config, folder, record, tmp_path):
    """The title has characters that are markup to matplotlib, Markdown, HTML or LaTeX."""
    entry = {"title": AWKWARD, "methods": "dfa", "select": {"among": {"learning.lr": [1e-3]}}}
    config = validate(baselines(config, entry))
    write_all(config, record, "dfa", 0.9)
    for name in ("baselines", "baseline_gradients"):
        figure = FIGURES[name](config, folder)
        style.write(figure, tmp_path, name)
        assert (tmp_path / f"{name}.pdf").stat().st_size > 1000
    shown = [text for text in figure.findobj(Text) if "frac" in text.get_text()]
    assert shown
    for text in shown:
        words, formula = text._preprocess_math(text.get_text())
        assert not formula
        assert AWKWARD.split(" [")[0] in " ".join(words.split())
    table = TABLES["baselines"](config, folder)
    markdown = rendering.to_markdown(table)
    (row,) = [line for line in markdown.splitlines() if line.startswith("|") and "frac" in line]
    heads = next(line for line in markdown.splitlines() if line.startswith("| Network"))
    assert len(re.findall(r"(?<!\\)\|", row)) == heads.count("|")
    assert r"\$\frac{\$ \| &lt;b>x&lt;/b> \*y\* \`z\` [a]\(b) \$&" in row
    assert "<b>" not in markdown
    assert "<b>" not in rendering.to_html(table)


def test_the_bars_are_the_sample_std_and_the_scale_is_that_of_the_error(config, folder, record):
    write_all(config, record, "dfa", lambda run: 0.9 + 0.02 * run.spec.seed)
    axes = FIGURES["baselines"](config, folder).axes[0]
    (bars,) = [found for found in axes.collections if len(found.get_segments()) == 2]
    low, high = bars.get_segments()[0][:, 1]
    assert (low + high) / 2 == pytest.approx(91)
    assert (high - low) / 2 == pytest.approx(2**0.5)
    height = [axes.transData.transform((8, value))[1] for value in (0, 90, 99)]
    assert height[1] - height[0] == pytest.approx(height[2] - height[1])  # each step divides the error by 10


def test_every_rule_of_the_configuration_has_a_family(paper):
    found = {variant.name: panels.family(variant) for variant in asked_for(paper)}
    assert [name for name, title in found.items() if title == panels.OTHERS] == list(panels.REFERENCES)
    assert {name for name, title in found.items() if title == panels.SKIPS} == {"mupc", "mupc_entropy"}


def cosines(path, **quantities):
    """Rewrite the diagnostics of a record; each quantity is given as a function of the epoch."""
    document = json.loads(path.read_text(encoding="utf-8"))
    for moment in document["diagnostics"]:
        moment |= {key: value(moment["epoch"]) for key, value in quantities.items()}
    path.write_text(json.dumps(document), encoding="utf-8")


def test_cosines_are_drawn_before_and_after_training(config, folder, record, find):
    for seed, start in enumerate([0.1, 0.3]):
        path = record(find("L008/hep", f"/seed{seed}/"), 0.9, curve=[0.5, 0.6])
        cosines(path, backprop_cosine=lambda epoch, start=start: [start + 0.05 * epoch, None, -1.0, *[None] * 5])
    figure = FIGURES["baseline_gradients"](config, folder)
    assert titles(figure) == ["HEP: 90.0"]
    before, after = (line(figure, f"backprop_cosine:{moment}") for moment in ("before", "after"))
    assert (before.get_linestyle(), after.get_linestyle()) == ("--", "-")
    assert list(before.get_xdata()) == list(range(8))
    assert np.asarray(before.get_ydata()) == pytest.approx([0.2, np.nan, -1, *[np.nan] * 5], nan_ok=True)
    assert np.asarray(after.get_ydata()) == pytest.approx([0.8, np.nan, -1, *[np.nan] * 5], nan_ok=True)
    low, high = figure.axes[0].get_ylim()
    assert low < -1 < 1 < high
    assert set(line(figure, "zero").get_ydata()) == {0}
    assert not any("first" in gid for gid in gids(figure, 0))


def test_a_first_phase_has_lines_of_its_own(config, folder, record):
    entry = {"methods": "dkp_pc", "secondary": True, "select": {"among": {"learning.lr": [1e-3]}}}
    config = baselines(config, entry, cells={"dataset": "mnist", "depth": 8, "seeds": [0]})
    for run in asked_for(config)[0].runs:
        first = -0.9 if run.selection else 0.5  # the run of the tuning is not drawn
        cosines(
            record(run, 0.8, lr=1e-3),
            backprop_cosine=lambda epoch: [0.0] * 8,
            first_backprop_cosine=lambda epoch: [0.3 + epoch / 20] * 8,
            first_cosine=lambda epoch, first=first: [first] * 8,
        )
    figure = FIGURES["baseline_gradients"](config, folder)
    assert titles(figure) == ["DKP-PC†: 80.0"]
    assert list(line(figure, "first_backprop_cosine:before").get_ydata()) == pytest.approx([0.3] * 8)
    assert list(line(figure, "first_backprop_cosine:after").get_ydata()) == pytest.approx([0.9] * 8)
    assert list(line(figure, "first_cosine:after").get_ydata()) == pytest.approx([-0.9] * 8)


def test_the_cosines_are_those_of_the_deepest_place_where_most_rules_have_run(config, folder, record):
    for name in ("hep", "dfa", "lra"):
        for variant in asked_for(config):
            if variant.name == name and (variant.depth == 4 or name == "hep"):
                for run in variant.runs:
                    lra = settings(1e-3, 0.3) if name == "lra" and run.selection else None
                    record(run, 0.9, 0.9 if run.selection else 0.5 + run.spec.learning.lr, change=lra)
    assert panels.common_depth(tables.baseline_cells(config, folder)) == 4


def test_the_family_of_a_row_is_its_panel(config):
    config = validate(changed_row(config, "baselines", 1, family="Of one's own"))
    found = {variant.name: panels.family(variant) for variant in asked_for(config)}
    assert found == {"hep": panels.OTHERS, "dfa": "Of one's own", "lra": panels.OTHERS, "mupc": panels.SKIPS}
