"""Continuous sites of Python loops as one site, and of scans integrated out."""
