"""The specification of a run: the methods and their settings, without any computation. Imports no torch."""
