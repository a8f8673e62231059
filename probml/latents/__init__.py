"""Continuous latent variables of a row, integrated out: a kind a file, chosen in the plan."""
