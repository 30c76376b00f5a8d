"""`highways status` and `highways cost`: what a configuration asks for, and how far it is."""

import argparse
from collections import Counter, defaultdict
from typing import Any

from highways.cli.shared import (
    add_config,
    add_reference,
    add_runs,
    command,
    counted_records,
    own_and_reference,
    read_config,
)
from highways.experiments import configuration, cost, status


def add_status(commands: Any) -> None:
    parser = command(
        commands,
        "status",
        _status,
        "show which runs are done, running, missing, diverged or broken",
        "`reference`: tables use the record\nthat comes with the project; with `records: own` the workflow still "
        "trains one.\nExit code 3 where some are not finished.",
    )
    add_config(parser)
    add_runs(parser)
    add_reference(parser)
    parser.add_argument("--all", action="store_true", help="list every run, not only those that need attention")


def _status(options: argparse.Namespace) -> int:
    runs = configuration.all_runs(read_config(options))
    records = own_and_reference(options, runs)
    states = {path: status.state(run, records) for path, run in runs.items()}
    for path, (state, _) in states.items():
        if state in ("done", "diverged") and status.by_other_code(records.own / f"{path}.json"):
            states[path] = "outdated", "made by other code"
    counts = Counter(state for state, _ in states.values())
    for path, (state, remark) in sorted(states.items()):
        if options.all or state not in ("done", "reference", "not run"):
            print(f"{state:<12} {path}{'  ' if remark else ''}{remark}")
    summary = ", ".join(f"{counts[state]} {state}" for state in status.STATES if counts[state])
    print(f"{len(states)} runs: {summary}")
    return 0 if sum(counts[state] for state in status.FINISHED) == len(states) else 3


def add_cost(commands: Any) -> None:
    parser = command(
        commands,
        "cost",
        _cost,
        "operations and core-hours of a configuration",
        "Seconds come from constants of the machine,\nby default those of one core with AVX-512; "
        "--calibrate measures two of them here (seconds).",
    )
    add_config(parser)
    add_runs(parser)
    add_reference(parser)
    parser.add_argument("--calibrate", action="store_true", help="measure this machine first")
    parser.add_argument("--kernel", default="auto", help="kernel to calibrate (default: %(default)s)")
    parser.add_argument("--remaining", action="store_true", help="leave out runs that are finished")


def _cost(options: argparse.Namespace) -> int:
    rates = cost.calibrate(options.kernel) if options.calibrate else cost.MEASURED
    sums: dict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    wanted = read_config(options)
    asked = configuration.all_runs(wanted)
    finished = counted_records(options, wanted, asked)
    for run in asked.values():
        if options.remaining and status.state(run, finished)[0] in status.FINISHED:
            continue
        spec = run.spec
        row = sums[spec.dataset, spec.network.depth, spec.method]
        row[0] += 1
        row[1] += cost.operations(spec)
        row[2] += cost.seconds(spec, rates)
        row[3] = max(row[3], cost.memory_mb(spec))
    print(f"{'data set':<22}{'depth':>6}  {'method':<10}{'runs':>6}{'PFLOP':>10}{'core-hours':>12}{'MiB':>8}")
    for (dataset, depth, method), (runs, operations, seconds, memory) in sorted(sums.items()):
        print(
            f"{dataset:<22}{depth:>6}  {method:<10}{runs:>6.0f}"
            f"{operations / 1e15:>10.3f}{seconds / 3600:>12.2f}{memory:>8.0f}"
        )
    runs, operations, seconds = (sum(row[i] for row in sums.values()) for i in range(3))
    print(f"{'total':<22}{'':>6}  {'':<10}{runs:>6.0f}{operations / 1e15:>10.3f}{seconds / 3600:>12.2f}")
    print(f"at {rates.gflops:.0f} GFLOP/s a core ({'measured here' if options.calibrate else 'default'})")
    return 0
