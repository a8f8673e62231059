"""Unseen numbers along time: the programs of a step, and what an M-step gains of them."""
