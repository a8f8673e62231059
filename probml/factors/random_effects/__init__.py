"""Gaussian, Laplace and quadrature integration of random effects."""
