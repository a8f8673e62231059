"""Small tables shipped with the project: see README.md beside them."""
