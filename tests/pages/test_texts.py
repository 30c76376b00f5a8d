"""README and docs: their tables are those of the records, and so are the numbers in their sentences."""

import json
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from highways.analysis import texts
from highways.experiments import configuration
from highways.experiments.results import Sources

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results/reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = texts.Tables(
    configuration.load(ROOT / "config.yaml"),
    Sources(ROOT / "results/reference/runs", ROOT / "results/reference/propagation"),
)
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


WITH_TABLES = [path for path in PAGES if "<!-- table:" in page(path)]


def prose(text: str) -> str:
    """A text without code, tables, comments and the targets of links."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))
    return re.sub(r"`[^`]*`|<!--.*?-->|\]\([^)]*\)", "", text)


def flat(text: str) -> str:
    return " ".join(text.split())


@cache
def block(name: str) -> str:
    return texts.frame_to_markdown(texts.BLOCKS[name](TABLES))


@cache
def committed(name: str) -> pd.DataFrame:
    return pd.read_csv(REFERENCE / f"tables/{name}.csv")


def mean(depth: int, method: str, dataset: str = "mnist") -> tuple[float, float]:
    """Our mean accuracy in a cell and the paper's, in %."""
    rows = committed("depth").query("dataset == @dataset and depth == @depth and method == @method")
    (row,) = rows.itertuples()
    return row.mean, row.paper_mean


def seeds(arm: str, depth: int) -> list[float]:
    (values,) = committed("ablations").query("ablation == @arm and depth == @depth")["values"]
    return [float(value) for value in values.split(";")]


def below(dataset: str, depths: tuple[int, ...]) -> tuple[str, str]:
    """The smallest and the largest gap of HEP below the paper over these depths, in points."""
    gaps = [theirs - ours for ours, theirs in (mean(depth, "hep", dataset) for depth in depths)]
    return f"{min(gaps):.1f}", f"{max(gaps):.1f}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_files_that_a_page_names_exist(path):
    links = re.findall(r"\]\(([^)]+)\)", page(path))
    local = [link.partition("#")[0] for link in links if not link.startswith(("http", "#"))]
    assert [link for link in local if not (path.parent / link).exists()] == []
    named = re.findall(r"`((?:src|tests|docs|workflow|benchmarks|results)/[\w./-]+)`", page(path))
    assert [name for name in named if not (ROOT / name).exists() and not name.startswith("results/")] == []


def test_the_readme_has_900_words_at_most():
    assert len(page(ROOT / "README.md").split()) <= 900


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_of_prose_are_about_100_columns_long(path):
    without_code = re.sub(r"```.*?```", "", page(path), flags=re.DOTALL)
    lines = [line for line in without_code.splitlines() if not line.lstrip().startswith(("|", "!["))]
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.parametrize(
    "path", [path for path in PAGES if "<!-- table:" in page(path)], ids=lambda path: path.name
)
def test_the_tables_of_a_page_are_those_of_the_records(path):
    found = re.findall(r"<!-- table: (\w+) -->\n(.*?)\n<!-- table: end -->", page(path), re.DOTALL)
    assert found
    for name, body in found:
        assert body == block(name), f"{path.name}, {name}: stale; make report"


