"""Traced programs run by NumPy, equation by equation: for programs that run once on few numbers."""
