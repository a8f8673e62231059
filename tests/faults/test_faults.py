"""Each fault of faults.py once, by name: `make faults` goes on for longer, and a minute of it, which
begins with the short ones, is in tests/test_minutes.py."""

import numpy as np
import pytest

import faults


@pytest.mark.slow
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.__name__)
def test_stands(fault, tmp_path):
    fault(tmp_path, np.random.default_rng(1))
