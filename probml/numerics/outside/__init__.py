"""Interfaces to the outside: checkpoints, progress callbacks, other devices and processes."""
