"""The report page, made again from the committed records and traces, and read by a browser."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from artefacts import TRACED
from highways import paper as published
from highways.analysis import report
from highways.analysis.sections import items
from highways.cli import main
from highways.experiments import configuration
from highways.experiments.results import Sources

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Everything that `make report` writes, from the committed records and traces."""
    out = tmp_path_factory.mktemp("results")
    sources = Sources(ROOT / "results/reference/runs", ROOT / "results/reference/propagation")
    report.write(configuration.load(ROOT / "config.yaml"), sources, out)
    return out


class Page(HTMLParser):
    """The parts of a page that tests check: ids, links, pictures and every address that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "img":
            self.pictures.append(found)
        if tag == "a":
            self.links.append(found["href"])
        else:
            self.addresses += [value for key, value in found.items() if key in ("src", "href", "srcset", "data")]


def test_the_committed_tables_and_verdict_are_those_of_the_committed_records(made):
    for folder in ("tables", "."):
        for path in (made / folder).glob("*.*"):
            if path.name != "report.html":
                committed = ROOT / "results/reference" / folder / path.name
                assert path.read_bytes() == committed.read_bytes(), f"stale: {committed}; make report"
    assert {path.name for path in (ROOT / "results/reference/tables").iterdir()} == {
        path.name for path in (made / "tables").iterdir()
    }
    drawn = {path.name for path in (made / "figures").iterdir()}
    assert drawn == {path.name for path in (ROOT / "results/reference/figures").iterdir()}


def test_the_page_shows_every_claim_table_and_figure_once(made):
    text = (made / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    for claim in published.claims():
        assert f"claim-{claim['id']}" in page.ids
        assert f"highways verdict --claim {claim['id']}<" in text
        assert html.escape(claim["claim"], quote=False).replace('"', "&#34;") in text.replace("&#39;", "'")
    asked = items(configuration.load(ROOT / "config.yaml"))
    assert {f"{kind}-{name}" for kind, name in asked} <= page.ids
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert text.index('id="verdict"') < text.index('id="table-depth"')


def test_the_page_needs_nothing_from_elsewhere(made):
    text = (made / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_every_picture_says_in_words_what_it_shows(made):
    page = Page((made / "report.html").read_text(encoding="utf-8"))
    drawn = [path.stem for path in (made / "figures").glob("*.png")]
    assert len(page.pictures) == len(drawn) > 8
    assert all(len(picture["alt"]) > 20 for picture in page.pictures)


def test_the_counts_are_those_of_the_verdicts(made):
    document = json.loads((made / "verdict.json").read_text(encoding="utf-8"))
    text = (made / "report.html").read_text(encoding="utf-8")
    for name, number in document["counts"].items():
        assert (f"<b>{number}</b>{name}" in text) == (number > 0)
        assert sum(claim["verdict"] == name for claim in document["claims"]) == number


PROBE = """<script>
const errors = [];
window.addEventListener("error", (event) => errors.push(String(event.message)));
document.addEventListener("securitypolicyviolation", (event) => errors.push("fetches " + event.blockedURI));
window.addEventListener("load", () => {
  const table = document.querySelector("#verdict table");
  const column = () => [...table.tBodies[0].rows].map((row) => row.cells[1].textContent.trim());
  const button = table.tHead.rows[0].cells[1].querySelector("button");
  const before = column();
  button.click();
  const up = column();
  button.click();
  const down = column();
  const pictures = [...document.images].map((image) => image.complete && image.naturalWidth > 100);
  const width = document.documentElement.scrollWidth;
  const result = { errors, before, up, down, pictures, width, window: window.innerWidth };
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script></head>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to read the page with (Debian: apt install chromium)")
@pytest.mark.parametrize("width", [500, 1200])
def test_a_browser_shows_it_without_an_error_and_sorts_its_tables(made, tmp_path, width):
    page = tmp_path / "page.html"
    page.write_text(
        (made / "report.html").read_text(encoding="utf-8").replace("</head>", PROBE, 1), encoding="utf-8"
    )
    shown = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            f"--window-size={width},900",
            "--virtual-time-budget=10000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        encoding="utf-8",
    )
    found = re.search(r'<pre id="result">(.*?)</pre>', shown.stdout, re.DOTALL)
    assert found, shown.stderr[-2000:]
    result = json.loads(html.unescape(found.group(1)))
    assert result["errors"] == []
    assert result["up"] == sorted(result["before"], key=str.lower)
    assert result["down"] == result["up"][::-1]
    assert result["pictures"]
    assert all(result["pictures"])
    assert result["width"] <= result["window"] + 1  # wide tables scroll; the page does not


@pytest.mark.parametrize("artefacts", [True, False])
def test_one_broken_trace_does_not_end_the_report(config, folder, tmp_path, artefacts, capsys):
    traces, out = tmp_path / "traces", tmp_path / "out"
    sources = Sources(folder, traces)
    assert report.write(config, sources, tmp_path / "whole", artefacts=artefacts) == []
    one = next(iter(TRACED["table", "optimizer"].traces(config)))
    broken = traces / f"{one.path}.npz"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"broken")
    problems = report.write(config, sources, out, artefacts=artefacts)
    assert any(line.startswith("table optimizer: ") and str(broken) in line for line in problems)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"Could not be made: {broken}" in page
    assert 'id="problems"' in page
    whole = (tmp_path / "whole/report.html").read_text(encoding="utf-8")
    assert Page(whole).ids | {"problems"} == Page(page).ids
    assert 'id="problems"' not in whole
    if artefacts:
        made = {path.name for path in (out / "tables").iterdir()}
        assert {"depth.md", "settings.md"} <= made
        assert "optimizer.md" not in made


def test_a_fault_of_one_figure_ends_no_report_and_the_exit_code_tells(
    config, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(report, "draw", lambda name, *_: {}[name])
    command = ["report", "--config", json.dumps(config), "--runs", str(folder), "--traces", str(tmp_path / "none")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "highways: could not be made: figure depth: KeyError: 'depth'" in said
    assert (tmp_path / "out/report.html").exists()


def test_a_page_with_a_fault_is_a_whole_page_that_snakemake_keeps(config, folder, tmp_path, monkeypatch, capsys):
    """Snakemake deletes outputs of a failed command, so --only-page exits with 0; the page names faults."""
    monkeypatch.setattr(report, "draw", lambda name, *_: {}[name])
    command = ["report", "--config", json.dumps(config), "--runs", str(folder), "--traces", str(tmp_path / "none")]
    assert main([*command, "--out", str(tmp_path / "out"), "--only-page"]) == 0
    assert "could not be made: figure depth" in capsys.readouterr().err
    assert 'id="problems"' in (tmp_path / "out/report.html").read_text(encoding="utf-8")
