"""What is one for the whole process: the stack of NumPyro's handlers, the threads of linear
algebra, and how XLA compiles loops."""
