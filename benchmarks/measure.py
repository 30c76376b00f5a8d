"""How the benchmark times: one thread, contenders in turn, medians; some measurements in fresh processes."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def in_turn(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat of every contender. They take turns, so that a busy moment hits them all."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()  # to warm caches and allocators
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median(values: list[float]) -> float:
    return statistics.median(values)


def worker(task: str, *arguments: int, processes: int = 1) -> list[dict[str, Any]]:
    """Run worker.py in `processes` fresh processes at once; `elapsed`: seconds to each one's end."""
    command = [sys.executable, str(HERE / "worker.py"), task, *map(str, arguments)]
    start = time.perf_counter()
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") for _ in range(processes)
    ]
    results = []
    for process in started:
        output, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed")
        results.append({**json.loads(output), "elapsed": time.perf_counter() - start})
    return results


def peer(python: Path, script: str, depth: int, steps: int, repeats: int) -> dict[str, Any]:
    """Seconds per batch (E-step and weight update) of another library, in its own environment."""
    command = [str(python), str(HERE / "peers" / script), str(depth), str(steps), str(repeats)]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}  # the script imports in_turn from this module
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, encoding="utf-8")
    return dict(json.loads(run.stdout.splitlines()[-1]))
