"""`highways propagate` and `highways snapshots`: how far the output error travels, before and during training."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from highways.cli.shared import (
    add_config,
    add_data_dir,
    add_device,
    command,
    data_place,
    parse_json,
    read_config,
    read_spec,
    stopped,
)
from highways.experiments.relaxations import untrained
from highways.methods import METHODS
from highways.propagation.spec import NETWORKS, Propagation
from highways.specs.fields import SpecError
from highways.specs.run import Inference
from highways.training.interruption import Interrupted, ended_by_signals

# The options of what to relax, with their defaults; None stands for the configuration's value.
_WHAT: dict[str, Any] = {
    "network": "paper",
    "method": "pc",
    "depth": None,
    "seed": 0,
    "optimizer": "euler",
    "step_size": None,
    "steps": None,
    "eps": 1e-8,
    "dtype": "float64",
    "form": "plain",
}
_OF_RELAXATION = {"optimizer", "step_size", "steps", "eps", "form"}


def add_propagate(commands: Any) -> None:
    parser = command(
        commands,
        "propagate",
        _propagate,
        "relax one image for many steps and trace the error of every layer",
        "Prints the error of some layers, and writes a trace, from which figures are made.\n\n"
        "  highways propagate --network plain --method pc\n"
        "  highways propagate --method hep --optimizer adam --eps 1e-2 --step-size 0.1\n\n"
        "networks:\n" + "\n".join(f"  {name:<8}{text}" for name, text in NETWORKS.items()),
    )
    what = parser.add_argument_group("what to relax, or a whole specification")
    add_config(what)
    what.add_argument("--network", choices=tuple(NETWORKS), help="default: paper")
    what.add_argument("--method", choices=tuple(METHODS), help="default: pc")
    what.add_argument(
        "--depth", type=int, metavar="L", help="weight matrices (default: that of the configuration)"
    )
    what.add_argument("--seed", type=int, help="default: 0")
    what.add_argument("--optimizer", choices=("euler", "adam"), help="default: euler")
    what.add_argument("--step-size", type=float, help="default: that of the configuration")
    what.add_argument("--steps", type=int, help="default: that of the configuration")
    what.add_argument("--eps", type=float, help="of Adam (default: 1e-8)")
    what.add_argument("--dtype", choices=("float64", "float32"), help="default: float64")
    what.add_argument(
        "--form",
        choices=("plain", "deviations"),
        help="deviations: small errors are not lost in the rounding of the states (default: plain)",
    )
    what.add_argument("--spec", metavar="JSON", help="a whole specification as JSON text")
    how = parser.add_argument_group("how")
    how.add_argument("--weights", type=Path, metavar="FOLDER", help="`snapshots` of a trained network")
    add_data_dir(how)
    how.add_argument("--out", type=Path, metavar="FILE", help="the trace (default: propagation/<path>.npz)")
    how.add_argument("--quiet", action="store_true", help="no progress, no numbers")


def add_snapshots(commands: Any) -> None:
    parser = command(
        commands,
        "snapshots",
        _snapshots,
        "train a network and keep its weights at some epochs",
        "For `propagate --weights`. A run that was stopped resumes.",
    )
    parser.add_argument("--spec", metavar="JSON|FILE", required=True, help="as for `train`")
    parser.add_argument("--epochs", type=int, nargs="+", required=True, metavar="N", help="0: before training")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets epoch00.npz and so on")
    add_config(parser)
    add_data_dir(parser)
    add_device(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _propagate(options: argparse.Namespace) -> int:
    spec = _wanted(options)
    out: Path = options.out or Path("propagation") / f"{spec.path}.npz"
    if (spec.trained is None) != (options.weights is None):
        needs = "needs" if options.weights is None else "has no use for"
        raise SpecError(f"--weights: a relaxation {'after' if spec.trained else 'before'} training {needs} them")
    with ended_by_signals():
        import torch

        from highways import data
        from highways.propagation import trace
        from highways.propagation.relaxation import in_precision, propagate
        from highways.training import snapshots

    torch.set_num_threads(1)
    part = data.load(spec.run.dataset, data_place(options, spec.run), spec.run.data).train
    y = torch.nn.functional.one_hot(part.labels[:1].long(), spec.run.images.classes)[0]
    weights = None
    if options.weights is not None:
        assert spec.trained is not None
        weights = in_precision(spec, snapshots.read_of(spec.trained, options.weights, spec.epoch))

    def report(step: int) -> None:
        if not options.quiet and sys.stderr.isatty():
            print(f"\rstep {step}", end="", file=sys.stderr, flush=True)

    found = propagate(spec, part.images[0], y, weights, report)
    trace.write(out, found)
    if not options.quiet:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        depth = spec.run.network.depth
        shown = sorted({1, *range(max(1, depth // 8), depth + 1, max(1, depth // 8)), depth - 1, depth})
        print(f"{out}\nlayer  rms error after {found.steps[-1]} steps", file=sys.stderr)
        for layer in reversed(shown):
            print(f"{layer:>5}  {found.errors[-1, layer - 1]:.2e}", file=sys.stderr)
    return 0


def _wanted(options: argparse.Namespace) -> Propagation:
    given = {name: getattr(options, name) for name in _WHAT if getattr(options, name) is not None}
    if options.spec is not None:
        for name in given:
            raise SpecError(f"--{name.replace('_', '-')}: not with --spec, which says it already")
        return Propagation.from_dict(parse_json(options.spec, "--spec"))
    config = read_config(options)
    block = config["propagation"]
    wanted = {**_WHAT, **{key: block[key] for key in ("depth", "steps", "step_size")}, **given}
    inference = Inference(wanted["optimizer"], wanted["step_size"], wanted["steps"], wanted["eps"])
    found = untrained(config, wanted["network"], wanted["method"], wanted["depth"], wanted["seed"], inference)
    if found.run.inference is None:
        for name in [name for name in given if name in _OF_RELAXATION]:
            said = f"{wanted['method']!r} does not use it: its errors come from a sweep or own inference"
            raise SpecError(f"--{name.replace('_', '-')}: method {said}")
    return replace(found, form=wanted["form"], run=replace(found.run, dtype=wanted["dtype"]))


def _snapshots(options: argparse.Namespace) -> int:
    spec = read_spec(options.spec)
    if min(options.epochs) < 0:
        raise SpecError(f"--epochs: {min(options.epochs)} is out of range; it takes whole numbers from 0")
    with ended_by_signals():  # until the training can be interrupted
        from highways.training.machine import Machine
        from highways.training.snapshots import keep

        machine = Machine(data_place(options, spec), options.device, quiet=options.quiet)
        try:
            keep(spec, options.out, options.epochs, machine)
        except Interrupted as stop:
            return stopped(stop)
    return 0
