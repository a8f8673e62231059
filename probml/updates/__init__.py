"""The M-step: every block of parameters at its maximum."""
