"""The learning rate: cells of the table again at multiples of the printed rate. Imports no torch."""

from collections.abc import Iterator
from dataclasses import dataclass

from highways.experiments.runs import CellKey, Config, Run, cell_runs


@dataclass(frozen=True, eq=False)
class Rate:
    """One cell at one multiple of the learning rate of its depth: a configuration of its own, run as any cell."""

    factor: float
    config: Config
    cell: CellKey

    @property
    def lr(self) -> float:
        """The learning rate of the cell."""
        return next(float(row["lr"]) for row in self.config["settings"] if row["depth"] == self.cell[1])


def rates(config: Config) -> list[Rate]:
    """Every method at every place with every multiple, in the order of the configuration."""
    sweep = config["rate_sweep"]
    return [
        Rate(factor, _scaled(config, factor, place["seeds"]), (place["dataset"], place["depth"], method))
        for place in sweep["cells"]
        for method in sweep["methods"]
        for factor in sweep["factors"]
    ]


def rate_runs(config: Config) -> Iterator[Run]:
    """The runs of all rates."""
    for rate in rates(config):
        yield from cell_runs(rate.config, *rate.cell)


def _scaled(config: Config, factor: float, seeds: list[int]) -> Config:
    """The configuration with all printed rates multiplied; the factor 1 is the table's own."""
    if factor == 1:
        return {**config, "seeds": seeds}
    # Ten digits: 8.0e-5 * 3 has a binary tail, which the name of a run would show.
    settings = [{**row, "lr": float(f"{factor * row['lr']:.10g}")} for row in config["settings"]]
    return {**config, "seeds": seeds, "settings": settings, "experiment": f"rates/x{factor:g}"}
