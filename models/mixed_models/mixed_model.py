"""Mixed models: regressions whose coefficients differ from group to group, by amounts about 0 whose
spread is learnt.

    η = x β + b + offset + Σ over groupings k of z_k · u_k[member],   u_k[j] ~ N(0, Σ_k)
    y | η ~ family(mean g⁻¹(η))

z_k are the columns whose coefficients differ, 1 for an intercept. The effects u are integrated out,
of normal y with the identity link exactly (lme4's and nlme's likelihood), else by adaptive
quadrature, or by Laplace's approximation (glmer, glmmTMB); `explain` says which. Families and links
are those of generalized_linear.py.

Sources: Laird & Ware (1982), "Random-effects models for longitudinal data"; Bates, Mächler, Bolker
& Walker (2015), "Fitting linear mixed-effects models using lme4".
"""

from collections.abc import Hashable, Iterable, Mapping

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.errors import listed
from probml.models.regression.generalized_linear import REAL, family_of, linear_predictor
from probml.models.summaries.former_names import REGRESSION, of_mixed
from probml.models.summaries.regressions import mixed_tables

SCALE_PRIORS = {
    "half-normal": dist.HalfNormal,
    "exponential": lambda scale: dist.Exponential(1 / scale),
}


@probml.model
def mixed_model(x, z, member, offset, trials, effects: Mapping, family="normal", link=None,
                correlated=True, spread_scale=10.0, noise_scale=10.0, weight_scale=None,
                bias_scale=None, concentration_scale=100.0, scale_prior="half-normal"):
    """Inputs `x` (n, d), `z` (n, columns of all groupings behind one another), `member` (n,
    groupings), the number of the member of each grouping that a row belongs to, `offset` (n,),
    `trials` (n,); site `y` in every row. Sites `beta` (d,), `intercept` (), and of each grouping
    its effects, by its name, (members, columns), or (members,) of one column; `sd_{name}`, their
    standard deviations, and of several that are correlated `corr_cholesky_{name}`, the Cholesky
    factor of their correlations; `sigma` of the normal, `concentration` of gamma and negative
    binomial.

    What is the same in all rows is bound: mixed_model(effects={"subject": (18, 2)}, offset=0.0,
    trials=1); x=None has no columns but the intercept.

    Args:
        effects: grouping → (members, columns).
        family, link: as of generalized_linear.
        correlated: the effects of a member of several columns have a covariance; False: standard
            deviations only.
        spread_scale, noise_scale: scales of the priors of standard deviations and noise, which are
            "half-normal" or "exponential" by scale_prior.
        weight_scale, bias_scale: prior standard deviations of β and b; None: flat.
        concentration_scale: as in generalized_linear.

    Raises:
        ModelError: an unknown family, link or prior; no grouping.
    """
    if not effects:
        raise probml.ModelError("mixed_model(effects={}): expected at least one grouping, such as "
                                "{'subject': (18, 2)}, which has 18 levels with 2 coefficients "
                                "each")
    if scale_prior not in SCALE_PRIORS:
        raise probml.ModelError(f"mixed_model(scale_prior={scale_prior!r}): expected one of "
                                f"{listed(SCALE_PRIORS)}")
    prior = SCALE_PRIORS[scale_prior]
    eta, start = linear_predictor(x, (), weight_scale, bias_scale) + offset, 0
    for k, (name, (members, columns)) in enumerate(effects.items()):
        effect = _effects(name, members, columns, correlated, prior(spread_scale))[member[..., k]]
        design = z[..., start : start + columns]
        eta = eta + (effect * design[..., 0] if columns == 1 else (effect * design).sum(-1))
        start += columns
    noise = sample("sigma", prior(noise_scale)) if family in REAL else None
    y_dist = family_of(eta, trials, family, link, noise, None, concentration_scale)
    with probml.rows():
        sample("y", y_dist)


mixed_model.summarized(mixed_tables)
mixed_model.renames(of_mixed)


# of the model itself
NAMES = ("x", "z", "member", "offset", "trials", "y", "beta", "intercept", "sigma", "concentration",
         "zero_probability", "df", *REGRESSION)


def effect_sites(groupings: Iterable) -> dict[Hashable, str]:
    """Grouping → the name of its effects in the model: its own, behind "_" where that, or what
    belongs to it, is a name already."""
    names, sites = set(NAMES), {}
    for grouping in groupings:
        name = str(grouping)
        while names & (added := {name, f"sd_{name}", f"corr_cholesky_{name}", f"{name}_members"}):
            name = f"_{name}"
        names |= added
        sites[grouping] = name
    return sites


def _effects(name: str, members: int, columns: int, correlated: bool, prior):
    """The effects of a grouping, (members,) or (members, columns)."""
    if columns == 1:
        sd = sample(f"sd_{name}", prior)
        with plate(f"{name}_members", members):
            return sample(name, dist.Normal(0.0, sd))
    sd = sample(f"sd_{name}", prior.expand([columns]).to_event(1))
    if not correlated:
        with plate(f"{name}_members", members):
            return sample(name, dist.Normal(jnp.zeros(columns), sd).to_event(1))
    chol = sample(f"corr_cholesky_{name}", dist.LKJCholesky(columns))
    with plate(f"{name}_members", members):
        return sample(name, dist.MultivariateNormal(jnp.zeros(columns),
                                                    scale_tril=sd[:, None] * chol))
