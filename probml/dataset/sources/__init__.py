"""Rows that come in parts: one look at all of them; what pyarrow reads, what processes hold."""
