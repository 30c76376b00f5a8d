import csv
import io
import re
from html.parser import HTMLParser

import pytest
from shown import datum, notes

from artefacts import TABLES
from highways.analysis import commands
from highways.analysis.data.cells import depth_cells
from highways.analysis.data.notes import DATASET_TITLES
from highways.analysis.data.rendering import Table, to_html, to_latex, write
from highways.experiments import cost
from highways.experiments.configuration import all_runs
from highways.experiments.plan import plan
from highways.specs.fields import SpecError
from highways.specs.run import DATASETS
from mappings import experiment

HEP_8 = ("L008/hep/",)


def depth_row(table, depth):
    return table.frame.loc[("MNIST", depth)]


def write_seeds(record, find, parts, values):
    for seed, value in enumerate(values):
        if value is not None:
            record(find(*parts, f"/seed{seed}/"), value)


def test_a_cell_is_mean_and_sample_std_beside_the_papers(config, folder, record, find):
    write_seeds(record, find, HEP_8, [0.90, 0.92, 0.97])  # mean 93; deviations -3, -1, 4: variance 26 / 2
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 8)["HEP"] == "93.0 ± 3.6 (n=3)"
    assert depth_row(table, 8)["HEP (paper)"] == "96.4 ± 0.7"
    row = datum(table, depth=8, method="hep")
    assert row["mean"] == pytest.approx(93)
    assert row["std"] == pytest.approx(13**0.5)
    assert (row["values"], row["seeds"], row["n"], row["status"]) == ("90;92;97", "0;1;2", 3, "complete")
    assert (row["paper_mean"], row["paper_std"]) == (96.4, 0.7)


def test_what_another_kernel_made_is_told(config, folder, record, find):
    record(find(*HEP_8, "/seed0/"), 0.9, kernel="native")
    record(find(*HEP_8, "/seed1/"), 0.9, kernel="mixed")
    wanted = "By the kernel mixed, with bf16 products in the E-step: MNIST L=8 HEP (1 seed)."
    assert wanted in TABLES["depth"](config, folder).notes
    record(find(*HEP_8, "/seed1/"), 0.9, kernel="native")
    assert not any("kernel mixed" in note for note in TABLES["depth"](config, folder).notes)


def test_what_was_not_run_says_so_and_has_no_number(config, folder):
    table = TABLES["depth"](config, folder)
    ours = table.frame[["Vanilla PC", "HEP", "BP"]]
    assert (ours == "not run").all(axis=None)
    assert table.data["mean"].isna().all()
    assert set(table.data["status"]) == {"not run"}
    assert (table.data["values"] == "").all()


def test_all_depths_of_the_paper_are_rows_whatever_the_configuration_runs(config, folder):
    table = TABLES["depth"](config, folder)
    assert [depth for _, depth in table.frame.index] == [4, 8, 16, 32, 64, 128]
    assert depth_row(table, 128)["Vanilla PC (paper)"] == "12.8 ± 2.5"


def test_a_data_set_that_is_not_in_the_paper_has_no_published_value(config, folder):
    config = experiment(config, "depth", cells__dataset="fashion_mnist_excerpt")
    table = TABLES["depth"](config, folder)
    assert list(table.frame.index) == [("Fashion-MNIST excerpt", 4), ("Fashion-MNIST excerpt", 8)]
    assert set(table.frame["HEP (paper)"]) == {"—"}
    assert table.data["paper_mean"].isna().all()
    assert table.data["paper_std"].isna().all()


def test_one_seed_has_no_spread(config, folder, record, find):
    write_seeds(record, find, HEP_8, [None, 0.912])
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 8)["HEP"] == "91.2 (n=1)"
    assert table.data["std"].isna().all()
    assert any("MNIST L=8 HEP: 1 of 3 seeds" in note for note in table.notes)


