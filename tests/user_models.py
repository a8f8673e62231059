"""The table of models that users bring, and the script that computes what is stored about them.

    python tests/user_models.py            # every case without a stored truth
    python tests/user_models.py NAME …     # these, again

Written are the mode (the highest of many starts of L-BFGS on NumPyro's density) or the means of NumPyro's NUTS with their Monte Carlo
standard errors: user_truth.py says how.
"""

import json
import sys
import time

import jax

import user_glms
import user_hierarchies
import user_mixtures
import user_regressions
import user_series
import user_truth

CASES = [case for table in (user_glms, user_regressions, user_hierarchies, user_mixtures, user_series) for case in table.CASES]

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for case in CASES:
        if case.truth == "refused" or (repr(case) not in sys.argv[1:] if sys.argv[1:] else repr(case) in user_truth.stored()):
            continue
        begin = time.time()
        found = user_truth.compute(case)
        user_truth.STORED.write_text(json.dumps({**user_truth.stored(), repr(case): found}, indent=1, ensure_ascii=False) + "\n")
        print(repr(case), round(time.time() - begin, 1), str(found)[:200], flush=True)
