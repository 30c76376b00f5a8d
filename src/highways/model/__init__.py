"""The network: its parameters, its energy with the paper's equations, exact arithmetic and random streams."""