def test_a_fall_of_the_validation_below_its_best_is_told(config, folder, record, find):
    """0.9 down to 0.724 is 17.6 points below the best so far, though the run ends higher."""
    record(find(*HEP_8, "seed0"), 0.9, curve=[0.5, 0.9, 0.724, 0.95, 0.94])
    record(find(*HEP_8, "seed1"), 0.9, curve=[0.5, 0.6, 0.7])
    record(find("L008/pc", "seed0"), 0.9, curve=[0.5, 0.9, 0.871])
    table = TABLES["depth"](config, folder)
    (note,) = notes(table, "Unstable")
    assert "at most by MNIST L=8 HEP 17.6." in note
    assert datum(table, depth=8, method="hep")["validation_drop"] == pytest.approx(17.6)
    assert datum(table, depth=8, method="pc")["validation_drop"] == pytest.approx(2.9)


def test_versions_of_the_code_are_counted_and_cells_that_mix_them_named(config, folder, record, find):
    write_seeds(record, find, HEP_8, [0.9, 0.9, 0.9])
    assert not notes(TABLES["depth"](config, folder), "Fingerprints")
    path = folder / f"{find(*HEP_8, 'seed1').path}.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"training_code": "0"', '"training_code": "1"'), encoding="utf-8"
    )
    table = TABLES["depth"](config, folder)
    assert datum(table, depth=8, method="hep")["code_versions"] == 2
    assert "records: 2; more than one within MNIST L=8 HEP 2." in notes(table, "Fingerprints")[0]


def test_a_rate_that_a_reported_seed_chose_is_told_and_one_at_the_edge_too(config, folder, record):
    for run in all_runs(config).values():
        if run.path.startswith("depth/mnist/L004/backprop/lr"):
            record(run, 0.9, 0.9 + run.spec.learning.lr)
    table = TABLES["depth"](config, folder)
    (note,) = notes(table, "Chosen on a seed that is reported too")
    assert "(seed 0): MNIST L=4 BP." in note
    highest = 1e-3
    assert (
        f"MNIST L=4 BP {highest:g} (edge of its grid: lr {highest:g})" in notes(table, "Learning rate chosen")[0]
    )
    config["experiments"][0]["select"]["seeds"] = [7]
    assert not notes(TABLES["depth"](config, folder), "Chosen on a seed")


def test_settings_name_the_sweeps_that_are_shorter_than_the_papers(config):
    config = experiment(config, "strength", cells__seeds=[0], set={"epochs": 1})
    table = TABLES["settings"](config, None)
    assert "Differs: strength.epochs is 1, in the paper 12." in table.notes
    assert "Differs: strength.seeds is 0, in the paper 0, 1, 2." in table.notes
    assert not notes(table, "Differs: density")


def test_a_diverged_run_counts_with_its_best_accuracy_or_is_left_out_and_named(config, folder, record, find):
    record(find(*HEP_8, "seed0"), 0.90)
    record(find(*HEP_8, "seed1"), 0.80, diverged=5)
    record(find(*HEP_8, "seed2"), None, None, diverged=1)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 8)["HEP"] == "85.0 ± 7.1 (n=2) (1 diverged)"
    row = datum(table, depth=8, method="hep")
    assert (row["n"], row["diverged"], row["values"], row["status"]) == (2, 2, "90;80", "complete")
    (note,) = notes(table, "Diverged")
    assert "seed 1 (counted at its best epoch), seed 2 (left out, no accuracy)" in note


def test_a_cell_whose_runs_all_diverged_has_no_mean(config, folder, record, find):
    for seed in range(3):
        record(find("L008/pc", f"seed{seed}"), None, None, diverged=1)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 8)["Vanilla PC"] == "(3 diverged)"
    assert datum(table, depth=8, method="pc")["status"] == "diverged"


def test_an_invalid_record_is_named_and_not_counted(config, folder, record, find):
    write_seeds(record, find, HEP_8, [0.9, 0.9])
    bad = find(*HEP_8, "seed2")
    (folder / f"{bad.path}.json").write_text("{", encoding="utf-8")
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 8)["HEP"] == "90.0 ± 0.0 (n=2)"
    assert datum(table, depth=8, method="hep")["status"] == "partial"
    assert any(note.startswith(f"Record not used: {bad.path}: not valid JSON") for note in table.notes)


