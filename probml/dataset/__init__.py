"""A structure with its data, on the host."""
