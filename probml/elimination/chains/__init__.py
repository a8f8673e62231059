"""Elimination along time of Markov chains of states."""
