"""Traced programs run by NumPy, equation by equation: for what runs once and on few numbers."""
