"""What is one for the whole process: the stack of NumPyro's handlers, the threads of linear
algebra, the collector of cycles, and what dispatches calls of compiled functions."""
