"""Times the E-step: kernels against the ceilings of the machine and against other libraries. One thread.

    python benchmarks/run.py                                  this project's kernels, some minutes
    python benchmarks/run.py --pcx PYTHON --fabricpc PYTHON   also these libraries, in their environments
    python benchmarks/run.py --quick                          small sizes, to try the suite

Writes results.json and results.png to --out; docs/engine.md shows those of benchmarks/measured. Ratios
compare medians of one run, in which the contenders take turns; another library (a peer) runs in its own
process, with ours timed before and after it. GFLOP/s count the products of the hidden layers only.
"""

import argparse
import datetime
import json
import os
from pathlib import Path
from typing import Any

import torch

from contenders import Size, estep, hot, peak, streaming
from highways.files import write_atomically, write_text
from highways.inference import native
from highways.inference.build import BuildError
from highways.provenance import git_state
from highways.training.machine import Machine
from measure import in_turn, median, peer, worker

FULL = {"depths": {8: 96, 32: 96, 128: 96}, "repeats": 7, "slow_repeats": 2, "starts": 3}
PEERS = {"pcx": "pcx==0.6.3", "fabricpc": "fabricpc==0.6.0"}
QUICK = {"depths": {4: 8, 8: 8}, "repeats": 2, "slow_repeats": 1, "starts": 1}


def kernels(depth: int, steps: int, plan: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one E-step by contender, with the GFLOP/s and the ratios of their medians."""
    size = Size(depth, steps)
    fast = {"native": estep(size, "native"), "streaming": streaming(size), "hot": hot(size), "peak": peak(size)}
    if plan["mixed"] is None:
        fast["mixed"] = estep(size, "mixed")
    slow = {"batched": estep(size, "batched"), "reference": estep(size, "reference")}
    seconds = in_turn(fast, plan["repeats"]) | in_turn(slow, plan["slow_repeats"])
    medians = {name: median(values) for name, values in seconds.items()}
    return {
        "depth": depth,
        "steps": steps,
        "seconds": seconds,
        "median_seconds": medians,
        "gflops": {name: size.operations / value / 1e9 for name, value in medians.items()},
        "native_of_streaming": medians["streaming"] / medians["native"],
        "native_of_hot": medians["hot"] / medians["native"],
        "native_of_peak": medians["peak"] / medians["native"],
        "native_against_reference": medians["reference"] / medians["native"],
        "mixed_against_native": plan["mixed"] or medians["native"] / medians["mixed"],
    }


def why_not_mixed() -> str | None:
    """Why this machine cannot build the kernel `mixed`; None where it can."""
    try:
        native.load("mixed")
    except BuildError as error:
        return str(error)
    return None


def against(python: Path, script: str, depth: int, steps: int, plan: dict[str, Any]) -> dict[str, Any]:
    """A peer's seconds per batch beside ours, ours timed before and after it."""
    ours = worker("repeat", depth, steps, plan["repeats"])[0]["seconds"]
    theirs = peer(python, script, depth, steps, plan["repeats"])
    ours += worker("repeat", depth, steps, plan["repeats"])[0]["seconds"]
    return {
        "depth": depth,
        "steps": steps,
        "native_seconds": ours,
        "peer_seconds": theirs["seconds"],
        "peer_first_batch_seconds": theirs["first_batch"],
        "ratio": median(theirs["seconds"]) / median(ours),
    }


def growth(plan: dict[str, Any], quick: bool) -> list[dict[str, Any]]:
    """Seconds of the native kernel as depth, steps, width or batch varies alone from one base size."""
    base = {"depth": 8, "steps": 16, "width": 128, "batch": 128}
    ladders = {
        "depth": [4, 8, 16, 32, 64, 128],
        "steps": [8, 16, 32, 64],
        "width": [32, 64, 128, 256],
        "batch": [32, 128],
    }
    rows = []
    for name, values in ladders.items():
        for value in values[:2] if quick else values:
            size = Size(**{**base, name: value})
            seconds = median(in_turn({"native": estep(size, "native")}, plan["repeats"])["native"])
            rows.append(
                {"varied": name, "value": value, "seconds": seconds, "gflops": size.operations / seconds / 1e9}
            )
    return rows


def two_at_once(plan: dict[str, Any]) -> dict[str, float]:
    """Median seconds of an E-step in one process alone, and in the slower of two at once; one thread each."""
    depth, steps = list(plan["depths"].items())[1]
    alone = median(worker("repeat", depth, steps, plan["repeats"])[0]["seconds"])
    both = worker("repeat", depth, steps, plan["repeats"], processes=2)
    return {"alone": alone, "together": max(median(one["seconds"]) for one in both)}


def beginnings(depths: list[int], starts: int) -> list[dict[str, float]]:
    """The fastest of `starts` processes that compute one batch of 8 steps: its seconds and peak memory."""
    rows = []
    for depth in depths:
        one = min((worker("first", depth)[0] for _ in range(starts)), key=lambda row: row["elapsed"])
        rows.append({"depth": depth, "seconds": one["elapsed"], "peak_mib": one["peak_mib"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, package in PEERS.items():
        text = f"interpreter of an environment with {package}"
        parser.add_argument(f"--{name}", type=Path, metavar="PYTHON", help=text)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    default = Path(__file__).parents[1] / "results/benchmark"
    parser.add_argument("--out", type=Path, default=default, metavar="FOLDER", help="default: results/benchmark")
    options = parser.parse_args()
    plan = {**(QUICK if options.quick else FULL), "mixed": why_not_mixed()}
    machine = Machine().prepared("float32")
    depths: dict[int, int] = plan["depths"]
    print("kernels and ceilings", flush=True)
    results: dict[str, Any] = {"kernels": [kernels(depth, steps, plan) for depth, steps in depths.items()]}
    print("peers", flush=True)
    for name in PEERS:
        python = getattr(options, name)
        rows = [
            against(python, f"{name}_estep.py", depth, steps, plan) for depth, steps in depths.items() if python
        ]
        results[name] = rows or None
    print("growth, first batch, memory, two at once, denormals", flush=True)
    results["growth"] = growth(plan, options.quick)
    results["beginnings"] = beginnings(list(depths), plan["starts"])
    results["two_at_once"] = two_at_once(plan)
    results["denormals"] = worker("late", max(depths))[0]
    commit, dirty = git_state()
    results["machine"] = {
        "device": machine.device_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "commit": commit,
        "dirty": dirty,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_text(options.out / "results.json", json.dumps(results, indent=1) + "\n")
    from figure import draw

    write_atomically(options.out / "results.png", lambda path: draw(results, path))
    print(f"{options.out / 'results.json'}, {options.out / 'results.png'}")


if __name__ == "__main__":
    main()
