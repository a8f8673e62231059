"""Rows of discrete columns as one number each."""

import numpy as np


def combine_codes(columns, rows: int) -> tuple[np.ndarray, int]:
    """Columns (codes, states) as one int64 code per row; renumbered on the way where it would
    overflow."""
    code, size = np.zeros(rows, np.int64), 1
    for values, states in columns:
        if size * states > 2**62:
            distinct, code = np.unique(code, return_inverse=True)
            size = len(distinct)
        code = code * states + values
        size *= states
    return code, size
