"""Models pasted from BPA, the BUGS volumes, Gelman and Hill, Statistical Rethinking, formulas and
NumPyro's forum: each has NumPyro's own density, what is discrete and unseen summed by brute force."""

import jax.numpy as jnp
import numpy as np
import pasted_bugs
import pasted_ecology
import pasted_forum
import pasted_rethinking
import pytest
from written_elsewhere import asked_of_numpyro

import probml
from plain_numpyro import log_density

LISTS = (pasted_ecology, pasted_bugs, pasted_rethinking, pasted_forum)
CASES = [case for own in LISTS for case in own.CASES]
QUICK = {"occupancy", "closed_population_of_unlike_animals", "population_by_state_space", "bones",
         "milk_with_imputed_cells", "a_power_posterior", "submodels_in_scopes"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=[] if case.name in QUICK else [pytest.mark.slow])
    for case in CASES])
def test_a_pasted_model_has_its_density(case):
    model, want = probml.model(case.function)(**case.settings), asked_of_numpyro(case)
    got = model.log_density(case.data, want.params)
    np.testing.assert_allclose(got, want.log, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("name", [
    "cormack_jolly_seber", pytest.param("jolly_seber_with_augmented_animals", marks=pytest.mark.slow)])
def test_what_is_summed_by_hand_has_the_density_of_brute_force(name):
    case = next(case for case in pasted_ecology.CASES if case.name == name)
    want = asked_of_numpyro(case)
    arguments = {key: jnp.asarray(value) for key, value in case.data.items()}
    got = log_density(pasted_ecology.BY_HAND[name], (), arguments, want.params)
    np.testing.assert_allclose(got, want.log, rtol=1e-10)


def test_names_of_pasted_models_are_their_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 80
