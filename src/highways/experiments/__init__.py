"""What to run: the configuration, the runs behind every artefact, their cost, state and records."""
