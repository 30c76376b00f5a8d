"""Claims that are measured on diagnostics of records and not judged, since the paper gives no number."""

from collections.abc import Iterator

from highways.analysis.claims.evidence import Ours
from highways.analysis.claims.parts import MEASURED, Claim, Part, missing
from highways.analysis.data.frame import layers
from highways.analysis.data.notes import label, place_label

_SMALL = 1e-3  # as a share of the gradient norm of the output matrix


def inner_layers(claim: Claim, by: Ours) -> Iterator[Part]:
    """How many hidden matrices have a gradient under a thousandth of that of the output matrix, after training."""
    place = (claim["dataset"], claim["depth"])
    for name in claim["baselines"]:
        found = [(one, cell) for one, cell in by.baselines.items() if one.name == name and one.place == place]
        records = [path for _, cell in found for path in cell.records]
        if not records:
            yield missing(f"{place_label(*place)} {name}")
            continue
        ((variant, _),) = found
        small, hidden = _small_gradients(by, records)
        text = f"{small:.3g} of {hidden} hidden matrices, a mean over {len(records)} seeds"
        yield Part(f"{place_label(*place)} {label(variant)}", text, MEASURED)


def _small_gradients(by: Ours, records: list[str]) -> tuple[float, int]:
    frame = layers({path: by.all_runs[path] for path in records}, by.runs)
    norms = frame[frame["quantity"] == "weight_gradient_norm"]
    last = norms[norms["epoch"] == norms.groupby("path")["epoch"].transform("max")]
    matrices = last.pivot_table(index="path", columns="layer", values="value").to_numpy()
    hidden = matrices[:, 1:-1]
    return float((hidden < _SMALL * matrices[:, -1:]).sum(axis=1).mean()), hidden.shape[1]


MEASURES = {"inner_layers": inner_layers}
