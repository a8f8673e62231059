"""Sums, maxima and draws over hidden axes: tensors and names only."""
