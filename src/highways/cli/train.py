"""`highways train` and `highways profile`: train a network, or time a training."""

import argparse
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from highways.cli.keys import HelpKeys, closest, keys_of
from highways.cli.shared import (
    CONFIG,
    add_config,
    add_data_dir,
    add_device,
    command,
    data_place,
    read_config,
    read_spec,
    refuse_idle,
    stopped,
)
from highways.experiments import status
from highways.experiments.plan import plan
from highways.experiments.runs import OF_DEPTH, asked_kernel, cell_spec, idle, takes
from highways.experiments.settings_file import chosen_settings
from highways.experiments.variants import Variant
from highways.files import read_json, short, strict_json
from highways.methods import METHODS
from highways.record import refuse_to_replace
from highways.specs.fields import SpecError
from highways.specs.run import DATASETS, RunSpec
from highways.training.claim import InUseError, only_one, tidy
from highways.training.interruption import Interrupted, ended_by_signals


def add_train(commands: Any) -> None:
    parser = command(
        commands,
        "train",
        _train,
        "train one network and write its record",
        "A run that was stopped resumes.\n\n"
        "  highways train --dataset mnist --depth 8 --method hep --seed 0\n"
        "  highways train --dataset mnist --depth 8 --method hep --set highway.alpha=5.4 --set epochs=2\n"
        "  highways train --spec some/record.json --out again.json",
    )
    _add_what(parser)
    how = _add_how(parser)
    how.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the record (default: runs/<data set>/<depth>/.../seed<n>.json; --set adds a hash to the name)",
    )
    how.add_argument(
        "--renew",
        action="store_true",
        help="replace a record at --out, unless it is of this very specification and made by this code",
    )
    how.add_argument(
        "--weights",
        metavar="FILE",
        nargs="?",
        const="",
        help="keep the weights of the best epoch, for `evaluate` and highways.load (without FILE: beside the "
        "record, as .npz); where the record is there and they are not, the run is trained again",
    )
    how.add_argument("--quiet", action="store_true", help="no progress on standard error")


def add_profile(commands: Any) -> None:
    parser = command(
        commands,
        "profile",
        _profile,
        "show where the time of a run goes",
        "Times some real batches, and prints the seconds that each part takes per epoch.\n\n"
        "  highways profile --dataset mnist --depth 8 --method hep",
    )
    _add_what(parser)
    _add_how(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to train: a cell of the configuration, or a whole specification")
    add_config(what)
    what.add_argument("--dataset", metavar="NAME", help=f"{', '.join(DATASETS)}, or your own (data)")
    what.add_argument("--depth", type=int, metavar="L", help="number of weight matrices")
    what.add_argument("--method", choices=tuple(METHODS))
    what.add_argument("--seed", type=int, help="default: 0")
    what.add_argument(
        "--spec",
        metavar="JSON|FILE",
        help="a specification as JSON text, or a file that holds one, or a record",
    )
    what.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the specification, such as learning.lr=1e-4 (may be given again)",
    )
    what.add_argument("--help-keys", action=HelpKeys, help="list these keys and their values, and exit")
    what.add_argument("--selection", metavar="FILE", type=Path, help="use the settings that `select` chose")


def _add_how(parser: argparse.ArgumentParser) -> Any:
    how = parser.add_argument_group("how to run it (this changes results by rounding only)")
    add_data_dir(how)
    add_device(how)
    how.add_argument("--threads", type=int, default=1, help="default: %(default)s, the fastest for many runs")
    how.add_argument(
        "--kernel",
        help="auto, native, mixed, batched or reference (default: that of the configuration, else auto)",
    )
    return how


def _profile(options: argparse.Namespace) -> int:
    with ended_by_signals():
        from highways.training.machine import Machine
        from highways.training.profile import profile

    spec = _wanted(options)[1]
    machine = Machine(data_place(options, spec), options.device, options.threads, options.kernel)
    parts = profile(spec, machine)
    total = sum(parts.values())
    for part, seconds in parts.items():
        print(f"{part:<26}{seconds:>9.2f} s an epoch{seconds / total:>9.1%}")
    print(f"{'total':<26}{total:>9.2f} s an epoch")
    return 0


def _train(options: argparse.Namespace) -> int:
    named, spec = _wanted(options)
    out: Path = options.out or Path("runs") / f"{spec.path}{'' if spec == named else f'_{spec.hash}'}.json"
    if out.suffix != ".json" or out.is_dir():
        raise SpecError(f"--out: {out} is not the name of a record; it takes a file that ends in .json")

    kept = None if options.weights is None else Path(options.weights or out.with_suffix(".npz"))
    if kept is not None and (kept.suffix != ".npz" or kept.is_dir()):
        raise SpecError(f"--weights: {kept} is not the name of weights; it takes a file that ends in .npz")
    if refuse_to_replace(out, spec, options.renew, options.kernel):
        if kept is None or _weights_are_there(spec, out, kept, options.renew):
            with suppress(InUseError), only_one(out):
                # What a run left that was killed after its record; the checkpoint of a --renew run is kept.
                tidy(out, ended=refuse_to_replace(out, spec, True, options.kernel))
            other = ", made by other code" if status.by_other_code(out) else ""
            print(f"{out} is there already{other}; delete it to run it again", file=sys.stderr)
            return 0
        print(f"{out} is there, {kept} with its weights is not: training again", file=sys.stderr)
    with ended_by_signals():  # until the training can be interrupted
        from highways.training import keeping, loop
        from highways.training.machine import Machine

        place = data_place(options, spec)
        machine = Machine(place, options.device, options.threads, options.kernel, options.quiet)
        try:
            if kept is None:
                result = loop.train(spec, out, machine, options.renew)
            else:
                result = keeping.train(spec, out, kept, machine, options.renew)
        except Interrupted as stop:
            return stopped(stop)
    if not options.quiet:
        print(f"{out}: {_ending(result)}{'' if kept is None else _keeps(result, kept)}", file=sys.stderr)
    return 0


