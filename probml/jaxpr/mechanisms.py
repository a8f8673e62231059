"""What shortens the time to a first answer, and a switch for each, for tests and
benchmarks/ablation.py: PROBML_OFF names those that a process does without, between commas."""

import os

SWITCH = "PROBML_OFF"
NAMES = frozenset({"backward", "blas", "effort", "emitters",
                   "holding", "lapack", "programs", "shortened", "tapes",
                   "validation", "whole_loops"})
OFF = set(os.environ.get(SWITCH, "").split(",")) - {""}
if not OFF <= NAMES:
    raise ValueError(f"{SWITCH} names {', '.join(sorted(OFF - NAMES))}, which are not among "
                     f"{', '.join(sorted(NAMES))}")
