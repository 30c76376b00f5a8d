"""Named random streams."""

import hashlib

import torch


def generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator whose stream is a pure function of (seed, name)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
