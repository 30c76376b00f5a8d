"""The tables, one module each."""
