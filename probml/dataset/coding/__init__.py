"""Labels of a user's columns as codes along an axis, and codes as labels."""
