"""The table of models that users bring, and the script that computes what is stored about them.

    python tests/user_models.py            # what is not stored yet
    python tests/user_models.py NAME …     # these, again

Written are the mode (the highest of many starts of L-BFGS on NumPyro's density) or the means of
NumPyro's NUTS with their Monte Carlo standard errors: user_truth.py says how.
"""

import sys
import time

import jax

import user_glms
import user_hierarchies
import user_mixtures
import user_regressions
import user_series
import user_truth

CASES = [case for table in (user_glms, user_regressions, user_hierarchies, user_mixtures,
                            user_series) for case in table.CASES]

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    asked = sys.argv[1:]
    for case in (case for case in CASES if case.truth != "refused"
                 and (not asked or repr(case) in asked)):
        begin, known = time.time(), {} if asked else user_truth.stored().get(repr(case), {})
        found = user_truth.compute(case, known)
        if found != known:
            user_truth.store(repr(case), found)
            shown = {name: found[name] for name in found
                     if name in ("value", "reached", "effective", "divergent")}
            print(repr(case), f"{time.time() - begin:.1f} s", shown, flush=True)
