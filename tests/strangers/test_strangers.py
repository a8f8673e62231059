"""Questions after a fit to models that combine mechanisms: the right answer, or a refusal in words."""

import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import eighteenth_cases  # noqa: E402, F401
import eighth_cases  # noqa: E402, F401
import eleventh_cases  # noqa: E402, F401
import fifteenth_cases  # noqa: E402, F401
import fifth_cases  # noqa: E402, F401
import fourteenth_cases  # noqa: E402, F401
import fourth_cases  # noqa: E402, F401
import more_cases  # noqa: E402, F401
import nineteenth_cases  # noqa: E402, F401
import ninth_cases  # noqa: E402, F401
import rare_pairs  # noqa: E402, F401
import rare_questions  # noqa: E402, F401
import seventeenth_cases  # noqa: E402, F401
import seventh_cases  # noqa: E402, F401
import sixteenth_cases  # noqa: E402, F401
import sixth_cases  # noqa: E402, F401
import tenth_cases  # noqa: E402, F401
import third_cases  # noqa: E402, F401
import thirteenth_cases  # noqa: E402, F401
import twelfth_cases  # noqa: E402, F401
import twentieth_cases  # noqa: E402, F401

import first_cases  # noqa: E402
import probml  # noqa: E402

# the quickest, and of each kind that was found one
QUICK = ("mask_proba", "mask_chain", "factor_do", "tables_decode", "tables_soft", "tables_do",
         "pasted_joint", "outside_weights", "chain_plate", "chains_two", "censored_mixture",
         "dirichlet_latent", "units_do", "naive_update", "do_codes", "do_plate", "factor_plate",
         "codes", "words", "semi", "factor_interval", "units_of_every_size",
         "collinear_and_unknown_noise", "collinear_and_logistic", "hurdle_of_groups",
         "masked_multinomial", "masked_vector", "masked_survival", "masked_chain_of_groups",
         "masked_columns", "far_interval", "scan_chain", "scan_shares", "diaries", "walks_of_people",
         "walk_soft", "plots", "strain", "masked_on", "far_factor", "wards", "cut_pairs",
         "fixed_tables", "masked_updates", "pasted_stands", "pasted_check")
# refused in words, by purpose or until it is built
REFUSED = {
    "tables_factor": "numpyro.factor in rows",
    "chain_censored": "depends on all steps of 'z'",
    "walk_latent": "'u' .Normal. is inside rows", "walk_mask": "'z' .GaussianChain. is inside",
    "censored_groups": "compare needs the likelihood of a row",
    "scaled": "handlers.scale is not supported",
}
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(
    name, marks=pytest.mark.slow) for name in first_cases.CASES])
def test_a_strangers_question_has_the_right_answer(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name not in REFUSED:
            first_cases.CASES[name][1]()
            return
        with pytest.raises(probml.ModelError, match=REFUSED[name]):
            first_cases.CASES[name][1]()
