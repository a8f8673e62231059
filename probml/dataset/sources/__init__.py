"""Rows that come in parts: what pyarrow reads, what other processes hold."""
