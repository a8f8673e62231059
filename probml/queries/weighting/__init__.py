"""Predictions in models with a numpyro.factor: distributions are weighted by it and normalised."""
