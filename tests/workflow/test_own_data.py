"""The workflow with a user's own data sets: what it makes, and what it runs again when the data change."""

import numpy as np
import pytest
import yaml

from datasets import asking, colours, permuted
from projects import Project

pytestmark = pytest.mark.dag

EXCERPT = "fashion_mnist_excerpt"
BANDS = {"name": "bands", "title": "Coloured bands", "npz": "mine/bands.npz"}
TINY = {
    "pathvars": {"results": "results/tiny"},
    "training": {"epochs": 1},
    "data": [BANDS],
}
TABLE = ("--configfile", "tiny.yaml", "--", "table_depth")


def configure(project: Project, *datasets: str, **changes) -> None:
    datasets = datasets or (EXCERPT, "bands")
    (project.folder / "tiny.yaml").write_text(
        yaml.safe_dump(asking({**TINY, **changes}, *datasets)), encoding="utf-8"
    )


def record_of(dataset: str) -> str:
    return f"depth/{dataset}/L004/pc/seed0"


def test_a_change_or_a_new_data_set_re_runs_nothing_of_the_others(project):
    (project.folder / "mine").mkdir()
    np.savez(project.folder / "mine/bands.npz", **colours(60, 20))
    configure(project)
    plan = project.plan(*TABLE)
    assert sorted(plan["finding"]) == ["and checking bands", f"and checking {EXCERPT}"]
    assert sorted(plan["training"]) == [record_of("bands"), record_of(EXCERPT)]

    project.snakemake(*TABLE)
    table = (project.folder / "results/tiny/tables/depth.md").read_text(encoding="utf-8")
    assert "| Coloured bands" in table
    assert "Coloured bands 50/10/20" in table
    assert "training" not in project.plan(*TABLE)

    permuted(project.folder / "mine/like")
    configure(project, EXCERPT, "bands", "like", data=[BANDS, {"name": "like", "folder": "mine/like"}])
    assert project.plan(*TABLE)["training"] == [record_of("like")]

    configure(project, data=[{**BANDS, "title": "Bands"}])
    renamed = project.plan(*TABLE)
    assert "training" not in renamed
    assert renamed["table:"] == ["depth"]

    configure(project)
    np.savez(project.folder / "mine/bands.npz", **colours(66, 20))
    assert project.plan(*TABLE)["training"] == [record_of("bands")]


def test_data_that_are_not_there_are_named_before_anything_runs(project):
    configure(project)
    refused = project.snakemake("--dry-run", *TABLE, check=False)
    assert refused.returncode != 0
    said = "configuration: data: bands: npz: mine/bands.npz is not there; it takes a file with the keys x_train"
    assert said in refused.stdout + refused.stderr
