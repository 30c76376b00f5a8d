"""What a run is made of, below all that computes: the methods and their settings. Imports no torch."""