def test_a_cell_with_invalid_records_alone_is_invalid(config, folder, record, find):
    record(find("L004/pc", "seed0"), change=lambda spec: spec.update(epochs=1))
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 4)["Vanilla PC"] == "invalid"
    assert any("made with another setting: epochs" in note for note in table.notes)


@pytest.fixture
def swept(record, find):
    """A backprop sweep that 1e-3 wins on validation and loses on test; returns a writer of selected runs."""
    record(find("L004/backprop/lr0.0001"), 0.99, 0.80)
    record(find("L004/backprop/lr0.001"), 0.90, 0.90)
    return lambda seed, test, lr: record(find(f"L004/backprop/selected/seed{seed}"), test, 0.5, lr=lr)


def test_a_swept_cell_is_the_sweep_run_at_the_chosen_rate_and_the_selected_runs(config, folder, swept):
    swept(1, 0.92, 1e-3)
    swept(2, 0.94, 1e-3)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 4)["BP"] == "92.0 ± 2.0 (n=3)"
    row = datum(table, depth=4, method="backprop")
    assert (row["values"], row["seeds"], row["learning_rate"]) == ("90;92;94", "0;1;2", 1e-3)
    assert (
        "Learning rate chosen on validation accuracy: MNIST L=4 BP 0.001 (edge of its grid: lr 0.001)."
        in table.notes
    )


def test_a_selected_run_of_an_earlier_selection_is_not_used(config, folder, swept):
    swept(1, 0.92, 1e-3)
    swept(2, 0.99, 1e-4)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 4)["BP"] == "91.0 ± 1.4 (n=2)"
    (note,) = notes(table, "Record not used")
    assert note.endswith("selected/seed2: made with learning.lr 0.0001, but the sweep selects learning.lr 0.001.")


def test_an_unfinished_sweep_gives_no_number(config, folder, record, find):
    record(find("L004/backprop/lr0.001"), 0.90, 0.90)
    record(find("L004/backprop/selected/seed1"), 0.92, lr=1e-3)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 4)["BP"] == "not run"
    assert any("the sweep is unfinished: MNIST L=4 BP: 1 of 2 runs" in note for note in table.notes)


def test_a_sweep_that_diverged_everywhere_says_so(config, folder, record, find):
    for rate in ("0.0001", "0.001"):
        record(find(f"L004/backprop/lr{rate}"), None, None, diverged=1)
    table = TABLES["depth"](config, folder)
    assert depth_row(table, 4)["BP"] == "diverged"
    assert "Diverged at every setting of the sweep: MNIST L=4 BP." in table.notes


def left_to_run(config, folder):
    (note,) = notes(TABLES["depth"](config, folder), "Left to run, in core-hours")
    return note


def test_a_cell_with_runs_left_says_what_they_will_cost(config, folder, record, find):
    write_seeds(record, find, HEP_8, [0.9])
    hep = cost.seconds(find(*HEP_8, "seed1").spec)
    note = left_to_run(config, folder)
    assert f"MNIST L=8 HEP: {2 * hep / 3600:.1g};" in note
    backprop = cost.seconds(find("L008/backprop/lr0.001").spec)
    two_rates_and_two_more_seeds = depth_cells(config, folder)["mnist", 8, "backprop"].seconds_left
    assert two_rates_and_two_more_seeds == pytest.approx(4 * backprop)
    write_seeds(record, find, HEP_8, [0.9, 0.9, 0.9])
    assert "MNIST L=8 HEP" not in left_to_run(config, folder)


def test_a_swept_cell_has_the_runs_of_its_choice_left(config, folder, swept):
    swept(1, 0.92, 1e-3)
    assert "MNIST L=4 BP" in left_to_run(config, folder)
    swept(2, 0.94, 1e-3)
    assert "MNIST L=4 BP" not in left_to_run(config, folder)


