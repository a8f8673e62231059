"""Forms of the M-step's objective with their conjugate priors, one form a file."""
