"""Functions flattened to one list of equations, and gradients of them."""
