"""Continuous sites of Python loops: their steps as one site, or integrated out."""
