"""Rows on the device, and the way to pass over them."""
