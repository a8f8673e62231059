"""Factor analysis and probabilistic principal components."""
