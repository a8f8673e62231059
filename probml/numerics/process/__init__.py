"""Process-wide state: NumPyro's stack of handlers, the threads of BLAS, XLA's options for loops."""
