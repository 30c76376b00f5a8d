"""Packs runs into one file for a machine that has torch and numpy only; `collection` reads their records."""

import io
import json
import tarfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from highways import data
from highways.data_places import find, locate_own, own_files
from highways.errors import UserError
from highways.experiments.results import Folder
from highways.experiments.runs import Run
from highways.experiments.settings_file import SettingsError, chosen_settings
from highways.experiments.status import FINISHED, state
from highways.files import write_atomically
from highways.specs.run import OwnImages, RunSpec

PACKAGE = Path(__file__).parents[1]
_NAME = "highways-bundle"
_LEFT_OUT = ("__pycache__", ".egg-info")
_HOW = """Unpack it on a machine with Python 3.11 or newer, torch and numpy, and run:

    python {name}/run.py --jobs 8 > log.txt 2>&1

Every run takes one core. A run that was stopped resumes when the command is given again. Then run, on the machine
with the configuration:

    highways collect {name}
"""
_RUN = '''"""Run every spec of this bundle that has no record yet; each takes one core."""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


KERNELS = json.loads((HERE / "kernels.json").read_text(encoding="utf-8"))


def train(spec: Path, device: str) -> int:
    out = HERE / "records" / spec.relative_to(HERE / "specs")
    command = [sys.executable, "-m", "highways", "train", "--spec", str(spec), "--out", str(out)]
    command += ["--data-dir", str(HERE / "data"), "--device", device]
    command += ["--kernel", KERNELS.get(spec.relative_to(HERE / "specs").with_suffix("").as_posix(), "auto")]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    code = subprocess.run(command, env=environment).returncode
    print(f"{'done' if code == 0 else f'failed with {code}'}: {out}", flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    options = parser.parse_args()
    specs = sorted((HERE / "specs").rglob("*.json"))
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda spec: train(spec, options.device), specs))
    print(f"{codes.count(0)} of {len(codes)} runs done")
    return 0 if not any(codes) else 1


if __name__ == "__main__":
    sys.exit(main())
'''


class BundleError(UserError, ValueError):
    """A bundle that cannot be made or read; the message is one line and says what to do."""


@dataclass(frozen=True)
class Packed:
    """The runs of a bundle by path, and the paths of runs left out because their settings are not chosen yet.

    kernels: the kernel of each run that asks for one, by path.
    """

    runs: dict[str, RunSpec]
    waiting: tuple[str, ...]
    kernels: Mapping[str, str] = field(default_factory=dict)


def choose(
    runs: Iterable[Run],
    folder: Folder,
    selections: Path,
    pattern: str = "",
    chosen_before: Mapping[str, Mapping[str, Any]] | None = None,
) -> Packed:
    """The unfinished runs whose path contains `pattern`, with their chosen settings filled in.

    chosen_before: chosen settings by selection name, used where `selections` has no usable file of that name.
    """
    chosen, waiting = {}, []
    runs = list(runs)
    for run in runs:
        if pattern not in run.path or state(run, folder)[0] in FINISHED:
            continue
        if run.selection is None:
            chosen[run.path] = run.spec
            continue
        try:
            settings = chosen_settings(selections / f"{run.selection}.json")
        except (OSError, SettingsError):
            settings = dict((chosen_before or {}).get(run.selection, {}))
            if not settings:
                waiting.append(run.path)
                continue
        chosen[run.path] = run.spec.changed(settings)
    kernels = {run.path: run.kernel for run in runs if run.path in chosen and run.kernel != "auto"}
    return Packed(chosen, tuple(waiting), kernels)


def _files(name: str, data_dir: str | None) -> dict[str, Path]:
    """The checked files of a data set, by their paths in the bundle."""
    data.verify(name, data_dir)
    if not data.SOURCES[name].torchvision:  # the excerpt comes with the package
        return {}
    folder = data.locate(name, data_dir)
    found = [find(folder, file) for file in data.SOURCES[name].md5]
    return {f"data/{data.SOURCES[name].folder}/raw/{path.name}": path for path in found if path is not None}


def _own_files(name: str, data_dir: str | None, own: OwnImages) -> dict[str, Path]:
    place = locate_own(name, data_dir)
    data.read_own(name, place, own)
    if place.is_file():
        return {f"data/{name}.npz": place}
    return {f"data/{name}/{path.name}": path for path in own_files(place)}


def pack(packed: Packed, places: Mapping[str, str | None], out: Path) -> None:
    """Write the bundle: this package, the data sets, one spec file per run and the script that runs them.

    places: where each data set is; None means the usual places. BundleError where there is no run to pack.
    """
    if not packed.runs:
        left = f"; {len(packed.waiting)} wait for settings that are not chosen yet" if packed.waiting else ""
        raise BundleError(f"bundle: no unfinished run to pack{left}; see `highways status`")
    sources: dict[str, Path] = {}
    for name, own in sorted({spec.dataset: spec.data for spec in packed.runs.values()}.items()):
        sources |= _files(name, places[name]) if own is None else _own_files(name, places[name], own)
    for path in sorted(PACKAGE.rglob("*")):
        if not path.is_dir() and not any(part in str(path.relative_to(PACKAGE)) for part in _LEFT_OUT):
            sources[f"highways/{path.relative_to(PACKAGE).as_posix()}"] = path
    texts = {f"specs/{path}.json": spec.to_json() for path, spec in packed.runs.items()}
    texts |= {"kernels.json": json.dumps(packed.kernels, indent=1) + "\n"}
    texts |= {"run.py": _RUN, "README.txt": _HOW.format(name=_NAME)}

    def save(temporary: Path) -> None:
        with tarfile.open(temporary, "w:gz", compresslevel=5, dereference=True) as archive:
            for name, path in sources.items():
                if not path.is_file():
                    raise BundleError(f"{path}: not a file, or a broken link; it cannot be packed")
                archive.add(path, f"{_NAME}/{name}", recursive=False)
            for name, text in texts.items():
                content = text.encode()
                entry = tarfile.TarInfo(f"{_NAME}/{name}")
                entry.size, entry.mtime = len(content), int(time.time())
                archive.addfile(entry, io.BytesIO(content))

    write_atomically(out, save)