def test_a_page_is_renewed_between_its_markers_only(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- table: density -->\nold\n<!-- table: end -->\nafter\n", encoding="utf-8")
    texts.renew(path, TABLES)
    assert page(path) == f"before\n<!-- table: density -->\n{block('density')}\n<!-- table: end -->\nafter\n"
    for wrong, message in {
        "no markers": "needs <!-- table",
        "<!-- table: density -->\nno end": "needs <!-- table",
        "<!-- table: nothing -->\n<!-- table: end -->": "'nothing' does not exist; it takes headline, ",
    }.items():
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(texts.TextError, match=message):
            texts.renew(path, TABLES)
        assert page(path) == wrong


def statements() -> dict[str, list[str]]:
    """By page, sentences whose numbers stand in no table; the numbers are computed from the records."""
    mnist = " to ".join(below("mnist", (8, 16, 32, 64, 128)))
    fashion = " to ".join(below("fashion_mnist", (8, 16, 32)))
    lost = mean(4, "pc")[0] - mean(8, "pc")[0]
    behind = mean(4, "pc", "fashion_mnist")[0] - mean(4, "hep", "fashion_mnist")[0]
    first, second, third = (f"{value:.0f}" for value in seeds("pc", 16))
    tuned, plain = (f"{sum(seeds(arm, 16)[1:]) / 2:.1f}" for arm in ("pc_rates", "pc"))
    shallow, deeper = (f"{mean(depth, 'hep')[0] - sum(seeds('hep_plain', depth)) / 3:.1f}" for depth in (8, 16))
    readings = committed("conventions").query(
        "stage == 'final' and depth == 16 and method == 'pc' and highway_layers == 'without_first' "
        "and activation != 'both'"
    )["mean"]
    rates = committed("rates").query("dataset == 'mnist' and depth == 8 and method == 'pc'").set_index("factor")
    gain = rates.loc[4, "mean"] - float(rates.loc[1, "values"].split(";")[0])
    every = committed("density").set_index("every")["mean"]
    verdicts = list(json.loads((REFERENCE / "verdict.json").read_text(encoding="utf-8"))["predictions"])
    failed = sum(one["verdict"] == "does not hold" for one in verdicts)
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven")
    return {
        "README.md": [
            f"{mnist} points below the paper on MNIST and {fashion} on Fashion",
            f"vanilla PC reaches {readings.min():.1f} to {readings.max():.1f} % at depth 16 (n = 1)",
        ],
        "docs/results.md": [
            f"Vanilla PC loses {lost:.1f} points from depth 4 to 8",
            f"three seeds reach {first}, {second} and {third};",
            f"HEP is {mnist} points below the paper at depths 8 to 128",
            f"HEP is {behind:.1f} points below vanilla PC at depth 4, as in the paper, and {fashion} "
            "points below the paper at depths 8 to 32",
            f"by {every[1] - every[10]:.1f} points at k = 10",
            f"the other two seeds alone reach {tuned} for {plain}",
            f"on the same seed vanilla PC gains {gain:.1f} points",
            f"HEP, which loses {shallow} points without it at depth 8 and {deeper} at depth 16",
            f"{words[failed]} of the {words[len(verdicts)].lower()} predictions fail{'s' * (failed == 1)}",
        ],
    }


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_every_number_in_a_sentence_is_in_a_table_or_worked_out_from_the_records(name):
    """A decimal stands in a table, the benchmark or a statement; a mean and its spread stand together."""
    text = page(ROOT / name)
    said = flat(prose(text))
    for sentence in statements()[name]:
        assert sentence in said
    tables = " ".join(block(each) for each in texts.BLOCKS) + json.dumps(benchmark("zen5"))
    # also known: sigma_v, the version of Python, and accuracies of a smoke run (tests/workflow checks them)
    known = {*DECIMAL.findall(tables), *DECIMAL.findall(" ".join(statements()[name])), "0.001", "0.01", "3.11"}
    smoke = re.findall(r"\d+\.\d ± \d\.\d % for (?:vanilla PC|HEP|BP)", said) if name == "README.md" else []
    known |= set(DECIMAL.findall(" ".join(smoke)))
    assert [number for number in DECIMAL.findall(said) if number not in known] == []
    for pair in re.findall(r"\d+\.\d ± \d+\.\d", said):
        assert pair in tables or any(pair in shown for shown in smoke), pair


def benchmark(processor: str) -> dict:
    return json.loads((ROOT / f"benchmarks/measured/{processor}.json").read_text(encoding="utf-8"))


def test_the_speed_on_the_page_of_results_is_that_of_the_benchmark():
    results = benchmark("zen5")
    text = page(ROOT / "docs/results.md")
    pcx = {row["depth"]: row["ratio"] for row in results["pcx"]}
    for row in results["kernels"]:
        ratios = f"{pcx[row['depth']]:.1f}× | {row['native_against_reference']:.1f}×"
        assert f"| {row['depth']} | {ratios} | {100 * row['native_of_peak']:.0f}% |" in text


@pytest.mark.parametrize("processor", ["zen5", "zen4"])
def test_the_speed_on_the_page_of_the_engine_is_that_of_the_benchmark(processor):
    results = benchmark(processor)
    text = page(ROOT / "docs/engine.md")
    peers = [{row["depth"]: row["ratio"] for row in results[name]} for name in ("pcx", "fabricpc")]
    for row in results["kernels"]:
        peak, mixed = row.get("native_of_peak"), row.get("mixed_against_native")  # not in the older run
        cells = [
            f"{row['depth']}",
            f"{row['gflops']['native']:.0f}",
            "—" if peak is None else f"{100 * peak:.0f}%",
            f"{100 * row['native_of_hot']:.0f}%",
            f"{100 * row['native_of_streaming']:.0f}%",
            *(f"{ratios[row['depth']]:.1f}×" for ratios in peers),
            f"{row['native_against_reference']:.1f}×",
            "—" if mixed is None else f"{mixed:.2f}×",
        ]
        assert f"| {' | '.join(cells)} |" in text
