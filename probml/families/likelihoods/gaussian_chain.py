"""Gaussian chain: its matrices, at one step; integrated out, or seen, along time
(latents/linear_chain.py)."""

import jax
import numpy as np
import numpyro.distributions as dist

from probml.families.forms.gaussian import GAUSSIAN
from probml.families.forms.inverse_wishart import INVERSE_WISHART
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.language.gaussian_chain import GaussianChain, check_semidefinite, check_stable


class LinearGaussian(Likelihood):
    """log p(z) = log N(z_1; initial_mean, initial_covariance) + Σ_t log N(z_t; transition z_{t−1} +
    offset, covariance).

    A site's arguments are traced for a chain of one step, so that what varies along time is what
    leads into that step.
    """

    name = "GaussianChain"
    event = 2
    argument_event = {"initial_mean": 1, "initial_covariance": 2, "transition": 2, "covariance": 2,
                      "offset": 1}
    canonical = {"initial_mean": (GAUSSIAN, ()), "offset": (GAUSSIAN, ()),
                 "transition": (GAUSSIAN, ()), "covariance": (INVERSE_WISHART, ()),
                 "initial_covariance": (INVERSE_WISHART, ())}
    rowwise = True
    scatter = ("covariance",)

    def arguments(self, base: dist.Distribution):
        return {"initial_mean": base.initial_mean, "initial_covariance": base.initial_covariance,
                "transition": base.moves("transition")[..., 0, :, :],
                "covariance": base.moves("covariance")[..., 0, :, :],
                "offset": base.moves("offset")[..., 0, :]}

    def distribution(self, arguments: Arguments):
        return GaussianChain(**arguments, steps=1)

    def check(self, where: str, arguments: dict[str, jax.Array], steps: int | None) -> None:
        for name in ("initial_covariance", "covariance"):
            if name in arguments:
                check_semidefinite(f"{where}: {name}", np.asarray(arguments[name]))
        if "transition" in arguments and steps is not None:
            check_stable(f"{where}: transition", arguments["transition"], steps)


ENTRIES = (Entry((GaussianChain,), LinearGaussian()),)
