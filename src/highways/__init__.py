"""Error Highways: predictive coding in very deep networks, reproduced and benchmarked."""

__version__ = "0.1.0"
