"""Climbing the log posterior: Newton, L-BFGS, optax; off saddles, and from where nothing rises."""
