"""Support vectors and kernel densities."""
