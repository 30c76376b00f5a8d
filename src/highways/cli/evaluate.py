"""`highways evaluate`: compares the accuracy of kept weights with the record."""

import argparse
from pathlib import Path
from typing import Any

from highways.cli.shared import add_config, add_data_dir, command, data_place
from highways.errors import UserError
from highways.specs.run import RunSpec
from highways.training.interruption import ended_by_signals

OTHER = 5


def add_evaluate(commands: Any) -> None:
    parser = command(
        commands,
        "evaluate",
        _evaluate,
        "measure the accuracy of kept weights and compare it with the record",
        f"Exit code {OTHER} where they differ.\n\n"
        "  highways train --dataset mnist --depth 8 --method hep --out hep.json --weights hep.npz\n"
        "  highways evaluate hep.json --weights hep.npz",
    )
    parser.add_argument("record", type=Path, metavar="RECORD")
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="of `train --weights` (default: beside the record, as .npz)"
    )
    add_config(parser)
    add_data_dir(parser)


def _evaluate(options: argparse.Namespace) -> int:
    from highways import record

    if options.record.suffix != ".json":
        raise UserError(f"{options.record}: not the name of a record (.json); give the weights with --weights")
    document = record.read(options.record)
    path: Path = options.weights or options.record.with_suffix(".npz")
    with ended_by_signals():
        from highways import data
        from highways.model import trained
        from highways.model.network import Architecture
        from highways.training.evaluation import evaluate
        from highways.training.machine import Machine
        from highways.weights import WeightsError

    network, spec = trained.load(path), RunSpec.from_dict(document["spec"])
    if network.about.spec != spec:
        raise WeightsError(f"{path}: holds the weights of another run than {options.record}")
    Machine().prepared(spec.dtype)
    parts = data.load(spec.dataset, data_place(options, spec), spec.data)
    dtype = network.parameters.w_in.dtype
    same, texts = True, []
    for name, part in (("test", parts.test), ("validation", parts.validation)):
        images = data.Part(part.images.to(dtype), part.labels)
        found = evaluate(network.parameters, images, Architecture.of(spec))[1]
        recorded = document[f"{name}_accuracy"]
        same = same and found == recorded
        said = "none" if recorded is None else f"{recorded:.2%}"
        texts.append(f"{name} accuracy {found:.2%} (record: {said})")
    print(f"{path}: {', '.join(texts)}: {'the same' if same else 'not the same'}")
    return 0 if same else OTHER
