"""Rows on the device, and passes over them chunk by chunk."""
