"""Least squares by QR where the products of columns have no digits left: NIST's filip, a polynomial
of degree 10 in raw powers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from coded import codes

# NIST StRD Filip (public domain), y and x; its columns, of one length each, have a condition of 5e9
FILIP = """
0.8116 -6.860120914, 0.9072 -4.324130045, 0.9052 -4.358625055, 0.9039 -4.358426747, 0.8053 -6.955852379, 0.8377 -6.661145254,
0.8667 -6.355462942, 0.8809 -6.118102026, 0.7975 -7.115148017, 0.8162 -6.815308569, 0.8515 -6.519993057, 0.8766 -6.204119983,
0.8885 -5.853871964, 0.8859 -6.109523091, 0.8959 -5.79832982, 0.8913 -5.482672118, 0.8959 -5.171791386, 0.8971 -4.851705903,
0.9021 -4.517126416, 0.909 -4.143573228, 0.9139 -3.709075441, 0.9199 -3.499489089, 0.8692 -6.300769497, 0.8872 -5.953504836,
0.89 -5.642065153, 0.891 -5.031376979, 0.8977 -4.680685696, 0.9035 -4.329846955, 0.9078 -3.928486195, 0.7675 -8.56735134,
0.7705 -8.363211311, 0.7713 -8.107682739, 0.7736 -7.823908741, 0.7775 -7.522878745, 0.7841 -7.218819279, 0.7971 -6.920818754,
0.8329 -6.628932138, 0.8641 -6.323946875, 0.8804 -5.991399828, 0.7668 -8.781464495, 0.7633 -8.663140179, 0.7678 -8.473531488,
0.7697 -8.247337057, 0.77 -7.971428747, 0.7749 -7.676129393, 0.7796 -7.352812702, 0.7897 -7.072065318, 0.8131 -6.774174009,
0.8498 -6.478861916, 0.8741 -6.159517513, 0.8061 -6.835647144, 0.846 -6.53165267, 0.8751 -6.224098421, 0.8856 -5.910094889,
0.8919 -5.598599459, 0.8934 -5.290645224, 0.894 -4.974284616, 0.8957 -4.64454848, 0.9047 -4.290560426, 0.9129 -3.885055584,
0.9209 -3.408378962, 0.9219 -3.13200249, 0.7739 -8.726767166, 0.7681 -8.66695597, 0.7665 -8.511026475, 0.7703 -8.165388579,
0.7702 -7.886056648, 0.7761 -7.588043762, 0.7809 -7.283412422, 0.7961 -6.995678626, 0.8253 -6.691862621, 0.8602 -6.392544977,
0.8809 -6.067374056, 0.8301 -6.684029655, 0.8664 -6.378719832, 0.8834 -6.065855188, 0.8898 -5.752272167, 0.8964 -5.132414673,
0.8963 -4.811352704, 0.9074 -4.098269308, 0.9119 -3.66174277, 0.9228 -3.2644011
"""
CERTIFIED = [
    -1467.48961422980, -2772.17959193342, -2316.37108160893, -1127.97394098372, -354.478233703349,
    -75.1242017393757,
    -10.8753180355343, -1.06221498588947, -0.670191154593408e-01, -0.246781078275479e-02,
    -0.402962525080404e-04,
]  # fmt: skip
ERRORS = [
    298.084530995537, 559.779865474950, 466.477572127796, 227.204274477751, 71.6478660875927,
    15.2897178747400,
    2.23691159816033, 0.221624321934227, 0.142363763154724e-01, 0.535617408889821e-03,
    0.896632837373868e-05,
]  # fmt: skip
NOISE = 0.334801051324544e-02


def filip():
    y, x = np.array([pair.split() for pair in FILIP.split(",")], float).T
    return {"x": x[:, None] ** np.arange(11), "y": y}


@probml.model
def polynomial(x, noise=None):
    scale = jnp.sqrt(sample("variance", dist.InverseGamma(1e-3, 1e-12))) if noise is None else noise
    beta = sample("beta", dist.Normal(0.0, 1e10 * scale * jnp.ones(x.shape[-1])).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, scale))


@pytest.fixture(scope="module")
def fitted():
    return polynomial(noise=NOISE).fit(filip(), probml.Exact())


def leverage(x):
    return (np.linalg.qr(x)[0] ** 2).sum(1)


def test_exact_has_seven_digits_of_nists_filip_and_of_its_standard_errors(fitted):
    np.testing.assert_allclose(fitted.params["beta"], CERTIFIED, rtol=1e-7)
    np.testing.assert_allclose(np.sqrt(fitted.posterior("beta").variance), ERRORS, rtol=1e-7)


def test_draws_and_predictives_keep_the_digits_of_the_fit(fitted, tmp_path):
    data = filip()
    curves = fitted.draws(1000)["beta"] @ data["x"].T
    np.testing.assert_allclose(curves.std(0), NOISE * np.sqrt(leverage(data["x"])), rtol=0.15)
    wide = NOISE * np.sqrt(1 + leverage(data["x"]))
    mean = data["x"] @ np.array(CERTIFIED)
    expected = -0.5 * ((data["y"] - mean) / wide) ** 2 - np.log(wide * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(fitted.log_prob(data), expected, atol=1e-4)
    fitted.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", polynomial(noise=NOISE))
    np.testing.assert_array_equal(again.log_prob(data), fitted.log_prob(data))


def test_in_float32_filip_is_fitted_in_double_by_itself_noise_and_all():
    with jax.enable_x64(False):
        fit = polynomial().fit(filip(), probml.Exact())
        assert "float32-to-float64" in codes(fit)
        np.testing.assert_allclose(fit.params["beta"], CERTIFIED, rtol=1e-7)
        # the noise of 82 rows, of which the prior of the weights, in units of it, takes none
        shape = 2e-3 + 82
        np.testing.assert_allclose(fit.params["variance"], 71 * NOISE**2 / (shape - 2), rtol=1e-4)
