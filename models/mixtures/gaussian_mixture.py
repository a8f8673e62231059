"""Gaussian mixtures: p(x) = Σ_j π_j N(x | μ_j, Σ_j).

The prior is conjugate and proper; by default its centre m and its scale s are measured on the rows:

    π ~ Dirichlet(a, …, a)
    P_j ~ Wishart(d + 2, s²I)     precision, the inverse of Σ_j; each Σ_j has prior mean diag(s²)
    μ_j ~ N(m, c² Σ_j)

so that seen labels give the exact posterior and unseen ones a closed-form M-step. For full and
diagonal covariances

    Σ_j = (S_j + s²I + …) / (n_j + 2),   S_j the scatter of component j and n_j its (expected) rows,

where the dots are m's pull on the mean, of the order of (μ_j − m)²/c².

Why the precision: a mode depends on the coordinate. In the covariance the same prior puts n_j + 2d
+ 4 in the denominator and rewards a component that shrinks onto a few rows with d + 2 nats per unit
of −log|Σ|; in the precision the reward is 1 nat, whatever d. The density vanishes at zero scale, so
that no component can collapse, yet s may lie far below the scale of the data without harm.

Sources: Fraley & Raftery (2007), "Bayesian regularization for normal mixture estimation and
model-based clustering", for the prior; Murphy (2012), "Machine Learning: a Probabilistic
Perspective", sections 4.6.3 and 11.4, for the updates.
"""

import contextlib

import numpy as np
import numpyro.distributions as dist
from numpyro import plate, sample

import probml
from probml.models.frames.covariances import canonical
from probml.models.frames.measured import centre_of, scale_of
from probml.models.mixtures.weights import weights_prior
from probml.models.summaries.mixtures import gaussian_tables


def _diagonal(mean, precision):
    return dist.Normal(mean, precision**-0.5).to_event(1)


# covariance -> its precision's prior, given the scales s of shape (d,), and the distribution of a
# row
_SHAPES = {
    "full": (
        lambda s: dist.Wishart(len(s) + 2.0, scale_tril=np.eye(len(s)) / s),
        lambda mean, precision: dist.MultivariateNormal(mean, precision_matrix=precision),
    ),
    "diagonal": (lambda s: dist.Gamma(1.5, s**2 / 2).to_event(1), _diagonal),
    "spherical": (lambda s: dist.Gamma(1.5, (s**2).mean() / 2),
                  lambda mean, precision: _diagonal(mean, precision[..., None])),
}


def shapes(covariance: str, model: str):
    """(one matrix for all components?, the prior of a precision given scales (d,), the distribution
    of a row) of a shape by name.

    Raises:
        ModelError: an unknown shape.
    """
    name = canonical(covariance)
    tied, shape = name.startswith("tied"), name.removeprefix("tied").strip() or "full"
    if shape not in _SHAPES:
        raise probml.ModelError(
            f"{model}(covariance={covariance!r}): expected 'full', 'diagonal' or 'spherical', or, "
            f"for one matrix that all components share, 'tied', 'tied diagonal' or 'tied spherical'"
        )
    return tied, *_SHAPES[shape]


@probml.model
def gaussian_mixture(k: int, d: int, covariance: str = "full", concentration=1.0, centre=None,
                     mean_scale=1000.0, scale=None, weights: str = "even"):
    """k normal components in d dimensions: z ~ Categorical(π), x | z = j ~ N(μ_j, Σ_j).

    Sites: `weights` (k,); `precision`, the inverse of Σ_j: (k, d, d) full, (k, d) diagonal, (k,)
    spherical, without the k if tied; `mean` (k, d); and in every row `z`, the component, and `x`
    (d,). With `z` observed this is Gaussian discriminant analysis, fitted exactly; with `z`
    partially observed it is semi-supervised.

    By default centre and scale are measured on the rows that are fitted, as sites `prior_centre`
    and `prior_scale` (d,), so that no unit and no zero of measurement matters; where none are, as
    in simulate(), they are 0 and 0.1. A missing cell of x is exact in the diagonal and spherical
    shapes.

    Args:
        k: components.
        d: features.
        covariance: "full", "diagonal" or "spherical" for each component; "tied", "tied diagonal" or
            "tied spherical" for one shared by all (mclust's VVV, VVI, VII, EEE, EEI, EII).
        concentration: a of the Dirichlet prior of the weights, pseudo-rows; one number or (k,). 1
            is uniform.
        centre: m, prior centre of the means, in the data's units; one number or (d,); None: the
            mean of each column. "each" makes it a site `prior_centre` (d,), to be given in the
            data: models that differ in it alone compile once.
        mean_scale: c, prior standard deviation of a mean, in standard deviations of its component.
        scale: s > 0, standard deviation inside a component, in the data's units; one number or
            (d,); None: a tenth of each column's. It is worth one or two rows, so that a guess far
            too low does no harm and one far too high blurs. "each": a site `prior_scale` (d,).
        weights: "even"; "sparse", a Dirichlet of concentration a/k, or "sticks", a Dirichlet
            process of concentration a cut at k: with VB they empty the components that the rows do
            not ask for, and k is then only the most there can be.
    """
    tied, prior, normal = shapes(covariance, "gaussian_mixture")
    centre, scale = centre_of("prior_centre", centre, d), scale_of("prior_scale", scale, d)
    share = sample("weights", weights_prior(weights, concentration, k, "gaussian_mixture"))
    component = plate("component", k)
    with contextlib.nullcontext() if tied else component:
        precision = sample("precision", prior(scale))
    with component:
        mean = sample("mean", normal(centre, precision / mean_scale**2))
    with probml.rows():
        z = sample("z", dist.Categorical(share))
        sample("x", normal(mean[z], precision if tied else precision[z]))


gaussian_mixture.summarized(gaussian_tables)
