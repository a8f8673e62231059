"""Arithmetic that knows no model: compiling, climbing, curvature, precision."""
