"""A user's columns as codes of an axis, and codes as labels."""
