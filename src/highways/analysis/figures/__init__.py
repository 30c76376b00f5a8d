"""The figures, and what they share."""
