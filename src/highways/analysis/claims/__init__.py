"""The claims of the paper and our predictions, and what decides them."""