def test_a_cell_that_diverged_everywhere_has_nothing_left(config, folder, record, find):
    for rate in ("0.0001", "0.001"):
        record(find(f"L004/backprop/lr{rate}"), None, None, diverged=1)
    assert "MNIST L=4 BP" not in left_to_run(config, folder)


def test_a_run_that_two_sweeps_share_with_the_table_counts_once_in_each(config, folder, record, find):
    paths = [path for path in all_runs(config) if path.startswith("depth/mnist/L008/hep/")]
    assert len(paths) == 3
    assert set(paths) <= {run.path for variant in plan(config).of("strength") for run in variant.runs}
    write_seeds(record, find, HEP_8, [0.90, 0.92, 0.94])
    config = experiment(config, "density", vary={"highway.every": [1]})
    assert depth_row(TABLES["depth"](config, folder), 8)["HEP"] == "92.0 ± 2.0 (n=3)"
    assert TABLES["density"](config, folder).frame.loc["Ours", "k=1"] == "92.0 ± 2.0 (n=3)"


def test_the_density_table_has_our_row_above_the_papers(config, folder, record, find):
    config["settings"].append({**config["settings"][1], "depth": 32})
    config = experiment(config, "density", cells__depth=32, vary={"highway.every": [10, 3]})
    for seed, value in enumerate([0.70, 0.80, 0.90]):
        record(plan(config).runs[f"density/mnist/L032/hep/every10/seed{seed}"], value)
    table = TABLES["density"](config, folder)
    assert list(table.frame.columns) == [f"k={k}" for k in (1, 2, 3, 4, 5, 8, 10)]
    assert table.frame.loc["Ours", "k=10"] == "80.0 ± 10.0 (n=3)"
    assert table.frame.loc["Paper", "k=10"] == "84.0 ± 10.1"
    assert table.frame.loc["Paper", "k=3"] == "—"
    assert table.frame.loc["Ours", "k=1"] == "not run"
    assert datum(table, every=10)["paper_std"] == 10.1


def test_the_papers_density_is_not_shown_beside_another_depth(config, folder):
    table = TABLES["density"](config, folder)
    assert set(table.frame.loc["Paper"]) == {"—"}
    assert table.data["paper_mean"].isna().all()


def test_settings_mark_what_differs_and_only_that(config, folder):
    config["settings"][1]["alpha"] = 5.4
    config["training"]["epochs"] = 2
    table = TABLES["settings"](config, folder)
    assert (table.frame.loc[8, "α"], table.frame.loc[8, "α (paper)"], table.frame.loc[8, "≠"]) == (
        "5.4",
        "1.8",
        "α",
    )
    assert table.frame.loc[4, "≠"] == ""
    assert (table.frame.loc[128, "T"], table.frame.loc[128, "T (paper)"]) == ("—", "384")
    assert "Differs: training.epochs is 2, in the paper 12." in table.notes
    assert any("network.width 128" in note for note in notes(table, "As in the paper"))
    assert datum(table, setting="alpha", depth=8)["differs"]
    assert not datum(table, setting="steps", depth=8)["differs"]
    assert not datum(table, setting="steps", depth=128)["differs"]


def test_the_papers_exception_of_backprop_is_compared(config, folder):
    config["settings"].append({**config["settings"][1], "depth": 128})
    config = experiment(config, "depth", cells__depth=128, set={"network.initialisation": "orthogonal"})
    table = TABLES["settings"](config, folder)
    assert not datum(table, setting="backprop.initialisation")["differs"]
    assert datum(table, setting="backprop.horizon")["differs"]
    assert "Differs: backprop.horizon at depth 128 is null, in the paper 24000." in table.notes


