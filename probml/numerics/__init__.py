"""Arithmetic that knows no model: compiling, optimisation, curvature, precision."""