def _weights_are_there(spec: RunSpec, out: Path, kept: Path, renew: bool) -> bool:
    """Whether `kept` holds the weights of the record `out`; WeightsError where it holds something else."""
    with ended_by_signals():
        from highways import weights

    found = weights.there(kept, spec, renew)
    return found is not None and found.is_of(read_json(out))


def _ending(result: Mapping[str, Any]) -> str:
    accuracy = "none" if result["test_accuracy"] is None else f"{result['test_accuracy']:.2%}"
    ending = "" if result["status"] == "ok" else f", diverged in epoch {result['diverged_epoch']}"
    return f"test accuracy {accuracy} at epoch {result['best_epoch']}{ending}"


def _keeps(result: Mapping[str, Any], kept: Path) -> str:
    epoch = result["best_epoch"]
    return f"; {kept}: " + (
        "no weights, since no epoch ended well" if epoch is None else f"those of epoch {epoch}"
    )


def _wanted(options: argparse.Namespace) -> tuple[RunSpec, RunSpec]:
    """The spec that the options name, and that spec with the changes of `--set`."""
    if not 1 <= options.threads <= 1024:
        raise SpecError(f"--threads: {options.threads} is out of range; it takes a whole number from 1 to 1024")
    spec = _spec(options)
    if options.selection is not None:
        spec = spec.changed(chosen_settings(options.selection))
    return spec, _changed(spec, options.set)


def _spec(options: argparse.Namespace) -> RunSpec:
    if options.spec is not None:
        for name in ("dataset", "depth", "method", "seed"):
            if getattr(options, name) is not None:
                raise SpecError(f"--{name}: not with --spec, which says it already; change it with --set")
        options.kernel = options.kernel or "auto"
        return read_spec(options.spec)
    missing = [name for name in ("dataset", "depth", "method") if getattr(options, name) is None]
    if missing:
        raise SpecError(f"nothing to train: give --spec, or {', '.join('--' + name for name in missing)}")
    config = read_config(options)
    variant = plan(config).first(options.dataset, options.depth, options.method)
    depths = sorted(row["depth"] for row in config["settings"])
    if variant is None and options.depth not in depths and not _of_depth(options.set):
        raise SpecError(
            f"--depth: settings: no row for depth {options.depth}, but for {', '.join(map(str, depths))}; add one "
            f"or take the settings of another depth, as in --depth {depths[0]} --set network.depth={options.depth}"
        )
    changes = {key: one for key, one in _of_depth(options.set).items() if takes(options.method, key)}
    if variant is not None:
        changes = {**variant.fixed, **changes}
    asked = asked_kernel(config, options.depth, options.method) if variant is None else variant.kernel
    options.kernel = options.kernel or asked
    spec = cell_spec(config, options.dataset, options.depth, options.method, options.seed or 0, changes)
    _say_what_is_open(options, variant)
    return spec


def _say_what_is_open(options: argparse.Namespace, variant: Variant | None) -> None:
    """Report where the first experiment has no such cell, or has several values of a key in it."""
    if variant is None:
        if options.config != CONFIG:
            where = f"the settings are those of depth {options.depth}"
            print(f"highways: the first experiment has no such cell; {where}", file=sys.stderr)
        return
    given = {change.partition("=")[0] for change in options.set}
    chosen = () if variant.choice is None or options.selection is not None else variant.choice.swept
    for key in (*variant.varied, *variant.scaled, *chosen):
        if key not in given:
            print(
                f"highways: {variant.experiment} has several values of {key}; this run uses the depth's; "
                f"choose another with --set {key}=VALUE",
                file=sys.stderr,
            )


def _of_depth(changes: list[str]) -> dict[str, Any]:
    """The values of `--set` for keys that a row of `settings` gives; `_changed` checks all values."""
    pairs = (change.partition("=") for change in changes)
    return {key: _value(text) for key, equals, text in pairs if equals and key in OF_DEPTH}


def _changed(spec: RunSpec, changes: list[str]) -> RunSpec:
    """The spec with each KEY=VALUE applied; a value is a number or JSON where it reads as such, else text."""
    settings: dict[str, Any] = {}
    known = keys_of(spec)
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise SpecError(f"--set {short(change, 100)}: write KEY=VALUE, such as learning.lr=1e-4")
        if key not in known:
            close = closest(key, known)
            remedy = f"did you mean {close}? " if close else ""
            raise SpecError(
                f"--set {short(key, 100)}: no such key in a {spec.method} run; {remedy}"
                "`highways train --help-keys` lists all"
            )
        section, _, name = key.partition(".")
        if section == "conventions" and name in idle(spec.method):
            refuse_idle(spec.method, name)
        settings[key] = _value(text)
    return spec.changed(settings)


def _value(text: str) -> Any:
    """What a value on the command line says: .5 and 5. are numbers there, though not in JSON."""
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    try:
        return strict_json(text)
    except ValueError:
        return text
