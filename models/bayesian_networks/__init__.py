"""Bayesian networks: on a DAG, from a file, learnt from data."""
