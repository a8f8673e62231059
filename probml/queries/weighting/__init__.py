"""Answers of rows that have a numpyro.factor: distributions are weighted by it and normalised."""
