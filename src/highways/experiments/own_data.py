"""The block `data` of a configuration: where each data set lies and what it holds. Imports no torch."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from highways import __version__
from highways.data_places import IDX, own_files, roots
from highways.errors import DataError
from highways.files import cache_folder, read_json, write_text
from highways.specs.fields import SpecError, from_mapping
from highways.specs.run import DATASETS, OwnImages

Config = Mapping[str, Any]
SOURCES = ("folder", "npz", "torchvision")
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "fashion_mnist_excerpt": "Fashion-MNIST excerpt",
}


def check(config: Config) -> None:
    """SpecError for an entry without exactly one source, and for a name or title that is taken."""
    names = [entry["name"] for entry in config["data"]]
    titles = [*TITLES.values(), *(entry.get("title", entry["name"]) for entry in config["data"])]
    for entry in config["data"]:
        name, given = entry["name"], [key for key in SOURCES if key in entry]
        if name in ("selected", "beyond"):
            raise SpecError(f"data: {name}: a folder among the records has that name; rename the entry")
        if name in DATASETS:
            raise SpecError(f"data: {name}: a data set of that name comes with the project; rename the entry")
        if names.count(name) > 1:
            raise SpecError(f"data: two entries are called {name!r}; rename one")
        if titles.count(entry.get("title", entry["name"])) > 1:
            raise SpecError(f"data: {entry['name']}: another data set has the same title; give it one of its own")
        if len(given) != 1:
            raise SpecError(
                f"data: {name}: {' and '.join(given) or 'no source'}; give one of {', '.join(SOURCES)}"
            )


def checked(document: Any) -> Config:
    """The configuration, of which the schema and the block `data` are checked; SpecError names the key."""
    from highways.schema import first_problem

    problem = first_problem("config", document)
    if problem is not None:
        raise SpecError(problem)
    config: Config = document
    check(config)
    return config


def entry_of(config: Config, name: str) -> Mapping[str, Any]:
    """The entry of an own data set; SpecError where there is none."""
    for entry in config["data"]:
        if entry["name"] == name:
            return dict(entry)
    known = ", ".join([*DATASETS, *(entry["name"] for entry in config["data"])])
    raise SpecError(f"dataset: {name!r} is not allowed; it takes one of {known}, or give it an entry under data")


def place_of(config: Config, name: str) -> Path:
    """The path of an own data set, a folder of IDX files or an .npz file, whether or not it exists.

    A torchvision data set is an .npz file, under the first root that has it, else under the last root.
    """
    entry = entry_of(config, name)
    if "torchvision" not in entry:
        return Path(entry.get("folder") or entry["npz"])
    kept = [root / f"{entry['torchvision']}.npz" for root in roots(config["data_dir"])]
    return next((path for path in kept if path.is_file()), kept[-1])


def state(config: Config) -> str:
    """The names, sizes and times of all files of own data sets, as text that changes when a file changes."""
    return repr([[_version(path) for path in own_files(place_of(config, one["name"]))] for one in config["data"]])


def classes_of(config: Config, name: str) -> int:
    """The number of classes of a data set, the project's or the user's own."""
    return (DATASETS[name] if name in DATASETS else images_of(config, name)).classes


def images_of(config: Config, name: str) -> OwnImages:
    """The `OwnImages` of a data set; DataError where its files are unusable, SpecError where it has no entry.

    The files are read once: the result is cached together with their sizes and times.
    """
    entry, place = entry_of(config, name), place_of(config, name)
    if not own_files(place):
        (key,) = (key for key in SOURCES if key in entry)
        remedy = {
            "folder": f"it takes a folder with {', '.join(IDX.values())}, raw or .gz",
            "npz": f"it takes a file with the keys {', '.join(IDX)}",
            "torchvision": f"download it with `highways data {name}` and this configuration as --config",
        }[key]
        raise DataError(f"data: {name}: {key}: {place} is not there; {remedy}")
    try:
        return _images(place)
    except DataError as error:
        raise DataError(f"data: {name}: {error}") from None


def _images(place: Path) -> OwnImages:
    known = _cache(place)
    version = [__version__, *(_version(path) for path in own_files(place))]
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = read_json(known) if known else {}
        if document["version"] == version:
            return from_mapping(OwnImages, document["images"])
    from highways import own_data  # imports numpy, which a plan does not need

    found = own_data.describe(own_data.read(place))
    if known:
        with suppress(OSError):  # without a cache the files are read again
            known.parents[1].mkdir(parents=True, exist_ok=True, mode=0o700)  # as inference.build requires
            write_text(
                known, json.dumps({"place": str(place), "version": version, "images": asdict(found)}) + "\n"
            )
    return found


def _cache(place: Path) -> Path | None:
    """The cache file for the `OwnImages` of a place; None without a home folder."""
    try:
        name = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:16]
        return cache_folder() / "data" / f"{name}.json"
    except (RuntimeError, ValueError):
        return None


def _version(path: Path) -> list[Any]:
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def fetch(config: Config, name: str) -> Path:
    """The path of an own data set; a torchvision data set is downloaded where it is missing.

    Raises DataError without torchvision or a network, and where the class is not constructed as MNIST's.
    """
    entry, place = entry_of(config, name), place_of(config, name)
    if "torchvision" in entry and not place.is_file():
        from highways.torchvision_data import keep

        keep(entry["torchvision"], place)
    return place
