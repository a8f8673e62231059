"""Each fault of faults.py once: `make faults` goes on for longer."""

import numpy as np
import pytest
from kills import KILLS
from sharing import SHARING

import faults


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=[pytest.mark.slow] * (fault in (*KILLS, *SHARING)))
                                   for fault in faults.FAULTS], ids=lambda fault: fault.__name__)
def test_stands(fault, tmp_path):
    fault(tmp_path, np.random.default_rng(1))
