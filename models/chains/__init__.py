"""Markov chains, seen and hidden."""
