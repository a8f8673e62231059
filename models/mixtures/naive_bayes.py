"""Naive Bayes: p(c, x) = π_c ∏_f p(x_f | c), the features independent within a class.

    π ~ Dirichlet(a, …, a)
    a categorical feature:   x_f | c ~ Categorical(θ_c),    θ_c ~ Dirichlet(α, …, α)
    a binary one:            x_f | c ~ Bernoulli(θ_c),      θ_c ~ Beta(α, α)
    a vector of counts:      x_f | c ~ Multinomial(θ_c),    θ_c ~ Dirichlet(α, …, α), the row's
                             total is not modelled
    a normal feature:        x_f | c ~ N(μ_c, 1/τ_c),  τ_c ~ Gamma(3/2, s²/2),  μ_c ~ N(m, c²/τ_c)
    a count:                 x_f | c ~ Poisson(λ_c),        λ_c ~ Gamma(shape, rate)
    a number of failures:    x_f | c ~ Geometric(θ_c),      θ_c ~ Beta(α, α)
    a waiting time:          x_f | c ~ Exponential(λ_c),    λ_c ~ Gamma(shape, rate)

Every block is conjugate: with the classes seen the posterior is exact, and the predictive of a row
is

    (n_ci + α) / (n_c + k α)   for state i of k of a categorical feature,
    Student t                  for a normal feature, with 3 + n_c degrees of freedom,
    negative binomial          for a count; Lomax for a waiting time;
    Dirichlet–multinomial      for a vector of counts.

With classes unseen in part or in full the same function is a semi-supervised classifier or a latent
class model, by EM.

Sources: Murphy (2012), "Machine Learning: a Probabilistic Perspective", sections 3.5 (naive Bayes),
3.4 (Dirichlet predictive) and 4.6.3.6 (normal–inverse-gamma and its Student t); Duda & Hart (1973)
for the classifier; McCallum & Nigam (1998), "A comparison of event models for naive Bayes text
classification", for the multinomial one; Gelman et al. (2013), "Bayesian Data Analysis", section
2.6, for the Gamma–Poisson pair.
"""

from numbers import Integral
from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro import plate, sample

import probml
from probml.errors import listed
from probml.models.frames.measured import TIME, centre_of, from_data, scale_of, waiting_rate
from probml.models.summaries.mixtures import naive_bayes_tables


class _Prior(NamedTuple):
    alpha: ArrayLike
    centre: ArrayLike
    mean_scale: ArrayLike
    scale: ArrayLike
    shape: ArrayLike
    rate: ArrayLike

    def of(self, name: str, kind: str, size: tuple[int, ...]) -> "_Prior":
        """The prior of one feature: what is to stand in the data is a site of its own."""

        def given(word, value, sampler, *args):
            if value is not None and not isinstance(value, str):
                return value
            array = sampler(f"{name}_prior_{word}", value, *(size or (1,)), *args)
            return array if size else array[0]

        if kind == "normal":
            return self._replace(centre=given("centre", self.centre, centre_of, name),
                                 scale=given("scale", self.scale, scale_of, name))
        if kind == "exponential" and self.rate is None:
            wait = waiting_rate(f"{name}_prior_rate", self.shape, (size or (1,))[0], name)
            return self._replace(rate=wait if size else wait[0])
        rate = TIME if self.rate is None else self.rate
        return (self._replace(rate=given("rate", rate, from_data))
                if kind in ("poisson", "exponential") else self)


def _vector(distribution, size):
    return distribution.expand(size).to_event(len(size))


def _gamma(name, size, prior):
    return (sample(f"{name}_rate", _vector(dist.Gamma(prior.shape, prior.rate), size)),)


def _beta(name, size, prior):
    return (sample(f"{name}_probs", _vector(dist.Beta(prior.alpha, prior.alpha), size)),)


def _dirichlet(name, size, prior):
    """size is (states,), or (d, states)."""
    concentration = dist.Dirichlet(jnp.full(size[-1], prior.alpha))
    return (sample(f"{name}_probs", _vector(concentration, size[:-1])),)


def _gaussian(name, size, prior):
    precision = sample(f"{name}_precision", _vector(dist.Gamma(1.5, prior.scale**2 / 2), size))
    return sample(f"{name}_mean", dist.Normal(
        prior.centre, prior.mean_scale * precision**-0.5
    ).to_event(len(size))), precision