def test_notes_state_protocol_conventions_and_spread(config, folder, record, find):
    record(find("L004/pc", "seed0"))
    notes = " ".join(TABLES["depth"](config, folder).notes)
    assert "12 epochs" in notes
    assert "MNIST 50000/10000/10000" in notes
    assert "activation=pre" in notes
    assert "highway_layers=all" in notes  # a default that the configuration leaves out
    assert "ddof = 1" in notes
    assert "tab:depth_best" in notes


def test_every_data_set_has_a_title():
    assert set(DATASET_TITLES) == set(DATASETS)


def test_the_csv_is_long_and_reads_back(config, folder, tmp_path, record, find):
    write_seeds(record, find, HEP_8, [0.9001, 0.92, 0.97])
    commands.table("depth", config, commands.Sources(folder, folder), tmp_path / "tables")
    text = (tmp_path / "tables" / "depth.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 6 * 3
    (row,) = [row for row in rows if (row["depth"], row["method"]) == ("8", "hep")]
    assert [float(value) for value in row["values"].split(";")] == [90.01, 92, 97]
    assert float(row["mean"]) == pytest.approx((90.01 + 92 + 97) / 3)
    assert (row["paper_mean"], row["n"], row["diverged"]) == ("96.4", "3", "0")
    (empty,) = [row for row in rows if (row["depth"], row["method"]) == ("8", "pc")]
    assert (empty["mean"], empty["std"], empty["values"], empty["status"]) == ("", "", "", "not run")


def test_four_files_and_nothing_else_are_written_the_same_every_time(config, folder, tmp_path):
    for name in TABLES:
        commands.table(name, config, commands.Sources(folder, folder), tmp_path / "a")
        commands.table(name, config, commands.Sources(folder, folder), tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(f"{name}.{ending}" for name in TABLES for ending in ("csv", "md", "html", "tex"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.fixture
def hostile():
    import pandas as pd

    frame = pd.DataFrame({"a_b": ["<b> & 50% ± 1"]}, index=pd.Index(["x^2"], name="#"))
    return Table("hostile", "Cap_tion <1>", frame, frame, ("{note} with \\ and ~ and $", "<script>"))


def test_html_is_semantic_and_escaped(hostile):
    text = to_html(hostile)
    assert text.isascii()
    assert "&lt;b&gt; &amp; 50% &#177; 1" in text
    assert "<script>" not in text

    tags, scopes = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)
            scopes.extend(value for key, value in attrs if key == "scope")

    Reader().feed(text)
    assert {"table", "caption", "thead", "tbody", "th", "td", "li"} <= set(tags)
    assert scopes == ["col", "col", "row"]


def test_latex_has_booktabs_and_escapes(hostile):
    text = to_latex(hostile)
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert r"x\textasciicircum{}2 & \textless{}b\textgreater{} \& 50\% $\pm$ 1 \\" in text
    assert r"\# & a\_b \\" in text
    assert r"\{note\} with \textbackslash{} and \textasciitilde{} and \$" in text
    assert r"\caption{Cap\_tion \textless{}1\textgreater{}}" in text


def test_latex_of_every_table_is_ascii_with_balanced_rows(config, folder):
    for make in TABLES.values():
        table = make(config, folder)
        text = to_latex(table)
        assert text.isascii(), [character for character in text if not character.isascii()]
        (columns,) = re.findall(r"\\begin\{tabular\}\{([lc]+)\}", text)
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert len(rows) == len(table.frame) + 1
        assert all(len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1 for row in rows)


def test_markdown_shows_cells_and_notes(hostile, tmp_path):
    write(hostile, tmp_path)
    text = (tmp_path / "hostile.md").read_text(encoding="utf-8")
    assert "| x^2 | &lt;b> & 50% ± 1 |" in re.sub(" +", " ", text)
    assert "- &lt;script>" in text


def test_a_table_that_does_not_exist_is_refused_with_the_names(config, folder, tmp_path):
    with pytest.raises(SpecError, match=r"strength, conventions, .*ablations, .*baselines"):
        commands.table("nope", config, commands.Sources(folder, folder), tmp_path)


# The convention search


def write_first(record, find, **values):
    for name, value in values.items():
        method, reading = name.split("_", 1)
        record(find("conventions/first/", f"/{method}/{reading.replace('_', '-', 1)}/", "/seed0/"), value)


def test_the_distance_of_a_reading_is_in_units_of_the_papers_spread(config, folder, record, find):
    # The paper at depth 4: PC 97.8 ± 0.1, HEP 97.8 ± 0.3.
    write_first(record, find, hep_post_all=0.966, hep_pre_all=0.975, pc_pre=0.979)
    record(find("conventions/first/", "/pc/post/", "/seed0/"), 0.975)
    table = TABLES["conventions"](config, folder)
    row = datum(table, stage="first", activation="post", highway_layers="all", method="hep")
    assert row["distance"] == pytest.approx(((3**2 + 4**2) / 2) ** 0.5, abs=1e-3)  # -0.3 / 0.1 and -1.2 / 0.3
    assert row["points"] == pytest.approx((0.3 + 1.2) / 2)
    near = datum(table, stage="first", activation="pre", highway_layers="all", method="pc")
    assert near["distance"] == pytest.approx(1.0, abs=1e-3)
    unknown = datum(table, stage="first", activation="pre", highway_layers="without_first", method="hep")
    assert unknown["distance"] is None or unknown["distance"] != unknown["distance"]

    first = table.frame.loc["first"]
    assert list(first["Distance"]) == ["paper", "1.0", "3.5", "—", "—"]
    assert list(first["Activation"])[:3] == ["", "pre", "post"]
    assert list(first["MNIST L=4 Vanilla PC"])[:3] == ["97.8 ± 0.1", "97.9 (n=1)", "97.5 (n=1)"]


def test_a_reading_is_marked_where_a_later_stage_keeps_it_and_where_it_is_the_default(config, folder):
    table = TABLES["conventions"](config, folder)
    for stage in ("first", "last"):
        found = datum(table, stage=stage, activation="pre", highway_layers="all", method="pc", sigma_v="0.001")
        assert found["fate"] == "in config.yaml"
    config["conventions"] = {"activation": "both"}
    config["experiments"][3]["rows"].pop()
    table = TABLES["conventions"](config, folder)
    fates = {(r["activation"], r["highway_layers"]): r["fate"] for r in table.data.to_dict("records")[:8]}
    assert fates == {
        ("post", "all"): "",
        ("post", "without_first"): "",
        ("pre", "all"): "kept",
        ("pre", "without_first"): "",
    }


def test_a_reading_whose_runs_diverged_counts_as_chance(config, folder, record, find):
    write_first(record, find, hep_pre_all=0.978)
    record(find("conventions/first/", "/pc/pre/", "/seed0/"), None, None, diverged=1)
    row = datum(
        TABLES["conventions"](config, folder), stage="first", activation="pre", highway_layers="all", method="hep"
    )
    assert row["points"] == pytest.approx((97.8 - 10) / 2)


# The ablations


def test_ablations_stand_below_each_other_with_their_own_seeds(config, folder, record, find):
    for seed, value in enumerate([0.90, 0.94]):
        record(find("ablations/cut/", f"/seed{seed}/"), value)
    record(find("L008/hep", "/seed0/"), 0.95)
    table = TABLES["ablations"](config, folder)
    column = table.frame["MNIST L=8"]
    assert column["HEP without the chain"] == "92.0 ± 2.8 (n=2)"
    assert column["HEP"] == "95.0 (n=1)"
    assert column["PC 4T"] == "not run"
    assert datum(table, ablation="cut")["values"] == "90;94"


def test_the_committed_latex_needs_no_unicode(root):
    """pdflatex stops at a Greek letter that is not a command."""
    for path in (root / "results/reference/tables").glob("*.tex"):
        assert path.read_text(encoding="utf-8").isascii(), path.name
