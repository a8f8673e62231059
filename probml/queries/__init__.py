"""Queries of a fit about rows, each in one compiled call."""
