"""Naive Bayes: p(c, x) = π_c ∏_f p(x_f | c), the features independent within a class.

    π ~ Dirichlet(a, …, a)
    a categorical feature:   x_f | c ~ Categorical(θ_c),       θ_c ~ Dirichlet(a, …, a)
    a normal feature:        x_f | c ~ N(μ_c, 1/τ_c),          τ_c ~ Gamma(3/2, s²/2),  μ_c ~ N(m, c²/τ_c)

Every block is conjugate: with the classes seen the posterior is exact, and the predictive of a row is

    (n_ci + a) / (n_c + k a)    for state i of k of a categorical feature,
    Student t                   for a normal feature, with 3 + n_c degrees of freedom.

With classes unseen in part or in full the same function is a semi-supervised classifier or a latent class model, by EM.

Sources: Murphy (2012), "Machine Learning: a Probabilistic Perspective", sections 3.5 (naive Bayes), 3.4 (Dirichlet
predictive) and 4.6.3.6 (normal–inverse-gamma and its Student t); Duda & Hart (1973) for the classifier.
"""

from numbers import Integral

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml


@probml.model
def naive_bayes(
    classes: int, features: dict, target: str = "class", concentration=1.0, alpha=1.0, centre=0.0, mean_scale=1000.0, scale=0.1
):
    """Features that are independent given the class, each of its own kind, each a site of its own.

    Sites: `weights` (classes,); for a categorical feature f `f_probs` (classes, states); for a normal one `f_precision` and
    `f_mean` (classes,), or (classes, d) for a vector; and in every row `target` and the features. A feature is a site, so a
    table with a column per feature is data as it stands, with its labels and unseen cells; many numeric columns travel
    faster as one vector feature, {"x": ("normal", 30)}, given as an array (n, 30).

    Args:
        classes: how many classes.
        features: name -> number of states of a categorical feature, "normal", or ("normal", d) for d of them in one array.
        target: name of the site of the class.
        concentration: Dirichlet prior of the class weights, pseudo-rows; one number or (classes,).
        alpha: Dirichlet prior of the categorical features, pseudo-rows a state; 1 is Laplace's rule.
        centre: m, prior centre of the normal features' means, in their units.
        mean_scale: c, prior standard deviation of such a mean, in standard deviations of the feature in its class.
        scale: s > 0, standard deviation of a normal feature in a class, in its units, worth one or two rows.
            The defaults suit spreads above about 0.03 and centres within 1000 spreads of 0: see gaussian_mixture.
    """
    parameters = {}
    weights = sample("weights", dist.Dirichlet(jnp.full(classes, concentration)))
    with plate("classes", classes):
        for name, kind in features.items():
            if isinstance(kind, Integral):
                parameters[name] = (sample(f"{name}_probs", dist.Dirichlet(jnp.full(kind, alpha))),)
                continue
            size = _size(name, kind)
            precision = sample(f"{name}_precision", dist.Gamma(1.5, scale**2 / 2).expand(size).to_event(len(size)))
            mean = sample(f"{name}_mean", dist.Normal(centre, mean_scale * precision**-0.5).to_event(len(size)))
            parameters[name] = mean, precision
    with probml.rows():
        label = sample(target, dist.Categorical(weights))
        for name, values in parameters.items():
            if len(values) == 1:
                sample(name, dist.Categorical(values[0][label]))
            else:
                mean, precision = values[0][label], values[1][label]
                sample(name, dist.Normal(mean, precision**-0.5).to_event(mean.ndim - label.ndim))


def _size(name, kind) -> tuple[int, ...]:
    """The event shape of a normal feature."""
    if kind == "normal":
        return ()
    if isinstance(kind, tuple | list) and len(kind) == 2 and kind[0] == "normal" and isinstance(kind[1], Integral):
        return (kind[1],)
    raise probml.ModelError(
        f"naive_bayes: feature '{name}' is {kind!r}: expected a number of states (categorical), 'normal', "
        "or ('normal', d) for d of them in one array"
    )
