"""A Gaussian mixture in each of several classes: p(c, x) = π_c Σ_j ω_cj N(x | μ_cj, Σ_cj).

    π ~ Dirichlet(a, …, a),  ω_c ~ Dirichlet(a, …, a),  Σ_cj and μ_cj as in gaussian_mixture

With the classes seen and the components unseen it is a classifier whose classes may have several
modes, fitted by EM; with one component a class it is Gaussian discriminant analysis.

Sources: Hastie & Tibshirani (1996), "Discriminant analysis by Gaussian mixtures"; Fraley & Raftery
(2002), "Model-based clustering, discriminant analysis, and density estimation" (MclustDA).
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.models.frames.measured import centre_of, scale_of
from probml.models.mixtures.gaussian_mixture import shapes
from probml.models.summaries.mixtures import nested_tables


@probml.model
def mixture_of_mixtures(
    classes: int, k: int, d: int, covariance: str = "full", concentration=1.0, centre=None,
    mean_scale=1000.0, scale=None
):
    """k normal components in each of several classes, in d dimensions.

    Sites: `weights` (classes,), `shares` (classes, k) of the components, `precision` (classes, k,
    ...) as in gaussian_mixture or (...) if tied, `mean` (classes, k, d); and in every row `class`,
    `z`, the component in the class, and `x` (d,).

    Args:
        classes: how many classes.
        k: components of each.
        d: features.
        covariance, concentration, centre, mean_scale, scale: as in gaussian_mixture;
            `concentration` is that of the classes and of the components in a class.
    """
    tied, prior, normal = shapes(covariance, "mixture_of_mixtures")
    centre, scale = centre_of("prior_centre", centre, d), scale_of("prior_scale", scale, d)
    weights = sample("weights", dist.Dirichlet(jnp.full(classes, concentration)))
    outer, inner = plate("class_plate", classes, dim=-2), plate("component", k, dim=-1)
    with plate("classes", classes):
        shares = sample("shares", dist.Dirichlet(jnp.full(k, concentration)))
    if tied:
        precision = sample("precision", prior(scale))
    with outer, inner:
        if not tied:
            precision = sample("precision", prior(scale))
        mean = sample("mean", normal(centre, precision / mean_scale**2))
    with probml.rows():
        label = sample("class", dist.Categorical(weights))
        z = sample("z", dist.Categorical(shares[label]))
        sample("x", normal(mean[label, z], precision if tied else precision[label, z]))


mixture_of_mixtures.summarized(nested_tables)
