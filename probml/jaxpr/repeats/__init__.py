"""Repeated computations in a program: results of one pattern, steps of a recursion."""
