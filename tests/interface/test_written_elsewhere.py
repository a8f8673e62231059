"""Models as others wrote them: each has NumPyro's own density, what is discrete and unseen summed by
brute force, or is refused with the reason."""

import numpy as np
import numpyro_examples
import numpyro_more
import pymc_gallery
import pytest
import stan_guide
from written_elsewhere import asked_of_numpyro

import probml

CASES = [*numpyro_examples.CASES, *numpyro_more.CASES, *stan_guide.CASES, *pymc_gallery.CASES]
# of the guide's and the gallery's, those that are unlike the examples; the rest are left to
# `make test-all`
QUICK = {
    "chain_of_a_loop", "mixture_of_normals", "noisy_raters_in_long_form", "two_change_points",
    "hurdle", "rounded_data", "spike_and_slab", "regimes", "causal_with_do", "radon",
}  # fmt: skip
OTHERS = {case.name for case in (*stan_guide.CASES, *pymc_gallery.CASES)} - QUICK
PARAMS = [pytest.param(case, id=case.name,
                       marks=[pytest.mark.slow] if case.name in OTHERS else []) for case in CASES]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", PARAMS)
def test_a_model_written_elsewhere_has_its_density(case):
    model = probml.model(case.function)(**case.settings)
    want = asked_of_numpyro(case)
    if case.refused:
        with pytest.raises((probml.ModelError, probml.DataError)) as error:
            model.log_density(case.data, want.params)
        assert all(word in str(error.value) for word in case.refused), str(error.value)
        return
    got = model.log_density(case.data, want.params)
    np.testing.assert_allclose(got, want.log, rtol=1e-10, atol=1e-8)


def test_the_tables_are_as_long_as_they_say():
    assert len(numpyro_examples.CASES) + len(numpyro_more.CASES) >= 45
    assert len(stan_guide.CASES) >= 25 and len(pymc_gallery.CASES) >= 15
    assert not any(case.refused for case in CASES), "all of them run"
    assert len({case.name for case in CASES}) == len(CASES)
