"""A record is checked as a whole: every part against the others, the specification and the data set."""

import copy
import json
from pathlib import Path

import pytest

from highways import record
from highways.files import read_json, short, strict_json, write_text
from highways.record import RecordError
from highways.training import loop as training
from highways.training.divergence import has_diverged
from highways.training.machine import Machine

QUIET = Machine(quiet=True)
RUNS = Path(__file__).parents[1] / "results" / "reference" / "runs"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A record of three epochs; the test changes a copy."""
    from highways.specs.run import Learning, Network, RunSpec

    spec = RunSpec("fashion_mnist_excerpt", "backprop", Network(4, width=16), Learning(2e-3), epochs=3)
    out = tmp_path_factory.mktemp("good") / "r.json"
    training.train(spec, out, QUIET)
    return json.loads(out.read_text(encoding="utf-8"))


def problem(tmp_path: Path, text: str) -> str:
    """Write `text` as a record; returns the one short line with which reading it fails, without the path."""
    path = tmp_path / "changed.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError) as caught:
        record.read(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert said.endswith("; delete it and run it again")
    assert len(said) < 500 + len(str(path))
    assert said.isprintable()
    return said.removeprefix(f"{path}: ")


def at(document, *keys):
    for key in keys[:-1]:
        document = document[key]
    return document, keys[-1]


CHANGES = [
    (("best_epoch",), 77, "best_epoch: 77"),
    (("best_epoch",), None, "best_epoch"),
    (("validation_accuracy",), 0.999, "validation_accuracy: 0.999; that of the best epoch"),
    (("test_accuracy",), 0.12345, "test_accuracy: 0.12345 is no fraction of 1000 images"),
    (("test_accuracy",), None, "test_accuracy"),
    (("epochs", 0, "epoch"), 3, "epochs[0].epoch: 3 for 1"),
    (("epochs", 2, "epoch"), 2, "epochs[2].epoch: 2 for 3"),
    (("epochs", 1, "train_accuracy"), 0.50001, "epochs[1].train_accuracy: 0.50001 is no fraction of 3000"),
    (("epochs", 1, "validation_accuracy"), None, "epochs[1].validation_accuracy: null"),
    (("epochs", 1, "train_loss"), 1.5e8, "epochs[1]: a loss as large as that of a diverged run"),
    (("epochs", 1, "validation_loss"), -1.0, "epochs[1]: a loss below 0"),
    (("images", "test"), 999, "images.test: 999 for the 1000 of fashion_mnist_excerpt"),
    (("diagnostics", 1, "epoch"), 0, "diagnostics: not one for each of the epochs 0 to 3"),
    (("diagnostics", 1, "rms_state"), [1.0, "1.0", None], "diagnostics[1].rms_state[1]: '1.0' is not of type"),
    (("diagnostics", 1, "rms_state"), [1.0, 1.0, True], "diagnostics[1].rms_state[2]: True is not of type"),
    (("diagnostics", 1, "rms_state"), [1.0], "diagnostics[1].rms_state: 1 numbers for 3 layers"),
    (("diagnostics", 1, "rms_error"), [1.0] * 3, "diagnostics[1].rms_error: 3 numbers for 4 layers"),
    (("diagnostics", 0, "backprop_cosine"), [2.0] * 4, "diagnostics[0].backprop_cosine: a number out of range"),
    (("diagnostics", 0, "weight_gradient_norm"), [-1.0] * 4, "diagnostics[0].weight_gradient_norm: a number"),
    (("diverged_epoch",), 2, "diverged_epoch"),
    (("timing", "attempts"), 0, "attempts"),
    (("timing", "updates_per_second"), -3.0, "updates_per_second"),
    (("spec", "seed"), 1, "spec_hash"),
]


@pytest.mark.parametrize(("keys", "value", "says"), CHANGES)
def test_a_record_that_contradicts_itself_is_broken(good, tmp_path, keys, value, says):
    document = copy.deepcopy(good)
    target, key = at(document, *keys)
    target[key] = value
    assert says in problem(tmp_path, json.dumps(document))


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-Infinity", "1e400", "1" + 400 * "0", "-1" + 5000 * "0"])
@pytest.mark.parametrize("keys", [("test_accuracy",), ("epochs", 0, "train_loss"), ("timing", "wall_seconds")])
def test_a_number_that_no_float_holds_is_broken(good, tmp_path, keys, wrong):
    document = copy.deepcopy(good)
    target, key = at(document, *keys)
    target[key] = "HERE"
    assert "is not a finite number" in problem(tmp_path, json.dumps(document).replace('"HERE"', wrong))


def test_a_record_without_its_last_epochs_is_broken(good, tmp_path):
    document = copy.deepcopy(good)
    del document["epochs"][1:], document["diagnostics"][2:]
    assert "epochs: 1 for the 3 of the spec" in problem(tmp_path, json.dumps(document))


def test_of_equally_good_epochs_the_earliest_is_the_best(good, tmp_path):
    document = copy.deepcopy(good)
    highest = document["validation_accuracy"]
    for row in document["epochs"]:
        row["validation_accuracy"] = highest
    document["best_epoch"] = 1
    path = tmp_path / "changed.json"
    write_text(path, json.dumps(document))
    assert record.read(path)["best_epoch"] == 1
    document["best_epoch"] = 3
    assert "best_epoch: 3; by the accuracies on validation it is 1" in problem(tmp_path, json.dumps(document))


def test_a_key_that_stands_twice_is_named(good, tmp_path):
    text = json.dumps(good)
    assert "the key 'test_accuracy' stands there twice" in problem(tmp_path, '{"test_accuracy": 0.5, ' + text[1:])


@pytest.mark.parametrize("deep", ["[" * 200_000, '{"a":' * 200_000, "[" * 200_000 + "]" * 200_000])
def test_nesting_beyond_the_parser_is_one_line(tmp_path, deep):
    assert "not valid JSON" in problem(tmp_path, deep)


def test_a_message_repeats_no_whole_file(good, tmp_path):
    for value in ("x" * 1_000_000, "two\nlines\x1b[2J"):
        problem(tmp_path, json.dumps({**good, "status": value}))
        problem(tmp_path, json.dumps({**good, value: 1}))
        problem(tmp_path, json.dumps({**good, "spec": {**good["spec"], value: 1}}))
        problem(tmp_path, json.dumps(good)[:-1] + f', "{value.encode("unicode_escape").decode()}": NaN}}')


def test_a_short_text_is_one_line_of_its_length():
    assert short("a\nb\tc") == "a b c"
    assert short("x" * 300) == "x" * 300
    assert len(short("x" * 10**6)) == 300
    assert short("x" * 301).endswith(" ...")


def test_json_is_read_as_python_reads_it_where_it_is_sound():
    text = '{"a": [1, -2.5e-3, null, true, "\\u00e9", {}], "b": 12345678901234567890}'
    assert strict_json(text) == json.loads(text)


def test_every_committed_record_holds_and_none_would_now_be_called_diverged():
    """The largest mean loss of an epoch among them is 730; divergence begins above 2,303."""
    paths = sorted(RUNS.rglob("*.json"))
    assert len(paths) > 800
    for path in paths:
        found = record.read(path)
        for row in found["epochs"][: None if found["status"] == "ok" else -1]:
            assert not has_diverged(10, row["train_loss"], row["validation_loss"])


def test_a_full_disk_names_its_file(tmp_path, monkeypatch):
    def full(self, *arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_text(tmp_path / "r.json", "text")
    assert caught.value.filename == str(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "absent.json")
