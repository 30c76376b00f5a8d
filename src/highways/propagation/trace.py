"""The trace of a relaxation: one .npz file, from which figures and tables are made."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from highways.files import write_atomically
from highways.propagation.spec import Propagation
from highways.record import RecordError

_KEPT_BITS = 24  # of a mantissa of 52: seven digits, in half the bytes


class OtherSettings(RecordError):  # noqa: N818
    """A trace of another spec than the one asked for."""


@dataclass(frozen=True, eq=False)
class Trace:
    """steps (n,), 0 first; errors (n, L): rms of the error of layers 1..L after each of these steps.

    backprop (L,): rms of -dl/dz_i before the first step; at layer L, of the output error.
    steady (L,): rms of the errors at equilibrium with the last output error (`chain.carried`): for predictive
    coding, that error times the Jacobians at the last states. Without inference, the rule's own errors.
    provenance: the code, the library and the machine that made it.
    """

    spec: Propagation
    steps: NDArray[np.int64]
    errors: NDArray[np.float64]
    backprop: NDArray[np.float64]
    steady: NDArray[np.float64]
    provenance: Mapping[str, str]


def write(path: Path, trace: Trace) -> None:
    """Write a trace, whole or not at all; the numbers are cut to seven digits."""

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(
                file,
                spec=np.array(trace.spec.to_json()),
                provenance=np.array(json.dumps(dict(trace.provenance), sort_keys=True)),
                steps=trace.steps,
                errors=_cut(trace.errors),
                backprop=_cut(trace.backprop),
                steady=_cut(trace.steady),
            )

    write_atomically(path, save)


def read(path: Path, spec: Propagation) -> Trace | None:
    """The trace of a spec; None without a file. Raises RecordError where the file is no trace, OtherSettings
    where it is the trace of another spec."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = str(file["spec"])
            provenance = json.loads(str(file["provenance"]))
            steps, errors, backprop, steady = (file[name] for name in ("steps", "errors", "backprop", "steady"))
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RecordError(
            f"{path}: not a trace ({error}); delete it, and `snakemake propagation` makes it"
        ) from None
    if found != spec.to_json():
        raise OtherSettings(f"{path}: made with other settings; delete it, and `snakemake propagation` makes it")
    return Trace(spec, steps, errors, backprop, steady, provenance)


def is_of_other_settings(path: Path, spec: Propagation) -> bool:
    """Whether the file is a trace of another spec."""
    try:
        read(path, spec)
    except OtherSettings:
        return True
    except RecordError:
        pass
    return False


def _cut(values: NDArray[np.float64]) -> NDArray[np.float64]:
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    cut: NDArray[np.float64] = (bits & ~((1 << (52 - _KEPT_BITS)) - 1)).view(np.float64)
    return cut
