"""Arithmetic that the E-step needs: no TF32, no denormals."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def _flushes_denormals() -> bool:
    return bool(torch.full((), 1e-39) * 1.0 == 0.0)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Full float32 products, and denormals flushed to zero on the calling thread; both restored afterwards.

    Prediction errors are small differences of states of size 1, and TF32's 10-bit mantissa would lose them.
    Errors that decay geometrically over the layers become denormals, which slow a CPU down twentyfold.
    """
    matmul = torch.backends.cuda.matmul
    precision, flushed = matmul.fp32_precision, _flushes_denormals()
    matmul.fp32_precision = "ieee"
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        matmul.fp32_precision = precision
        torch.set_flush_denormal(flushed)
