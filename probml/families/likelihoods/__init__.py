"""Likelihoods, one distribution a file."""
