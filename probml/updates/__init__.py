"""The M-step: every block of parameters is maximised."""
