"""Arithmetic that the E-step needs: no TF32, no denormals."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def _flushes_denormals() -> bool:
    return bool(torch.full((), 1e-39) * 1.0 == 0.0)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Full float32 products, and denormals flushed to zero on the calling thread; both restored afterwards.

    Errors are small differences of states of size 1, which TF32's 10-bit mantissa would drown; and errors
    that decay geometrically over the layers end in denormals, which cost a CPU twenty times the time.
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