# kind -> its parameters in every class, the distribution of a row given those of its class, and the
# axes of one value
_KINDS = {
    "normal": (_gaussian, lambda mean, precision: dist.Normal(mean, precision**-0.5), 0),
    "categorical": (_dirichlet, dist.Categorical, 1),
    "bernoulli": (_beta, dist.Bernoulli, 0),
    "poisson": (_gamma, dist.Poisson, 0),
    "geometric": (_beta, dist.Geometric, 0),
    "exponential": (_gamma, dist.Exponential, 0),
    # each row has its own total
    "multinomial": (_dirichlet, lambda probs: dist.Multinomial(1, probs), 1),
}


@probml.model
def naive_bayes(
    classes: int,
    features: dict,
    target: str = "class",
    concentration=1.0,
    alpha=1.0,
    centre=None,
    mean_scale=1000.0,
    scale=None,
    shape=1.0,
    rate=None,
):
    """Features that are independent given the class, each of its own kind, each a site of its own.

    Sites: `weights` (classes,); for a feature f its parameters, (classes,) or (classes, d) for a
    vector: `f_precision` and `f_mean` (normal), `f_rate` (Poisson, exponential), `f_probs`
    (bernoulli, geometric; multinomial (classes, d); categorical (classes, states) or (classes, d,
    states)); and in every row `target` and the features. A feature is a site, so a table with a
    column per feature is data as it stands, with its labels and missing cells; many columns of one
    kind travel faster as one vector feature, {"x": ("normal", 30)}, given as an array (n, 30).

    Args:
        classes: how many classes.
        features: name -> a kind, "normal", "bernoulli", "poisson", "geometric" or "exponential";
            (kind, d) for d of them in one array; a number of states for a categorical feature,
            ("categorical", d, states) for d of them; ("multinomial", d) for a vector of d counts,
            such as the words of a text: observed completely or not at all, its total not modelled
            (simulated ones have the total 1).
        target: name of the site of the class.
        concentration: Dirichlet prior of the class weights, pseudo-rows; one number or (classes,).
        alpha: Dirichlet or Beta prior of probabilities, pseudo-rows a state; 1 is Laplace's rule at
            the posterior mean (Exact) and no smoothing at the mode (EM, MAP); 2 is Laplace's rule
            at the mode.
        centre: m, prior centre of the normal features' means, in their units; None: the mean of
            each.
        mean_scale: c, prior standard deviation of such a mean, in standard deviations of the
            feature in its class.
        scale: s > 0, standard deviation of a normal feature in a class, in its units, worth one or
            two rows; None: a tenth of that of all rows. What is None is measured on the rows that
            are fitted: see gaussian_mixture. centre, scale or rate "each" makes it sites
            `f_prior_centre`, `f_prior_scale` or `f_prior_rate`, (d,), (1,) of a feature that is no
            vector, to be given in the data: models that differ in them alone compile once.
        shape: pseudo-events of the Gamma prior of a Poisson or exponential rate.
        rate: pseudo-rows (Poisson) or pseudo-time (exponential) in which they came; None: 0.01, of
            waiting times in units of their mean, which says next to nothing.
    """
    prior = _Prior(alpha, centre, mean_scale, scale, shape, rate)
    kinds = {name: _parse(name, kind) for name, kind in features.items()}
    priors = {name: prior.of(name, kind, size) for name, (kind, size) in kinds.items()}
    weights = sample("weights", dist.Dirichlet(jnp.full(classes, concentration)))
    with plate("classes", classes):
        parameters = {name: _KINDS[kind][0](name, size, priors[name])
                      for name, (kind, size) in kinds.items()}
    with probml.rows():
        label = sample(target, dist.Categorical(weights))
        for name, (kind, size) in kinds.items():
            _, make, ndim = _KINDS[kind]
            sample(name,
                   make(*(value[label] for value in parameters[name])).to_event(len(size) - ndim))


naive_bayes.summarized(naive_bayes_tables)


def _parse(name, kind) -> tuple[str, tuple[int, ...]]:
    """(kind, shape of its parameters in one class)."""
    if isinstance(kind, Integral):
        return "categorical", (int(kind),)
    if kind in _KINDS and _KINDS[kind][2] == 0:
        return kind, ()
    if isinstance(kind, tuple | list) and kind and kind[0] in _KINDS and all(
        isinstance(size, Integral) for size in kind[1:]
    ):
        if len(kind) == (3 if kind[0] == "categorical" else 2):
            return kind[0], tuple(kind[1:])
    scalars = listed(kind for kind, (_, _, ndim) in _KINDS.items() if ndim == 0)
    raise probml.ModelError(
        f"naive_bayes: feature '{name}' is {kind!r}, expected one of {scalars}, or the number of "
        f"categories, such as 3, of a categorical feature. For d features in one array use "
        "(kind, d), ('categorical', d, states) or ('multinomial', d)"
    )
